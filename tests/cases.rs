//! Real faults, each judged as it was: a case is a log and its row in `fixtures/cases/cases.json`.
#![allow(clippy::expect_used, clippy::cast_precision_loss, reason = "a test says what must be")]

use std::path::Path;
use std::time::Instant;

use serde_json::Value;
use serving_sentinel::engines::Matcher;
use serving_sentinel::evidence::BufferKind;
use serving_sentinel::lane::{Finding, LaneConfig, Policy};
use serving_sentinel::observer::Observer;
use serving_sentinel::placement::Plan;
use serving_sentinel::throughput::TokensPerSecond;

/// One loading of a model, as a case tells it.
#[derive(Debug, Default)]
struct Load {
    verdict: String,
    failed: bool,
    layers: Option<(u64, u64)>,
    /// MiB per buffer.
    devices: Vec<(String, f64)>,
}

#[derive(Debug, Default)]
struct Judged {
    loads: Vec<Load>,
    causes: Vec<String>,
    rates: Vec<f64>,
}

/// Reads a whole log as a program would that watches the engine, through the public API.
#[expect(clippy::disallowed_methods, reason = "the log is read at some time")]
fn read(log: &[u8], plan: Plan) -> Judged {
    let now = Instant::now();
    let config = LaneConfig::new("case").with_plan(plan);
    let mut observer = Observer::new(config, Policy::default(), Matcher::builtin());
    let mut judged = Judged::default();
    let mut take = |observer: &Observer, findings: Vec<(std::sync::Arc<str>, Finding)>| {
        for (name, finding) in findings {
            match finding {
                Finding::Judged { facts, .. } => {
                    let lane = observer
                        .lanes()
                        .find(|lane| lane.config().name() == &name)
                        .expect("a known lane");
                    judged.loads.push(Load {
                        verdict: facts.verdict.expect("a verdict").as_str().to_owned(),
                        failed: false,
                        layers: facts
                            .layers
                            .map(|(offloaded, total)| (offloaded.into(), total.into())),
                        devices: lane
                            .buffers()
                            .filter(|(_, _, kind, _)| *kind == BufferKind::Model)
                            .map(|(device, _, _, bytes)| {
                                (device.to_owned(), bytes as f64 / 1_048_576.0)
                            })
                            .collect(),
                    });
                    judged.causes.extend(facts.causes.iter().map(ToString::to_string));
                }
                Finding::LoadFailed { facts, .. } => {
                    judged.loads.push(Load {
                        verdict: "unreported".to_owned(),
                        failed: true,
                        ..Load::default()
                    });
                    judged.causes.extend(facts.causes.iter().map(ToString::to_string));
                }
                Finding::IntervalRate { rate, .. } => judged.rates.push(rate.get()),
                Finding::LoggedRate { timings, .. } => {
                    judged.rates.extend(timings.decode_rate.map(TokensPerSecond::get));
                }
                _ => {}
            }
        }
    };
    for line in log.split(|byte| *byte == b'\n') {
        let mut out = Vec::new();
        observer.line(line.strip_suffix(b"\r").unwrap_or(line), now, &mut out);
        take(&observer, out);
    }
    let mut out = Vec::new();
    observer.conclude(now, &mut out);
    take(&observer, out);
    judged
}

impl Load {
    /// The cases round sizes to a tenth of a MiB.
    fn is_as(&self, other: &Self) -> bool {
        let same = |(one, two): (&(String, f64), &(String, f64))| {
            one.0 == two.0 && (one.1 - two.1).abs() <= 0.051
        };
        self.verdict == other.verdict
            && self.failed == other.failed
            && self.layers == other.layers
            && self.devices.len() == other.devices.len()
            && self.devices.iter().zip(&other.devices).all(same)
    }
}

fn expected(case: &Value) -> Judged {
    let expected = &case["expected"];
    let strings = |value: &Value| -> Vec<String> {
        value
            .as_array()
            .expect("a list")
            .iter()
            .map(|it| it.as_str().expect("a string").to_owned())
            .collect()
    };
    Judged {
        loads: expected["loads"]
            .as_array()
            .expect("loads")
            .iter()
            .map(|load| Load {
                verdict: load["verdict"].as_str().expect("a verdict").to_owned(),
                failed: load["failed"].as_bool().unwrap_or(false),
                layers: load["offloaded"].as_u64().zip(load["total"].as_u64()),
                devices: load["devices"]
                    .as_object()
                    .into_iter()
                    .flatten()
                    .map(|(name, mib)| (name.clone(), mib.as_f64().expect("MiB")))
                    .collect(),
            })
            .collect(),
        causes: strings(&expected["causes"]),
        rates: expected["decode_tokens_per_second"]
            .as_array()
            .expect("rates")
            .iter()
            .map(|rate| rate.as_f64().expect("a rate"))
            .collect(),
    }
}

#[test]
fn every_case_is_judged_as_it_was() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/cases");
    let cases: Vec<Value> =
        serde_json::from_slice(&std::fs::read(folder.join("cases.json")).expect("cases.json"))
            .expect("valid JSON");
    assert!(cases.len() >= 6, "cases are missing");
    let mut wrong = Vec::new();
    for case in &cases {
        let file = case["file"].as_str().expect("a file");
        let plan = match case["intent"].as_str() {
            Some("gpu") => Plan::GPU,
            Some("cpu") => Plan::Cpu,
            _ => Plan::Unknown,
        };
        let judged = read(&std::fs::read(folder.join(file)).expect(file), plan);
        let mut expected = expected(case);
        for load in &mut expected.loads {
            load.devices.sort_by(|one, two| one.0.cmp(&two.0));
        }
        // A printed rate is compared to 1 %: where a line gives none, it follows from tokens and time.
        let rates_agree = judged.rates.len() == expected.rates.len()
            && judged
                .rates
                .iter()
                .zip(&expected.rates)
                .all(|(one, two)| (one - two).abs() <= two * 0.01);
        let loads_agree = judged.loads.len() == expected.loads.len()
            && judged.loads.iter().zip(&expected.loads).all(|(one, two)| one.is_as(two));
        if !loads_agree || judged.causes != expected.causes || !rates_agree {
            wrong.push(format!("{file}\n  judged   {judged:?}\n  expected {expected:?}"));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {} cases are judged wrong:\n{}",
        wrong.len(),
        cases.len(),
        wrong.join("\n")
    );
}
