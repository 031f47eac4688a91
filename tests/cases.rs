//! Real faults, each judged as it was: a case is a log and its row in `fixtures/cases/cases.json`.
#![allow(clippy::expect_used, reason = "a test says what must be")]

#[path = "support/log.rs"]
mod log;

use std::path::Path;

use log::{Judged, Load};
use serde_json::Value;
use serving_sentinel::placement::Plan;

/// One loading of a model, as a case tells it.
#[derive(Debug, Default)]
struct CaseLoad {
    verdict: String,
    failed: bool,
    layers: Option<(u64, u64)>,
    /// MiB per buffer.
    devices: Vec<(String, f64)>,
}

#[derive(Debug, Default)]
struct Case {
    loads: Vec<CaseLoad>,
    causes: Vec<String>,
    rates: Vec<f64>,
}

impl CaseLoad {
    /// The cases round sizes to a tenth of a MiB, and call the verdict of a failed load `unreported`.
    fn is_of(&self, judged: &Load) -> bool {
        let same = |(one, two): (&(String, f64), &(String, f64))| {
            one.0 == two.0 && (one.1 - two.1).abs() <= 0.051
        };
        self.verdict == judged.verdict.unwrap_or("unreported")
            && self.failed == judged.verdict.is_none()
            && self.layers == judged.layers
            && self.devices.len() == judged.devices.len()
            && self.devices.iter().zip(&judged.devices).all(same)
    }
}

fn expected(case: &Value) -> Case {
    let expected = &case["expected"];
    let strings = |value: &Value| -> Vec<String> {
        value
            .as_array()
            .expect("a list")
            .iter()
            .map(|it| it.as_str().expect("a string").to_owned())
            .collect()
    };
    Case {
        loads: expected["loads"]
            .as_array()
            .expect("loads")
            .iter()
            .map(|load| CaseLoad {
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
        let judged: Judged = log::read(&std::fs::read(folder.join(file)).expect(file), plan, false);
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
            && expected.loads.iter().zip(&judged.loads).all(|(one, two)| one.is_of(two));
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
