//! Sets up traces, metrics and logs over OTLP from the standard `OTEL_*` variables, in one call.
//!
//! ```no_run
//! use serving_sentinel::otlp::Otlp;
//! use tracing_subscriber::prelude::*;
//!
//! let otlp = Otlp::from_env()?;
//! tracing_subscriber::registry().with(tracing_subscriber::fmt::layer()).with(otlp.layer()).init();
//! // ... the program; when `otlp` is dropped, what is left is sent, in at most five seconds.
//! # Ok::<(), serving_sentinel::otlp::OtlpError>(())
//! ```
//!
//! A collector that is away neither blocks nor fails the program. Queues are bounded, and what does
//! not arrive is dropped and counted ([`ExportHealth::lost`]). The log says it once when the
//! collector goes away and once when it is back (target `serving_sentinel::otlp`).
//! The SDK adds one line of its own when a queue is full.
//!
//! # What leaves
//!
//! All spans up to [`OtlpBuilder::level`], with the program's own events inside of them;
//! metrics; and, as log records, the sentinel's alarms alone. Events of engine lines stay. A
//! program that wants its own log exported adds its own bridge:
//!
//! ```no_run
//! # let otlp = serving_sentinel::otlp::Otlp::from_env()?;
//! use opentelemetry_appender_tracing::layer::OpenTelemetryTracingBridge;
//!
//! let bridge = OpenTelemetryTracingBridge::new(&otlp.logger_provider());
//! # let _: OpenTelemetryTracingBridge<_, _> = bridge;
//! # Ok::<(), serving_sentinel::otlp::OtlpError>(())
//! ```
//!
//! The connection's own libraries speak at DEBUG and below. With such a log level, add
//! `h2=off,hyper_util=off,tonic=off` to the filter.
//!
//! # Variables
//!
//! `*` stands for `TRACES`, `METRICS` or `LOGS`; without it, the variable is for all three. An
//! empty value is no value. A value that cannot be understood is ignored with a warning
//! ([`Otlp::ignored_settings`]), which the layer says, too.
//!
//! | variable | default | |
//! | --- | --- | --- |
//! | `OTEL_SDK_DISABLED` | `false` | `true`: nothing is recorded and nothing sent |
//! | `OTEL_*_EXPORTER` | `otlp` | `otlp` or `none` |
//! | `OTEL_EXPORTER_OTLP_PROTOCOL`, `OTEL_EXPORTER_OTLP_*_PROTOCOL` | `http/protobuf` | or `grpc`; `http/json` is an error |
//! | `OTEL_EXPORTER_OTLP_ENDPOINT` | `http://localhost:4318`, for gRPC `http://localhost:4317` | for HTTP a base, to which `/v1/traces` and so on is added |
//! | `OTEL_EXPORTER_OTLP_*_ENDPOINT` | | used as it stands |
//! | `OTEL_EXPORTER_OTLP_INSECURE`, `OTEL_EXPORTER_OTLP_*_INSECURE` | `false` | `true`: a gRPC endpoint without a scheme is `http://` |
//! | `OTEL_EXPORTER_OTLP_HEADERS`, `OTEL_EXPORTER_OTLP_*_HEADERS` | | `key=value,key=value` |
//! | `OTEL_EXPORTER_OTLP_COMPRESSION`, `OTEL_EXPORTER_OTLP_*_COMPRESSION` | `none` | or `gzip` |
//! | `OTEL_EXPORTER_OTLP_TIMEOUT`, `OTEL_EXPORTER_OTLP_*_TIMEOUT` | 10000 | milliseconds for one export, retries included |
//! | `OTEL_EXPORTER_OTLP_CERTIFICATE`, `OTEL_EXPORTER_OTLP_*_CERTIFICATE` | the system's | a file of trusted certificates (PEM) |
//! | `OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE`, `.._CLIENT_KEY`, also with `*` | | two files for mutual TLS (PEM) |
//! | `OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE` | `cumulative` | or `delta`, `lowmemory` |
//! | `OTEL_METRIC_EXPORT_INTERVAL` | 60000 | milliseconds |
//! | `OTEL_METRIC_EXPORT_TIMEOUT`, `OTEL_BSP_EXPORT_TIMEOUT`, `OTEL_BLRP_EXPORT_TIMEOUT` | | milliseconds; the smaller of this and the OTLP timeout holds |
//! | `OTEL_BSP_MAX_QUEUE_SIZE`, `OTEL_BLRP_MAX_QUEUE_SIZE` | 2048 | spans, log records |
//! | `OTEL_BSP_MAX_EXPORT_BATCH_SIZE`, `OTEL_BLRP_MAX_EXPORT_BATCH_SIZE` | 512 | spans, log records |
//! | `OTEL_BSP_SCHEDULE_DELAY`, `OTEL_BLRP_SCHEDULE_DELAY` | 5000, 1000 | milliseconds |
//! | `OTEL_TRACES_SAMPLER`, `OTEL_TRACES_SAMPLER_ARG` | `parentbased_always_on` | `always_on`, `always_off`, `traceidratio`, each also with `parentbased_` |
//! | `OTEL_PROPAGATORS` | `tracecontext,baggage` | or `none` |
//! | `OTEL_SERVICE_NAME` | `serving-sentinel` | |
//! | `OTEL_RESOURCE_ATTRIBUTES` | | `key=value,key=value`; wins over all but the service name |
//! | `OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT`, `OTEL_SPAN_EVENT_COUNT_LIMIT`, `OTEL_SPAN_LINK_COUNT_LIMIT` | 128 | read by the SDK itself, from the environment alone |

