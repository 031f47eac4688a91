//! Tells the truth about self-hosted LLM inference: where the engine really put the model, and how fast it really
//! decodes.
//!
//! An engine that finds no GPU mostly starts all the same, answers its health check with 200, and serves from the CPU.
//! What it then says of itself can be nothing, or wrong. This crate reads the engine's own output and the timings in
//! its responses, holds them against what was meant, and says where the two differ: on the trace of the request, in
//! the log, and in metrics.
//!
//! ```text
//!    plan ("this lane runs on the GPU")           catalogue ("this model does 220 tokens/s here")
//!       |                                            |
//!       v                                            v
//!   placement verdict                            decode verdict
//!       ^                                            ^
//!       |                                            |
//!   what the engine prints                       timings of each response
//!                   \                            /
//!                    v                          v
//!               span events, alarms, metrics  --- OTLP --->  your collector
//! ```
//!
//! # Three laws
//!
//! 1. **Evidence, not claims.** A verdict rests on the strongest evidence there is, says on which, and names the claim
//!    that it refutes: an engine's banner says `offloaded 19/19 layers to GPU` without any GPU.
//! 2. **Blind is not healthy.** What nobody told is `unreported` or `no_expectation`, never fine; and a sentinel that
//!    cannot see says so, with the remedy.
//! 3. **Report, never act.** Nothing is restarted, and no engine ever waits. Only parsed facts leave: no prompt, no
//!    completion, and of an engine's lines the words of a fault alone (`serving.cause_detail`, at most 256 bytes).
//!
//! # Example
//!
//! ```
//! use serving_sentinel::{Lane, LaneConfig, PlacementVerdict, Plan, SentinelLayer, SpanExt, Timings};
//! use tracing_subscriber::prelude::*;
//!
//! tracing_subscriber::registry()
//!     .with(tracing_subscriber::fmt::layer())
//!     .with(SentinelLayer::default())
//!     .init();
//!
//! let lane = LaneConfig::new("chat-0")
//!     .with_model("gemma-3-270m")
//!     .with_plan(Plan::ALL_ON_GPU)
//!     .with_expected_rate(220.0, "measured 2026-06, one stream")?;
//! let lane = Lane::open(lane);
//!
//! // An engine's lines. With the feature `output`, `lane.watch(stdout, stderr)` reads them.
//! lane.observe_line(b"load_tensors: offloaded 19/19 layers to GPU");
//! lane.observe_line(b"load_tensors:   CPU_Mapped model buffer size =   235.16 MiB");
//! lane.observe_line(b"srv  llama_server: model loaded");
//! let placement = lane.snapshot().and_then(|lane| lane.placement).expect("the model is loaded");
//! assert_eq!(placement.verdict, PlacementVerdict::CpuFallback);
//! assert_eq!(placement.contradicted.as_deref(), Some("banner 19/19"));
//!
//! // A request, and the engine's response to it.
//! let request = lane.request_span("chat");
//! let response = br#"{"timings": {"predicted_n": 48, "predicted_per_second": 9.7}}"#;
//! let verdict = request.record_timings(&Timings::from_response(response)?);
//! assert_eq!(verdict.map(|verdict| verdict.as_str()), Some("degraded"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Where to look
//!
//! | for | see |
//! | --- | --- |
//! | the layer, lanes, and the spans of requests | [`SentinelLayer`], [`Lane`], [`SpanExt`] |
//! | a child's output | the module `output` |
//! | what an answer states about itself | [`Timings::from_response`], [`StreamTimings`] |
//! | expected rates | [`Catalog`], [`LaneConfig::with_expected_rate`] |
//! | every threshold | [`Policy`] |
//! | every name that leaves | [`telemetry::names`] |
//! | export over OTLP | the module `otlp` |
//! | what an engine's own endpoints answer | the module `readback` |
//! | a log file, without any `tracing` | [`observer::Observer`] |
//! | the formats of engines, and your own | [`engines::Matcher`] |
//!
//! # Features
//!
//! | feature | default | what it adds | what it brings |
//! | --- | --- | --- | --- |
//! | `otlp` | yes | one call that sets up traces, metrics and logs from the `OTEL_*` variables | the OpenTelemetry SDK and OTLP exporters, hyper, tonic, rustls, tokio |
//! | `output` | yes | the reader of a child's stdout and stderr, and what makes a llama-server say where the model is | tokio |
//! | `readback` | no | asks an engine's own endpoints: Ollama's `/api/ps` for placement, llama-server's and vLLM's for progress and rates | hyper, tokio |
//!
//! Without them, the layer, the lanes, the timings and the core are there.
//!
//! # Supported Rust
//!
//! Rust 1.88 and later, edition 2024. 1.88 is what the dependencies ask for. A later minimum comes with a minor
//! release, and the changelog says so.
//!
//! # What this crate does not do
//!
//! - It does not act: no restart, no routing, no limit.
//! - It does not benchmark: it judges the requests that there are, and learns no rate from them.
//! - It does not ask the system or the driver, nor, unless told to (feature `readback`), the engine's endpoints: it
//!   knows what the engine prints and answers.
//! - It does not supervise: an engine that ends after it was ready is the end of its lane's alarms, and no fault.
//! - It does not judge before the engine answers, by its own line, by [`Lane::ready`], or by a request with timings.
//! - It does not know every engine: placement is read from the output of llama.cpp (2023 to 2026), of Ollama and others
//!   of its kin, of what runs these (llama-swap, LM Studio, `LocalAI`, Jan), and, as far as they tell it, of vLLM,
//!   `SGLang`, TGI, mistral.rs and some more: the README lists them. A file of your own adds others
//!   ([`engines::Matcher::with_file`]).
//! - It was not run on anything but Linux, nor with any engine but llama-server: other formats are from public reports
//!   and sources.

pub mod alarm;
pub mod catalog;
pub mod engines;
pub mod evidence;
pub mod lane;
pub mod layer;
pub mod observer;
#[cfg(feature = "otlp")]
pub mod otlp;
#[cfg(feature = "output")]
pub mod output;
pub mod placement;
#[cfg(feature = "readback")]
pub mod readback;
pub mod span_ext;
pub mod telemetry;
pub mod throughput;
pub mod timings;
pub mod wedge;

// What most programs need. The rest is in its module.
#[doc(inline)]
pub use crate::{
    alarm::AlarmPolicy,
    catalog::Catalog,
    evidence::Cause,
    lane::{AlarmKind, BlindCause, LaneConfig, Policy},
    layer::{Lane, LaneSnapshot, SentinelLayer, SentinelLayerBuilder, flush},
    placement::{Placement, PlacementPolicy, PlacementVerdict, Plan},
    span_ext::SpanExt,
    throughput::{Expectation, RateVerdict, ThroughputPolicy, Timings},
    timings::StreamTimings,
    wedge::WedgePolicy,
};

#[cfg(feature = "otlp")]
#[doc(inline)]
pub use crate::otlp::Otlp;

#[cfg(feature = "output")]
#[doc(inline)]
pub use crate::output::{LogFile, OutputReader};

#[cfg(feature = "readback")]
#[doc(inline)]
pub use crate::readback::ReadBack;

/// The README's code is compiled; what needs no engine and no file is run.
#[cfg(all(doctest, feature = "otlp", feature = "output"))]
#[doc = include_str!("../README.md")]
struct Readme;
