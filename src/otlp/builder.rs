//! Choices of the program's own, and the building of the providers.

use std::collections::HashMap;
use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use opentelemetry::propagation::{TextMapCompositePropagator, TextMapPropagator};
use opentelemetry::{KeyValue, Value, global};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::logs::{
    BatchConfigBuilder as LogBatchConfig, BatchLogProcessor, SdkLoggerProvider,
};
use opentelemetry_sdk::metrics::{Instrument, PeriodicReader, SdkMeterProvider, Stream};
use opentelemetry_sdk::propagation::{BaggagePropagator, TraceContextPropagator};
use opentelemetry_sdk::trace::{
    BatchConfigBuilder as SpanBatchConfig, BatchSpanProcessor, Sampler, SdkTracerProvider,
};
use tracing::level_filters::LevelFilter;

use super::exporters::{self, NetworkError};
use super::health::ExportHealth;
use super::resource::resource;
use super::route::Route;
use super::settings::{Propagator, Settings};
use super::signal::Signal;
use super::transport::{Discard, Transport, Watched};
use super::voice::{Line, Voice};
use super::{Otlp, OtlpError};
use crate::telemetry::names;

/// When a program has surely set its subscriber, after it has set up the export. While it does, and
/// from within its layers, nothing can be said.
const SUBSCRIBER_IS_SET: Duration = Duration::from_secs(1);

/// Builds an [`Otlp`].
#[derive(Clone, Debug)]
#[must_use]
pub struct OtlpBuilder {
    max_lanes: usize,
    attributes: Vec<KeyValue>,
    variables: HashMap<String, OsString>,
    private_targets: Vec<String>,
    level: LevelFilter,
    is_global: bool,
}

impl Default for OtlpBuilder {
    fn default() -> Self {
        Self {
            max_lanes: Self::DEFAULT_MAX_LANES,
            attributes: Vec::new(),
            variables: HashMap::new(),
            private_targets: Vec::new(),
            level: Self::DEFAULT_LEVEL,
            is_global: true,
        }
    }
}

impl OtlpBuilder {
    /// More engines than one process is likely to watch.
    pub const DEFAULT_MAX_LANES: usize = 1000;

    /// Spans and events under this level are for a developer's own log.
    pub const DEFAULT_LEVEL: LevelFilter = LevelFilter::INFO;

    /// The series that one lane may have on one instrument: eight devices with two buffers each.
    const SERIES_PER_LANE: usize = 16;

    /// The SDK makes room for all series of an instrument at once, so there is an end to it.
    const MAX_SERIES: usize = 1 << 20;

    /// Sets for how many lanes metrics have room. The SDK keeps so many series on an instrument and
    /// folds all others into one (`otel.metric.overflow`).
    ///
    /// By default, this is [`DEFAULT_MAX_LANES`](Self::DEFAULT_MAX_LANES).
    pub fn max_lanes(self, max_lanes: usize) -> Self {
        Self { max_lanes, ..self }
    }

    /// Adds an attribute to the resource. `OTEL_RESOURCE_ATTRIBUTES` and `OTEL_SERVICE_NAME` win
    /// over it.
    pub fn resource_attribute(mut self, key: &'static str, value: impl Into<Value>) -> Self {
        self.attributes.push(KeyValue::new(key, value));
        self
    }

    /// Sets a variable as if it stood in the environment, and in place of what stands there.
    pub fn variable(mut self, name: impl Into<String>, value: impl Into<OsString>) -> Self {
        self.variables.insert(name.into(), value.into());
        self
    }

    /// Keeps events of this target, and of those below it, off the exported spans: for a program
    /// that logs its engine's lines under a target of its own.
    pub fn private_target(mut self, target: impl Into<String>) -> Self {
        self.private_targets.push(target.into());
        self
    }

    /// Sets the least severe level of spans, and of events within them, that are exported. Alarms
    /// are always.
    ///
    /// By default, this is [`DEFAULT_LEVEL`](Self::DEFAULT_LEVEL).
    pub fn level(self, level: LevelFilter) -> Self {
        Self { level, ..self }
    }

    /// Leaves the global tracer and meter provider and the propagators alone.
    pub fn without_globals(self) -> Self {
        Self { is_global: false, ..self }
    }

