//! What the `OTEL_*` variables ask for.
//!
//! Read through a lookup and not from the process, so that every rule can be tested without
//! touching the environment.

use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::time::Duration;

use opentelemetry_sdk::metrics::Temporality;
use opentelemetry_sdk::trace::Sampler;

use super::OtlpError;
use super::route::Route;
use super::signal::Signal;
use super::values::{Attributes, NamedSampler, Ratio};
use super::variables::{IgnoredSetting, Variables};

/// The bounds of a batch processor's queue.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Batching {
    pub(super) queue: usize,
    pub(super) batch: usize,
    pub(super) delay: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Propagator {
    TraceContext,
    Baggage,
}

/// Everything the variables ask for. A route of `None` means that the signal is not exported.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) disabled: bool,
    pub(super) traces: Option<Route>,
    pub(super) metrics: Option<Route>,
    pub(super) logs: Option<Route>,
    pub(super) sampler: Sampler,
    pub(super) span_batching: Batching,
    pub(super) log_batching: Batching,
    pub(super) metric_interval: Duration,
    pub(super) temporality: Temporality,
    pub(super) propagators: Vec<Propagator>,
    pub(super) service_name: Option<String>,
    pub(super) resource_attributes: Attributes,
    pub(super) ignored: Vec<IgnoredSetting>,
}

impl Settings {
    /// Reads them all.
    ///
    /// # Errors
    ///
    /// Those that leave no honest default: an endpoint that is no URL, and a protocol that is known
    /// but not built in.
    pub(super) fn read(lookup: &dyn Fn(&str) -> Option<OsString>) -> Result<Self, OtlpError> {
        let mut variables = Variables::new(lookup);
        let disabled = variables.read("OTEL_SDK_DISABLED").unwrap_or(false);
        let mut route = |signal| if disabled { Ok(None) } else { variables.route(signal) };
        Ok(Self {
            disabled,
            traces: route(Signal::Traces)?,
            metrics: route(Signal::Metrics)?,
            logs: route(Signal::Logs)?,
            sampler: variables.sampler(),
            span_batching: variables.batching("BSP", Duration::from_secs(5)),
            log_batching: variables.batching("BLRP", Duration::from_secs(1)),
            metric_interval: variables
                .read("OTEL_METRIC_EXPORT_INTERVAL")
                .unwrap_or(Duration::from_secs(60)),
            temporality: variables
                .read("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE")
                .unwrap_or_default(),
            propagators: variables.propagators(),
            service_name: variables.text("OTEL_SERVICE_NAME"),
            resource_attributes: variables.read("OTEL_RESOURCE_ATTRIBUTES").unwrap_or_default(),
            ignored: variables.into_ignored(),
        })
    }

    /// The signals that are exported, with their routes.
    pub(super) fn routes(&self) -> impl Iterator<Item = (Signal, &Route)> {
        [
            (Signal::Traces, &self.traces),
            (Signal::Metrics, &self.metrics),
            (Signal::Logs, &self.logs),
        ]
        .into_iter()
        .filter_map(|(signal, route)| Some((signal, route.as_ref()?)))
    }
}

impl Variables<'_> {
    fn sampler(&mut self) -> Sampler {
        let named: NamedSampler = self.read("OTEL_TRACES_SAMPLER").unwrap_or_default();
        let ratio = named.takes_ratio().then(|| self.read("OTEL_TRACES_SAMPLER_ARG")).flatten();
        named.with_ratio(ratio.unwrap_or(Ratio(1.0)))
    }

    fn batching(&mut self, processor: &str, delay: Duration) -> Batching {
        let mut count = |what: &str, default: usize| {
            let given: Option<NonZeroUsize> = self.read(&format!("OTEL_{processor}_{what}"));
            given.map_or(default, NonZeroUsize::get)
        };
        let queue = count("MAX_QUEUE_SIZE", 2048);
        let batch = count("MAX_EXPORT_BATCH_SIZE", 512).min(queue);
        let delay = self.read(&format!("OTEL_{processor}_SCHEDULE_DELAY")).unwrap_or(delay);
        Batching { queue, batch, delay }
    }

    fn propagators(&mut self) -> Vec<Propagator> {
        let variable = "OTEL_PROPAGATORS";
        let Some(text) = self.text(variable) else {
            return vec![Propagator::TraceContext, Propagator::Baggage];
        };
        let mut chosen = Vec::new();
        for name in text.split(',').map(str::trim) {
            match name {
                "tracecontext" => chosen.push(Propagator::TraceContext),
                "baggage" => chosen.push(Propagator::Baggage),
                "none" => {}
                other => self.ignore(
                    variable,
                    Some(other.to_owned()),
                    "a list of `tracecontext` and `baggage`, or `none`",
                ),
            }
        }
        chosen
    }
}

#[cfg(test)]
mod tests;
