//! What a lane has to tell: findings, and the facts they carry.
//!
//! A finding is plain data. How it becomes a span event, an alarm or a metric is `telemetry`'s business.

use std::sync::Arc;
use std::time::Instant;

use crate::alarm::Transition;
use crate::evidence::Cause;
use crate::placement::{Basis, PlacementVerdict, Plan};
use crate::throughput::{RateJudgement, TimingSource, Timings, TokensPerSecond};

/// A standing fault someone must know of. Each has a name of its own in the telemetry contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum AlarmKind {
    /// A GPU was planned, and no weights are on one.
    CpuFallback,
    /// A smaller share on accelerators than the plan's minimum.
    Partial,
    /// The engine became ready and said nothing from which placement could be judged.
    Unreported,
    /// A decode rate under the floor.
    Degraded,
    /// No progress past the budget, or an impossible one.
    Wedged,
    /// Loading failed.
    LoadFailed,
    /// The engine calls itself a debug build.
    DebugBuild,
    /// The sentinel itself cannot see.
    Blind,
}

impl AlarmKind {
    /// Every kind.
    pub const ALL: [Self; 8] = [
        Self::CpuFallback,
        Self::Partial,
        Self::Unreported,
        Self::Degraded,
        Self::Wedged,
        Self::LoadFailed,
        Self::DebugBuild,
        Self::Blind,
    ];
}

/// Why the sentinel cannot see: `serving.blind.cause`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum BlindCause {
    /// A filter keeps engine events from the layer.
    EventsFiltered,
    /// A filter keeps request spans from existing.
    SpansFiltered,
    /// No `SentinelLayer` is in the subscriber that the lane reports to.
    LayerNotInstalled,
    /// The engine's output closed while the engine lives.
    OutputClosed,
    /// The engine is ready and not one line of it was seen.
    NoOutput,
    /// Lines were seen, and none is of an engine we know.
    UnknownEngine,
    /// No meter provider collects our metrics.
    NoMeterProvider,
    /// The collector does not take what is exported.
    CollectorUnreachable,
    /// More lanes than the metrics have room for.
    TooManyLanes,
    /// The engine's endpoints were to be asked, and do not answer in a form that is known.
    ReadbackFailed,
}

impl BlindCause {
    /// The value of `serving.blind.cause`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::EventsFiltered => "events_filtered",
            Self::SpansFiltered => "spans_filtered",
            Self::LayerNotInstalled => "layer_not_installed",
            Self::OutputClosed => "output_closed",
            Self::NoOutput => "no_output",
            Self::UnknownEngine => "unknown_engine",
            Self::NoMeterProvider => "no_meter_provider",
            Self::CollectorUnreachable => "collector_unreachable",
            Self::TooManyLanes => "too_many_lanes",
            Self::ReadbackFailed => "readback_failed",
        }
    }

    /// What to do about it, one sentence: the value of `serving.advice`.
    pub const fn advice(self) -> &'static str {
        match self {
            Self::EventsFiltered => {
                "let events of the engine's target pass the log filter at the level they are logged at, or give the \
                 layer that hides them a per-layer filter"
            }
            Self::SpansFiltered => {
                "let spans of target `serving_sentinel` pass the log filter, for instance with \
                 RUST_LOG=serving_sentinel=error added to it"
            }
            Self::LayerNotInstalled => {
                "add `.with(SentinelLayer::default())` to the subscriber of this program"
            }
            Self::OutputClosed => {
                "keep the engine's stderr and stdout open to the sentinel as long as the engine runs"
            }
            Self::NoOutput => "give the sentinel the engine's stderr and stdout, both of them",
            Self::UnknownEngine => {
                "check that the watched output is the inference engine's own; an engine not known yet needs a \
                 recogniser file"
            }
            Self::NoMeterProvider => {
                "set a global meter provider with a reader, or hand one to the layer's builder"
            }
            Self::CollectorUnreachable => {
                "start the collector, or correct OTEL_EXPORTER_OTLP_ENDPOINT and OTEL_EXPORTER_OTLP_PROTOCOL"
            }
            Self::TooManyLanes => "raise `max_lanes`, or close lanes that are no longer used",
            Self::ReadbackFailed => {
                "check the address that the readback was given, its API key, and that the engine offers what it is \
                 asked for"
            }
        }
    }

    /// The advice, with what exactly cannot be seen.
    pub(crate) fn advice_on(self, detail: Option<&str>) -> String {
        match detail {
            Some(detail) => format!("{} ({detail})", self.advice()),
            None => self.advice().to_owned(),
        }
    }
}

/// One loading of one model into one lane: counts up from 1 within the lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LoadId(pub u64);

/// One request on one lane: counts up from 1 within the lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(pub u64);

