//! One call sets up OTLP from the `OTEL_*` variables; a collector that is away neither blocks, nor
//! fails the program, nor floods its log.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a test waits, and says what must be"
)]
#![cfg(feature = "otlp")]

#[path = "support/otlp.rs"]
mod otlp;

use std::io::Write;
use std::process::Command;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use opentelemetry::metrics::{Meter, MeterProvider};
use opentelemetry::trace::TraceContextExt;
use opentelemetry::{Context, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::metrics::v1::{AggregationTemporality, metric};
use otlp::{Behaviour, Certificate, Collector, Item, Wire, attribute, text};
use serving_sentinel::lane::LaneConfig;
use serving_sentinel::layer::{Lane, SentinelLayer};
use serving_sentinel::otlp::{FlushError, Otlp, OtlpBuilder, Signal, TroubleKind};
use serving_sentinel::placement::Plan;
use tracing::level_filters::LevelFilter;
use tracing::{Dispatch, Event, Subscriber};
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::Layer;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::Context as LayerContext;
use tracing_subscriber::prelude::*;

const ENOUGH: Duration = Duration::from_secs(10);
const INFO: LevelFilter = LevelFilter::INFO;

/// A set-up that exports to this collector and leaves the process's globals alone.
fn to(wire: Wire, endpoint: impl Into<String>) -> OtlpBuilder {
    let protocol = if wire == Wire::Grpc { "grpc" } else { "http/protobuf" };
    Otlp::builder()
        .without_globals()
        .variable("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
        .variable("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.into())
        // Quick, so that no test waits for a timer.
        .variable("OTEL_BSP_SCHEDULE_DELAY", "50")
        .variable("OTEL_BLRP_SCHEDULE_DELAY", "50")
        .variable("OTEL_METRIC_EXPORT_INTERVAL", "100")
}

/// Our scope, as the sentinel's own instruments have it.
fn meter(otlp: &Otlp) -> Meter {
    let scope = InstrumentationScope::builder("serving-sentinel").build();
    otlp.meter_provider().meter_with_scope(scope)
}

/// What the program's own log says.
#[derive(Clone, Default)]
struct Log(Arc<(Mutex<String>, Condvar)>);

impl Log {
    fn lines(&self) -> Vec<String> {
        self.0.0.lock().unwrap().lines().map(str::to_owned).collect()
    }

    #[track_caller]
    fn wait_for(&self, part: &str) {
        let text = self.0.0.lock().unwrap();
        let (text, _) =
            self.0.1.wait_timeout_while(text, ENOUGH, |text| !text.contains(part)).unwrap();
        assert!(text.contains(part), "no line with {part:?} in the log:\n{text}");
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.0.lock().unwrap().push_str(&String::from_utf8_lossy(bytes));
        self.0.1.notify_all();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Log {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

/// A subscriber with the program's log, at INFO as by default, and this set-up.
fn subscriber(otlp: &Otlp) -> (Dispatch, Log) {
    let log = Log::default();
    let fmt = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(log.clone());
    let fmt = fmt.with_filter(INFO);
    (tracing_subscriber::registry().with(fmt).with(otlp.layer()).into(), log)
}

/// One span, one count and one alarm.
fn work(otlp: &Otlp) {
    tracing::info_span!("work").in_scope(alarm);
    meter(otlp).u64_counter("serving.test").build().add(1, &[]);
}

fn alarm() {
    tracing::error!(
        name: "serving.placement.cpu_fallback",
        target: "serving_sentinel",
        { serving.lane.name = "chat-0" },
        "the lane runs on the CPU"
    );
}

fn send(otlp: &Otlp) -> (Dispatch, Log) {
    let (dispatch, log) = subscriber(otlp);
    tracing::dispatcher::with_default(&dispatch, || work(otlp));
    (dispatch, log)
}

// === What arrives ===

#[track_caller]
fn check_origin<T>(item: &Item<T>) {
    let resource = |key| attribute(&item.resource.attributes, key);
    assert_eq!(resource("service.name").as_deref(), Some("serving-sentinel"));
    assert_eq!(resource("service.instance.id").unwrap().len(), 36);
    assert_eq!(resource("process.pid"), Some(std::process::id().to_string()));
    assert_eq!(resource("telemetry.sdk.language").as_deref(), Some("rust"));
    assert_eq!(resource("deployment.environment.name").as_deref(), Some("test"));
    if cfg!(target_os = "linux") {
        assert!(resource("host.name").is_some());
    }
    assert_eq!(item.resource_schema, "https://opentelemetry.io/schemas/1.41.0");
}

#[track_caller]
fn round_trip(wire: Wire) {
    let collector = Collector::start(wire);
    let otlp = to(wire, collector.endpoint())
        .resource_attribute("deployment.environment.name", "test")
        .build()
        .unwrap();
    let (_dispatch, log) = send(&otlp);
    otlp.shutdown(ENOUGH).unwrap();

    let received = collector.received();
    let (span, metric) = (received.span("work").unwrap(), received.metric("serving.test").unwrap());
    let record = received.log("serving.placement.cpu_fallback").unwrap();
    check_origin(span);
    check_origin(metric);
    check_origin(record);
    let instance = |attributes| attribute(attributes, "service.instance.id").unwrap();
    assert_eq!(
        instance(&span.resource.attributes),
        instance(&record.resource.attributes),
        "one process"
    );
    assert_eq!(span.scope.name, "serving-sentinel");
    assert_eq!(span.scope.version, env!("CARGO_PKG_VERSION"));
    assert_eq!(span.scope_schema, "https://opentelemetry.io/schemas/1.41.0");
    assert_eq!(received.value("serving.test"), Some(1.0));
    assert_eq!(record.scope.name, "serving-sentinel");
    assert_eq!(record.scope.version, env!("CARGO_PKG_VERSION"));
    assert_eq!(record.scope_schema, "https://opentelemetry.io/schemas/1.41.0");
    assert_eq!(record.data.severity_text, "ERROR");
    assert_eq!(record.data.severity_number, 17);
    assert_eq!(record.data.body.as_ref().map(text).as_deref(), Some("the lane runs on the CPU"));
    assert_eq!(attribute(&record.data.attributes, "serving.lane.name").as_deref(), Some("chat-0"));
    assert_eq!(record.data.trace_id, span.data.trace_id, "the alarm is found from its trace");
    assert_eq!(record.data.span_id, span.data.span_id);
    assert_eq!(log.lines().len(), 1, "the alarm alone: {:#?}", log.lines());
}

#[test]
fn everything_arrives_over_grpc() {
    round_trip(Wire::Grpc);
}

#[test]
fn everything_arrives_over_http() {
    round_trip(Wire::Http);
}

#[test]
fn headers_and_compression_arrive() {
    for wire in [Wire::Grpc, Wire::Http] {
        let collector = Collector::start(wire);
        let otlp = to(wire, collector.endpoint())
            .variable("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20a%25b,x-tenant=t")
            .variable("OTEL_EXPORTER_OTLP_LOGS_HEADERS", "x-tenant=logs")
            .variable("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
            .build()
            .unwrap();
        send(&otlp);
        otlp.shutdown(ENOUGH).unwrap();
        let headers = |signal| collector.wait_for_request(signal).headers;
        assert_eq!(headers("traces")["authorization"], "Bearer a%b", "{wire:?}");
        assert_eq!(headers("metrics")["x-tenant"], "t", "{wire:?}");
        assert_eq!(headers("logs")["x-tenant"], "logs", "{wire:?}");
        assert!(!headers("logs").contains_key("authorization"), "{wire:?}");
        let encoding = if wire == Wire::Grpc { "grpc-encoding" } else { "content-encoding" };
        assert_eq!(headers("traces")[encoding], "gzip", "{wire:?}");
        collector.wait_for_span("work");
    }
}

#[test]
fn https_is_trusted_by_the_certificate_that_a_variable_names() {
    let certificate = Certificate::for_localhost();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), &certificate.certificate).unwrap();
    for wire in [Wire::Grpc, Wire::Http] {
        let collector = Collector::start_secure(wire, &certificate);
        let endpoint = format!("https://localhost:{}", collector.address().port());
        let trusting = to(wire, endpoint.clone())
            .variable("OTEL_EXPORTER_OTLP_CERTIFICATE", file.path())
            .build()
            .unwrap();
        send(&trusting);
        trusting.shutdown(ENOUGH).unwrap();
        assert_eq!(collector.received().spans.len(), 1, "{wire:?}");

        let stranger = to(wire, endpoint).build().unwrap();
        send(&stranger);
        let Err(FlushError::Undelivered(trouble)) = stranger.shutdown(ENOUGH) else {
            panic!("{wire:?}: a stranger's certificate was trusted");
        };
        assert!(trouble.error.contains("certificate"), "{wire:?}: {trouble}");
        assert_eq!(collector.received().spans.len(), 1, "{wire:?}");
    }
}

#[test]
fn each_signal_has_its_own_endpoint_and_protocol() {
    let (grpc, http) = (Collector::start(Wire::Grpc), Collector::start(Wire::Http));
    let otlp = to(Wire::Grpc, grpc.endpoint())
        .variable("OTEL_EXPORTER_OTLP_LOGS_PROTOCOL", "http/protobuf")
        .variable("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", format!("{}/v1/logs", http.endpoint()))
        .variable("OTEL_METRICS_EXPORTER", "none")
        .build()
        .unwrap();
    send(&otlp);
    otlp.shutdown(ENOUGH).unwrap();
    let (grpc, http) = (grpc.received(), http.received());
    assert_eq!((grpc.spans.len(), grpc.logs.len(), grpc.metrics.len()), (1, 0, 0));
    assert_eq!((http.spans.len(), http.logs.len(), http.metrics.len()), (0, 1, 0));
}

#[test]
fn temporality_and_sampler_are_chosen_by_variables() {
    let collector = Collector::start(Wire::Http);
    let otlp = to(Wire::Http, collector.endpoint())
        .variable("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "delta")
        .variable("OTEL_TRACES_SAMPLER", "always_off")
        .build()
        .unwrap();
    send(&otlp);
    otlp.shutdown(ENOUGH).unwrap();
    let received = collector.received();
    assert_eq!(received.spans.len(), 0);
    let Some(metric::Data::Sum(sum)) = &received.metric("serving.test").unwrap().data.data else {
        panic!("no sum");
    };
    assert_eq!(sum.aggregation_temporality(), AggregationTemporality::Delta);
}

#[test]
fn what_is_private_does_not_leave() {
    let collector = Collector::start(Wire::Http);
    let otlp = to(Wire::Http, collector.endpoint()).private_target("engine").build().unwrap();
    let (dispatch, _log) = subscriber(&otlp);
    tracing::dispatcher::with_default(&dispatch, || {
        tracing::info_span!("request").in_scope(|| {
            tracing::info!(target: "serving_sentinel::engine", "a prompt in an engine's line");
            tracing::info!(target: "engine::stderr", "a prompt under a target of one's own");
            tracing::info!(target: "my_program", "an event of the program");
            tracing::debug!(target: "my_program", "for developers");
            alarm();
        });
        tracing::debug_span!("for_developers").in_scope(|| {});
    });
    otlp.shutdown(ENOUGH).unwrap();
    let received = collector.received();
    assert_eq!(received.spans.len(), 1);
    let events: Vec<_> =
        received.spans[0].data.events.iter().map(|event| event.name.as_str()).collect();
    assert_eq!(events, ["an event of the program"]);
    let records: Vec<_> = received.logs.iter().map(|log| log.data.event_name.as_str()).collect();
    assert_eq!(records, ["serving.placement.cpu_fallback"], "alarms alone are log records");
}

#[test]
fn an_alarm_said_on_another_thread_has_the_trace_it_is_about() {
    let collector = Collector::start(Wire::Http);
    let otlp = to(Wire::Http, collector.endpoint()).build().unwrap();
    let (dispatch, _log) = subscriber(&otlp);
    let context =
        tracing::dispatcher::with_default(&dispatch, || tracing::info_span!("request").context());
    let trace = context.span().span_context().trace_id();
    std::thread::spawn(move || {
        let _about = context.attach();
        assert_eq!(Context::current().span().span_context().trace_id(), trace);
        tracing::dispatcher::with_default(&dispatch, alarm);
    })
    .join()
    .unwrap();
    otlp.shutdown(ENOUGH).unwrap();
    let record = collector.wait_for_log("serving.placement.cpu_fallback");
    assert_eq!(record.data.trace_id, trace.to_bytes());
}

#[test]
fn metrics_have_room_for_every_lane() {
    let collector = Collector::start(Wire::Http);
    let count = |lanes: usize| {
        let otlp = to(Wire::Http, collector.endpoint())
            .variable("OTEL_METRIC_EXPORT_INTERVAL", "60000")
            .max_lanes(lanes)
            .build()
            .unwrap();
        let counter = meter(&otlp).u64_counter("serving.lanes").build();
        for lane in 0..5000 {
            counter.add(1, &[KeyValue::new("serving.lane.name", lane)]);
        }
        otlp.shutdown(ENOUGH).unwrap();
        let metric = collector.received().metric("serving.lanes").cloned().unwrap();
        let Some(metric::Data::Sum(sum)) = metric.data.data else { panic!("no sum") };
        sum.data_points.len()
    };
    assert_eq!(count(1000), 5000);
    assert_eq!(count(10), 161, "16 for each lane, and one for all others");
}

#[test]
fn boundaries_of_an_instrument_survive_the_room_for_lanes() {
    let collector = Collector::start(Wire::Http);
    let otlp = to(Wire::Http, collector.endpoint()).build().unwrap();
    let boundaries = vec![0.5, 1.0, 2.0];
    let meter = meter(&otlp);
    let histogram = meter.f64_histogram("serving.rate").with_boundaries(boundaries.clone());
    histogram.with_unit("{token}/s").build().record(1.5, &[]);
    otlp.shutdown(ENOUGH).unwrap();
    let metric = collector.wait_for_metric("serving.rate").data;
    assert_eq!(metric.unit, "{token}/s");
    let Some(metric::Data::Histogram(histogram)) = metric.data else { panic!("no histogram") };
    assert_eq!(histogram.data_points[0].explicit_bounds, boundaries);
}

#[test]
fn a_disabled_sdk_records_and_sends_nothing() {
    let collector = Collector::start(Wire::Http);
    let otlp =
        to(Wire::Http, collector.endpoint()).variable("OTEL_SDK_DISABLED", "true").build().unwrap();
    let (dispatch, log) = send(&otlp);
    tracing::dispatcher::with_default(&dispatch, || {
        let span = tracing::info_span!("work");
        assert!(!span.context().span().span_context().is_valid());
    });
    otlp.flush(ENOUGH).unwrap();
    otlp.shutdown(ENOUGH).unwrap();
    assert!(collector.received().requests.is_empty());
    assert_eq!(log.lines().len(), 1, "the program's own log goes on: {:#?}", log.lines());
}

#[test]
fn switched_off_metrics_are_no_error() {
    let off = [("OTEL_SDK_DISABLED", "true"), ("OTEL_METRICS_EXPORTER", "none")];
    for (variable, value) in off {
        let otlp = to(Wire::Http, "http://127.0.0.1:9").variable(variable, value).build().unwrap();
        let log = Log::default();
        let fmt = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(log.clone());
        let sentinel = SentinelLayer::builder().meter_provider(otlp.meter_provider()).build();
        let subscriber = tracing_subscriber::registry().with(fmt).with(otlp.layer()).with(sentinel);
        tracing::subscriber::with_default(subscriber, || {
            let lane = Lane::open(LaneConfig::new("chat-0").with_plan(Plan::GPU));
            lane.observe_line(b"srv    load_model: loading model '/models/m.gguf'");
            lane.observe_line(b"srv  llama_server: model loaded");
            assert!(lane.flush(ENOUGH));
        });
        let said = log.lines();
        assert!(
            said.iter().any(|line| line.contains("did not say where")),
            "{variable}: {said:#?}"
        );
        assert!(!said.iter().any(|line| line.contains("opentelemetry")), "{variable}: {said:#?}");
    }
}

#[test]
fn debug_events_stay_asleep() {
    let otlp = to(Wire::Http, "http://127.0.0.1:9").build().unwrap();
    let disabled =
        to(Wire::Http, "http://127.0.0.1:9").variable("OTEL_SDK_DISABLED", "true").build();
    for otlp in [&otlp, &disabled.unwrap()] {
        let (dispatch, log) = subscriber(otlp);
        tracing::dispatcher::with_default(&dispatch, || {
            assert!(!tracing::enabled!(tracing::Level::DEBUG));
            assert!(tracing::enabled!(tracing::Level::INFO));
            tracing::info!("heard");
        });
        assert_eq!(log.lines().len(), 1);
    }
}

#[test]
fn the_sentinels_findings_arrive() {
    let collector = Collector::start(Wire::Grpc);
    let otlp = to(Wire::Grpc, collector.endpoint()).build().unwrap();
    let sentinel = SentinelLayer::builder().meter_provider(otlp.meter_provider()).build();
    let subscriber = tracing_subscriber::registry().with(otlp.layer()).with(sentinel);
    tracing::subscriber::with_default(subscriber, || {
        let lane =
            Lane::open(LaneConfig::new("chat-0").with_plan(Plan::Gpu { minimum_share: None }));
        lane.observe_line(include_bytes!(
            "fixtures/recordings/llama-server-no-gpu-banner-lies.stderr.log"
        ));
        assert!(lane.flush(ENOUGH));
    });
    otlp.flush(ENOUGH).unwrap();
    let name = "serving.placement.cpu_fallback";
    let load = collector.wait_for_span("serving.load");
    let events: Vec<_> = load.data.events.iter().map(|event| event.name.as_str()).collect();
    assert_eq!(events, [name], "once, and by the sentinel");
    let alarm = collector.wait_for_log(name);
    assert_eq!(alarm.data.trace_id, load.data.trace_id);
    let metric = collector.wait_for_metric("serving.placement.violations");
    assert_eq!(metric.scope.name, "serving-sentinel");
    otlp.shutdown(ENOUGH).unwrap();
}

/// A neighbour that takes its time with an event, as a terminal can.
struct Slow(Duration);

impl<S: Subscriber> Layer<S> for Slow {
    fn on_event(&self, _: &Event<'_>, _: LayerContext<'_, S>) {
        std::thread::sleep(self.0);
    }
}

/// Has the sentinel find that a lane is on the CPU, next to a neighbour this slow, and ends the export at once.
fn find_and_end(otlp: Otlp, slow: Duration, end: impl FnOnce(Otlp)) {
    let sentinel = SentinelLayer::builder().meter_provider(otlp.meter_provider()).build();
    let subscriber = tracing_subscriber::registry()
        .with(Slow(slow).with_filter(INFO))
        .with(otlp.layer())
        .with(sentinel);
    let subscriber = Dispatch::new(subscriber);
    let lane = tracing::dispatcher::with_default(&subscriber, || {
        tracing::info_span!("work").in_scope(|| {});
        let lane = Lane::open(LaneConfig::new("chat-0").with_plan(Plan::GPU));
        lane.observe_line(include_bytes!(
            "fixtures/recordings/llama-server-no-gpu-banner-lies.stderr.log"
        ));
        lane
    });
    // Not under the subscriber: a guard may be dropped anywhere.
    end(otlp);
    drop(lane);
}

#[test]
fn what_was_found_last_is_told_before_the_exporters_end() {
    type End = fn(Otlp);
    let ends: [(&str, End); 3] = [
        ("drop", drop),
        ("shutdown", |otlp| otlp.shutdown(ENOUGH).unwrap()),
        ("flush", |otlp| otlp.flush(Duration::MAX).unwrap()),
    ];
    for (case, end) in ends {
        let collector = Collector::start(Wire::Http);
        // By timers nothing would be sent before the end.
        let otlp = to(Wire::Http, collector.endpoint())
            .variable("OTEL_BSP_SCHEDULE_DELAY", "60000")
            .variable("OTEL_BLRP_SCHEDULE_DELAY", "60000")
            .variable("OTEL_METRIC_EXPORT_INTERVAL", "60000");
        find_and_end(otlp.build().unwrap(), Duration::from_millis(300), end);
        let received = collector.received();
        assert!(received.log("serving.placement.cpu_fallback").is_some(), "{case}");
        assert!(received.span("serving.load").is_some(), "{case}");
        assert_eq!(received.value("serving.placement.violations"), Some(1.0), "{case}");
    }
}

#[test]
fn a_subscriber_that_hangs_holds_the_end_no_longer_and_costs_only_what_is_not_told() {
    let collector = Collector::start(Wire::Http);
    let otlp = to(Wire::Http, collector.endpoint()).build().unwrap();
    let mut took = Duration::ZERO;
    find_and_end(otlp, Duration::from_secs(5), |otlp| {
        let start = Instant::now();
        otlp.shutdown(Duration::from_secs(1)).unwrap();
        took = start.elapsed();
    });
    assert!(took < Duration::from_secs(2), "{took:?}");
    assert!(collector.received().span("work").is_some());
}

// === A collector that is away ===

#[test]
fn the_sentinel_says_that_it_is_blind() {
    let otlp = to(Wire::Http, format!("http://{}", nobody())).build().unwrap();
    let log = Log::default();
    let fmt = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(log.clone());
    let sentinel = SentinelLayer::builder().meter_provider(otlp.meter_provider()).build();
    let registry = tracing_subscriber::registry();
    let subscriber = registry.with(fmt.with_filter(INFO)).with(otlp.layer()).with(sentinel);
    tracing::subscriber::with_default(subscriber, || {
        let _lane = Lane::open(LaneConfig::new("chat-0"));
        tracing::info_span!("work").in_scope(|| {});
        log.wait_for("serving.blind.cause=\"collector_unreachable\"");
    });
}

/// A port on which nothing listens.
fn nobody() -> String {
    Collector::start(Wire::Reset).stop().to_string()
}

#[test]
fn without_a_collector_the_program_runs_on_and_its_log_says_one_line() {
    for wire in [Wire::Grpc, Wire::Http] {
        let otlp = to(wire, format!("http://{}", nobody())).build().unwrap();
        let (dispatch, log) = subscriber(&otlp);
        let start = Instant::now();
        tracing::dispatcher::with_default(&dispatch, || {
            for _ in 0..10_000 {
                tracing::info_span!("work").in_scope(|| {});
            }
        });
        assert!(start.elapsed() < Duration::from_secs(5), "{wire:?}: {:?}", start.elapsed());
        log.wait_for("cannot be reached");
        let health = otlp.health();
        let trouble = health.trouble().unwrap();
        assert_eq!(trouble.kind, TroubleKind::Unreachable);
        assert!(trouble.error.contains("onnection refused"), "{wire:?}: {}", trouble.error);
        let start = Instant::now();
        drop(otlp);
        assert!(start.elapsed() < Otlp::DROP_TIMEOUT + Duration::from_secs(1), "{wire:?}");
        assert!(health.lost() > 0, "{wire:?}");
        let lines = log.lines();
        let own: Vec<_> =
            lines.iter().filter(|line| line.contains("serving_sentinel::otlp")).collect();
        assert_eq!(own.len(), 1, "{wire:?}: {lines:#?}");
        // The SDK says once that its queue is full, which this loop fills.
        assert!(lines.len() <= 3, "{wire:?}: {lines:#?}");
    }
}

#[test]
fn failed_exports_are_not_logged_one_by_one() {
    for wire in [Wire::Grpc, Wire::Http] {
        let collector = Collector::start(wire);
        collector.behave(Behaviour::Unavailable);
        let otlp = to(wire, collector.endpoint())
            .variable("OTEL_TRACES_EXPORTER", "none")
            .variable("OTEL_LOGS_EXPORTER", "none")
            .variable("OTEL_EXPORTER_OTLP_TIMEOUT", "50")
            .variable("OTEL_METRIC_EXPORT_INTERVAL", "10")
            .build()
            .unwrap();
        let (_dispatch, log) = send(&otlp);
        collector.wait_for("ten failed exports", |received| {
            (received.requests.len() > 10).then_some(())
        });
        assert!(otlp.shutdown(ENOUGH).is_err());
        let lines: Vec<_> =
            log.lines().into_iter().filter(|line| !line.contains("runs on the CPU")).collect();
        assert_eq!(lines.len(), 1, "{wire:?}: {lines:#?}");
    }
}

#[test]
fn a_collector_that_hangs_or_resets_holds_the_program_for_five_seconds_at_most() {
    for wire in [Wire::Grpc, Wire::Http] {
        let collector = Collector::start(wire);
        collector.behave(Behaviour::Hang);
        let otlp = to(wire, collector.endpoint()).build().unwrap();
        let (_dispatch, log) = send(&otlp);
        collector.wait_for_request("traces");
        let start = Instant::now();
        let ended = otlp.shutdown(Duration::from_millis(500));
        assert_eq!(ended, Err(FlushError::TimedOut { after: Duration::from_millis(500) }));
        assert!(start.elapsed() < Duration::from_secs(2), "{wire:?}: {:?}", start.elapsed());
        log.wait_for("given up at shutdown");

        let otlp = to(wire, collector.endpoint()).build().unwrap();
        send(&otlp);
        let start = Instant::now();
        drop(otlp);
        let took = start.elapsed();
        assert!(took < Otlp::DROP_TIMEOUT + Duration::from_millis(500), "{wire:?}: {took:?}");
    }
    let collector = Collector::start(Wire::Reset);
    for wire in [Wire::Grpc, Wire::Http] {
        let otlp = to(wire, collector.endpoint()).build().unwrap();
        send(&otlp);
        assert!(matches!(otlp.shutdown(ENOUGH), Err(FlushError::Undelivered(_))), "{wire:?}");
    }
}

#[test]
fn a_collector_that_comes_back_is_told_of_and_gets_what_comes_then() {
    for wire in [Wire::Grpc, Wire::Http] {
        let address = Collector::start(wire).stop();
        let otlp = to(wire, format!("http://{address}"))
            .variable("OTEL_LOGS_EXPORTER", "none")
            .build()
            .unwrap();
        let (dispatch, log) = send(&otlp);
        log.wait_for("cannot be reached");
        assert!(serving_sentinel::otlp::collector_unreachable().is_some());
        let collector = Collector::start_at(wire, address);
        let span = || tracing::info_span!("later").in_scope(|| {});
        tracing::dispatcher::with_default(&dispatch, span);
        collector.wait_for_span("later");
        collector.wait_for_metric("serving.test");
        log.wait_for("answers again");
        assert_eq!(otlp.health().trouble(), None);
        otlp.shutdown(ENOUGH).unwrap();
        let own = log.lines().iter().filter(|line| line.contains("sentinel::otlp")).count();
        assert_eq!(own, 2, "{wire:?}: {:#?}", log.lines());
    }
}

#[test]
fn a_collector_that_refuses_is_told_of_once_for_each_signal() {
    for wire in [Wire::Grpc, Wire::Http] {
        let collector = Collector::start(wire);
        collector.behave(Behaviour::Refuse);
        let otlp = to(wire, collector.endpoint()).build().unwrap();
        let (_dispatch, log) = send(&otlp);
        for signal in Signal::ALL {
            log.wait_for(&format!("refuses {signal}"));
        }
        let Err(FlushError::Undelivered(trouble)) = otlp.shutdown(ENOUGH) else {
            panic!("all was refused");
        };
        assert_eq!(trouble.kind, TroubleKind::Refused);
        let own = log.lines().iter().filter(|line| line.contains("sentinel::otlp")).count();
        assert_eq!(own, 3, "{wire:?}: {:#?}", log.lines());
    }
}

// === Where it runs ===

#[test]
fn it_works_within_any_runtime() {
    let runtimes = [
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap(),
        tokio::runtime::Builder::new_current_thread().build().unwrap(),
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap(),
    ];
    for runtime in runtimes {
        for wire in [Wire::Grpc, Wire::Http] {
            let collector = Collector::start(wire);
            runtime.block_on(async {
                let otlp = to(wire, collector.endpoint()).build().unwrap();
                send(&otlp);
                otlp.flush(ENOUGH).unwrap();
                drop(otlp);
            });
            assert_eq!(collector.received().spans.len(), 1);
            assert_eq!(collector.received().logs.len(), 1);
        }
    }
}

/// What the connections do on their own thread is heard by a global subscriber alone.
#[test]
fn the_exporter_is_not_traced_itself() {
    if std::env::var_os("OTEL_EXPORTER_OTLP_ENDPOINT").is_some() {
        let otlp = Otlp::builder().level(LevelFilter::TRACE).build().unwrap();
        tracing_subscriber::registry().with(otlp.layer()).init();
        for _ in 0..5 {
            work(&otlp);
            otlp.flush(ENOUGH).unwrap();
        }
        return otlp.shutdown(ENOUGH).unwrap();
    }
    for (wire, protocol) in [(Wire::Grpc, "grpc"), (Wire::Http, "http/protobuf")] {
        let collector = Collector::start(wire);
        in_a_process("the_exporter_is_not_traced_itself")
            .env("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint())
            .env("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
            .succeeds();
        let spans = collector.received().spans;
        let names: Vec<_> = spans.iter().map(|span| span.data.name.as_str()).collect();
        assert_eq!(names, ["work"; 5], "{wire:?}");
    }
}

/// One test of this file in a process of its own, with an environment of its own.
struct Process(Command);

fn in_a_process(test: &str) -> Process {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]);
    Process(command)
}

impl Process {
    fn env(mut self, name: &str, value: impl AsRef<std::ffi::OsStr>) -> Self {
        self.0.env(name, value);
        self
    }

    #[track_caller]
    fn succeeds(mut self) -> String {
        let output = self.0.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        said
    }
}

#[test]
fn the_environment_decides() {
    if std::env::var_os("OTEL_SERVICE_NAME").is_some() {
        let otlp = Otlp::from_env().unwrap();
        tracing_subscriber::registry()
            .with(tracing_subscriber::fmt::layer().with_ansi(false).with_filter(INFO))
            .with(otlp.layer())
            .init();
        let meter = opentelemetry::global::meter("serving-sentinel");
        meter.u64_counter("serving.test").build().add(2, &[]);
        tracing::info_span!("work").in_scope(|| {
            let mut carrier = std::collections::HashMap::new();
            opentelemetry::global::get_text_map_propagator(|propagator| {
                propagator.inject_context(&tracing::Span::current().context(), &mut carrier);
            });
            assert!(carrier.contains_key("traceparent"), "{carrier:?}");
        });
        return;
    }
    let collector = Collector::start(Wire::Grpc);
    let said = in_a_process("the_environment_decides")
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint())
        .env("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
        .env("OTEL_SERVICE_NAME", "gateway")
        .env("OTEL_RESOURCE_ATTRIBUTES", "service.name=other,host.name=a%20b,team=models")
        .env("OTEL_LOGS_EXPORTER", "console")
        .succeeds();
    let received = collector.received();
    let span = received.span("work").expect("a dropped guard flushes");
    let resource = |key| attribute(&span.resource.attributes, key);
    assert_eq!(resource("service.name").as_deref(), Some("gateway"));
    assert_eq!(resource("host.name").as_deref(), Some("a b"));
    assert_eq!(resource("team").as_deref(), Some("models"));
    assert_eq!(received.value("serving.test"), Some(2.0), "the meter is global");
    let warning = "`console` in OTEL_LOGS_EXPORTER is ignored; expected `otlp` or `none`";
    assert_eq!(said.matches(warning).count(), 1, "{said}");
}

#[test]
fn errors_name_the_variable() {
    let error = |name: &str, value: &str| {
        let built = Otlp::builder().without_globals().variable(name, value).build();
        built.unwrap_err().to_string()
    };
    let rows = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "localhost:4318"),
        ("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "http/json"),
    ];
    for (name, value) in rows {
        let text = error(name, value);
        assert!(text.contains(name) && text.contains(value), "{text}");
    }
    let built = Otlp::builder()
        .without_globals()
        .variable("OTEL_EXPORTER_OTLP_ENDPOINT", "https://localhost:1")
        .variable("OTEL_EXPORTER_OTLP_CERTIFICATE", "/nowhere/ca.pem")
        .build();
    let text = built.unwrap_err().to_string();
    assert!(text.contains("/nowhere/ca.pem in OTEL_EXPORTER_OTLP_CERTIFICATE"), "{text}");
}
