//! A full OpenTelemetry stack that exports into memory, and expectations on what was exported.
//!
//! Every expectation prints what there *was* when it fails.

#![allow(clippy::cast_precision_loss, reason = "counts of a test are small")]

use std::collections::BTreeMap;
use std::fmt::{Debug, Write as _};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use opentelemetry::logs::AnyValue;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry::{KeyValue, Value};
use opentelemetry_appender_tracing::layer::OpenTelemetryTracingBridge;
use opentelemetry_sdk::logs::{InMemoryLogExporter, SdkLogger, SdkLoggerProvider};
use opentelemetry_sdk::metrics::data::{
    AggregatedMetrics, MetricData, ResourceMetrics, ScopeMetrics,
};
use opentelemetry_sdk::metrics::{InMemoryMetricExporter, PeriodicReader, SdkMeterProvider};
use opentelemetry_sdk::trace::{
    InMemorySpanExporter, Sampler, SdkTracer, SdkTracerProvider, SpanData,
};
use serving_sentinel::layer::{SentinelLayer, SentinelLayerBuilder, flush};
use tracing::field::{Field, Visit};
use tracing::{Dispatch, Event, Subscriber, dispatcher};
use tracing_opentelemetry::OpenTelemetryLayer;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;

/// Long enough on any machine, and never waited for when all goes well.
pub const SOON: Duration = Duration::from_secs(20);

/// Providers for all three signals, and their exporters.
pub struct Providers {
    pub traces: SdkTracerProvider,
    pub metrics: SdkMeterProvider,
    pub logs: SdkLoggerProvider,
    spans: InMemorySpanExporter,
    points: InMemoryMetricExporter,
    records: InMemoryLogExporter,
}

impl Providers {
    pub fn new() -> Self {
        Self::sampling(Sampler::AlwaysOn)
    }

    pub fn sampling(sampler: Sampler) -> Self {
        let (spans, points, records) =
            <(InMemorySpanExporter, InMemoryMetricExporter, InMemoryLogExporter)>::default();
        Self {
            traces: SdkTracerProvider::builder()
                .with_simple_exporter(spans.clone())
                .with_sampler(sampler)
                .build(),
            metrics: SdkMeterProvider::builder()
                .with_reader(PeriodicReader::builder(points.clone()).build())
                .build(),
            logs: SdkLoggerProvider::builder().with_simple_exporter(records.clone()).build(),
            spans,
            points,
            records,
        }
    }

    pub fn otel<S>(&self) -> OpenTelemetryLayer<S, SdkTracer>
    where
        S: Subscriber + for<'span> LookupSpan<'span>,
    {
        tracing_opentelemetry::layer().with_tracer(self.traces.tracer("test"))
    }

    pub fn bridge(&self) -> OpenTelemetryTracingBridge<SdkLoggerProvider, SdkLogger> {
        OpenTelemetryTracingBridge::new(&self.logs)
    }

    pub fn builder(&self) -> SentinelLayerBuilder {
        SentinelLayer::builder().meter_provider(self.metrics.clone())
    }

    pub fn sentinel<S>(&self) -> SentinelLayer<S>
    where
        S: Subscriber + for<'span> LookupSpan<'span>,
    {
        self.builder().build()
    }

    /// Runs `body` under `subscriber`, waits until all is told, and gives what was exported while what `body` gave was
    /// alive.
    pub fn export<R>(&self, subscriber: impl Into<Dispatch>, body: impl FnOnce() -> R) -> Exported {
        let dispatch = subscriber.into();
        dispatcher::with_default(&dispatch, || {
            let alive = body();
            assert!(flush(SOON), "not all was told within {SOON:?}");
            let exported = self.collect();
            drop(alive);
            exported
        })
    }

    /// What was exported so far.
    pub fn collect(&self) -> Exported {
        self.points.reset();
        self.metrics.force_flush().unwrap();
        let records = self.records.get_emitted_logs().unwrap();
        let records = records.iter().map(|log| Record {
            name: log.record.event_name().unwrap_or_default().to_owned(),
            severity: log.record.severity_text().unwrap_or_default().to_owned(),
            body: log.record.body().map(any_text).unwrap_or_default(),
            trace: log.record.trace_context().map(|context| context.trace_id.to_string()),
            attributes: log
                .record
                .attributes_iter()
                .map(|(key, value)| (key.to_string(), any_text(value)))
                .collect(),
        });
        Exported {
            spans: self.spans.get_finished_spans().unwrap(),
            points: self.points(),
            records: records.collect(),
        }
    }