/// The facts a finding carries: the attributes of the telemetry contract, those that are known.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Facts {
    /// `serving.engine.name`.
    pub engine: Option<Arc<str>>,
    /// `gen_ai.request.model`, as configured.
    pub model: Option<Arc<str>>,
    /// `serving.placement.plan` and, where it states one, `serving.placement.minimum_share`.
    pub plan: Option<Plan>,
    /// `serving.placement.verdict`.
    pub verdict: Option<PlacementVerdict>,
    /// `serving.placement.basis`.
    pub basis: Option<Basis>,
    /// `serving.placement.contradicted`.
    pub contradicted: Option<String>,
    /// `serving.placement.layers.offloaded` and `.total`.
    pub layers: Option<(u32, u32)>,
    /// `serving.placement.bytes.accelerator`.
    pub bytes_accelerator: Option<u64>,
    /// `serving.placement.bytes.host`.
    pub bytes_host: Option<u64>,
    /// `serving.causes`; its first is `serving.cause`.
    pub causes: Vec<Cause>,
    /// `serving.cause_detail`: at most 256 bytes, control characters escaped.
    pub cause_detail: Option<String>,
    /// `serving.advice`.
    pub advice: Option<String>,
    /// `serving.decode.rate`, tokens/s.
    pub decode_rate: Option<f64>,
    /// `serving.decode.expected_rate`, tokens/s.
    pub expected_rate: Option<f64>,
    /// `serving.decode.ratio`.
    pub ratio: Option<f64>,
    /// `serving.decode.tokens`.
    pub tokens: Option<u64>,
    /// `serving.expectation.source`.
    pub expectation_source: Option<Arc<str>>,
    /// `serving.requests.in_flight`.
    pub in_flight: Option<u32>,
    /// `serving.timing.source`.
    pub timing_source: Option<TimingSource>,
    /// `serving.suspects`: standing facts that can explain a degraded rate, most likely first.
    pub suspects: Vec<&'static str>,
    /// `serving.blind.cause`.
    pub blind: Option<BlindCause>,
    /// `serving.slot`: the slot that is wedged.
    pub slot: Option<u32>,
}

/// One thing to tell.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Finding {
    /// A load begins: its span starts. Loads of draft models and projectors are not told apart from the main one's.
    LoadStarted {
        /// Which load.
        load: LoadId,
        /// When.
        at: Instant,
    },
    /// A load has its verdict: its span gets the event for it, where there is one, and ends.
    ///
    /// A second verdict on one load (`again`) is a new span, linked to the first.
    Judged {
        /// Which load.
        load: LoadId,
        /// Whether the same load was judged before and now differs.
        again: bool,
        /// Whether the plan is broken. A load of no plan that told nothing breaks none, and has its event all the same.
        violates: bool,
        /// The span event, where the verdict has one: a fault, or a recovery.
        event: Option<SpanEvent>,
        /// The verdict's facts.
        facts: Box<Facts>,
    },
    /// A load ended without a verdict: it failed, or the engine ended before it was ready. Its span gets the event,
    /// the error status, and ends.
    LoadFailed {
        /// Which load.
        load: LoadId,
        /// What is known.
        facts: Box<Facts>,
    },
    /// A load or request shows something beside its verdict: a debug build, a wedge.
    Noted {
        /// On which span.
        on: Subject,
        /// What.
        event: SpanEvent,
        /// What is known.
        facts: Box<Facts>,
    },
    /// A rate known from the engine's log alone, no request of ours having claimed it.
    LoggedRate {
        /// What was read.
        timings: Box<Timings>,
        /// What is made of it.
        judgement: RateJudgement,
        /// What is known of it and its lane.
        facts: Box<Facts>,
    },
    /// What all running requests decoded together in an interval, from the engine's log or its counters; by
    /// llama-server's counters, the mean of the requests that ended in it. It is no request: it counts among the rates,
    /// under its own source, and not among the judged requests.
    IntervalRate {
        /// Tokens/s of all requests together, or their mean.
        rate: TokensPerSecond,
        /// Requests that ran at its end.
        running: u32,
        /// What is made of one request's share; `None` for an interval that cannot be judged: it starts or ends idle,
        /// nobody said what to expect, or requests of ours tell it better.
        judgement: Option<RateJudgement>,
        /// What is known of its lane.
        facts: Box<Facts>,
    },
    /// An alarm is raised, renewed or cleared.
    Alarm {
        /// Which.
        kind: AlarmKind,
        /// What happened to it.
        transition: Transition,
        /// On which load or request it rests, for the trace id of its log record.
        on: Option<Subject>,
        /// What is known.
        facts: Box<Facts>,
    },
}

/// What a finding is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Subject {
    /// A load of the lane.
    Load(LoadId),
    /// A request on the lane.
    Request(RequestId),
}

/// A span event of the telemetry contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SpanEvent {
    /// A fault, under the name of its alarm.
    Fault(AlarmKind),
    /// `serving.placement.recovered`.
    PlacementRecovered,
    /// `serving.throughput.recovered`.
    ThroughputRecovered,
}
