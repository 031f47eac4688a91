//! What a program says on the span of a request: how it went, and whose trace it continues.
//!
//! Works on a request's span and on any span within it. On any other span, and without a `SentinelLayer`, it does
//! nothing.

use std::str::FromStr as _;
use std::sync::Arc;

use opentelemetry::propagation::Extractor;
use opentelemetry::trace::{
    SpanContext, SpanId, TraceContextExt as _, TraceFlags, TraceId, TraceState,
};
use opentelemetry::{Context, global};
use tracing::Span;
use tracing_opentelemetry::{OpenTelemetrySpanExt as _, get_otel_context};

use crate::layer::{Hub, Request, Watcher};
use crate::throughput::{RateVerdict, Timings};

mod sealed {
    #[expect(unnameable_types, reason = "that nobody else can name it is what seals the trait")]
    pub trait Sealed {}

    impl Sealed for tracing::Span {}
}

/// Tells the sentinel about the request that a span is of.
///
/// A request is the span of [`Lane::request_span`](crate::layer::Lane::request_span), or any span that has a field
/// `serving.lane.name`.
pub trait SpanExt: sealed::Sealed {
    /// Gives the request its timings, once its response is there: `None` when the response told none, which is counted
    /// too.
    ///
    /// Judges the decode rate, and puts rate, usage and placement on the request's OpenTelemetry span, a span event for
    /// what is wrong, and all of it in metrics. Each call counts one answer; the span's attributes are those of the
    /// first. The metric of the request's duration is from the timings, else from the start of the span to this call.
    ///
    /// `None` when there is no request, or no layer, to give them to.
    fn record_timings<'a>(&self, timings: impl Into<Option<&'a Timings>>) -> Option<RateVerdict>;

    /// The request failed: `error_type` is the value of `error.type`, a word out of a small set (`timeout`, `500`).
    fn record_error(&self, error_type: &str);

    /// A piece of the answer came: the request makes progress, and is not wedged.
    fn record_progress(&self);

    /// Makes the span part of the caller's trace, as `headers` tell it: by the global propagator, or where none is set
    /// by the W3C headers `traceparent` and `tracestate`. Must come before the span is entered.
    ///
    /// `false` when the headers tell of no trace, or the span can take no parent any more.
    fn continue_trace(&self, headers: &dyn Extractor) -> bool;
}

impl SpanExt for Span {
    fn record_timings<'a>(&self, timings: impl Into<Option<&'a Timings>>) -> Option<RateVerdict> {
        let (hub, request) = request_of(self)?;
        Some(request.record(&hub, timings.into()))
    }

    fn record_error(&self, error_type: &str) {
        if let Some((hub, request)) = request_of(self) {
            request.fail(&hub, error_type);
        }
    }

    fn record_progress(&self) {
        if let Some((hub, request)) = request_of(self) {
            request.progress(&hub);
        }
    }

    fn continue_trace(&self, headers: &dyn Extractor) -> bool {
        let extracted = global::get_text_map_propagator(|propagator| {
            propagator.extract_with_context(&Context::new(), headers)
        });
        let parent = if extracted.span().span_context().is_valid() {
            extracted
        } else {
            let Some(remote) = w3c(headers) else { return false };
            extracted.with_remote_span_context(remote)
        };
        self.set_parent(parent).is_ok()
    }
}

/// The request that the span is of, its OpenTelemetry context known, and the hub that watches it.
fn request_of(span: &Span) -> Option<(Arc<Hub>, Arc<Request>)> {
    span.with_subscriber(|(id, dispatch)| {
        let watcher = dispatch.downcast_ref::<Watcher>()?;
        let (id, request) = watcher.request(dispatch, id)?;
        watcher.hub().know(&dispatch.downgrade());
        if request.context().is_none()
            && let Some(context) = get_otel_context(&id, dispatch)
        {
            request.set_context(context);
        }
        Some((watcher.hub().clone(), request))
    })
    .flatten()
}

/// The W3C trace context, as `traceparent` tells it: `00-<32 hex>-<16 hex>-<2 hex>`. A version to come may append more.
fn w3c(headers: &dyn Extractor) -> Option<SpanContext> {
    let parent = headers.get("traceparent")?.trim();
    let mut parts = parent.split('-');
    let version = hex(parts.next()?, 2)?;
    let trace = TraceId::from_hex(hex(parts.next()?, 32)?).ok()?;
    let span = SpanId::from_hex(hex(parts.next()?, 16)?).ok()?;
    let flags = u8::from_str_radix(hex(parts.next()?, 2)?, 16).ok()?;
    if version == "ff" || version == "00" && parts.next().is_some() {
        return None;
    }
    // A state that cannot be read does not make the trace invalid.
    let state = headers
        .get("tracestate")
        .and_then(|state| TraceState::from_str(state).ok())
        .unwrap_or_default();
    let sampled = TraceFlags::new(flags) & TraceFlags::SAMPLED;
    Some(SpanContext::new(trace, span, sampled, true, state)).filter(SpanContext::is_valid)
}

/// `text`, if it is that many lower-case hexadecimal digits.
fn hex(text: &str, digits: usize) -> Option<&str> {
    let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    (text.len() == digits && text.bytes().all(is_hex)).then_some(text)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn a_traceparent_is_read_as_the_specification_says() {
        const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
        const SPAN: &str = "b7ad6b7169203331";
        let rows = [
            ("sampled", format!("00-{TRACE}-{SPAN}-01"), Some(true)),
            ("not sampled", format!("00-{TRACE}-{SPAN}-00"), Some(false)),
            ("other flags", format!("00-{TRACE}-{SPAN}-03"), Some(true)),
            ("a later version, with more", format!("01-{TRACE}-{SPAN}-01-more"), Some(true)),
            ("this version, with more", format!("00-{TRACE}-{SPAN}-01-more"), None),
            ("the forbidden version", format!("ff-{TRACE}-{SPAN}-01"), None),
            ("capitals", format!("00-{}-{SPAN}-01", TRACE.to_uppercase()), None),
            ("no trace", format!("00-{}-{SPAN}-01", "0".repeat(32)), None),
            ("no span", format!("00-{TRACE}-{}-01", "0".repeat(16)), None),
            ("short", format!("00-{TRACE}-{SPAN}"), None),
            ("long digits", format!("00-0{TRACE}-{SPAN}-01"), None),
            ("a sign", format!("00-{TRACE}-{SPAN}-+1"), None),
            ("nothing", String::new(), None),
        ];
        for (case, header, expected) in rows {
            let headers = HashMap::from([("traceparent".to_owned(), header)]);
            let read = w3c(&headers);
            assert_eq!(read.as_ref().map(SpanContext::is_sampled), expected, "{case}");
            if let Some(read) = read {
                assert!(read.is_remote(), "{case}");
                assert_eq!(
                    (read.trace_id().to_string(), read.span_id().to_string()),
                    (TRACE.into(), SPAN.into())
                );
            }
        }
        assert!(w3c(&HashMap::new()).is_none());
    }
}
