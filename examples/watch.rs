//! Starts an engine and reads what it prints. Alarms go to stderr.
//!
//! `cargo run --example watch -- llama-server -m model.gguf`

use std::process::Stdio;
use std::time::Duration;

use anyhow::Context as _;
use serving_sentinel::output::launch;
use serving_sentinel::{Lane, LaneConfig, Plan, SentinelLayer};
use tokio::process::Command;
use tracing_subscriber::prelude::*;
use tracing_subscriber::{EnvFilter, fmt};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    // The engine's lines are events too (target `serving_sentinel::engine`): here they are left out of the log.
    let filter = EnvFilter::new("warn,serving_sentinel=info,serving_sentinel::engine=off");
    tracing_subscriber::registry()
        .with(fmt::layer().with_writer(std::io::stderr).with_filter(filter))
        .with(SentinelLayer::default())
        .init();

    let mut arguments = std::env::args_os().skip(1);
    let program =
        arguments.next().context("name an engine, such as: llama-server -m model.gguf")?;
    let mut engine = Command::new(program);
    engine.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    // A llama-server that would not print where it puts the model is told to.
    launch::prepare(&mut engine).await?;

    let lane = Lane::open(LaneConfig::new("chat-0").with_plan(Plan::ALL_ON_GPU));
    let mut engine = engine.spawn()?;
    let reading = tokio::spawn(lane.watch(engine.stdout.take(), engine.stderr.take()));

    let status = engine.wait().await?;
    let summary = reading.await?;
    tracing::warn!(lines = summary.lines, "the engine ended: {status}");
    lane.ended(&status.to_string());
    lane.flush(Duration::from_secs(1));
    Ok(())
}
