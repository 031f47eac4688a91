//! A collector for tests: takes OTLP over gRPC or HTTP, keeps what it was sent, and misbehaves when
//! told to.
//!
//! It runs on a thread of its own, so that a test may block as much as it likes.
#![allow(dead_code, reason = "each test uses a part of it")]
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a test waits, and says what must be"
)]

use std::collections::BTreeMap;
use std::fmt::{self, Debug};
use std::io::Read;
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use axum::body::Bytes;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use opentelemetry_proto::tonic::collector::logs::v1::logs_service_server::{
    LogsService, LogsServiceServer,
};
use opentelemetry_proto::tonic::collector::logs::v1::{
    ExportLogsServiceRequest, ExportLogsServiceResponse,
};
use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_server::{
    MetricsService, MetricsServiceServer,
};
use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsServiceRequest, ExportMetricsServiceResponse,
};
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value};
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use opentelemetry_proto::tonic::metrics::v1::{Metric, metric, number_data_point};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::server::TlsStream;
use tonic::codec::CompressionEncoding;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Identity, Server, ServerTlsConfig};
use tonic::{Code, Request, Response, Status};

/// How long a test waits for what must come.
const PATIENCE: Duration = Duration::from_secs(20);

/// How the collector answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Behaviour {
    /// Takes everything.
    Accept,
    /// Asks to come again later: UNAVAILABLE or 503.
    Unavailable,
    /// Does not know the client: UNAUTHENTICATED or 401.
    Refuse,
    /// Never answers.
    Hang,
}

/// The protocol it speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wire {
    Grpc,
    Http,
    /// Accepts connections and closes them at once.
    Reset,
}

/// One span, metric or log record, with what it came in.
#[derive(Clone, Debug)]
pub(crate) struct Item<T> {
    pub(crate) resource: Resource,
    pub(crate) resource_schema: String,
    pub(crate) scope: InstrumentationScope,
    pub(crate) scope_schema: String,
    /// Which of all export requests it came in, counted from 1.
    pub(crate) export: usize,
    pub(crate) data: T,
}

/// One request's headers.
#[derive(Clone, Debug)]
pub(crate) struct Headers {
    /// `traces`, `metrics` or `logs`.
    pub(crate) signal: &'static str,
    pub(crate) headers: BTreeMap<String, String>,
}

/// What was received, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Received {
    pub(crate) spans: Vec<Item<Span>>,
    pub(crate) metrics: Vec<Item<Metric>>,
    pub(crate) logs: Vec<Item<LogRecord>>,
    pub(crate) requests: Vec<Headers>,
    exports: usize,
}

impl Received {
    pub(crate) fn span(&self, name: &str) -> Option<&Item<Span>> {
        self.spans.iter().find(|span| span.data.name == name)
    }

    /// The newest state of a metric.
    pub(crate) fn metric(&self, name: &str) -> Option<&Item<Metric>> {
        self.metrics.iter().rev().find(|metric| metric.data.name == name)
    }

    pub(crate) fn log(&self, event_name: &str) -> Option<&Item<LogRecord>> {
        self.logs.iter().find(|record| record.data.event_name == event_name)
    }

    /// The newest value of a counter or gauge, summed over its attributes.
    pub(crate) fn value(&self, metric: &str) -> Option<f64> {
        let points = match self.metric(metric)?.data.data.as_ref()? {
            metric::Data::Sum(sum) => &sum.data_points,
            metric::Data::Gauge(gauge) => &gauge.data_points,
            _ => return None,
        };
        let value = |point: &number_data_point::Value| match *point {
            number_data_point::Value::AsDouble(value) => value,
            #[expect(clippy::cast_precision_loss, reason = "tests count little")]
            number_data_point::Value::AsInt(value) => value as f64,
        };
        Some(points.iter().filter_map(|point| point.value.as_ref().map(value)).sum())
    }
}

/// An attribute as text: strings as they are, everything else as it prints.
pub(crate) fn attribute(attributes: &[KeyValue], key: &str) -> Option<String> {
    attributes.iter().find(|attribute| attribute.key == key)?.value.as_ref().map(text)
}

