//! What was typed: the gateway's own options, and the engine's command line behind them.

use std::ffi::{OsStr, OsString};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::{Parser, ValueEnum};
use serving_sentinel::lane::LaneConfig;
use serving_sentinel::placement::Plan;

/// Serves an inference engine behind one address, and shows where it really put the model and how fast it decodes.
///
/// Without an engine it plays recorded runs of llama-server, and needs nothing but itself.
#[derive(Debug, Parser)]
#[command(name = "gateway", after_help = AFTER_HELP)]
pub(crate) struct Cli {
    /// The lane's name in all that is told of it
    #[arg(long, value_name = "NAME", default_value = "engine")]
    lane: String,
    /// The model's name in all that is told of it [default: --alias or the model's file, as the engine is told]
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// Where the model is meant to be; what is true is held against it
    #[arg(long, value_name = "WHERE", value_enum, default_value = "gpu")]
    plan: PlanName,
    /// The least share of the weights that must be on a GPU: 1 for all; without it any share keeps the plan
    #[arg(long, value_name = "SHARE", requires = "engine")]
    minimum_share: Option<f64>,
    /// The decode rate to expect, in tokens/s for one request at a time; without it no rate is judged
    #[arg(long, value_name = "RATE", requires = "engine")]
    expect: Option<f64>,
    /// Where to serve [default: a free port of 127.0.0.1]
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) listen: Option<SocketAddr>,
    /// Keep a copy of what the engine prints, 64 MiB of it at most
    #[arg(long, value_name = "FILE", requires = "engine")]
    pub(crate) engine_log: Option<PathBuf>,
    /// Ask the engine's own endpoints, too, once it is ready (needs the feature `readback`)
    #[arg(long, requires = "engine")]
    pub(crate) read_back: bool,
    /// The engine and its arguments, as you would start it; a `--port` is added where you name none
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ENGINE")]
    engine: Vec<OsString>,
}

const AFTER_HELP: &str = "\
Examples:
  gateway
      plays four recorded engines and says what it found
  gateway llama-server -m model.gguf
      serves a real one until Ctrl-C
  gateway --lane chat-0 --plan gpu --minimum-share 1 --expect 220 --listen 127.0.0.1:9000 -- llama-server -m model.gguf
      all of it must be on the GPU, and decode at 220 tokens/s

Environment:
  OTEL_EXPORTER_OTLP_ENDPOINT  send traces, metrics and logs there, e.g. http://127.0.0.1:4318
  RUST_LOG                     which logs go to stderr [default: warnings, and the sentinel's alarms]
  NO_COLOR                     no colours

Exit codes:
  0    the recorded engines behaved as recorded
  2    wrong use, or something is missing; the message says what to do
  n    the engine ended by itself, with this code (1 if with 0)
  128+ ended by a signal: 130 for Ctrl-C, 143 for SIGTERM";

/// A plan as it is typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PlanName {
    /// On the GPU
    Gpu,
    /// On the CPU
    Cpu,
    /// Nobody said: only what is true is told
    Unknown,
}

/// What a real engine's lane is, and how to start it.
#[derive(Debug)]
pub(crate) struct RealEngine {
    pub(crate) lane: LaneConfig,
    pub(crate) program: OsString,
    pub(crate) arguments: Vec<OsString>,
}

impl Cli {
    /// The engine to serve; `None` to play the recorded ones.
    pub(crate) fn engine(&self) -> anyhow::Result<Option<RealEngine>> {
        let Some((program, arguments)) = self.engine.split_first() else { return Ok(None) };
        if let Some(option) = program.to_str().filter(|program| program.starts_with('-')) {
            anyhow::bail!(
                "there is no option `{option}` (see --help); an engine that is named so goes behind `./`"
            );
        }
        let mut lane = LaneConfig::new(self.lane.as_str()).with_plan(self.plan()?);
        if let Some(model) = self.model.clone().or_else(|| model_name(arguments)) {
            lane = lane.with_model(model);
        }
        if let Some(rate) = self.expect {
            lane = lane.with_expected_rate(rate, "--expect")?;
        }
        Ok(Some(RealEngine { lane, program: program.clone(), arguments: arguments.to_vec() }))
    }

    fn plan(&self) -> anyhow::Result<Plan> {
        match (self.plan, self.minimum_share) {
            (PlanName::Gpu, Some(share)) => Ok(Plan::gpu_at_least(share)?),
            (PlanName::Gpu, None) => Ok(Plan::GPU),
            (_, Some(_)) => {
                anyhow::bail!("--minimum-share is a share on the GPU; give it with --plan gpu")
            }
            (PlanName::Cpu, None) => Ok(Plan::Cpu),
            (PlanName::Unknown, None) => Ok(Plan::Unknown),
        }
    }
}

/// The value of the last of these options, as `--port 8080` or `--port=8080`.
pub(crate) fn option<'a>(arguments: &'a [OsString], names: &[&str]) -> Option<&'a str> {
    let words = || arguments.iter().map(|argument| argument.to_str().unwrap_or_default());
    let apart = words().zip(words().skip(1)).filter(|(name, _)| names.contains(name));
    let joined =
        words().filter_map(|word| word.split_once('=')).filter(|(name, _)| names.contains(name));
    apart.chain(joined).last().map(|(_, value)| value)
}

/// The model's name as the engine is told: its alias, else the repository or file it is from.
fn model_name(arguments: &[OsString]) -> Option<String> {
    if let Some(name) = option(arguments, &["-a", "--alias", "-hf", "-hfr", "--hf-repo"]) {
        return Some(name.to_owned());
    }
    let file = Path::new(option(arguments, &["-m", "--model"])?);
    file.file_stem().and_then(OsStr::to_str).map(str::to_owned)
}

/// A model file that the engine is told and that is not there.
pub(crate) fn missing_model(arguments: &[OsString]) -> Option<&str> {
    option(arguments, &["-m", "--model"]).filter(|file| !Path::new(file).exists())
}
