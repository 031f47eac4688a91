//! A recorded run of a real llama-server, taken apart into what the load, each request and the exit printed.
//!
//! The recordings are part of the program, so that it runs from a fresh clone and from any directory.

use std::time::Duration;

use anyhow::Context as _;
use clap::ValueEnum;
use serde::Deserialize;

/// Which run. `tests/fixtures/recordings/README.md` says how each was made and what is true of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Run {
    /// On a device, at about 85 tokens/s.
    OnDeviceHealthy,
    /// On the CPU, behind a banner that says 19 of 19 layers are on a GPU.
    NoGpuBannerLies,
    /// Started as most people start it: nothing about placement is printed.
    DefaultVerbositySilent,
    /// On a device; requests 3 to 5 decode at a twentieth of the rate.
    DecodeCollapses,
}

impl Run {
    fn text(self) -> &'static str {
        match self {
            Self::OnDeviceHealthy => {
                include_str!("../../tests/fixtures/recordings/on-device-healthy.jsonl")
            }
            Self::NoGpuBannerLies => {
                include_str!("../../tests/fixtures/recordings/no-gpu-banner-lies.jsonl")
            }
            Self::DefaultVerbositySilent => {
                include_str!("../../tests/fixtures/recordings/default-verbosity-silent.jsonl")
            }
            Self::DecodeCollapses => {
                include_str!("../../tests/fixtures/recordings/decode-collapses.jsonl")
            }
        }
    }
}

/// A whole run. Times are relative to the start of the section that they are in.
#[derive(Debug)]
pub(crate) struct Recording {
    /// From the start of the process to the first request.
    pub(crate) load: Section,
    /// Each request with what was printed until the next one.
    pub(crate) requests: Vec<Section>,
    /// From the signal to the end of the process.
    pub(crate) exit: Section,
}

/// One part of a run: what came, and when.
pub(crate) type Section = Vec<(Duration, Output)>;

/// One line that left the engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    /// On its error output.
    Stderr(String),
    /// Of a streamed response, without the empty line that ends it.
    Sse(String),
}

/// A row of the file.
#[derive(Deserialize)]
struct Row {
    /// Seconds since the start of the process.
    t: f64,
    #[serde(flatten)]
    what: What,
}

#[derive(Deserialize)]
#[serde(tag = "kind", content = "data", rename_all = "lowercase")]
enum What {
    Stderr(String),
    Sse(String),
    Request,
    End,
}

/// The first line that llama-server prints on its way out.
const EXIT: &str = "cleaning up before exit...";

impl Recording {
    pub(crate) fn of(run: Run) -> anyhow::Result<Self> {
        Self::parse(run.text())
    }

    fn parse(text: &str) -> anyhow::Result<Self> {
        let mut recording = Self { load: Vec::new(), requests: Vec::new(), exit: Vec::new() };
        let (mut begin, mut exiting) = (0.0, false);
        for (number, line) in (1..).zip(text.lines()) {
            let Row { t, what } =
                serde_json::from_str(line).with_context(|| format!("recording, line {number}"))?;
            let output = match what {
                What::Stderr(line) => Output::Stderr(line),
                What::Sse(line) => Output::Sse(line),
                What::Request => {
                    recording.requests.push(Vec::new());
                    begin = t;
                    continue;
                }
                What::End => continue,
            };
            if !exiting && matches!(&output, Output::Stderr(line) if line.ends_with(EXIT)) {
                (begin, exiting) = (t, true);
            }
            let section = match recording.requests.last_mut() {
                _ if exiting => &mut recording.exit,
                None => &mut recording.load,
                Some(request) => request,
            };
            section.push((Duration::try_from_secs_f64(t - begin)?, output));
        }
        Ok(recording)
    }

    /// When the model was loaded, from the start: the health endpoint turns from 503 to 200 there.
    pub(crate) fn loaded_after(&self) -> Option<Duration> {
        let loaded = |output: &Output| matches!(output, Output::Stderr(line) if line.ends_with("model loaded"));
        self.load.iter().find(|(_, output)| loaded(output)).map(|(at, _)| *at)
    }
}