mod builder;
mod error;
mod exporters;
mod health;
mod layer;
mod resource;
mod route;
mod settings;
mod signal;
mod tls;
mod transport;
mod values;
mod variables;
mod voice;

use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use opentelemetry::InstrumentationScope;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::logs::SdkLoggerProvider;
use opentelemetry_sdk::metrics::SdkMeterProvider;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing::Subscriber;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::Layer;
use tracing_subscriber::registry::LookupSpan;

pub use builder::OtlpBuilder;
pub use error::{FlushError, OtlpError};
pub use health::{ExportHealth, ExportTrouble, TroubleKind, collector_unreachable};
pub use signal::Signal;
pub use variables::IgnoredSetting;

use crate::layer::{self as sentinel, deadline, now};
use crate::telemetry::names;
use transport::Transport;
use voice::Voice;

/// The target of what is said about exporting itself.
const TARGET: &str = "serving_sentinel::otlp";

/// The instrumentation scope of our spans and log records.
fn scope() -> InstrumentationScope {
    InstrumentationScope::builder(names::SCOPE)
        .with_version(env!("CARGO_PKG_VERSION"))
        .with_schema_url(names::SCHEMA_URL)
        .build()
}

/// Exports traces, metrics and logs as long as it lives, and sends what is left when it is dropped.
///
/// Keep it until the end of `main`. The drop blocks its thread for at most [`Otlp::DROP_TIMEOUT`];
/// it may happen anywhere, within an async function of a single-threaded runtime too.
#[derive(Debug)]
#[must_use = "dropping it ends the export"]
pub struct Otlp {
    traces: SdkTracerProvider,
    metrics: SdkMeterProvider,
    logs: SdkLoggerProvider,
    /// `None` when the SDK is disabled.
    transport: Option<Arc<Transport>>,
    health: ExportHealth,
    voice: Arc<Voice>,
    ignored: Vec<IgnoredSetting>,
    level: LevelFilter,
    private_targets: Arc<[String]>,
    is_shut_down: bool,
}

impl Otlp {
    /// How long a drop may block at most.
    pub const DROP_TIMEOUT: Duration = Duration::from_secs(5);

    /// Sets everything up as the `OTEL_*` variables say, and makes it global: the tracer and meter
    /// provider and the propagators.
    ///
    /// # Errors
    ///
    /// [`OtlpError`], for what leaves no honest default: endpoints, protocols and certificate files
    /// that cannot be used. Other values that cannot be understood are ignored, and told of.
    pub fn from_env() -> Result<Self, OtlpError> {
        Self::builder().build()
    }

    /// The same with choices of the program's own.
    pub fn builder() -> OtlpBuilder {
        OtlpBuilder::default()
    }

    /// The layer that exports spans, and alarms as log records. Add it to the subscriber once.
    pub fn layer<S>(&self) -> impl Layer<S> + Send + Sync + use<S>
    where
        S: Subscriber + for<'span> LookupSpan<'span> + Send + Sync,
    {
        let (spans, alarms) = match self.transport {
            Some(_) => (self.level, LevelFilter::INFO),
            None => (LevelFilter::OFF, LevelFilter::OFF),
        };
        layer::spans(&self.traces, spans, self.private_targets.clone()).and_then(layer::alarms(
            &self.logs,
            alarms,
            self.voice.clone(),
        ))
    }

    /// The provider of tracers.
    pub fn tracer_provider(&self) -> SdkTracerProvider {
        self.traces.clone()
    }

    /// The provider of meters, with room for as many lanes as [`OtlpBuilder::max_lanes`] says.
    pub fn meter_provider(&self) -> SdkMeterProvider {
        self.metrics.clone()
    }

    /// The provider of loggers, for a program that exports its own log.
    pub fn logger_provider(&self) -> SdkLoggerProvider {
        self.logs.clone()
    }

