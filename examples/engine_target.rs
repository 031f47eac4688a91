//! A program that logs its engine's lines through `tracing` already: it only names the target of those events.
//!
//! `cargo run --example engine_target`

use std::time::Duration;

use serving_sentinel::{Lane, LaneConfig, Plan, SentinelLayer};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt;
use tracing_subscriber::prelude::*;

fn main() {
    // The program's log shows warnings. A filter of that layer alone leaves the sentinel's sight as it is.
    let log = fmt::layer().with_filter(Targets::new().with_default(tracing::Level::WARN));
    let sentinel = SentinelLayer::builder().engine_target("my_app::engine").build();
    tracing_subscriber::registry().with(log).with(sentinel).init();

    let lane = Lane::open(LaneConfig::new("chat-0").with_plan(Plan::GPU));
    // What such a program does for each line. Where it stands in the span of a request, `lane` can be left out.
    for line in [
        "load_tensors: offloaded 0/19 layers to GPU",
        "load_tensors:   CPU_Mapped model buffer size =   235.16 MiB",
        "srv  llama_server: model loaded",
    ] {
        tracing::info!(target: "my_app::engine", lane = "chat-0", line);
    }
    lane.flush(Duration::from_secs(1));
}
