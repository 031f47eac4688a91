//! What a collector received, in a form that a test can compare whole: attributes as JSON, metrics as series by export.
//!
//! Reads the decoded protobuf of `support/otlp.rs`, which a test has beside this as `mod otlp`.
#![allow(dead_code, reason = "each test uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a test says what must be")]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value};
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use opentelemetry_proto::tonic::metrics::v1::{Metric, metric, number_data_point};
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::Event;
use serde_json::{Map, Value};
use serving_sentinel::layer::{SentinelLayer, SentinelLayerBuilder, flush};
use serving_sentinel::otlp::{Otlp, OtlpBuilder};
use tracing::dispatcher;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry;

use crate::otlp::{Collector, Received, Wire, attribute};

/// Far more than an export takes: reaching it is a failure.
pub(crate) const ENOUGH: Duration = Duration::from_secs(10);

/// A set-up that exports to this collector when it is told to, and leaves the process's globals alone.
pub(crate) fn to(collector: &Collector) -> OtlpBuilder {
    Otlp::builder()
        .without_globals()
        .variable("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
        .variable("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint())
}

/// A collector, and what exports to it. The exporter goes first, or it would wait for a collector that is gone.
pub(crate) struct Exports {
    pub(crate) otlp: Otlp,
    pub(crate) collector: Collector,
}

impl Exports {
    pub(crate) fn new() -> Self {
        let collector = Collector::start(Wire::Grpc);
        let otlp = to(&collector).build().unwrap();
        Self { otlp, collector }
    }

    /// A sentinel whose metrics are exported.
    pub(crate) fn sentinel(&self) -> SentinelLayerBuilder {
        SentinelLayer::builder().meter_provider(self.otlp.meter_provider())
    }

    /// Sends all that was found so far, and gives what came of it since this was last called.
    #[track_caller]
    pub(crate) fn take(&self) -> Received {
        assert!(flush(ENOUGH), "not all was told within {ENOUGH:?}");
        self.otlp.flush(ENOUGH).unwrap();
        self.collector.take()
    }

    /// The series that are exported now.
    #[track_caller]
    pub(crate) fn series(&self) -> Series {
        Series::last(&self.take())
    }
}

/// Runs `body` under a sentinel that exports.
pub(crate) fn exporting<R>(body: impl FnOnce(&Exports) -> R) -> R {
    let exports = Exports::new();
    let stack = registry().with(exports.otlp.layer()).with(exports.sentinel().build());
    dispatcher::with_default(&stack.into(), || body(&exports))
}

// === attributes ===

/// Attributes with their types, by key. No key comes twice, and none is empty.
#[track_caller]
pub(crate) fn attributes(attributes: &[KeyValue]) -> Map<String, Value> {
    let mut by_key = Map::new();
    for KeyValue { key, value, .. } in attributes {
        let value = value.as_ref().map_or(Value::Null, json);
        assert!(!matches!(&value, Value::String(text) if text.is_empty()), "`{key}` is empty");
        let earlier = by_key.insert(key.clone(), value);
        assert_eq!(earlier, None, "`{key}` comes twice in {attributes:#?}");
    }
    by_key
}

fn json(value: &AnyValue) -> Value {
    match &value.value {
        Some(any_value::Value::StringValue(text)) => text.as_str().into(),
        Some(any_value::Value::IntValue(number)) => (*number).into(),
        Some(any_value::Value::DoubleValue(number)) => (*number).into(),
        Some(any_value::Value::BoolValue(truth)) => (*truth).into(),
        Some(any_value::Value::ArrayValue(array)) => array.values.iter().map(json).collect(),
        other => panic!("an attribute of no type of ours: {other:?}"),
    }
}

/// What is said of `lane`.
fn is_of(attributes: &[KeyValue], lane: &str) -> bool {
    attribute(attributes, "serving.lane.name").as_deref() == Some(lane)
}

// === spans and records ===

/// The spans of that name that are of `lane`, by the time of their start.
pub(crate) fn spans<'a>(received: &'a Received, lane: &str, name: &str) -> Vec<&'a Span> {
    let mut spans: Vec<_> = received
        .spans
        .iter()
        .map(|span| &span.data)
        .filter(|span| span.name == name && is_of(&span.attributes, lane))
        .collect();
    spans.sort_by_key(|span| span.start_time_unix_nano);
    spans
}

/// The names of a span's events.
pub(crate) fn events(span: &Span) -> Vec<&str> {
    span.events.iter().map(|event| event.name.as_str()).collect()
}

/// The one event of that name on the span.
#[track_caller]
pub(crate) fn event<'a>(span: &'a Span, name: &str) -> &'a Event {
    let found: Vec<_> = span.events.iter().filter(|event| event.name == name).collect();
    let [event] = found[..] else { panic!("{} events `{name}` on {span:#?}", found.len()) };
    event
}