    /// Sets everything up.
    ///
    /// # Errors
    ///
    /// As [`Otlp::from_env`].
    pub fn build(self) -> Result<Otlp, OtlpError> {
        let settings = Settings::read(&|name| {
            self.variables.get(name).cloned().or_else(|| std::env::var_os(name))
        })?;
        let voice = Arc::new(Voice::default());
        let health = ExportHealth::new(settings.routes(), voice.clone());
        let transport = if settings.disabled {
            None
        } else {
            Some(Arc::new(Transport::start().map_err(OtlpError::Thread)?))
        };
        let parts = Parts {
            resource: resource(&settings, &self.attributes),
            transport: transport.clone(),
            health: health.clone(),
            max_series: (self.max_lanes.saturating_mul(Self::SERIES_PER_LANE))
                .clamp(Self::SERIES_PER_LANE, Self::MAX_SERIES),
        };
        let traces = parts.traces(&settings)?;
        let metrics = parts.metrics(&settings)?;
        let logs = parts.logs(&settings)?;
        if self.is_global {
            global::set_text_map_propagator(propagator(&settings.propagators));
            global::set_tracer_provider(traces.clone());
            global::set_meter_provider(metrics.clone());
        }
        if let (Some(transport), false) = (&transport, settings.ignored.is_empty()) {
            voice.keep(settings.ignored.iter().cloned().map(Line::Ignored));
            let voice = voice.clone();
            transport.after(SUBSCRIBER_IS_SET, move || voice.say_kept());
        }
        Ok(Otlp {
            traces,
            metrics,
            logs,
            transport,
            health,
            voice,
            ignored: settings.ignored,
            level: self.level,
            private_targets: self.private_targets.into(),
            is_shut_down: false,
        })
    }
}

fn propagator(chosen: &[Propagator]) -> TextMapCompositePropagator {
    TextMapCompositePropagator::new(
        chosen
            .iter()
            .map(|propagator| -> Box<dyn TextMapPropagator + Send + Sync> {
                match propagator {
                    Propagator::TraceContext => Box::new(TraceContextPropagator::new()),
                    Propagator::Baggage => Box::new(BaggagePropagator::new()),
                }
            })
            .collect(),
    )
}

/// What all three providers are made of.
struct Parts {
    resource: Resource,
    transport: Option<Arc<Transport>>,
    health: ExportHealth,
    max_series: usize,
}

impl Parts {
    fn traces(&self, settings: &Settings) -> Result<SdkTracerProvider, OtlpError> {
        let mut builder = SdkTracerProvider::builder().with_resource(self.resource.clone());
        builder = builder.with_sampler(if settings.disabled {
            Sampler::AlwaysOff
        } else {
            settings.sampler.clone()
        });
        let exporter = self.watch(Signal::Traces, settings.traces.as_ref(), exporters::spans)?;
        if let Some(exporter) = exporter {
            let batching = &settings.span_batching;
            let config = SpanBatchConfig::default()
                .with_max_queue_size(batching.queue)
                .with_max_export_batch_size(batching.batch)
                .with_scheduled_delay(batching.delay)
                .build();
            let processor = BatchSpanProcessor::builder(exporter).with_batch_config(config).build();
            builder = builder.with_span_processor(processor);
        }
        Ok(builder.build())
    }

    fn metrics(&self, settings: &Settings) -> Result<SdkMeterProvider, OtlpError> {
        let mut builder = SdkMeterProvider::builder().with_resource(self.resource.clone());
        let exporter = self.watch(Signal::Metrics, settings.metrics.as_ref(), |route, cause| {
            exporters::metrics(route, settings.temporality, cause)
        })?;
        let Some(exporter) = exporter else {
            // The SDK calls every observable instrument of a provider without a reader an error.
            let reader =
                PeriodicReader::builder(Discard).with_interval(settings.metric_interval).build();
            return Ok(builder.with_reader(reader).build());
        };
        let reader =
            PeriodicReader::builder(exporter).with_interval(settings.metric_interval).build();
        let max_series = self.max_series;
        let room_for_lanes = move |instrument: &Instrument| {
            let is_ours = instrument.scope().name() == names::SCOPE;
            is_ours
                .then(|| Stream::builder().with_cardinality_limit(max_series).build().ok())
                .flatten()
        };
        builder = builder.with_reader(reader).with_view(room_for_lanes);
        Ok(builder.build())
    }

    fn logs(&self, settings: &Settings) -> Result<SdkLoggerProvider, OtlpError> {
        let mut builder = SdkLoggerProvider::builder().with_resource(self.resource.clone());
        let exporter = self.watch(Signal::Logs, settings.logs.as_ref(), exporters::logs)?;
        if let Some(exporter) = exporter {
            let batching = &settings.log_batching;
            let config = LogBatchConfig::default()
                .with_max_queue_size(batching.queue)
                .with_max_export_batch_size(batching.batch)
                .with_scheduled_delay(batching.delay)
                .build();
            let processor = BatchLogProcessor::builder(exporter).with_batch_config(config).build();
            builder = builder.with_log_processor(processor);
        }
        Ok(builder.build())
    }

    /// A signal's exporter, watched; `None` where the signal has no route.
    fn watch<E>(
        &self,
        signal: Signal,
        route: Option<&Route>,
        build: impl FnOnce(&Route, &NetworkError) -> Result<E, OtlpError>,
    ) -> Result<Option<Watched<E>>, OtlpError> {
        let (Some(route), Some(transport)) = (route, &self.transport) else { return Ok(None) };
        let network_error = NetworkError::default();
        let exporter = {
            let _runtime = transport.enter();
            build(route, &network_error)?
        };
        let (transport, health) = (transport.clone(), self.health.clone());
        Ok(Some(Watched::new(exporter, signal, route.timeout, transport, health, network_error)))
    }
}
