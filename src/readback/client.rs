//! One question to one engine: a GET with a limit on time and size, and what can become of it.

use std::time::Duration;

use http::header::{AUTHORIZATION, USER_AGENT};
use http::{HeaderValue, Request, StatusCode};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::time::timeout;

use super::ReadBack;
use super::endpoint::Endpoint;

/// llama-server and uvicorn (vLLM) close a connection that was idle for 5 s. It is closed here before, so that no
/// question meets a connection that is being closed.
const IDLE: Duration = Duration::from_secs(4);

/// Who asks, for the engine's own log.
const AGENT: &str = concat!("serving-sentinel/", env!("CARGO_PKG_VERSION"));

/// Why there is no body to read.
#[derive(Debug, thiserror::Error)]
pub(super) enum AskError {
    /// The engine cannot be reached.
    #[error("cannot connect to {address}: {reason}")]
    Connect {
        /// Where.
        address: String,
        /// What the system says.
        reason: String,
    },
    /// The engine took the question and did not answer in time.
    #[error("no answer within {} s", .limit.as_secs_f64())]
    Timeout {
        /// The limit on time.
        limit: Duration,
    },
    /// The connection broke.
    #[error("the connection broke: {reason}")]
    Broken {
        /// What the client says.
        reason: String,
    },
    /// The answer is none of success.
    #[error("it answers {}", .status.as_u16())]
    Status {
        /// Its status.
        status: StatusCode,
    },
    /// The answer is larger than the limit.
    #[error("the answer is larger than {limit} bytes; `with_max_body_bytes` raises that")]
    TooLarge {
        /// The limit on size.
        limit: u32,
    },
}

impl AskError {
    /// Whether the engine took the question and does not answer.
    pub(super) const fn is_hang(&self) -> bool {
        matches!(self, Self::Timeout { .. })
    }
}

/// Asks one engine. Follows no redirect, and keeps one connection for a while.
pub(super) struct Client {
    http: HttpClient<HttpConnector, String>,
    settings: ReadBack,
}

impl Client {
    pub(super) fn new(settings: ReadBack) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        // Who cannot be reached is not who does not answer: half of the time for each.
        connector.set_connect_timeout(Some(settings.timeout / 2));
        let http = HttpClient::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(1)
            .build(connector);
        Self { http, settings }
    }

    pub(super) const fn settings(&self) -> &ReadBack {
        &self.settings
    }

    /// Asks an endpoint for its body.
    pub(super) async fn ask(&self, endpoint: Endpoint) -> Result<Vec<u8>, AskError> {
        let limit = self.settings.timeout;
        match timeout(limit, self.body(endpoint)).await {
            Ok(result) => result,
            Err(_) => Err(AskError::Timeout { limit }),
        }
    }

    async fn body(&self, endpoint: Endpoint) -> Result<Vec<u8>, AskError> {
        let settings = &self.settings;
        let broken = |error: &dyn std::fmt::Display| AskError::Broken { reason: error.to_string() };
        let uri = settings.address.at(endpoint.path()).map_err(|error| broken(&error))?;
        let mut request = Request::get(uri).header(USER_AGENT, HeaderValue::from_static(AGENT));
        if let Some(key) = &settings.authorization {
            request = request.header(AUTHORIZATION, key.clone());
        }
        let request = request.body(String::new()).map_err(|error| broken(&error))?;
        let answer = self.http.request(request).await.map_err(|error| {
            let reason = root(&error);
            if error.is_connect() {
                AskError::Connect { address: settings.address.to_string(), reason }
            } else {
                AskError::Broken { reason }
            }
        })?;
        let status = answer.status();
        if status != StatusCode::OK {
            return Err(AskError::Status { status });
        }
        let limit = settings.max_body_bytes.get();
        let limited =
            Limited::new(answer.into_body(), usize::try_from(limit).unwrap_or(usize::MAX));
        match limited.collect().await {
            Ok(body) => Ok(body.to_bytes().into()),
            Err(error) if error.is::<LengthLimitError>() => Err(AskError::TooLarge { limit }),
            Err(error) => Err(AskError::Broken { reason: root(&*error) }),
        }
    }
}

/// The innermost reason: the outer ones say that a request failed.
fn root(error: &(dyn std::error::Error + 'static)) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}
