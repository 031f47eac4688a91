//! Blindness on the wire: each way in which the sentinel cannot see reaches the collector as a log record with the
//! remedy, as a gauge while it stands, and as the seconds that were not seen.

#![cfg(feature = "otlp")]
#![allow(
    clippy::unwrap_used,
    clippy::float_cmp,
    reason = "tests: what is exported is exact, and its absence is a failure"
)]

#[path = "support/otlp.rs"]
mod otlp;
mod support;
#[path = "support/wire.rs"]
mod wire;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use opentelemetry_proto::tonic::logs::v1::LogRecord;
use opentelemetry_sdk::metrics::SdkMeterProvider;
use serving_sentinel::lane::{BlindCause, LaneConfig};
use serving_sentinel::layer::{DroppedKind, Lane, SentinelLayer};
use serving_sentinel::otlp::OtlpBuilder;
use tracing::{Dispatch, Metadata, dispatcher, warn};
use tracing_subscriber::filter::{EnvFilter, dynamic_filter_fn};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry;

use otlp::{Collector, Received, Wire, attribute};
use support::{feed, load_of};
use wire::{Exports, Series, attributes, rows, to};

const ON_GPU: &str = "llama-server-remote-gpu-19-of-19.stderr.log";
const BLIND: &str = "serving.sentinel.blind";

/// Exports by itself, and soon: blindness comes and goes with time.
fn exports() -> Exports {
    let collector = Collector::start(Wire::Grpc);
    Exports { otlp: to_soon(&collector).build().unwrap(), collector }
}

fn to_soon(collector: &Collector) -> OtlpBuilder {
    to(collector)
        .variable("OTEL_BSP_SCHEDULE_DELAY", "50")
        .variable("OTEL_BLRP_SCHEDULE_DELAY", "50")
        .variable("OTEL_METRIC_EXPORT_INTERVAL", "100")
}

fn under<R>(subscriber: impl Into<Dispatch>, body: impl FnOnce() -> R) -> R {
    dispatcher::with_default(&subscriber.into(), body)
}

/// A subscriber with nothing that could hide anything.
fn plain(exports: &Exports) -> Dispatch {
    registry().with(exports.otlp.layer()).with(exports.sentinel().build()).into()
}

fn record<'a>(received: &'a Received, cause: BlindCause, state: &str) -> Option<&'a LogRecord> {
    received.logs.iter().map(|record| &record.data).find(|record| {
        let has = |key| attribute(&record.attributes, key);
        record.event_name == BLIND
            && has("serving.blind.cause").as_deref() == Some(cause.as_str())
            && has("serving.alarm.state").as_deref() == Some(state)
    })
}

/// Waits for the record of a blindness that begins; it is a warning, and says what to do.
#[track_caller]
fn expect_told(exports: &Exports, cause: BlindCause, lane: Option<&str>) {
    let record = exports.collector.wait_for(&format!("record of {cause:?}"), |received| {
        record(received, cause, "raised").cloned()
    });
    assert_eq!((record.severity_text.as_str(), record.severity_number), ("WARN", 13), "{cause:?}");
    let told = attributes(&record.attributes);
    let advice = told["serving.advice"].as_str().unwrap();
    assert!(advice.starts_with(cause.advice()), "{cause:?}: {advice}");
    assert_eq!(told.get("serving.lane.name").and_then(|name| name.as_str()), lane, "{cause:?}");
}

/// Waits until the gauge and the seconds show it, under the lane's name if it is of one.
#[track_caller]
fn expect_measured(exports: &Exports, cause: BlindCause, lane: Option<&str>) {
    let (alarm, unseen) = (of(lane, BLIND), of(lane, cause.as_str()));
    let seconds = exports.collector.wait_for(&format!("metrics of {cause:?}"), |received| {
        let last = Series::last(received);
        let stands = last.of("serving.alarms.active").get(&alarm) == Some(&1.0);
        last.of("serving.sentinel.unseen").get(&unseen).copied().filter(|_| stands)
    });
    assert!((0.9..20.0).contains(&seconds), "{cause:?}: {seconds} s");
}

