//! What the `OTEL_*` variables ask for.
//!
//! Read through a lookup and not from the process, so that every rule can be tested without touching the environment.
//! The OpenTelemetry specification's rules hold: an empty value is no value, and one that cannot be understood is
//! reported and ignored.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use opentelemetry_otlp::Compression;
use opentelemetry_sdk::metrics::Temporality;
use opentelemetry_sdk::trace::Sampler;
use reqwest::Url;

use super::OtlpError;
use super::values::{
    self, ExporterChoice, Protocol, parse_exporters, parse_headers, parse_resource_attributes,
    parse_yes_no,
};

/// One of the three kinds of telemetry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Signal {
    /// Spans.
    Traces,
    /// Metrics.
    Metrics,
    /// Log records.
    Logs,
}

impl Signal {
    /// All three.
    pub const ALL: [Self; 3] = [Self::Traces, Self::Metrics, Self::Logs];

    /// Its name, as in `/v1/traces`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Traces => "traces",
            Self::Metrics => "metrics",
            Self::Logs => "logs",
        }
    }

    /// Its name within a variable, as in `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`.
    const fn infix(self) -> &'static str {
        match self {
            Self::Traces => "TRACES",
            Self::Metrics => "METRICS",
            Self::Logs => "LOGS",
        }
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A variable whose value could not be understood, and was ignored as the OpenTelemetry specification asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IgnoredSetting {
    /// The variable.
    pub variable: String,
    /// Its value; `None` where the value can hold a secret.
    pub value: Option<String>,
    /// What would have been understood.
    pub expected: &'static str,
}

impl fmt::Display for IgnoredSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { variable, value, expected } = self;
        match value {
            Some(value) => write!(f, "`{value}` in {variable} is ignored; expected {expected}"),
            None => write!(f, "the value of {variable} is ignored; expected {expected}"),
        }
    }
}

/// Where and how one signal is exported.
#[derive(Debug)]
pub(super) struct Route {
    pub(super) protocol: Protocol,
    /// A full URL, with the signal's path for HTTP.
    pub(super) endpoint: String,
    pub(super) headers: Vec<(String, String)>,
    pub(super) compression: Option<Compression>,
    /// How long one export may take, retries included.
    pub(super) timeout: Duration,
    /// Files in PEM form, each with the variable that named it.
    pub(super) authority: Option<NamedPath>,
    pub(super) identity: Option<(NamedPath, NamedPath)>,
}

impl Route {
    pub(super) fn is_secure(&self) -> bool {
        self.endpoint.starts_with("https://")
    }

    /// The collector by scheme, host and port: what several signals share, and what may stand in a log.
    pub(super) fn collector(&self) -> Arc<str> {
        match Url::parse(&self.endpoint) {
            Ok(url) => url.origin().ascii_serialization().into(),
            Err(_) => "an unknown address".into(),
        }
    }

    /// What to try when the collector does not answer: the two ports are easily mixed up.
    pub(super) fn hint(&self) -> Option<String> {
        let port = Url::parse(&self.endpoint).ok()?.port()?;
        let other = self.protocol.other().as_str();
        (port == self.protocol.port_of_the_other()).then(|| {
            format!("port {port} usually speaks {other}: try OTEL_EXPORTER_OTLP_PROTOCOL={other}")
        })
    }
}

/// A file and the variable that named it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NamedPath {
    pub(super) variable: String,
    pub(super) path: PathBuf,
}

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
    pub(super) resource_attributes: Vec<(String, String)>,
    pub(super) ignored: Vec<IgnoredSetting>,
}

