//! Judges the decode rate of two answers against a catalogue, by a policy of its own: a whole one and a streamed one.
//!
//! `cargo run --example judge_answer`

use std::time::{Duration, Instant};

use serving_sentinel::{
    Catalog, Lane, LaneConfig, Policy, RateVerdict, SentinelLayer, SpanExt, StreamTimings,
    ThroughputPolicy, Timings,
};
use tracing_subscriber::prelude::*;

/// A program reads this from a file of its operator's.
const CATALOG: &str = r#"
[[row]]
model = "gemma-3-270m*"
tokens_per_second = 220
source = "measured 2026-06, one stream"
"#;

const ANSWER: &[u8] = br#"{"timings": {"predicted_n": 48, "predicted_per_second": 205.3}}"#;

#[expect(clippy::print_stdout, reason = "an example shows what it found")]
#[expect(clippy::disallowed_methods, reason = "who sends a request holds the clock")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut policy = Policy::default();
    policy.throughput = ThroughputPolicy::default().with_floor(0.5)?;
    let sentinel = SentinelLayer::builder()
        .catalog(Catalog::parse("rates.toml", CATALOG)?)
        .policy(policy)
        .build();
    tracing_subscriber::registry().with(sentinel).init();
    let lane = Lane::open(LaneConfig::new("chat-0").with_model("gemma-3-270m-it"));

    let request = lane.request_span("chat");
    let verdict = request.record_timings(&Timings::from_response(ANSWER)?);
    println!("whole:    {}", verdict.map_or("not watched", RateVerdict::as_str));

    // 25 pieces, one every 10 ms: this stream states its tokens and no rate, so the client's clock has to do.
    let request = lane.request_span("chat");
    let mut now = Instant::now();
    let mut stream = StreamTimings::begin(now);
    for _ in 0..25 {
        now += Duration::from_millis(10);
        if stream.push(b"data: {\"choices\":[{\"delta\":{\"content\":\"Hi\"}}]}\n\n", now) {
            request.record_progress();
        }
    }
    stream.push(b"data: {\"choices\":[],\"usage\":{\"completion_tokens\":25}}\n\n", now);
    let verdict = request.record_timings(&stream.finish(now)?);
    println!("streamed: {}", verdict.map_or("not watched", RateVerdict::as_str));
    Ok(())
}
