//! Where and how each signal is exported.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use opentelemetry_otlp::Compression;
use url::Url;

use super::OtlpError;
use super::signal::Signal;
use super::values::{self, ExporterChoice, NamedCompression, NamedProtocol, Protocol};
use super::variables::{Variables, names};

/// For one export, retries included: the specification's.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

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

    /// The collector by scheme, host and port: what several signals share, and what may stand in a
    /// log.
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

impl Variables<'_> {
    /// Reads one signal's route; `None` when it is not to be exported.
    pub(super) fn route(&mut self, signal: Signal) -> Result<Option<Route>, OtlpError> {
        let exporter = self.read(&format!("OTEL_{}_EXPORTER", signal.infix()));
        if exporter == Some(ExporterChoice::None) {
            return Ok(None);
        }
        let protocol = self.protocol(signal)?;
        let timeout = self.read_for(signal, "TIMEOUT").unwrap_or(DEFAULT_TIMEOUT);
        let compression = self.read_for(signal, "COMPRESSION");
        Ok(Some(Route {
            protocol,
            endpoint: self.endpoint(signal, protocol)?,
            headers: self.headers(signal),
            compression: compression.and_then(|NamedCompression(compression)| compression),
            timeout: self.processor_timeout(signal).map_or(timeout, |limit| timeout.min(limit)),
            authority: self.path(signal, "CERTIFICATE"),
            identity: self.identity(signal),
        }))
    }

    /// The processors of the SDK do not read these themselves; each bounds one export.
    fn processor_timeout(&mut self, signal: Signal) -> Option<Duration> {
        self.read(match signal {
            Signal::Traces => "OTEL_BSP_EXPORT_TIMEOUT",
            Signal::Metrics => "OTEL_METRIC_EXPORT_TIMEOUT",
            Signal::Logs => "OTEL_BLRP_EXPORT_TIMEOUT",
        })
    }

    fn protocol(&mut self, signal: Signal) -> Result<Protocol, OtlpError> {
        for variable in names(signal, "PROTOCOL") {
            match self.read(&variable) {
                Some(NamedProtocol::Known(protocol)) => return Ok(protocol),
                Some(NamedProtocol::Json) => {
                    return Err(OtlpError::UnsupportedProtocol { variable });
                }
                None => {}
            }
        }
        Ok(Protocol::Http)
    }

    /// A signal's own HTTP endpoint is used as it stands; the general one is a base.
    fn endpoint(&mut self, signal: Signal, protocol: Protocol) -> Result<String, OtlpError> {
        let [own, general] = names(signal, "ENDPOINT");
        let (variable, text) = self
            .text_for(signal, "ENDPOINT")
            .unwrap_or_else(|| (general, protocol.default_endpoint().to_owned()));
        let base_for = (variable != own).then_some(signal);
        let insecure = self.read_for(signal, "INSECURE").unwrap_or(false);
        values::endpoint(&text, protocol, base_for, insecure)
            .map_err(|reason| OtlpError::Endpoint { variable, reason })
    }

    /// Header values are secrets at times, so a bad one is told of without its value.
    fn headers(&mut self, signal: Signal) -> Vec<(String, String)> {
        let Some((variable, text)) = self.text_for(signal, "HEADERS") else { return Vec::new() };
        let headers = values::pairs(&text);
        if values::pairs(&text).any(|pair| pair.is_none()) {
            self.ignore(&variable, None, values::PAIRS);
        }
        headers.flatten().collect()
    }

    fn path(&mut self, signal: Signal, what: &str) -> Option<NamedPath> {
        let (variable, path) = self.text_for(signal, what)?;
        Some(NamedPath { variable, path: path.into() })
    }

    /// A client's certificate and its key; one without the other is no use.
    fn identity(&mut self, signal: Signal) -> Option<(NamedPath, NamedPath)> {
        match (self.path(signal, "CLIENT_CERTIFICATE"), self.path(signal, "CLIENT_KEY")) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (Some(lonely), None) | (None, Some(lonely)) => {
                let path = lonely.path.to_string_lossy().into_owned();
                let expected = "both a client certificate and its key";
                self.ignore(&lonely.variable, Some(path), expected);
                None
            }
            (None, None) => None,
        }
    }
}