impl Settings {
    /// Reads them all.
    ///
    /// # Errors
    ///
    /// Those that leave no honest default: an endpoint that is no URL, and a protocol that is known but not built in.
    pub(super) fn read(lookup: &dyn Fn(&str) -> Option<OsString>) -> Result<Self, OtlpError> {
        let mut vars = Variables { lookup, ignored: Vec::new() };
        let disabled =
            vars.read("OTEL_SDK_DISABLED", values::YES_NO, parse_yes_no).unwrap_or(false);
        Ok(Self {
            disabled,
            traces: vars.route(Signal::Traces, disabled)?,
            metrics: vars.route(Signal::Metrics, disabled)?,
            logs: vars.route(Signal::Logs, disabled)?,
            sampler: vars.sampler(),
            span_batching: vars.batching("BSP", Duration::from_secs(5)),
            log_batching: vars.batching("BLRP", Duration::from_secs(1)),
            metric_interval: vars
                .millis("OTEL_METRIC_EXPORT_INTERVAL")
                .unwrap_or(Duration::from_secs(60)),
            temporality: vars
                .read(
                    "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE",
                    values::TEMPORALITY,
                    |v| v.parse().ok(),
                )
                .unwrap_or_default(),
            propagators: vars.propagators(),
            service_name: vars.text("OTEL_SERVICE_NAME"),
            resource_attributes: vars
                .read("OTEL_RESOURCE_ATTRIBUTES", values::PAIRS, parse_resource_attributes)
                .unwrap_or_default(),
            ignored: vars.ignored,
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

/// The variables, and what was found wrong with them.
struct Variables<'a> {
    lookup: &'a dyn Fn(&str) -> Option<OsString>,
    ignored: Vec<IgnoredSetting>,
}

impl Variables<'_> {
    fn text(&mut self, variable: &str) -> Option<String> {
        match (self.lookup)(variable)?.into_string() {
            Ok(text) => Some(text.trim().to_owned()).filter(|text| !text.is_empty()),
            Err(bytes) => {
                self.ignore(variable, Some(bytes.to_string_lossy().into_owned()), "text in UTF-8");
                None
            }
        }
    }

    fn read<T>(
        &mut self,
        variable: &str,
        expected: &'static str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Option<T> {
        let text = self.text(variable)?;
        let value = parse(&text);
        if value.is_none() {
            self.ignore(variable, Some(text), expected);
        }
        value
    }

    /// A general variable is read once for each signal, and told of once.
    fn ignore(&mut self, variable: &str, value: Option<String>, expected: &'static str) {
        let setting = IgnoredSetting { variable: variable.to_owned(), value, expected };
        if !self.ignored.contains(&setting) {
            self.ignored.push(setting);
        }
    }

    fn millis(&mut self, variable: &str) -> Option<Duration> {
        self.read(variable, values::MILLIS, values::parse_millis)
    }

    /// The names under which a setting of one signal is looked up: its own, then the general one.
    fn names(signal: Signal, what: &str) -> [String; 2] {
        [
            format!("OTEL_EXPORTER_OTLP_{}_{what}", signal.infix()),
            format!("OTEL_EXPORTER_OTLP_{what}"),
        ]
    }

    fn for_signal<T>(
        &mut self,
        signal: Signal,
        what: &str,
        expected: &'static str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Option<T> {
        Self::names(signal, what).iter().find_map(|name| self.read(name, expected, &parse))
    }

    fn path(&mut self, signal: Signal, what: &str) -> Option<NamedPath> {
        Self::names(signal, what).into_iter().find_map(|variable| {
            let path = self.text(&variable)?.into();
            Some(NamedPath { variable, path })
        })
    }

    /// A client's certificate and its key; one without the other is no use.
    fn identity(&mut self, signal: Signal) -> Option<(NamedPath, NamedPath)> {
        match (self.path(signal, "CLIENT_CERTIFICATE"), self.path(signal, "CLIENT_KEY")) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (Some(lonely), None) | (None, Some(lonely)) => {
                let path = lonely.path.to_string_lossy().into_owned();
                self.ignore(&lonely.variable, Some(path), "both a client certificate and its key");
                None
            }
            (None, None) => None,
        }
    }

    fn route(&mut self, signal: Signal, disabled: bool) -> Result<Option<Route>, OtlpError> {
        if disabled || self.exporter(signal) == ExporterChoice::None {
            return Ok(None);
        }
        let protocol = self.protocol(signal)?;
        let timeout = self
            .for_signal(signal, "TIMEOUT", values::MILLIS, values::parse_millis)
            .unwrap_or(Duration::from_secs(10));
        Ok(Some(Route {
            protocol,
            endpoint: self.endpoint(signal, protocol)?,
            headers: self.headers(signal),
            compression: self
                .for_signal(signal, "COMPRESSION", values::COMPRESSION, values::parse_compression)
                .flatten(),
            timeout: self.processor_timeout(signal).map_or(timeout, |limit| timeout.min(limit)),
            authority: self.path(signal, "CERTIFICATE"),
            identity: self.identity(signal),
        }))
    }

    fn exporter(&mut self, signal: Signal) -> ExporterChoice {
        let variable = format!("OTEL_{}_EXPORTER", signal.infix());
        self.read(&variable, values::EXPORTER, parse_exporters).unwrap_or(ExporterChoice::Otlp)
    }

    /// The processors of the SDK do not read these themselves; each bounds one export.
    fn processor_timeout(&mut self, signal: Signal) -> Option<Duration> {
        self.millis(match signal {
            Signal::Traces => "OTEL_BSP_EXPORT_TIMEOUT",
            Signal::Metrics => "OTEL_METRIC_EXPORT_TIMEOUT",
            Signal::Logs => "OTEL_BLRP_EXPORT_TIMEOUT",
        })
    }

    fn protocol(&mut self, signal: Signal) -> Result<Protocol, OtlpError> {
        for variable in Self::names(signal, "PROTOCOL") {
            match self.read(&variable, values::PROTOCOL, |text| {
                text.parse::<values::NamedProtocol>().ok()
            }) {
                Some(values::NamedProtocol::Known(protocol)) => return Ok(protocol),
                Some(values::NamedProtocol::Json) => {
                    return Err(OtlpError::UnsupportedProtocol { variable });
                }
                None => {}
            }
        }
        Ok(Protocol::Http)
    }

    /// A signal's own HTTP endpoint is used as it stands; the general one is a base.
    fn endpoint(&mut self, signal: Signal, protocol: Protocol) -> Result<String, OtlpError> {
        let [own, general] = Self::names(signal, "ENDPOINT");
        let (variable, text, is_base) = match (self.text(&own), self.text(&general)) {
            (Some(text), _) => (own, text, false),
            (None, Some(text)) => (general, text, true),
            (None, None) => (general, protocol.default_endpoint().to_owned(), true),
        };
        let insecure =
            self.for_signal(signal, "INSECURE", values::YES_NO, parse_yes_no).unwrap_or(false);
        values::endpoint(&text, protocol, is_base.then_some(signal), insecure)
            .map_err(|reason| OtlpError::Endpoint { variable, reason })
    }

    /// Header values are secrets at times, so a bad one is told of without its value.
    fn headers(&mut self, signal: Signal) -> Vec<(String, String)> {
        let Some((variable, text)) = Self::names(signal, "HEADERS")
            .into_iter()
            .find_map(|name| Some((name.clone(), self.text(&name)?)))
        else {
            return Vec::new();
        };
        let (headers, all_good) = parse_headers(&text);
        if !all_good {
            self.ignore(&variable, None, values::PAIRS);
        }
        headers
    }

    fn sampler(&mut self) -> Sampler {
        let argument = "OTEL_TRACES_SAMPLER_ARG";
        let named = self.read("OTEL_TRACES_SAMPLER", values::SAMPLER, |text| {
            text.parse::<values::NamedSampler>().ok()
        });
        let named = named.unwrap_or_default();
        let ratio = if named.takes_ratio() {
            self.read(argument, values::RATIO, values::parse_ratio).unwrap_or(1.0)
        } else {
            1.0
        };
        named.with_ratio(ratio)
    }

    fn batching(&mut self, prefix: &str, delay: Duration) -> Batching {
        let queue = self.count(&format!("OTEL_{prefix}_MAX_QUEUE_SIZE")).unwrap_or(2048);
        Batching {
            queue,
            batch: self
                .count(&format!("OTEL_{prefix}_MAX_EXPORT_BATCH_SIZE"))
                .unwrap_or(512)
                .min(queue),
            delay: self.millis(&format!("OTEL_{prefix}_SCHEDULE_DELAY")).unwrap_or(delay),
        }
    }

    fn count(&mut self, variable: &str) -> Option<usize> {
        self.read(variable, values::COUNT, values::parse_count)
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
                other => self.ignore(variable, Some(other.to_owned()), values::PROPAGATORS),
            }
        }
        chosen
    }
}

#[cfg(test)]
mod tests;
