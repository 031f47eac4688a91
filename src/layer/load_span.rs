//! The span of one load: `serving.load`, opened when a load begins and closed with its verdict.
//!
//! It is kept by its id, not as a `Span`: a `Span` would keep the subscriber alive, and with it this crate's layer and
//! thread, for as long as a load is open.

use opentelemetry::trace::{SpanContext, Status, TraceContextExt};
use opentelemetry::{Context, KeyValue};
use tracing::{Dispatch, Level, dispatcher, span};
use tracing_opentelemetry::get_otel_context;

use crate::lane::{Facts, LoadId, SpanEvent};
use crate::telemetry::{names, span_events};

/// One load's span, open or closed. Its OpenTelemetry context outlives it, for links and trace ids.
#[derive(Clone, Debug)]
pub(super) struct LoadSpan {
    pub(super) load: LoadId,
    id: Option<span::Id>,
    context: Option<Context>,
}

impl LoadSpan {
    /// Opens the span of a load of `lane`, as a root of its own, linked to the span of an earlier verdict on the same
    /// load.
    pub(super) fn open(
        dispatch: &Dispatch,
        lane: &str,
        load: LoadId,
        earlier: Option<SpanContext>,
    ) -> Self {
        // ERROR, so that a log filter such as `warn` does not remove it: a span's level is no statement on its outcome.
        let span = dispatcher::with_default(
            dispatch,
            || span!(target: names::TARGET, parent: None, Level::ERROR, names::LOAD_SPAN, { names::LANE_NAME } = lane),
        );
        // One more reference keeps it open when `span` is dropped.
        let id = span.id().map(|id| dispatch.clone_span(&id));
        let context = id.as_ref().and_then(|id| get_otel_context(id, dispatch));
        if let (Some(context), Some(earlier)) = (&context, earlier) {
            context.span().add_link(earlier, Vec::new());
        }
        Self { load, id, context }
    }

    pub(super) fn context(&self) -> Option<&Context> {
        self.context.as_ref()
    }

    pub(super) fn span_context(&self) -> Option<SpanContext> {
        self.context.as_ref().map(|context| context.span().span_context().clone())
    }

    pub(super) fn is_open(&self) -> bool {
        self.id.is_some()
    }

    /// Sets what is known of the load.
    pub(super) fn describe(&self, lane: &str, facts: &Facts) {
        let Some(context) = &self.context else { return };
        // The span has its lane's name from the start.
        let is_new = |attribute: &KeyValue| attribute.key.as_str() != names::LANE_NAME;
        context
            .span()
            .set_attributes(span_events::attributes(lane, facts).into_iter().filter(is_new));
    }

    /// Adds an event with its facts.
    pub(super) fn note(&self, event: SpanEvent, lane: &str, facts: &Facts) {
        if let Some(context) = &self.context {
            span_events::add(context, event, lane, facts);
        }
    }

    /// Marks the load as failed.
    pub(super) fn fail(&self, why: Option<&str>) {
        if let Some(context) = &self.context {
            context.span().set_status(Status::error(why.unwrap_or_default().to_owned()));
        }
    }

    /// Ends the span, so that it is exported now and not after the engine's death.
    pub(super) fn close(&mut self, dispatch: &Dispatch) {
        if let Some(id) = self.id.take() {
            dispatch.try_close(id);
        }
    }
}
