//! Carries exports: a small runtime of our own, and a wrapper that keeps every export bounded and
//! quiet.
//!
//! gRPC and HTTP clients need a tokio runtime, and the program may have none, or have one that is
//! blocked while it waits for a flush. So they get a thread of their own, and the SDK's threads
//! borrow it while they export.

use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use opentelemetry::Context;
use opentelemetry_otlp::{LogExporter, MetricExporter, SpanExporter};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::logs::{LogBatch, LogExporter as ExportLogs};
use opentelemetry_sdk::metrics::Temporality;
use opentelemetry_sdk::metrics::data::ResourceMetrics;
use opentelemetry_sdk::metrics::exporter::PushMetricExporter as ExportMetrics;
use opentelemetry_sdk::trace::{SpanData, SpanExporter as ExportSpans};
use tokio::runtime::{Builder, EnterGuard, Handle, Runtime};
use tokio::sync::watch;
use tracing::dispatcher::{self, Dispatch};

use super::exporters::NetworkError;
use super::health::ExportHealth;
use super::signal::Signal;

/// The runtime that connections live on. It ends with the last exporter that uses it.
#[derive(Debug)]
pub(super) struct Transport {
    handle: Handle,
    runtime: Option<Runtime>,
    given_up: watch::Sender<bool>,
}

impl Transport {
    /// Starts the thread.
    pub(super) fn start() -> io::Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("sentinel-otlp")
            // What the connections do is no telemetry of the program, and would feed itself.
            .on_thread_start(|| std::mem::forget(Context::enter_telemetry_suppressed_scope()))
            .enable_all()
            .build()?;
        Ok(Self {
            handle: runtime.handle().clone(),
            runtime: Some(runtime),
            given_up: watch::Sender::new(false),
        })
    }

    /// Makes this the current runtime of this thread, for clients to be built in.
    pub(super) fn enter(&self) -> EnterGuard<'_> {
        self.handle.enter()
    }

    /// Does something short after a while, on the thread.
    pub(super) fn after(&self, delay: Duration, task: impl FnOnce() + Send + 'static) {
        self.handle.spawn(async move {
            tokio::time::sleep(delay).await;
            task();
        });
    }

    /// Ends the exports in flight, and those to come, at once.
    pub(super) fn give_up(&self) {
        self.given_up.send_replace(true);
    }
}

impl Drop for Transport {
    fn drop(&mut self) {
        // Unlike a plain drop this may happen anywhere, in an async function too.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// An exporter whose every result is noted, and never handed to the SDK: that would log each
/// failure.
pub(super) struct Watched<E> {
    inner: E,
    signal: Signal,
    timeout: Duration,
    transport: Arc<Transport>,
    health: ExportHealth,
    network_error: NetworkError,
}

impl<E> Watched<E> {
    pub(super) fn new(
        inner: E,
        signal: Signal,
        timeout: Duration,
        transport: Arc<Transport>,
        health: ExportHealth,
        network_error: NetworkError,
    ) -> Self {
        Self { inner, signal, timeout, transport, health, network_error }
    }

    /// Drives one export of so many items to its end.
    async fn carry(
        &self,
        items: usize,
        export: impl Future<Output = OTelSdkResult> + Send,
    ) -> OTelSdkResult {
        let mut given_up = self.transport.given_up.subscribe();
        let mut given_up = pin!(given_up.wait_for(|&given_up| given_up));
        // Made lazily, because a timer needs the runtime that is entered below.
        let mut export = pin!(async { tokio::time::timeout(self.timeout, export).await });
        let outcome = poll_fn(|context| {
            if given_up.as_mut().poll(context).is_ready() {
                return Poll::Ready(Err("given up at shutdown".to_owned()));
            }
            let _runtime = self.transport.enter();
            // The exporter's own lines, one for each failure, go nowhere.
            dispatcher::with_default(&Dispatch::none(), || export.as_mut().poll(context)).map(
                |result| match result {
                    Ok(result) => result.map_err(|error| error.to_string()),
                    Err(_) => Err(format!("no answer within {:?}", self.timeout)),
                },
            )
        })
        .await;
        let network_error = self.network_error.take();
        let outcome = outcome.map_err(|error| match network_error {
            Some(cause) => format!("{error}: {cause}"),
            None => error,
        });
        self.health.note(self.signal, items, outcome);
        Ok(())
    }
}

impl<E> fmt::Debug for Watched<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watched").field("signal", &self.signal).finish_non_exhaustive()
    }
}

impl ExportSpans for Watched<SpanExporter> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        self.carry(batch.len(), self.inner.export(batch)).await
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.inner.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.inner.set_resource(resource);
    }
}

impl ExportLogs for Watched<LogExporter> {
    async fn export(&self, batch: LogBatch<'_>) -> OTelSdkResult {
        self.carry(batch.iter().count(), self.inner.export(batch)).await
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.inner.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.inner.set_resource(resource);
    }
}

impl ExportMetrics for Watched<MetricExporter> {
    /// A failed export of metrics loses nothing but time: the next one carries the totals.
    async fn export(&self, metrics: &ResourceMetrics) -> OTelSdkResult {
        self.carry(0, self.inner.export(metrics)).await
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.inner.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.inner.shutdown_with_timeout(timeout)
    }

    fn temporality(&self) -> Temporality {
        self.inner.temporality()
    }
}

/// Where metrics go that nobody wants: they are switched off.
#[derive(Debug)]
pub(super) struct Discard;

impl ExportMetrics for Discard {
    async fn export(&self, _: &ResourceMetrics) -> OTelSdkResult {
        Ok(())
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }

    fn temporality(&self) -> Temporality {
        Temporality::Cumulative
    }
}