/// Waits until it is told to be over, and no gauge shows it.
#[track_caller]
fn expect_cleared(exports: &Exports, cause: BlindCause, lane: Option<&str>) {
    let alarm = of(lane, BLIND);
    exports.collector.wait_for(&format!("end of {cause:?}"), |received| {
        let record = record(received, cause, "cleared")?;
        assert_eq!(record.severity_text, "INFO", "{cause:?}");
        (Series::last(received).of("serving.alarms.active").get(&alarm) == Some(&0.0)).then_some(())
    });
}

/// A series as `Series::of` names it.
fn of(lane: Option<&str>, what: &str) -> String {
    lane.map_or_else(|| what.to_owned(), |lane| format!("{lane} {what}"))
}

// === the engine's output ===

#[test]
fn an_engine_that_says_nothing() {
    let exports = exports();
    under(plain(&exports), || {
        let lane = Lane::open(LaneConfig::new("chat-0"));
        lane.ready();
        expect_told(&exports, BlindCause::NoOutput, Some("chat-0"));
        expect_measured(&exports, BlindCause::NoOutput, Some("chat-0"));
        lane.observe_line(b"a line after all");
        expect_cleared(&exports, BlindCause::NoOutput, Some("chat-0"));
    });
}

#[test]
fn an_engine_that_nobody_knows() {
    let exports = exports();
    under(plain(&exports), || {
        let lane = Lane::open(LaneConfig::new("chat-0"));
        lane.observe_line(b"Engine of tomorrow, version 1");
        lane.ready();
        expect_told(&exports, BlindCause::UnknownEngine, Some("chat-0"));
        expect_measured(&exports, BlindCause::UnknownEngine, Some("chat-0"));
        feed(&lane, &load_of(ON_GPU));
        expect_cleared(&exports, BlindCause::UnknownEngine, Some("chat-0"));
    });
}

#[test]
fn an_engine_that_closed_its_output_and_lives() {
    let exports = exports();
    under(plain(&exports), || {
        let lane = Lane::open(LaneConfig::new("chat-0"));
        feed(&lane, &load_of(ON_GPU));
        lane.output_closed();
        expect_told(&exports, BlindCause::OutputClosed, Some("chat-0"));
        expect_measured(&exports, BlindCause::OutputClosed, Some("chat-0"));
        lane.observe_line(b"a line after all");
        expect_cleared(&exports, BlindCause::OutputClosed, Some("chat-0"));
    });
}

// === the program's set-up ===

#[test]
fn a_program_without_the_layer() {
    let exports = exports();
    under(registry().with(exports.otlp.layer()), || {
        let _lane = Lane::open(LaneConfig::new("chat-0"));
        expect_told(&exports, BlindCause::LayerNotInstalled, Some("chat-0"));
    });
}

#[test]
fn a_filter_that_hides_the_lines_of_an_engine() {
    let exports = exports();
    let sentinel = exports.sentinel().engine_target("my_app::engine").build();
    let filter = EnvFilter::new("info,my_app=off");
    under(registry().with(exports.otlp.layer()).with(sentinel).with(filter), || {
        // Nobody opens a lane: its events would, if they came.
        expect_told(&exports, BlindCause::EventsFiltered, None);
        expect_measured(&exports, BlindCause::EventsFiltered, None);
    });
}

#[test]
fn a_filter_that_hides_requests() {
    let exports = exports();
    let hides = Arc::new(AtomicBool::new(true));
    let filter = dynamic_filter_fn({
        let hides = Arc::clone(&hides);
        move |metadata: &Metadata<'_>, _| !(metadata.is_span() && hides.load(Ordering::Relaxed))
    });
    let layers = registry().with(exports.otlp.layer()).with(exports.sentinel().build());
    under(layers.with(filter), || {
        let lane = Lane::open(LaneConfig::new("chat-0"));
        drop(lane.request_span("chat"));
        expect_told(&exports, BlindCause::SpansFiltered, Some("chat-0"));
        expect_measured(&exports, BlindCause::SpansFiltered, Some("chat-0"));
        hides.store(false, Ordering::Relaxed);
        drop(lane.request_span("chat"));
        expect_cleared(&exports, BlindCause::SpansFiltered, Some("chat-0"));
    });
}

