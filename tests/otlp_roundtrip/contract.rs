//! Each metric against the contract's table.

use std::collections::{BTreeMap, BTreeSet};

use opentelemetry_proto::tonic::metrics::v1::{AggregationTemporality, Metric, metric};

use crate::otlp::Item;
use crate::run::RUN;

/// Instrument, unit and boundaries of each metric, and its attributes beside lane, engine and model, as the contract
/// lists them.
#[test]
fn every_metric_is_as_the_contract_says() {
    const CONTRACT: &str = include_str!("../fixtures/telemetry_contract.txt");
    /// Nothing is too long, dropped or hidden in this run.
    const ABSENT: [&str; 3] =
        ["serving.sentinel.truncated", "serving.sentinel.dropped", "serving.sentinel.unseen"];
    let mut found: BTreeMap<&str, (String, BTreeSet<String>)> = BTreeMap::new();
    for Item { data: metric, .. } in &RUN.received.metrics {
        let (shape, keys) = shape(metric);
        let entry = found.entry(&metric.name).or_insert_with(|| (shape.clone(), BTreeSet::new()));
        assert_eq!(entry.0, shape, "{} changes", metric.name);
        entry.1.extend(keys);
        assert!(!metric.description.is_empty(), "{} has no description", metric.name);
    }
    let mut named = BTreeSet::new();
    for row in CONTRACT.lines().filter(|line| !line.starts_with('#')) {
        let columns: Vec<&str> = row.split('|').map(str::trim).collect();
        let [name, instrument, unit, boundaries, keys] = columns[..] else { panic!("{row}") };
        named.insert(name);
        if ABSENT.contains(&name) {
            assert!(!found.contains_key(name), "{name} in this run");
            continue;
        }
        let (shape, told) = found.get(name).unwrap_or_else(|| panic!("{name} was not exported"));
        assert_eq!(*shape, format!("{instrument} {unit} {boundaries}").trim(), "{name}");
        let mut told = told.clone();
        for common in ["serving.lane.name", "serving.engine.name", "gen_ai.request.model"] {
            told.remove(common);
        }
        // No request fails in this run.
        let keys: BTreeSet<_> =
            keys.split_whitespace().filter(|key| *key != "error.type").map(str::to_owned).collect();
        assert_eq!(told, keys, "{name}");
    }
    let unnamed: Vec<_> = found.keys().filter(|name| !named.contains(*name)).collect();
    assert!(unnamed.is_empty(), "metrics that the contract does not know: {unnamed:?}");
}

/// A metric in the contract's words, and the keys of all its attributes.
fn shape(metric: &Metric) -> (String, BTreeSet<String>) {
    let cumulative = AggregationTemporality::Cumulative as i32;
    let (instrument, boundaries, attributes): (_, _, Vec<_>) = match metric.data.as_ref().unwrap() {
        metric::Data::Gauge(gauge) => {
            ("gauge", "", gauge.data_points.iter().flat_map(|it| &it.attributes).collect())
        }
        metric::Data::Sum(sum) => {
            assert_eq!(sum.aggregation_temporality, cumulative, "{}", metric.name);
            let instrument = if sum.is_monotonic { "counter" } else { "up-down counter" };
            (instrument, "", sum.data_points.iter().flat_map(|it| &it.attributes).collect())
        }
        metric::Data::Histogram(histogram) => {
            assert_eq!(histogram.aggregation_temporality, cumulative, "{}", metric.name);
            let points = &histogram.data_points;
            let bounds = points[0].explicit_bounds.iter().map(ToString::to_string);
            let bounds: &str = bounds.collect::<Vec<_>>().join(" ").leak();
            ("histogram", bounds, points.iter().flat_map(|it| &it.attributes).collect())
        }
        other => panic!("{}: {other:?}", metric.name),
    };
    let keys = attributes.into_iter().map(|attribute| attribute.key.clone()).collect();
    (format!("{instrument} {} {boundaries}", metric.unit).trim().to_owned(), keys)
}
