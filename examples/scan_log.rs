//! Reads an engine's log after the fact: where each load put the model, and how fast requests decoded. No `tracing`.
//!
//! `cargo run --example scan_log -- engine.log`; without a file it reads a recorded one.

use std::time::Instant;

use anyhow::Context as _;
use serving_sentinel::engines::Matcher;
use serving_sentinel::lane::Finding;
use serving_sentinel::observer::Observer;
use serving_sentinel::{LaneConfig, Plan, Policy};

const RECORDED: &str = "tests/fixtures/recordings/llama-server-no-gpu-banner-lies.stderr.log";

#[expect(clippy::print_stdout, reason = "an example shows what it found")]
#[expect(clippy::disallowed_methods, reason = "the log is read at some time")]
fn main() -> anyhow::Result<()> {
    let file = std::env::args().nth(1);
    let file = file.unwrap_or_else(|| format!("{}/{RECORDED}", env!("CARGO_MANIFEST_DIR")));
    let log = std::fs::read(&file).with_context(|| format!("cannot read {file}"))?;

    let lane = LaneConfig::new("scanned").with_plan(Plan::ALL_ON_GPU);
    let mut observer = Observer::new(lane, Policy::default(), Matcher::builtin());
    let (mut found, now) = (Vec::new(), Instant::now());
    for line in log.split(|byte| *byte == b'\n') {
        observer.line(line.strip_suffix(b"\r").unwrap_or(line), now, &mut found);
    }
    observer.conclude(now, &mut found);

    anyhow::ensure!(!found.is_empty(), "cannot tell: no line of {file} is an engine's");
    for (lane, finding) in found {
        match finding {
            Finding::Judged { load, facts, .. } => {
                let verdict = facts.verdict.map_or("none", |verdict| verdict.as_str());
                let basis = facts.basis.map_or("none", |basis| basis.as_str());
                println!("{lane}, load {}: {verdict}, by {basis}", load.0);
                if let Some(claim) = facts.contradicted {
                    println!("  refutes  {claim}");
                }
                if let Some(cause) = facts.causes.first() {
                    println!("  cause    {cause}");
                }
                if let Some(advice) = facts.advice {
                    println!("  do       {advice}");
                }
            }
            Finding::LoadFailed { load, facts } => {
                println!("{lane}, load {}: failed, {:?}", load.0, facts.cause_detail);
            }
            Finding::LoggedRate { timings, .. } => {
                if let (Some(tokens), Some(rate)) = (timings.decode_tokens, timings.decode_rate) {
                    println!("{lane}: {tokens} tokens at {:.1} tokens/s", rate.get());
                }
            }
            _ => {}
        }
    }
    Ok(())
}
