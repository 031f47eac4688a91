//! Alert rules and dashboard ask for what is told: each name in them is one of the telemetry contract, as Prometheus
//! writes it, so that a name that changes is missed here and not on somebody's screen.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::path::Path;

use serving_sentinel::telemetry::names;

/// The metrics, with what Prometheus appends for their unit and kind.
const METRICS: &[(&str, &[&str])] = &[
    (names::LAYERS, &[""]),
    (names::BYTES, &[""]),
    (names::STATE, &["_ratio"]),
    (names::PLACEMENT_VIOLATIONS, &["_total"]),
    (names::DECODE_RATE, RATE),
    (names::DECODE_RATIO, HISTOGRAM),
    (names::PREFILL_RATE, RATE),
    (names::THROUGHPUT_VIOLATIONS, &["_total"]),
    (names::THROUGHPUT_JUDGED, &["_total"]),
    (names::EXPECTED_RATE, &["_per_second"]),
    (names::IN_FLIGHT, &[""]),
    (names::ALARMS_ACTIVE, &[""]),
    (names::LINES, &["_total"]),
    (names::TRUNCATED, &["_total"]),
    (names::DROPPED, &["_total"]),
    (names::UNSEEN, &["_seconds_total"]),
    (names::SERVER_REQUEST_DURATION, SECONDS),
    (names::SERVER_TIME_TO_FIRST_TOKEN, SECONDS),
    (names::SERVER_TIME_PER_OUTPUT_TOKEN, SECONDS),
    (names::CLIENT_TOKEN_USAGE, HISTOGRAM),
];
const HISTOGRAM: &[&str] = &["_bucket", "_sum", "_count"];
const RATE: &[&str] = &["_per_second_bucket", "_per_second_sum", "_per_second_count"];
const SECONDS: &[&str] = &["_seconds_bucket", "_seconds_sum", "_seconds_count"];

const LABELS: &[&str] = &[
    names::LANE_NAME,
    names::ENGINE_NAME,
    names::REQUEST_MODEL,
    names::VERDICT,
    names::CAUSE,
    names::ALARM,
    names::RESIDENCE,
    names::DEVICE,
    names::BUFFER,
    names::RATE_VERDICT,
    names::LINE_KIND,
    names::DROPPED_KIND,
    names::BLIND_CAUSE,
];

fn read(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("collector-config").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// All words of a text that begin as ours do in Prometheus.
fn words(text: &str) -> BTreeSet<&str> {
    let is_word = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    text.split(|letter| !is_word(letter))
        .filter(|word| word.starts_with("serving_") || word.starts_with("gen_ai_"))
        .collect()
}

#[test]
fn rules_and_dashboard_name_nothing_but_what_is_told() {
    let escaped = |name: &str| name.replace('.', "_");
    let metrics = METRICS.iter().flat_map(|(name, suffixes)| {
        suffixes.iter().map(move |suffix| format!("{}{suffix}", escaped(name)))
    });
    let known: BTreeSet<String> = metrics.chain(LABELS.iter().map(|name| escaped(name))).collect();
    for file in [
        "prometheus/alerts.yml",
        "prometheus/alerts_test.yml",
        "grafana/dashboards/serving-sentinel.json",
        "README.md",
    ] {
        let text = read(file);
        let unknown: Vec<_> =
            words(&text).into_iter().filter(|word| !known.contains(*word)).collect();
        assert!(unknown.is_empty(), "{file}: {unknown:?}");
    }
}

#[test]
fn rules_and_dashboard_know_every_alarm_and_verdict_they_name() {
    let dotted = |text: &str| -> BTreeSet<String> {
        let is_word = |letter: char| letter.is_ascii_alphanumeric() || "._".contains(letter);
        text.split(|letter| !is_word(letter))
            .map(|word| word.trim_end_matches('.'))
            .filter(|word| word.starts_with("serving."))
            .map(str::to_owned)
            .collect()
    };
    let source = include_str!("../src/telemetry/names.rs");
    for file in ["prometheus/alerts.yml", "grafana/dashboards/serving-sentinel.json", "README.md"] {
        for name in dotted(&read(file)) {
            assert!(source.contains(&format!("\"{name}\"")), "{file}: {name}");
        }
    }
}
