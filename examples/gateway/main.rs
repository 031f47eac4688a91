//! A gateway.
mod recording;
mod replay;
mod signals;

use std::process::ExitCode;

use clap::Parser as _;

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    replay::run(replay::ReplayArgs::parse_from(std::env::args_os().skip(1))).await
}
