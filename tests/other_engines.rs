//! Engines beside llama-server, run for real: each log is judged as the run truly was, and each answer's rate is the one
//! that the engine states or the client's clock gives. A run is a log and its row in `fixtures/runs/runs.json`.
#![allow(clippy::expect_used, clippy::cast_precision_loss, reason = "a test says what must be")]

#[path = "support/log.rs"]
mod log;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use log::Load;
use serde_json::Value;
use serving_sentinel::placement::Plan;
use serving_sentinel::throughput::{Timings, TokensPerSecond};
use serving_sentinel::timings::StreamTimings;

fn runs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/runs")
}

fn rows(file: &str) -> Vec<Value> {
    let bytes = std::fs::read(runs().join(file)).expect(file);
    serde_json::from_slice(&bytes).expect("valid JSON")
}

/// A run as its row or its log tells it: each load in words, then causes and rates.
#[derive(Debug, Default)]
struct Run {
    engine: String,
    loads: Vec<String>,
    causes: Vec<String>,
    rates: Vec<f64>,
}

/// `cpu_fallback by buffers 19/19 {CPU: 12.7}`; sizes in MiB, to a tenth.
fn in_words(verdict: &str, basis: &str, layers: &str, mut devices: Vec<(String, f64)>) -> String {
    devices.sort_by(|one, two| one.0.cmp(&two.0));
    let devices: Vec<_> = devices.iter().map(|(name, mib)| format!("{name}: {mib:.1}")).collect();
    format!("{verdict} by {basis} {layers} {{{}}}", devices.join(", "))
}

const FAILED: &str = "failed";

/// A run as its log tells it.
fn read(log: &[u8], plan: Plan, answers: bool) -> Run {
    let judged = log::read(log, plan, answers);
    let load = |load: Load| match load.verdict {
        Some(verdict) => in_words(
            verdict,
            load.basis.expect("a basis"),
            &load.layers.map_or("-".to_owned(), |(on, of)| format!("{on}/{of}")),
            load.devices,
        ),
        None => FAILED.to_owned(),
    };
    Run {
        engine: judged.engine.unwrap_or_default(),
        loads: judged.loads.into_iter().map(load).collect(),
        causes: judged.causes,
        rates: judged.rates,
    }
}

fn expected(row: &Value) -> Run {
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let list = |value: &Value| value.as_array().expect("a list").clone();
    let load = |load: &Value| {
        if load["failed"] == true {
            return FAILED.to_owned();
        }
        let layers = match (load["offloaded"].as_u64(), load["total"].as_u64()) {
            (Some(on), Some(of)) => format!("{on}/{of}"),
            _ => "-".to_owned(),
        };
        let devices = load["devices"].as_object().into_iter().flatten();
        let devices = devices.map(|(name, mib)| (name.clone(), mib.as_f64().expect("MiB")));
        in_words(&text(&load["verdict"]), &text(&load["basis"]), &layers, devices.collect())
    };
    let expected = &row["expected"];
    Run {
        engine: text(&row["engine"]),
        loads: list(&expected["loads"]).iter().map(load).collect(),
        causes: list(&expected["causes"]).iter().map(text).collect(),
        rates: list(&expected["decode_tokens_per_second"])
            .iter()
            .map(|rate| rate.as_f64().expect("a rate"))
            .collect(),
    }
}

#[test]
fn every_run_is_judged_as_it_was() {
    let mut wrong = Vec::new();
    let rows = rows("runs.json");
    for row in &rows {
        let file = row["file"].as_str().expect("a file");
        let plan = match row["intent"].as_str() {
            Some("gpu") => Plan::ALL_ON_GPU,
            Some("cpu") => Plan::Cpu,
            _ => Plan::Unknown,
        };
        let log = std::fs::read(runs().join(file)).expect(file);
        let judged = read(&log, plan, row["ready"] == true);
        let expected = expected(row);
        let same_rates = judged.rates.len() == expected.rates.len()
            && judged.rates.iter().zip(&expected.rates).all(|(one, two)| (one - two).abs() < 0.005);
        if judged.engine != expected.engine
            || judged.loads != expected.loads
            || judged.causes != expected.causes
            || !same_rates
        {
            wrong.push(format!("{file}\n  judged   {judged:?}\n  expected {expected:?}"));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {} runs are judged wrong:\n{}",
        wrong.len(),
        rows.len(),
        wrong.join("\n")
    );
}

#[test]
fn every_recording_has_its_row() {
    let mut named: Vec<String> = ["runs.json", "answers.json"]
        .iter()
        .flat_map(|file| rows(file))
        .map(|row| row["file"].as_str().expect("a file").to_owned())
        .collect();
    named.sort();
    let mut there: Vec<String> = std::fs::read_dir(runs())
        .expect("the folder")
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8"))
        .filter(|name| !matches!(name.as_str(), "runs.json" | "answers.json" | "README.md"))
        .filter(|name| !name.ends_with(".ps.json"))
        .collect();
    there.sort();
    assert_eq!(named, there);
}

/// What an answer tells, and the rate of the client's clock where it was streamed.
fn answer(file: &str) -> (Timings, Option<f64>) {
    let bytes = std::fs::read(runs().join(file)).expect(file);
    if Path::new(file).extension().is_none_or(|kind| kind != "jsonl") {
        return (Timings::from_response(&bytes).expect(file), None);
    }
    #[expect(clippy::disallowed_methods, reason = "some instant to count from")]
    let begun = Instant::now();
    let mut stream = StreamTimings::begin(begun);
    let mut at = begun;
    for line in String::from_utf8(bytes).expect("UTF-8").lines() {
        let piece: Value = serde_json::from_str(line).expect("valid JSON");
        at = begun + Duration::from_secs_f64(piece["t"].as_f64().expect("a time"));
        stream.push(piece["data"].as_str().expect("text").as_bytes(), at);
    }
    assert!(stream.is_complete() && stream.unread_events() == 0, "{file}: {stream:?}");
    let clock = stream.client_clock_rate().map(TokensPerSecond::get);
    (stream.finish(at).expect(file), clock)
}

#[test]
fn every_answer_gives_the_rate_that_it_states_or_the_clients_own() {
    for row in rows("answers.json") {
        let file = row["file"].as_str().expect("a file");
        let (timings, clock) = answer(file);
        let (expected, clock_expected) = (&row["expected"], row["client_clock"].as_f64());
        assert_eq!(Some(timings.source.as_str()), expected["source"].as_str(), "{file}");
        assert_eq!(timings.decode_tokens, expected["decode_tokens"].as_u64(), "{file}");
        assert_eq!(timings.prompt_tokens, expected["prompt_tokens"].as_u64(), "{file}");
        let rate = timings.decode_rate.map(TokensPerSecond::get);
        let near = |one: Option<f64>, two: Option<f64>, by: f64| match (one, two) {
            (Some(one), Some(two)) => (one - two).abs() <= two * by,
            (one, two) => one == two,
        };
        let stated = expected["decode_tokens_per_second"].as_f64();
        assert!(near(rate, stated, 0.001), "{file}: {rate:?} for {stated:?}");
        assert!(near(clock, clock_expected, 0.001), "{file}: {clock:?} for {clock_expected:?}");
        if let (Some(clock), Some(rate)) = (clock, rate) {
            assert!(near(Some(clock), Some(rate), 0.1), "{file}: client {clock}, engine {rate}");
        }
    }
}