    fn points(&self) -> Vec<Point> {
        let finished = self.points.get_finished_metrics().unwrap();
        let metrics = finished
            .iter()
            .flat_map(ResourceMetrics::scope_metrics)
            .flat_map(ScopeMetrics::metrics);
        metrics
            .flat_map(|metric| match metric.data() {
                AggregatedMetrics::F64(data) => points(metric.name(), data, |value| value),
                AggregatedMetrics::U64(data) => points(metric.name(), data, |value| value as f64),
                AggregatedMetrics::I64(data) => points(metric.name(), data, |value| value as f64),
            })
            .collect()
    }
}

/// Runs `body` under the full stack: OpenTelemetry's spans, its log bridge, and the sentinel.
pub fn export<R>(body: impl FnOnce() -> R) -> Exported {
    let providers = Providers::new();
    let stack = tracing_subscriber::registry()
        .with(providers.otel())
        .with(providers.bridge())
        .with(providers.sentinel());
    providers.export(stack, body)
}

/// All that was exported.
#[derive(Debug)]
pub struct Exported {
    pub spans: Vec<SpanData>,
    pub points: Vec<Point>,
    pub records: Vec<Record>,
}

/// One data point of a metric. A histogram's value is its sum.
#[derive(Clone, Debug)]
pub struct Point {
    pub metric: String,
    pub attributes: BTreeMap<String, String>,
    pub value: f64,
    pub count: u64,
}

/// One log record.
#[derive(Clone, Debug)]
pub struct Record {
    pub name: String,
    pub severity: String,
    pub body: String,
    pub trace: Option<String>,
    pub attributes: BTreeMap<String, String>,
}

impl Exported {
    /// The spans of that name, in the order in which they ended.
    pub fn spans(&self, name: &str) -> Vec<&SpanData> {
        self.spans.iter().filter(|span| span.name == name).collect()
    }

    /// The one span of that name.
    #[track_caller]
    pub fn span(&self, name: &str) -> &SpanData {
        match self.spans(name)[..] {
            [span] => span,
            ref found => panic!(
                "{} spans `{name}` instead of one among:\n{}",
                found.len(),
                self.list_spans()
            ),
        }
    }

    /// The attributes of the one event of that name on the one span of that name.
    #[track_caller]
    pub fn expect_event(&self, span: &str, event: &str) -> BTreeMap<String, String> {
        let span = self.span(span);
        let found: Vec<_> = span.events.iter().filter(|found| found.name == event).collect();
        match found[..] {
            [found] => attributes(&found.attributes),
            _ => panic!(
                "{} events `{event}` instead of one on `{}`:\n{}",
                found.len(),
                span.name,
                self.list_spans()
            ),
        }
    }

    /// No span has an event whose name begins so.
    #[track_caller]
    pub fn expect_no_event(&self, prefix: &str) {
        let found = self
            .spans
            .iter()
            .flat_map(|span| span.events.iter())
            .any(|event| event.name.starts_with(prefix));
        assert!(!found, "an event `{prefix}..` among:\n{}", self.list_spans());
    }

    /// The log records of that event name, in order.
    pub fn records(&self, name: &str) -> Vec<&Record> {
        self.records.iter().filter(|record| record.name == name).collect()
    }

    /// The one log record of that event name.
    #[track_caller]
    pub fn record(&self, name: &str) -> &Record {
        match self.records(name)[..] {
            [record] => record,
            ref found => panic!(
                "{} records `{name}` instead of one among:\n{:#?}",
                found.len(),
                self.records
            ),
        }
    }

    /// No log record has an event name that begins so.
    #[track_caller]
    pub fn expect_no_record(&self, prefix: &str) {
        let found = self.records.iter().any(|record| record.name.starts_with(prefix));
        assert!(!found, "a record `{prefix}..` among:\n{:#?}", self.records);
    }

    /// The points of that metric which have these attributes, and maybe others.
    pub fn points(&self, metric: &str, attributes: &[(&str, &str)]) -> Vec<&Point> {
        let has = |point: &&Point| {
            point.metric == metric
                && attributes
                    .iter()
                    .all(|(key, value)| point.attributes.get(*key).is_some_and(|it| it == value))
        };
        self.points.iter().filter(has).collect()
    }

