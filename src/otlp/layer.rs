//! The `tracing` side: spans become OpenTelemetry spans, and the sentinel's alarms become log
//! records.
//!
//! Engine lines and prompts must never leave, so what passes is chosen here, before any exporter
//! sees it.

use std::sync::Arc;

use opentelemetry::InstrumentationScope;
use opentelemetry::logs::{LogRecord, Logger, LoggerProvider, Severity};
use opentelemetry::trace::TracerProvider;
use opentelemetry_appender_tracing::layer::OpenTelemetryTracingBridge;
use opentelemetry_sdk::logs::{SdkLogRecord, SdkLogger, SdkLoggerProvider};
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing::dispatcher::Dispatch;
use tracing::level_filters::LevelFilter;
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{FilterFn, filter_fn};
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use super::voice::Voice;
use crate::layer::filter::is_within;
use crate::telemetry::names;

/// The layer that spans and events pass to OpenTelemetry.
pub(super) fn spans<S>(
    provider: &SdkTracerProvider,
    level: LevelFilter,
    private: Arc<[String]>,
) -> impl Layer<S> + use<S>
where
    S: Subscriber + for<'span> LookupSpan<'span> + Send + Sync,
{
    tracing_opentelemetry::layer()
        .with_tracer(provider.tracer_with_scope(super::scope()))
        // Attributes of a span are those of the telemetry contract, and the program's own.
        .with_location(false)
        .with_threads(false)
        .with_target(false)
        .with_tracked_inactivity(false)
        .with_filter(up_to(level, move |metadata| is_span_or_public(metadata, &private)))
}

/// The layer that turns alarms into log records.
pub(super) fn alarms<S>(
    provider: &SdkLoggerProvider,
    level: LevelFilter,
    voice: Arc<Voice>,
) -> impl Layer<S> + use<S>
where
    S: Subscriber + for<'span> LookupSpan<'span> + Send + Sync,
{
    let bridge = OpenTelemetryTracingBridge::new(&Scoped(provider.clone()));
    AlarmLayer { bridge, voice }.with_filter(up_to(level, is_alarm))
}

/// Passes all spans, and events but our own: the sentinel writes its findings onto those spans
/// itself, and the events of engine lines are nobody's business outside.
fn is_span_or_public(metadata: &Metadata<'_>, private: &[String]) -> bool {
    let target = metadata.target();
    let is_private = || {
        is_within(target, names::TARGET) || private.iter().any(|private| is_within(target, private))
    };
    !(metadata.is_event() && is_private())
}

/// Passes the sentinel's alarms and no other event; each has a name of the telemetry contract.
fn is_alarm(metadata: &Metadata<'_>) -> bool {
    metadata.is_event()
        && metadata.target() == names::TARGET
        && metadata.name().starts_with("serving.")
}

/// A filter by metadata alone, decided once per callsite, that passes nothing beyond `level`.
fn up_to(
    level: LevelFilter,
    wants: impl Fn(&Metadata<'_>) -> bool,
) -> FilterFn<impl Fn(&Metadata<'_>) -> bool> {
    filter_fn(move |metadata: &Metadata<'_>| *metadata.level() <= level && wants(metadata))
        .with_max_level_hint(level)
}

// === impl AlarmLayer ===

struct AlarmLayer {
    bridge: OpenTelemetryTracingBridge<Scoped, ScopedLogger>,
    voice: Arc<Voice>,
}

impl<S> Layer<S> for AlarmLayer
where
    S: Subscriber + for<'span> LookupSpan<'span>,
{
    fn on_register_dispatch(&self, subscriber: &Dispatch) {
        self.voice.speak_to(subscriber);
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        self.bridge.on_event(event, context);
    }
}

/// Gives the bridge, which asks for a logger without a name, the one with ours.
struct Scoped(SdkLoggerProvider);

impl LoggerProvider for Scoped {
    type Logger = ScopedLogger;

    fn logger_with_scope(&self, _: InstrumentationScope) -> ScopedLogger {
        ScopedLogger(self.0.logger_with_scope(super::scope()))
    }
}

/// Emits records under our scope's name. The exporter takes a record's target for it where there is one, and the
/// bridge sets that of the event.
struct ScopedLogger(SdkLogger);

impl Logger for ScopedLogger {
    type LogRecord = SdkLogRecord;

    fn create_log_record(&self) -> SdkLogRecord {
        self.0.create_log_record()
    }

    fn emit(&self, mut record: SdkLogRecord) {
        record.set_target(names::SCOPE);
        self.0.emit(record);
    }

    fn event_enabled(&self, level: Severity, target: &str, name: Option<&str>) -> bool {
        self.0.event_enabled(level, target, name)
    }
}
