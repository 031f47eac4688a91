//! Starts an engine, reads what it prints, and says when it answers. Alarms go to stderr.
//!
//! `cargo run --example watch -- --health 127.0.0.1:8080 llama-server -m model.gguf`

use std::process::Stdio;
use std::time::Duration;

use anyhow::Context as _;
use serving_sentinel::output::launch;
use serving_sentinel::{Lane, LaneConfig, Plan, SentinelLayer};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tracing_subscriber::{EnvFilter, fmt, prelude::*};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    // The engine's lines are events too (target `serving_sentinel::engine`): here they are left out of the log.
    let filter = EnvFilter::new("warn,serving_sentinel=info,serving_sentinel::engine=off");
    let log = fmt::layer().with_writer(std::io::stderr).with_filter(filter);
    tracing_subscriber::registry().with(log).with(SentinelLayer::default()).init();

    let mut words = std::env::args().skip(1).peekable();
    let health = words.next_if(|word| word == "--health").and_then(|_| words.next());
    let program = words.next().context("name an engine, such as: llama-server -m model.gguf")?;
    let mut engine = tokio::process::Command::new(program);
    engine.args(words).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    // A llama-server that would not print where it puts the model is told to.
    launch::prepare(&mut engine).await?;

    let lane = Lane::open(LaneConfig::new("chat-0").with_plan(Plan::ALL_ON_GPU));
    let mut engine = engine.spawn()?;
    let reading = tokio::spawn(lane.watch(engine.stdout.take(), engine.stderr.take()));
    // Without this, an engine that prints no word of its readiness is not judged before its first timed request.
    let answering = health.map(|address| tokio::spawn(say_ready(lane.clone(), address)));

    let status = engine.wait().await?;
    answering.inspect(tokio::task::JoinHandle::abort);
    // A grandchild of ours may hold the engine's pipes open.
    let _ = tokio::time::timeout(Duration::from_secs(5), reading).await;
    tracing::warn!("the engine ended: {status}");
    lane.ended(&status.to_string());
    lane.flush(Duration::from_secs(1));
    Ok(())
}

/// Asks `GET /health` until it answers 200. A program does it with the HTTP client that it has.
async fn say_ready(lane: Lane, address: String) {
    while !is_healthy(&address).await.unwrap_or(false) {
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    lane.ready();
}

async fn is_healthy(address: &str) -> std::io::Result<bool> {
    let mut engine = tokio::net::TcpStream::connect(address).await?;
    engine.write_all(b"GET /health HTTP/1.0\r\n\r\n").await?;
    let mut status = [0; 12]; // `HTTP/1.1 200`
    engine.read_exact(&mut status).await?;
    Ok(status.ends_with(b" 200"))
}