    /// The value of the one point of that metric with these attributes.
    #[track_caller]
    pub fn value(&self, metric: &str, attributes: &[(&str, &str)]) -> f64 {
        match self.points(metric, attributes)[..] {
            [point] => point.value,
            ref found => panic!(
                "{} points `{metric}` with {attributes:?} instead of one among:\n{}",
                found.len(),
                self.list_points()
            ),
        }
    }

    /// That metric has no point with these attributes.
    #[track_caller]
    pub fn expect_no_point(&self, metric: &str, attributes: &[(&str, &str)]) {
        let found = self.points(metric, attributes);
        assert!(
            found.is_empty(),
            "points `{metric}` with {attributes:?} among:\n{}",
            self.list_points()
        );
    }

    fn list_spans(&self) -> String {
        let mut list = String::new();
        for span in &self.spans {
            let _ = writeln!(list, "{} {:?}", span.name, attributes(&span.attributes));
            for event in span.events.iter() {
                let _ = writeln!(list, "  {} {:?}", event.name, attributes(&event.attributes));
            }
        }
        list
    }

    fn list_points(&self) -> String {
        let mut list = String::new();
        for point in &self.points {
            let _ = writeln!(list, "{} {:?} = {}", point.metric, point.attributes, point.value);
        }
        list
    }
}

/// Attributes as text, by key. No key comes twice.
#[track_caller]
pub fn attributes(attributes: &[KeyValue]) -> BTreeMap<String, String> {
    let mut by_key = BTreeMap::new();
    for KeyValue { key, value, .. } in attributes {
        let earlier = by_key.insert(key.to_string(), text(value));
        assert_eq!(earlier, None, "`{key}` comes twice in {attributes:#?}");
    }
    by_key
}

fn text(value: &Value) -> String {
    value.as_str().into_owned()
}

fn any_text(value: &AnyValue) -> String {
    match value {
        AnyValue::Int(value) => value.to_string(),
        AnyValue::Double(value) => value.to_string(),
        AnyValue::String(value) => value.to_string(),
        AnyValue::Boolean(value) => value.to_string(),
        other => format!("{other:?}"),
    }
}

fn points<T: Copy>(metric: &str, data: &MetricData<T>, float: fn(T) -> f64) -> Vec<Point> {
    let point = |attributes: Vec<&KeyValue>, value: T, count: u64| Point {
        metric: metric.to_owned(),
        attributes: attributes
            .into_iter()
            .map(|it| (it.key.to_string(), text(&it.value)))
            .collect(),
        value: float(value),
        count,
    };
    match data {
        MetricData::Gauge(gauge) => {
            gauge.data_points().map(|it| point(it.attributes().collect(), it.value(), 1)).collect()
        }
        MetricData::Sum(sum) => {
            sum.data_points().map(|it| point(it.attributes().collect(), it.value(), 1)).collect()
        }
        MetricData::Histogram(histogram) => histogram
            .data_points()
            .map(|it| point(it.attributes().collect(), it.sum(), it.count()))
            .collect(),
        MetricData::ExponentialHistogram(_) => Vec::new(),
    }
}

/// A layer that lets a test wait for an event, by its metadata name.
pub fn listener() -> (Listener, Heard) {
    let (sender, receiver) = channel();
    (Listener(sender), Heard(receiver))
}

pub struct Listener(Sender<(&'static str, BTreeMap<String, String>)>);

/// What a [`Listener`] heard.
pub struct Heard(Receiver<(&'static str, BTreeMap<String, String>)>);

impl<S: Subscriber> Layer<S> for Listener {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        // A test that has heard enough is gone.
        let _ = self.0.send((event.metadata().name(), fields.0));
    }
}

impl Heard {
    /// Waits for the next event of that name, and gives its fields.
    #[track_caller]
    pub fn expect(&self, name: &str) -> BTreeMap<String, String> {
        let mut others = Vec::new();
        while let Ok((heard, fields)) = self.0.recv_timeout(SOON) {
            if heard == name {
                return fields;
            }
            others.push(heard);
        }
        panic!("no event `{name}` within {SOON:?}, only {others:?}");
    }

    /// The events of that name heard so far and not waited for.
    pub fn so_far(&self, name: &str) -> Vec<BTreeMap<String, String>> {
        self.0.try_iter().filter(|(heard, _)| *heard == name).map(|(_, fields)| fields).collect()
    }
}

#[derive(Default)]
struct Fields(BTreeMap<String, String>);

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}"));
    }
}
