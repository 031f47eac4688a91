//! Builds the exporters, one per signal, over gRPC or HTTP.
//!
//! Everything is handed over explicitly, so that one reading of the variables (`settings`) decides.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use http::header::{HeaderMap, HeaderName, HeaderValue};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use opentelemetry_http::hyper::HyperClient;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::tonic_types::metadata::MetadataMap;
use opentelemetry_otlp::{
    ExporterBuildError, LogExporter, MetricExporter, Protocol as OtlpProtocol, SpanExporter,
    WithExportConfig, WithHttpConfig, WithTonicConfig,
};
use opentelemetry_sdk::metrics::Temporality;

use super::route::Route;
use super::signal::Signal;
use super::values::Protocol;
use super::{OtlpError, tls};

/// The exporter of spans.
pub(super) fn spans(route: &Route, cause: &NetworkError) -> Result<SpanExporter, OtlpError> {
    let builder = SpanExporter::builder();
    match route.protocol {
        Protocol::Grpc => grpc(builder.with_tonic(), route)?.build(),
        Protocol::Http => http(builder.with_http(), route, cause)?.build(),
    }
    .map_err(|error| not_built(Signal::Traces, error))
}

/// The exporter of metrics.
pub(super) fn metrics(
    route: &Route,
    temporality: Temporality,
    cause: &NetworkError,
) -> Result<MetricExporter, OtlpError> {
    let builder = MetricExporter::builder().with_temporality(temporality);
    match route.protocol {
        Protocol::Grpc => grpc(builder.with_tonic(), route)?.build(),
        Protocol::Http => http(builder.with_http(), route, cause)?.build(),
    }
    .map_err(|error| not_built(Signal::Metrics, error))
}

/// The exporter of log records.
pub(super) fn logs(route: &Route, cause: &NetworkError) -> Result<LogExporter, OtlpError> {
    let builder = LogExporter::builder();
    match route.protocol {
        Protocol::Grpc => grpc(builder.with_tonic(), route)?.build(),
        Protocol::Http => http(builder.with_http(), route, cause)?.build(),
    }
    .map_err(|error| not_built(Signal::Logs, error))
}

fn grpc<B: WithExportConfig + WithTonicConfig>(builder: B, route: &Route) -> Result<B, OtlpError> {
    let headers: HeaderMap = route
        .headers
        .iter()
        .filter_map(|(name, value)| {
            Some((
                HeaderName::from_bytes(name.as_bytes()).ok()?,
                HeaderValue::from_str(value).ok()?,
            ))
        })
        .collect();
    let mut builder = builder
        .with_endpoint(&route.endpoint)
        .with_timeout(route.timeout)
        .with_metadata(MetadataMap::from_headers(headers));
    if let Some(compression) = route.compression {
        builder = builder.with_compression(compression);
    }
    if route.is_secure() {
        builder = builder.with_tls_config(tls::for_grpc(route)?);
    }
    Ok(builder)
}

fn http<B: WithExportConfig + WithHttpConfig>(
    builder: B,
    route: &Route,
    cause: &NetworkError,
) -> Result<B, OtlpError> {
    let connector = HttpsConnectorBuilder::new()
        .with_tls_config(tls::for_http(route)?)
        .https_or_http()
        .enable_http1()
        .build();
    let client = HyperClient::new(connector, route.timeout, None);
    // The builder decodes header values once more.
    let headers: HashMap<String, String> = route
        .headers
        .iter()
        .map(|(name, value)| (name.clone(), value.replace('%', "%25")))
        .collect();
    let mut builder = builder
        .with_endpoint(&route.endpoint)
        .with_protocol(OtlpProtocol::HttpBinary)
        .with_timeout(route.timeout)
        .with_headers(headers)
        .with_http_client(Client { inner: client, cause: cause.clone() });
    if let Some(compression) = route.compression {
        builder = builder.with_compression(compression);
    }
    Ok(builder)
}

fn not_built(signal: Signal, error: ExporterBuildError) -> OtlpError {
    OtlpError::Exporter { signal, source: Box::new(error) }
}

// === impl Client ===

/// Why the last request found no answer: the exporter says "network error" and no more.
#[derive(Clone, Debug, Default)]
pub(super) struct NetworkError(Arc<Mutex<Option<String>>>);

impl NetworkError {
    /// Takes what was kept since the last time.
    pub(super) fn take(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn keep(&self, mut error: &dyn std::error::Error) {
        // The innermost error is the system's own: connection refused, no such host.
        while let Some(source) = error.source() {
            error = source;
        }
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.to_string());
    }
}

#[derive(Debug)]
struct Client {
    inner: HyperClient<HttpsConnector<HttpConnector>>,
    cause: NetworkError,
}

impl HttpClient for Client {
    // The signature that `async_trait` gives the trait.
    fn send_bytes<'a, 'b>(
        &'a self,
        request: Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(async move {
            let answer = self.inner.send_bytes(request).await;
            if let Err(error) = &answer {
                self.cause.keep(&**error);
            }
            answer
        })
    }
}
