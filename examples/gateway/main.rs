//! A gateway as people write them: it starts an inference engine, waits for it, passes an OpenAI-compatible API on to
//! it, and shows where the engine really put the model and how fast it really decodes.
//!
//! `cargo run --example gateway` needs nothing but Rust: it plays recorded runs of a real llama-server.
//! `cargo run --example gateway -- llama-server -m model.gguf` serves a real one. `--help` has the rest.

mod cli;
mod demo;
mod engine;
mod http;
mod observe;
mod proxy;
mod read_back;
mod recording;
mod replay;
mod screen;
mod serve;
mod signals;
mod table;
mod telemetry;
mod trace;

use std::process::ExitCode;

use clap::Parser as _;

use crate::cli::Cli;
use crate::replay::ReplayArgs;
use crate::screen::Screen;

/// The first argument that makes this program the embedded engine.
const REPLAY: &str = "__replay";

/// Wrong use, or something is missing.
const FAILED: u8 = 2;

#[tokio::main]
async fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let outcome = match arguments.first() {
        Some(first) if first == REPLAY => replay::run(ReplayArgs::parse_from(arguments)).await,
        _ => gateway(Cli::parse()).await,
    };
    outcome.unwrap_or_else(|error| {
        #[expect(clippy::print_stderr, reason = "the one place where errors are told")]
        {
            eprintln!("gateway: {error:#}");
        }
        ExitCode::from(FAILED)
    })
}

async fn gateway(cli: Cli) -> anyhow::Result<ExitCode> {
    let screen = Screen::new();
    let real = cli.engine()?;
    // Sends what is left when it goes out of scope, after the engines have ended.
    let _telemetry = telemetry::install(&screen)?;
    match real {
        Some(engine) => serve::run(&cli, engine, &screen).await,
        None => demo::run(&cli, &screen).await,
    }
}