/// A value as text.
pub(crate) fn text(value: &AnyValue) -> String {
    match &value.value {
        Some(any_value::Value::StringValue(text)) => text.clone(),
        Some(any_value::Value::IntValue(number)) => number.to_string(),
        Some(any_value::Value::DoubleValue(number)) => number.to_string(),
        Some(any_value::Value::BoolValue(truth)) => truth.to_string(),
        Some(any_value::Value::ArrayValue(array)) => {
            array.values.iter().map(text).collect::<Vec<_>>().join(",")
        }
        other => format!("{other:?}"),
    }
}

/// A collector that listens until it is dropped.
pub(crate) struct Collector {
    address: SocketAddr,
    shared: Arc<Shared>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    state: Mutex<(Received, Behaviour)>,
    changed: Condvar,
}

impl Collector {
    /// Listens on a free port of the loopback.
    pub(crate) fn start(wire: Wire) -> Self {
        Self::start_at(wire, "127.0.0.1:0".parse().unwrap())
    }

    /// Listens on this port, for a collector that comes back.
    pub(crate) fn start_at(wire: Wire, address: SocketAddr) -> Self {
        Self::start_with(wire, address, None)
    }

    /// Listens with TLS, as `localhost`, and wants nothing of its clients but that they trust it.
    pub(crate) fn start_secure(wire: Wire, certificate: &Certificate) -> Self {
        Self::start_with(wire, "127.0.0.1:0".parse().unwrap(), Some(certificate.clone()))
    }

    fn start_with(wire: Wire, address: SocketAddr, tls: Option<Certificate>) -> Self {
        let shared = Arc::new(Shared {
            state: Mutex::new((Received::default(), Behaviour::Accept)),
            changed: Condvar::new(),
        });
        let (stop, stopped) = oneshot::channel();
        let (tell, told) = std::sync::mpsc::channel();
        let service = Service(shared.clone());
        let thread = thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                let listener = TcpListener::bind(address).await.unwrap();
                tell.send(listener.local_addr().unwrap()).unwrap();
                // Whatever is in flight is cut off, as when a collector is killed.
                tokio::select! {
                    () = serve(wire, listener, service, tls) => {}
                    _ = stopped => {}
                }
            });
        });
        let address = told.recv().unwrap();
        Self { address, shared, stop: Some(stop), thread: Some(thread) }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The endpoint for `OTEL_EXPORTER_OTLP_ENDPOINT`.
    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// From now on it answers so.
    pub(crate) fn behave(&self, behaviour: Behaviour) {
        self.shared.state.lock().unwrap().1 = behaviour;
    }

    /// What it has received so far.
    pub(crate) fn received(&self) -> Received {
        self.shared.state.lock().unwrap().0.clone()
    }

    /// What it has received since this was last called.
    pub(crate) fn take(&self) -> Received {
        let mut state = self.shared.state.lock().unwrap();
        let exports = state.0.exports;
        std::mem::replace(&mut state.0, Received { exports, ..Received::default() })
    }

    /// Waits until something is there, and gives it.
    #[track_caller]
    pub(crate) fn wait_for<T>(&self, what: &str, find: impl Fn(&Received) -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        let mut state = self.shared.state.lock().unwrap();
        loop {
            if let Some(found) = find(&state.0) {
                return found;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "no {what} within {PATIENCE:?} in {:#?}", state.0);
            state = self.shared.changed.wait_timeout(state, left).unwrap().0;
        }
    }

    #[track_caller]
    pub(crate) fn wait_for_span(&self, name: &str) -> Item<Span> {
        self.wait_for(&format!("span {name}"), |received| received.span(name).cloned())
    }

    #[track_caller]
    pub(crate) fn wait_for_metric(&self, name: &str) -> Item<Metric> {
        self.wait_for(&format!("metric {name}"), |received| received.metric(name).cloned())
    }

    #[track_caller]
    pub(crate) fn wait_for_log(&self, event_name: &str) -> Item<LogRecord> {
        self.wait_for(&format!("log record {event_name}"), |received| {
            received.log(event_name).cloned()
        })
    }

    /// Waits for the next request, whatever comes of it.
    #[track_caller]
    pub(crate) fn wait_for_request(&self, signal: &str) -> Headers {
        self.wait_for(&format!("request for {signal}"), |received| {
            received.requests.iter().find(|request| request.signal == signal).cloned()
        })
    }

    /// Stops listening and frees the port.
    pub(crate) fn stop(mut self) -> SocketAddr {
        self.end();
        self.address
    }

    fn end(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.end();
    }
}