#[test]
fn a_filter_that_hides_even_the_alarm_leaves_the_metrics() {
    let exports = exports();
    let filter = EnvFilter::new("info,serving_sentinel=off");
    let layers = registry().with(exports.otlp.layer()).with(exports.sentinel().build());
    under(layers.with(filter), || {
        let lane = Lane::open(LaneConfig::new("chat-0"));
        drop(lane.request_span("chat"));
        expect_measured(&exports, BlindCause::SpansFiltered, Some("chat-0"));
        assert!(exports.collector.received().logs.is_empty());
    });
}

#[test]
fn more_lanes_than_there_is_room_for() {
    let exports = exports();
    let sentinel = exports.sentinel().max_lanes(1).build();
    under(registry().with(exports.otlp.layer()).with(sentinel), || {
        let _lanes = ["one", "two"].map(|name| Lane::open(LaneConfig::new(name)));
        warn!(target: "serving_sentinel::engine", lane = "three", "of a lane that nobody opened");
        expect_told(&exports, BlindCause::TooManyLanes, None);
        expect_measured(&exports, BlindCause::TooManyLanes, None);
        let dropped = exports.series().of("serving.sentinel.dropped");
        assert_eq!(dropped, rows([("lane", 1.0)]));
    });
}

// === where it goes ===

#[test]
fn metrics_that_nobody_collects() {
    let exports = exports();
    let unread = SdkMeterProvider::builder().build();
    let sentinel = SentinelLayer::builder().meter_provider(unread).meter_grace(Duration::ZERO);
    under(registry().with(exports.otlp.layer()).with(sentinel.build()), || {
        let lane = Lane::open(LaneConfig::new("chat-0"));
        feed(&lane, &load_of(ON_GPU));
        expect_told(&exports, BlindCause::NoMeterProvider, None);
    });
}

#[test]
fn a_collector_of_one_signal_that_is_away() {
    let nobody = Collector::start(Wire::Reset).stop();
    let collector = Collector::start(Wire::Grpc);
    let otlp = to_soon(&collector)
        .variable("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", format!("http://{nobody}"))
        .variable("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "200")
        .build();
    let exports = Exports { otlp: otlp.unwrap(), collector };
    under(plain(&exports), || {
        let lane = Lane::open(LaneConfig::new("chat-0"));
        feed(&lane, &load_of(ON_GPU));
        expect_told(&exports, BlindCause::CollectorUnreachable, None);
        expect_measured(&exports, BlindCause::CollectorUnreachable, None);

        let back = Collector::start_at(Wire::Grpc, nobody);
        feed(&lane, &load_of(ON_GPU));
        expect_cleared(&exports, BlindCause::CollectorUnreachable, None);
        back.wait_for_span("serving.load");
    });
}

// === what was seen in part ===

#[test]
fn what_was_cut_or_dropped_is_counted() {
    let exports = exports();
    under(plain(&exports), || {
        let lane = Lane::open(LaneConfig::new("chat-0"));
        feed(&lane, &load_of(ON_GPU));
        lane.count_truncated(3);
        lane.count_dropped(DroppedKind::LogLine, 2);
        lane.count_dropped(DroppedKind::EngineEvent, 1);
        let series = exports.series();
        assert_eq!(series.of("serving.sentinel.truncated"), rows([("chat-0", 3.0)]));
        assert_eq!(
            series.of("serving.sentinel.dropped"),
            rows([("log_line", 2.0), ("engine_event", 1.0)])
        );
    });
}