/// The log records that are of `lane`, in order.
pub(crate) fn records<'a>(received: &'a Received, lane: &str) -> Vec<&'a LogRecord> {
    let all = received.logs.iter().map(|record| &record.data);
    all.filter(|record| is_of(&record.attributes, lane)).collect()
}

// === metrics ===

/// The series of one export: what a dashboard sees at that time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Series(Vec<Point>);

/// The present state of one series.
#[derive(Clone, Debug)]
pub(crate) struct Point {
    metric: String,
    pub(crate) attributes: Map<String, Value>,
    /// A histogram's is its sum.
    pub(crate) value: f64,
    /// How often a histogram was recorded on.
    pub(crate) count: u64,
    /// A histogram's recordings by bucket.
    pub(crate) buckets: Vec<u64>,
}

impl Series {
    /// Those of each export of metrics, in order.
    pub(crate) fn exports(received: &Received) -> Vec<Self> {
        let mut exports: BTreeMap<usize, Vec<Point>> = BTreeMap::new();
        for metric in &received.metrics {
            exports.entry(metric.export).or_default().extend(points(&metric.data));
        }
        exports.into_values().map(Self).collect()
    }

    /// Those of the last export of metrics.
    pub(crate) fn last(received: &Received) -> Self {
        Self::exports(received).pop().unwrap_or_default()
    }

    /// The points of a metric.
    pub(crate) fn points(&self, metric: &str) -> impl Iterator<Item = &Point> {
        self.0.iter().filter(move |point| point.metric == metric)
    }

    /// The values of a metric by the attributes that tell its series apart, the lane first: engine, model and what
    /// else is the same in a whole test is left out.
    #[track_caller]
    pub(crate) fn of(&self, metric: &str) -> BTreeMap<String, f64> {
        self.by(metric, |point| point.value)
    }

    /// How often a histogram was recorded on, as [`Series::of`].
    #[track_caller]
    pub(crate) fn counts(&self, metric: &str) -> BTreeMap<String, u64> {
        self.by(metric, |point| point.count)
    }

    #[track_caller]
    fn by<T: std::fmt::Debug>(
        &self,
        metric: &str,
        what: impl Fn(&Point) -> T,
    ) -> BTreeMap<String, T> {
        let mut values = BTreeMap::new();
        for point in self.points(metric) {
            let earlier = values.insert(point.name(), what(point));
            assert!(earlier.is_none(), "two series of {metric} are {:?}", point.name());
        }
        values
    }

    /// The values of attribute `key` over all series of metrics that begin so.
    pub(crate) fn values_of(&self, prefix: &str, key: &str) -> BTreeSet<String> {
        let points = self.0.iter().filter(|point| point.metric.starts_with(prefix));
        points.filter_map(|point| point.attributes.get(key)).map(text).collect()
    }
}

impl Point {
    fn name(&self) -> String {
        const LANE: &str = "serving.lane.name";
        const SAME: [&str; 6] = [
            LANE,
            "serving.engine.name",
            "gen_ai.request.model",
            "gen_ai.provider.name",
            "gen_ai.operation.name",
            "serving.expectation.source",
        ];
        let others = self.attributes.iter().filter(|(key, _)| !SAME.contains(&key.as_str()));
        let lane = self.attributes.get(LANE);
        let words: Vec<_> = lane.into_iter().chain(others.map(|(_, value)| value)).collect();
        words.into_iter().map(text).collect::<Vec<_>>().join(" ")
    }
}

/// Rows as [`Series::of`] gives them.
pub(crate) fn rows<const N: usize, T>(rows: [(&str, T); N]) -> BTreeMap<String, T> {
    rows.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn points(metric: &Metric) -> Vec<Point> {
    let point = |of: &[KeyValue], value| Point {
        metric: metric.name.clone(),
        attributes: attributes(of),
        value,
        count: 0,
        buckets: Vec::new(),
    };
    #[expect(clippy::cast_precision_loss, reason = "tests count little")]
    let number = |value: Option<number_data_point::Value>| match value {
        Some(number_data_point::Value::AsDouble(value)) => value,
        Some(number_data_point::Value::AsInt(value)) => value as f64,
        None => f64::NAN,
    };
    match metric.data.as_ref().unwrap() {
        metric::Data::Gauge(gauge) => {
            gauge.data_points.iter().map(|it| point(&it.attributes, number(it.value))).collect()
        }
        metric::Data::Sum(sum) => {
            sum.data_points.iter().map(|it| point(&it.attributes, number(it.value))).collect()
        }
        metric::Data::Histogram(histogram) => histogram
            .data_points
            .iter()
            .map(|it| Point {
                count: it.count,
                buckets: it.bucket_counts.clone(),
                ..point(&it.attributes, it.sum.unwrap_or(f64::NAN))
            })
            .collect(),
        other => panic!("a kind of metric that is not ours: {other:?}"),
    }
}