impl Debug for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Collector").field("address", &self.address).finish_non_exhaustive()
    }
}

async fn serve(wire: Wire, listener: TcpListener, service: Service, tls: Option<Certificate>) {
    match wire {
        Wire::Grpc => {
            let gzip = CompressionEncoding::Gzip;
            let mut server = Server::builder();
            if let Some(Certificate { certificate, key }) = tls {
                let identity = Identity::from_pem(certificate, key);
                server = server.tls_config(ServerTlsConfig::new().identity(identity)).unwrap();
            }
            server
                .add_service(TraceServiceServer::new(service.clone()).accept_compressed(gzip))
                .add_service(MetricsServiceServer::new(service.clone()).accept_compressed(gzip))
                .add_service(LogsServiceServer::new(service).accept_compressed(gzip))
                .serve_with_incoming(TcpIncoming::from(listener))
                .await
                .unwrap();
        }
        Wire::Http => {
            let (traces, metrics, logs) = (service.clone(), service.clone(), service);
            let router = axum::Router::new()
                .route(
                    "/v1/traces",
                    post(async move |headers: HeaderMap, body: Bytes| {
                        http(&traces, "traces", &headers, &body, keep_traces).await
                    }),
                )
                .route(
                    "/v1/metrics",
                    post(async move |headers: HeaderMap, body: Bytes| {
                        http(&metrics, "metrics", &headers, &body, keep_metrics).await
                    }),
                )
                .route(
                    "/v1/logs",
                    post(async move |headers: HeaderMap, body: Bytes| {
                        http(&logs, "logs", &headers, &body, keep_logs).await
                    }),
                );
            match tls {
                Some(certificate) => {
                    axum::serve(certificate.listener(listener), router).await.unwrap();
                }
                None => axum::serve(listener, router).await.unwrap(),
            }
        }
        Wire::Reset => loop {
            drop(listener.accept().await);
        },
    }
}

// === impl Certificate ===

/// A certificate that signs itself, for `localhost`, and its key, in PEM form.
#[derive(Clone, Debug)]
pub(crate) struct Certificate {
    pub(crate) certificate: String,
    key: String,
}

impl Certificate {
    pub(crate) fn for_localhost() -> Self {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        Self { certificate: made.cert.pem(), key: made.signing_key.serialize_pem() }
    }

    fn listener(self, tcp: TcpListener) -> SecureListener {
        let chain = CertificateDer::from_pem_slice(self.certificate.as_bytes()).unwrap();
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![chain], key)
            .unwrap();
        SecureListener { tcp, acceptor: TlsAcceptor::from(Arc::new(config)) }
    }
}

struct SecureListener {
    tcp: TcpListener,
    acceptor: TlsAcceptor,
}

