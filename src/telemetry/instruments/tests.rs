//! Every instrument against the telemetry contract: name, kind, unit, boundaries.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use opentelemetry::metrics::MeterProvider;
use opentelemetry_sdk::metrics::data::{
    AggregatedMetrics, Metric, MetricData, ResourceMetrics, ScopeMetrics,
};
use opentelemetry_sdk::metrics::{InMemoryMetricExporter, PeriodicReader, SdkMeterProvider};

use super::*;
use crate::evidence::{BufferKind, Evidence, Residence, Role};
use crate::lane::{LaneConfig, Policy};
use crate::placement::{Basis, Placement, Plan};
use crate::telemetry::gauges::layers;
use crate::throughput::{TimingSource, TokensPerSecond};

const CONTRACT: &str = include_str!("../../../tests/fixtures/telemetry_contract.txt");

/// One lane, loaded onto a GPU.
struct OneLane(Mutex<LaneState>);

impl Lanes for OneLane {
    fn each(&self, visit: &mut dyn FnMut(&LaneState, bool)) {
        visit(&self.0.lock().unwrap(), true);
    }

    fn is_blind(&self) -> bool {
        false
    }

    fn collected(&self) {}
}

#[expect(clippy::disallowed_methods, reason = "a test needs some instant to count from")]
fn loaded() -> LaneState {
    let now = Instant::now();
    let config = LaneConfig::new("chat-0").with_engine("llama.cpp").with_plan(Plan::GPU);
    let mut lane =
        LaneState::new(config.with_expected_rate(100.0, "a test").unwrap(), Policy::default());
    let lines = [
        Evidence::LoadBegins { role: Role::Main, model: None },
        Evidence::Banner { offloaded: 19, total: 19 },
        Evidence::Buffer {
            kind: BufferKind::Model,
            device: "CUDA0".into(),
            residence: Residence::Accelerator,
            bytes: 4096,
        },
        Evidence::Settled,
    ];
    for evidence in lines {
        lane.take(evidence, now, &mut Vec::new());
    }
    lane
}

/// Records once on everything, and gives what is exported.
fn exported() -> BTreeMap<String, String> {
    let exporter = InMemoryMetricExporter::default();
    let provider = SdkMeterProvider::builder()
        .with_reader(PeriodicReader::builder(exporter.clone()).build())
        .build();
    let lanes: Arc<dyn Lanes> = Arc::new(OneLane(Mutex::new(loaded())));
    let instruments = Instruments::new(&provider.meter("test"), &Arc::downgrade(&lanes));

    let lane = loaded();
    let labels = labels(&lane);
    let gen_ai = GenAi::new(&lane, known_operation(Some("chat")));
    let mut timings = Timings::new(TimingSource::EngineResponse);
    timings.decode_rate = TokensPerSecond::new(10.0);
    timings.prefill_rate = TokensPerSecond::new(100.0);
    timings.time_to_first_token = Some(Duration::from_millis(100));
    (timings.prompt_tokens, timings.decode_tokens) = (Some(10), Some(48));
    let judgement = RateJudgement { verdict: RateVerdict::Degraded, ratio: Some(0.1) };
    instruments.placement_violated(&labels, PlacementVerdict::CpuFallback, Some(Cause::NoDevice));
    instruments.judged(&labels, Some(&timings), judgement);
    instruments.answered(&gen_ai, &timings);
    instruments.finished(&gen_ai, Duration::from_secs(1), Some("timeout"));
    instruments.in_flight(&labels, 1);
    instruments.lines(&labels, LineKind::Evidence, 1);
    instruments.truncated(&labels, 1);
    instruments.dropped(DroppedKind::Finding, 1);
    instruments.unseen(&labels, BlindCause::NoOutput, Duration::from_secs(1));

    provider.force_flush().unwrap();
    let finished = exporter.get_finished_metrics().unwrap();
    let metrics =
        finished.iter().flat_map(ResourceMetrics::scope_metrics).flat_map(ScopeMetrics::metrics);
    metrics.map(|metric| (metric.name().to_owned(), described(metric))).collect()
}

