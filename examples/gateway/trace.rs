//! The trace context in HTTP headers: read from the caller, and handed on to the engine.

use axum::http::{HeaderMap, HeaderName};
use opentelemetry::propagation::{Extractor, Injector, TextMapPropagator as _};
use opentelemetry::trace::TraceContextExt as _;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

/// Headers as OpenTelemetry reads and writes them.
pub(crate) struct TraceHeaders<T>(pub(crate) T);

impl Extractor for TraceHeaders<&HeaderMap> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.to_str().ok()
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(HeaderName::as_str).collect()
    }
}

impl Injector for TraceHeaders<&mut HeaderMap> {
    fn set(&mut self, key: &str, value: String) {
        if let (Ok(name), Ok(value)) = (key.parse::<HeaderName>(), value.parse()) {
            self.0.insert(name, value);
        }
    }
}

/// Makes the engine's part of the trace a child of this request. Without a span of our own the caller's stays.
pub(crate) fn inject(span: &Span, headers: &mut HeaderMap) {
    let context = span.context();
    if context.span().span_context().is_valid() {
        TraceContextPropagator::new().inject_context(&context, &mut TraceHeaders(headers));
    }
}