impl axum::serve::Listener for SecureListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, SocketAddr) {
        loop {
            // A client that does not trust us goes away within the handshake.
            let Ok((stream, address)) = self.tcp.accept().await else { continue };
            if let Ok(stream) = self.acceptor.accept(stream).await {
                return (stream, address);
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<SocketAddr> {
        self.tcp.local_addr()
    }
}

// === impl Service ===

#[derive(Clone)]
struct Service(Arc<Shared>);

impl Service {
    /// Notes that a request came, and says how to answer it.
    fn arrived(&self, signal: &'static str, headers: &HeaderMap) -> Behaviour {
        let headers = headers
            .iter()
            .map(|(name, value)| {
                (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned())
            })
            .collect();
        let mut state = self.0.state.lock().unwrap();
        state.0.requests.push(Headers { signal, headers });
        self.0.changed.notify_all();
        state.1
    }

    fn keep<T>(&self, request: T, keep: fn(T, &mut Received)) {
        let mut state = self.0.state.lock().unwrap();
        state.0.exports += 1;
        keep(request, &mut state.0);
        drop(state);
        self.0.changed.notify_all();
    }

    async fn grpc<T, R: Default>(
        &self,
        signal: &'static str,
        request: Request<T>,
        keep: fn(T, &mut Received),
    ) -> Result<Response<R>, Status> {
        let (metadata, _, message) = request.into_parts();
        match self.arrived(signal, &metadata.into_headers()) {
            Behaviour::Accept => {
                self.keep(message, keep);
                Ok(Response::new(R::default()))
            }
            Behaviour::Unavailable => Err(Status::new(Code::Unavailable, "come again")),
            Behaviour::Refuse => Err(Status::new(Code::Unauthenticated, "who are you")),
            Behaviour::Hang => std::future::pending().await,
        }
    }
}

async fn http<T: Message + Default>(
    service: &Service,
    signal: &'static str,
    headers: &HeaderMap,
    body: &[u8],
    keep: fn(T, &mut Received),
) -> StatusCode {
    match service.arrived(signal, headers) {
        Behaviour::Accept => {
            let mut plain = Vec::new();
            let is_gzip = headers.get("content-encoding").is_some_and(|value| value == "gzip");
            let body = if is_gzip {
                flate2::read::GzDecoder::new(body).read_to_end(&mut plain).unwrap();
                &plain
            } else {
                body
            };
            service.keep(T::decode(body).unwrap(), keep);
            StatusCode::OK
        }
        Behaviour::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        Behaviour::Refuse => StatusCode::UNAUTHORIZED,
        Behaviour::Hang => std::future::pending().await,
    }
}

#[tonic::async_trait]
impl TraceService for Service {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        self.grpc("traces", request, keep_traces).await
    }
}

#[tonic::async_trait]
impl MetricsService for Service {
    async fn export(
        &self,
        request: Request<ExportMetricsServiceRequest>,
    ) -> Result<Response<ExportMetricsServiceResponse>, Status> {
        self.grpc("metrics", request, keep_metrics).await
    }
}

#[tonic::async_trait]
impl LogsService for Service {
    async fn export(
        &self,
        request: Request<ExportLogsServiceRequest>,
    ) -> Result<Response<ExportLogsServiceResponse>, Status> {
        self.grpc("logs", request, keep_logs).await
    }
}

fn keep_traces(request: ExportTraceServiceRequest, received: &mut Received) {
    for of_resource in request.resource_spans {
        for of_scope in of_resource.scope_spans {
            received.spans.extend(of_scope.spans.into_iter().map(|data| Item {
                resource: of_resource.resource.clone().unwrap_or_default(),
                resource_schema: of_resource.schema_url.clone(),
                scope: of_scope.scope.clone().unwrap_or_default(),
                scope_schema: of_scope.schema_url.clone(),
                export: received.exports,
                data,
            }));
        }
    }
}

fn keep_metrics(request: ExportMetricsServiceRequest, received: &mut Received) {
    for of_resource in request.resource_metrics {
        for of_scope in of_resource.scope_metrics {
            received.metrics.extend(of_scope.metrics.into_iter().map(|data| Item {
                resource: of_resource.resource.clone().unwrap_or_default(),
                resource_schema: of_resource.schema_url.clone(),
                scope: of_scope.scope.clone().unwrap_or_default(),
                scope_schema: of_scope.schema_url.clone(),
                export: received.exports,
                data,
            }));
        }
    }
}

fn keep_logs(request: ExportLogsServiceRequest, received: &mut Received) {
    for of_resource in request.resource_logs {
        for of_scope in of_resource.scope_logs {
            received.logs.extend(of_scope.log_records.into_iter().map(|data| Item {
                resource: of_resource.resource.clone().unwrap_or_default(),
                resource_schema: of_resource.schema_url.clone(),
                scope: of_scope.scope.clone().unwrap_or_default(),
                scope_schema: of_scope.schema_url.clone(),
                export: received.exports,
                data,
            }));
        }
    }
}
