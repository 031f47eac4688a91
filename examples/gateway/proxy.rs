//! The way through: every request goes to the lane that it names, and comes back as it comes.
//!
//! Nothing is held back and nothing is changed but what a proxy must (hop-by-hop headers, `host`, the trace parent).

use std::error::Error as _;
use std::sync::Arc;

use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::uri::PathAndQuery;
use axum::http::{HeaderMap, HeaderName, Method, StatusCode, header, request};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use futures_util::StreamExt as _;
use serde::Deserialize;
use serde_json::json;
use serving_sentinel::layer::Lane;
use serving_sentinel::span_ext::SpanExt as _;
use tracing::Span;

use crate::http::{Client, Origin};
use crate::observe::Observed;
use crate::trace::{TraceHeaders, inject};

/// A request that has to be read whole to know its lane is refused when it is larger; pictures come in bodies too.
const LARGEST_BODY_BYTES: usize = 64 << 20;

/// Where requests can go.
#[derive(Debug)]
pub(crate) struct Gateway {
    pub(crate) routes: Vec<Route>,
    pub(crate) client: Client,
}

/// A lane and where its engine answers.
#[derive(Debug)]
pub(crate) struct Route {
    pub(crate) lane: Lane,
    pub(crate) model: Option<Arc<str>>,
    pub(crate) origin: Origin,
}

pub(crate) fn app(gateway: Gateway) -> Router {
    Router::new().fallback(forward).with_state(Arc::new(gateway))
}

async fn forward(State(gateway): State<Arc<Gateway>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let (route, body) = match gateway.route(&parts, body).await {
        Ok(found) => found,
        Err(refusal) => return refusal,
    };
    let span = operation(&parts).map_or_else(Span::none, |operation| {
        let span = route.lane.request_span(operation);
        span.continue_trace(&TraceHeaders(&parts.headers));
        span
    });
    let mut observed = Observed::begin(span);
    let response = match gateway.client.request(onward(route, parts, body, observed.span())).await {
        Ok(response) => response,
        Err(error) => {
            observed.fail("engine_unreachable");
            let cause = error.source().map_or_else(String::new, |cause| format!(": {cause}"));
            let message = format!(
                "the engine of lane {} does not answer at {}{cause}",
                route.lane.name(),
                route.origin
            );
            return refusal(StatusCode::BAD_GATEWAY, &message);
        }
    };
    observed.answered(response.status(), response.headers());
    let (mut head, body) = response.into_parts();
    remove_hop_by_hop(&mut head.headers);
    // Each piece is passed on when it is there; the engine's is dropped when the client's is, and so cancelled.
    let pieces = futures_util::stream::unfold(
        (Body::new(body).into_data_stream(), observed),
        |(mut pieces, mut observed)| async {
            match pieces.next().await {
                Some(Ok(piece)) => {
                    observed.piece(&piece);
                    Some((Ok(piece), (pieces, observed)))
                }
                Some(Err(error)) => {
                    observed.fail("stream_broken");
                    Some((Err(error), (pieces, observed)))
                }
                None => {
                    observed.finish();
                    None
                }
            }
        },
    );
    Response::from_parts(head, Body::from_stream(pieces))
}

/// The part of a request's body that says where it goes.
#[derive(Deserialize)]
struct Named {
    model: String,
}

impl Gateway {
    /// The lane a request is for, and its body again. One lane gets everything; of several, the one that the body's
    /// `model` names, by its own name or its model's.
    async fn route(&self, parts: &request::Parts, body: Body) -> Result<(&Route, Body), Response> {
        if let [only] = self.routes.as_slice() {
            return Ok((only, body));
        }
        let Ok(body) = to_bytes(body, LARGEST_BODY_BYTES).await else {
            return Err(refusal(
                StatusCode::PAYLOAD_TOO_LARGE,
                "a body of more than 64 MiB cannot be routed",
            ));
        };
        let lanes =
            || self.routes.iter().map(|route| route.lane.name()).collect::<Vec<_>>().join(", ");
        let Ok(Named { model }) = serde_json::from_slice(&body) else {
            let message = format!(
                "{} names no lane; give one of them as `model`: {}",
                parts.uri.path(),
                lanes()
            );
            return Err(refusal(StatusCode::NOT_FOUND, &message));
        };
        let named =
            |route: &&Route| route.lane.name() == model || route.model.as_deref() == Some(&model);
        match self.routes.iter().find(named) {
            Some(route) => Ok((route, Body::from(body))),
            None => Err(refusal(
                StatusCode::NOT_FOUND,
                &format!("no lane serves `{model}`; there are: {}", lanes()),
            )),
        }
    }
}

/// What a request asks for, in the words of the `GenAI` conventions; `None` for what is not inference (`/health`).
fn operation(parts: &request::Parts) -> Option<&'static str> {
    if parts.method != Method::POST {
        return None;
    }
    match parts.uri.path().strip_prefix("/v1").unwrap_or(parts.uri.path()) {
        "/chat/completions" | "/messages" | "/responses" => Some("chat"),
        "/completions" | "/completion" | "/infill" => Some("text_completion"),
        "/embeddings" | "/embedding" => Some("embeddings"),
        _ => None,
    }
}

/// The request as the engine gets it.
fn onward(route: &Route, mut parts: request::Parts, body: Body, span: &Span) -> Request {
    remove_hop_by_hop(&mut parts.headers);
    parts.headers.remove(header::HOST);
    inject(span, &mut parts.headers);
    let path =
        parts.uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
    let mut request = Request::new(body);
    *request.uri_mut() = route.origin.uri(path);
    *request.method_mut() = parts.method;
    *request.headers_mut() = parts.headers;
    request
}

/// Removes the headers that are of one connection only: the standard ones, and those that `Connection` names.
fn remove_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|names| names.to_str().ok())
        .flat_map(|names| names.split(',').filter_map(|name| name.trim().parse().ok()))
        .collect();
    for name in named {
        headers.remove(name);
    }
    for name in [
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ] {
        headers.remove(name);
    }
}

/// An error of the gateway's own, in the form that `OpenAI`'s clients read.
fn refusal(status: StatusCode, message: &str) -> Response {
    let body =
        json!({"error": {"message": message, "type": "gateway_error", "code": status.as_u16()}});
    (status, Json(body)).into_response()
}