/// Kind, unit, boundaries and attribute keys, as a line of the contract has them.
fn described(metric: &Metric) -> String {
    let (kind, boundaries, keys) = match metric.data() {
        AggregatedMetrics::F64(data) => shape(data),
        AggregatedMetrics::U64(data) => shape(data),
        AggregatedMetrics::I64(data) => shape(data),
    };
    format!("{kind} | {} | {boundaries} | {keys}", metric.unit())
}

fn shape<T>(data: &MetricData<T>) -> (&'static str, String, String) {
    match data {
        MetricData::Gauge(gauge) => (
            "gauge",
            String::new(),
            keys(gauge.data_points().map(|point| point.attributes().collect())),
        ),
        MetricData::Sum(sum) => {
            let kind = if sum.is_monotonic() { "counter" } else { "up-down counter" };
            (kind, String::new(), keys(sum.data_points().map(|point| point.attributes().collect())))
        }
        MetricData::Histogram(histogram) => {
            let bounds =
                histogram.data_points().next().unwrap().bounds().map(|bound| bound.to_string());
            let bounds = bounds.collect::<Vec<_>>().join(" ");
            (
                "histogram",
                bounds,
                keys(histogram.data_points().map(|point| point.attributes().collect())),
            )
        }
        MetricData::ExponentialHistogram(_) => {
            ("exponential histogram", String::new(), String::new())
        }
    }
}

fn keys<'a>(points: impl Iterator<Item = Vec<&'a KeyValue>>) -> String {
    let mut keys: Vec<_> = points
        .flatten()
        .map(|attribute| attribute.key.to_string())
        .filter(|key| !is_of_lane(key))
        .collect();
    keys.sort();
    keys.dedup();
    keys.join(" ")
}

fn is_of_lane(key: &str) -> bool {
    [names::LANE_NAME, names::ENGINE_NAME, names::REQUEST_MODEL].contains(&key)
}

#[test]
fn what_leaves_is_what_the_contract_says() {
    let exported = exported();
    let contract: BTreeMap<_, _> = CONTRACT
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| {
            let (name, rest) = line.split_once(" | ").unwrap();
            (name.trim().to_owned(), rest.split('|').map(str::trim).collect::<Vec<_>>().join(" | "))
        })
        .collect();
    for (name, expected) in &contract {
        assert_eq!(exported.get(name), Some(expected), "{name}");
    }
    let beyond: Vec<_> = exported.keys().filter(|name| !contract.contains_key(*name)).collect();
    assert!(beyond.is_empty(), "metrics that the contract does not name: {beyond:?}");
}

#[test]
fn a_refuted_banner_is_no_number() {
    let placement = |verdict, contradicted: Option<&str>| Placement {
        verdict,
        basis: Basis::Buffers,
        contradicted: contradicted.map(str::to_owned),
        layers: Some((19, 19)),
        bytes_accelerator: None,
        bytes_host: None,
        share: None,
        causes: Vec::new(),
        cause_detail: None,
        advice: None,
        violates: false,
    };
    let rows = [
        ("believed", PlacementVerdict::Gpu, None, Some((19, 0))),
        ("refuted", PlacementVerdict::CpuFallback, Some("banner 19/19"), Some((0, 19))),
        ("refuted in part", PlacementVerdict::Partial, Some("banner 19/19"), None),
    ];
    for (case, verdict, contradicted, expected) in rows {
        assert_eq!(layers(&placement(verdict, contradicted)), expected, "{case}");
    }
    let silent = Placement { layers: None, ..placement(PlacementVerdict::CpuFallback, None) };
    assert_eq!(layers(&silent), None);
}

#[test]
fn an_operation_nobody_knows_makes_no_series_of_its_own() {
    let lane = loaded();
    for (operation, expected) in
        [(Some("chat"), "chat"), (Some("/v1/x?y=1"), names::OTHER), (None, names::OTHER)]
    {
        let GenAi(attributes) = GenAi::new(&lane, known_operation(operation));
        let found =
            attributes.iter().find(|attribute| attribute.key.as_str() == names::OPERATION).unwrap();
        assert_eq!(found.value.as_str(), expected);
    }
}
