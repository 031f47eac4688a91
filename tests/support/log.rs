//! Reads a whole log as a program would that watches the engine, through the public API.

#![allow(dead_code, reason = "each test uses a part of it")]
#![allow(clippy::expect_used, clippy::cast_precision_loss, reason = "a test says what must be")]

use std::time::Instant;

use serving_sentinel::engines::Matcher;
use serving_sentinel::evidence::BufferKind;
use serving_sentinel::lane::{Finding, LaneConfig, LaneState, Policy};
use serving_sentinel::observer::Observer;
use serving_sentinel::placement::{Basis, Plan};
use serving_sentinel::throughput::TokensPerSecond;

/// What a log told.
#[derive(Debug, Default)]
pub(crate) struct Judged {
    pub(crate) engine: Option<String>,
    /// In the order of their verdicts.
    pub(crate) loads: Vec<Load>,
    /// Of all loads.
    pub(crate) causes: Vec<String>,
    /// Decode rates of requests and of intervals, in tokens/s, in order of appearance.
    pub(crate) rates: Vec<f64>,
}

/// One load; without a verdict if it failed.
#[derive(Debug, Default)]
pub(crate) struct Load {
    pub(crate) verdict: Option<&'static str>,
    pub(crate) basis: Option<&'static str>,
    /// Offloaded, of all.
    pub(crate) layers: Option<(u64, u64)>,
    /// MiB of weights per buffer.
    pub(crate) devices: Vec<(String, f64)>,
}

/// `ready`: the caller knows that the engine answers, whatever the log says.
#[expect(clippy::disallowed_methods, reason = "the log is read at some time")]
pub(crate) fn read(log: &[u8], plan: Plan, ready: bool) -> Judged {
    let now = Instant::now();
    let config = LaneConfig::new("log").with_plan(plan);
    let mut observer = Observer::new(config, Policy::default(), Matcher::builtin());
    let mut judged = Judged::default();
    for line in log.split(|byte| *byte == b'\n') {
        let mut out = Vec::new();
        observer.line(line.strip_suffix(b"\r").unwrap_or(line), now, &mut out);
        judged.take(&observer, out);
    }
    let mut out = Vec::new();
    if ready {
        observer.with_lane(&mut out, |lane, found| lane.ready(now, found));
    }
    observer.conclude(now, &mut out);
    judged.take(&observer, out);
    judged.engine = observer.lanes().find_map(|lane| lane.engine().map(ToString::to_string));
    judged
}

impl Judged {
    fn take(&mut self, observer: &Observer, findings: Vec<(std::sync::Arc<str>, Finding)>) {
        for (name, finding) in findings {
            match finding {
                Finding::Judged { facts, .. } => {
                    let lane = observer.lanes().find(|lane| lane.config().name() == &name);
                    self.loads.push(Load {
                        verdict: Some(facts.verdict.expect("a verdict").as_str()),
                        basis: facts.basis.map(Basis::as_str),
                        layers: facts.layers.map(|(on, of)| (on.into(), of.into())),
                        devices: weights(lane.expect("a known lane")),
                    });
                    self.causes.extend(facts.causes.iter().map(ToString::to_string));
                }
                Finding::LoadFailed { facts, .. } => {
                    self.loads.push(Load::default());
                    self.causes.extend(facts.causes.iter().map(ToString::to_string));
                }
                Finding::IntervalRate { rate, .. } => self.rates.push(rate.get()),
                Finding::LoggedRate { timings, .. } => {
                    self.rates.extend(timings.decode_rate.map(TokensPerSecond::get));
                }
                _ => {}
            }
        }
    }
}

fn weights(lane: &LaneState) -> Vec<(String, f64)> {
    let weights = lane.buffers().filter(|(_, _, kind, _)| *kind == BufferKind::Model);
    weights.map(|(device, _, _, bytes)| (device.to_owned(), bytes as f64 / 1_048_576.0)).collect()
}