    /// How exports go.
    pub fn health(&self) -> ExportHealth {
        self.health.clone()
    }

    /// The variables that were ignored because their values could not be understood.
    pub fn ignored_settings(&self) -> &[IgnoredSetting] {
        &self.ignored
    }

    /// Sends what is there, what the sentinel has found and not told yet among it, and waits for it. Blocks the thread
    /// for at most `timeout`.
    ///
    /// # Errors
    ///
    /// [`FlushError`] if something was not delivered.
    pub fn flush(&self, timeout: Duration) -> Result<(), FlushError> {
        let deadline = deadline(timeout);
        self.tell_findings(timeout);
        let results = self.each_provider(
            SdkTracerProvider::force_flush,
            SdkMeterProvider::force_flush,
            SdkLoggerProvider::force_flush,
        );
        self.collect(&results, deadline, timeout)
    }

    /// Sends what is left, what the sentinel has found and not told yet among it, and ends all exports. Blocks the
    /// thread for at most `timeout`; a drop does the same with [`DROP_TIMEOUT`](Self::DROP_TIMEOUT), and tells nobody
    /// how it went.
    ///
    /// # Errors
    ///
    /// [`FlushError`] if something was not delivered.
    pub fn shutdown(mut self, timeout: Duration) -> Result<(), FlushError> {
        self.end(timeout)
    }

    fn end(&mut self, timeout: Duration) -> Result<(), FlushError> {
        self.is_shut_down = true;
        let deadline = deadline(timeout);
        self.tell_findings(timeout);
        // Time for exports that are given up to end, so that it is noted and said what was lost.
        let grace = (timeout / 10).min(Duration::from_millis(200));
        let results = self.each_provider(
            move |traces| traces.shutdown_with_timeout(timeout),
            move |metrics| metrics.shutdown_with_timeout(timeout),
            move |logs| logs.shutdown_with_timeout(timeout),
        );
        let nearly = deadline.checked_sub(grace).unwrap_or(deadline);
        let ended = self.collect(&results, nearly, timeout);
        if let (Some(transport), Err(FlushError::TimedOut { .. })) = (&self.transport, &ended) {
            transport.give_up();
            drop(self.collect(&results, deadline, timeout));
        }
        self.voice.say_kept();
        ended
    }

    /// Has the sentinel tell what it has found, so that it can be sent. It has half of the time for it: a subscriber
    /// that hangs must not cost what is told already.
    fn tell_findings(&self, timeout: Duration) {
        self.voice.within(|| sentinel::flush(timeout / 2));
    }

    /// Does the same with each provider, on a thread of its own: these calls block, some without a
    /// bound, and one that hangs must not hold the others up.
    fn each_provider(
        &self,
        traces: impl FnOnce(&SdkTracerProvider) -> OTelSdkResult + Send + 'static,
        metrics: impl FnOnce(&SdkMeterProvider) -> OTelSdkResult + Send + 'static,
        logs: impl FnOnce(&SdkLoggerProvider) -> OTelSdkResult + Send + 'static,
    ) -> mpsc::Receiver<OTelSdkResult> {
        let (done, results) = mpsc::channel();
        if self.transport.is_some() {
            let providers = (self.traces.clone(), self.metrics.clone(), self.logs.clone());
            start(&done, move || traces(&providers.0));
            start(&done, move || metrics(&providers.1));
            start(&done, move || logs(&providers.2));
        }
        results
    }

    /// Waits for the providers, at most until the deadline, which is `timeout` from the call's start.
    fn collect(
        &self,
        results: &mpsc::Receiver<OTelSdkResult>,
        deadline: Instant,
        timeout: Duration,
    ) -> Result<(), FlushError> {
        let mut failed = None;
        loop {
            match results.recv_timeout(deadline.saturating_duration_since(now())) {
                Ok(Ok(())) => {}
                Ok(Err(error)) => failed = Some(FlushError::Sdk { reason: error.to_string() }),
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    return Err(FlushError::TimedOut { after: timeout });
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
            }
        }
        match self.health.trouble() {
            Some(trouble) => Err(FlushError::Undelivered(trouble)),
            None => failed.map_or(Ok(()), Err),
        }
    }
}

fn start(done: &mpsc::Sender<OTelSdkResult>, act: impl FnOnce() -> OTelSdkResult + Send + 'static) {
    let done = done.clone();
    let name = "sentinel-flush".to_owned();
    // A system without room for one more thread drops the sender, and with it the wait.
    drop(thread::Builder::new().name(name).spawn(move || done.send(act())));
}

impl Drop for Otlp {
    fn drop(&mut self) {
        if !self.is_shut_down {
            // How it went is said by the voice: nobody is left to be told.
            drop(self.end(Self::DROP_TIMEOUT));
        }
    }
}
