//! Exports over OTLP as the standard `OTEL_*` variables say: a trace, an alarm as log record, metrics.
//!
//! `OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318 cargo run --example export`; without a collector there, it says
//! so and ends all the same.

use serving_sentinel::{Lane, LaneConfig, Otlp, Plan, SentinelLayer, SpanExt, Timings};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt;
use tracing_subscriber::prelude::*;

const ANSWER: &[u8] = br#"{"timings": {"predicted_n": 48, "predicted_per_second": 9.7}}"#;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Kept to the end of `main`: its drop sends what is left, for at most five seconds.
    let otlp = Otlp::from_env()?;
    tracing_subscriber::registry()
        .with(fmt::layer().with_filter(LevelFilter::WARN))
        .with(otlp.layer())
        .with(SentinelLayer::default())
        .init();

    let lane = LaneConfig::new("chat-0").with_model("gemma-3-270m").with_plan(Plan::GPU);
    let lane = Lane::open(lane.with_expected_rate(220.0, "measured 2026-06, one stream")?);
    lane.observe_line(b"load_tensors:   CPU_Mapped model buffer size =   235.16 MiB");
    lane.observe_line(b"srv  llama_server: model loaded");

    let request = lane.request_span("chat");
    request.record_timings(&Timings::from_response(ANSWER)?);
    Ok(())
}
