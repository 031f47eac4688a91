//! One lane of a hub: its observer, what was counted of it, and the spans that are open on it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use opentelemetry::Context;
use opentelemetry::trace::{SpanContext, TraceContextExt};
use tracing::Dispatch;
use tracing_opentelemetry::get_otel_context;

use crate::lane::{RequestId, Subject};
use crate::layer::enter;
use crate::layer::load_span::LoadSpan;
use crate::layer::request::Request;
use crate::observer::{LineKind, Observer};

/// A lane that is watched.
#[derive(Debug)]
pub(super) struct LaneEntry {
    pub(super) name: Arc<str>,
    pub(super) observer: Mutex<Observer>,
    /// Whether somebody opened it. Otherwise an event or a span named it.
    pub(super) is_held: bool,
    /// Whether nobody holds it any more.
    pub(super) is_closed: AtomicBool,
    /// Whether its engine lives, as far as anybody said.
    pub(super) lives: AtomicBool,
    /// Whether its last request span was kept from existing.
    pub(super) spans_filtered: AtomicBool,
    pub(super) counts: Counts,
    /// The newest load span of the lane, and of each lane within its stream, by name.
    pub(super) loads: Mutex<HashMap<Arc<str>, LoadSpan>>,
    pub(super) requests: Mutex<HashMap<RequestId, Weak<Request>>>,
}

/// Lines seen and not told to any instrument yet: a callback counts, the teller tells.
#[derive(Debug, Default)]
pub(super) struct Counts {
    evidence: AtomicU64,
    other: AtomicU64,
    truncated: AtomicU64,
}

impl LaneEntry {
    pub(super) fn new(name: Arc<str>, observer: Observer, is_held: bool) -> Self {
        Self {
            name,
            observer: Mutex::new(observer),
            is_held,
            is_closed: AtomicBool::new(false),
            lives: AtomicBool::new(true),
            spans_filtered: AtomicBool::new(false),
            counts: Counts::default(),
            loads: Mutex::default(),
            requests: Mutex::default(),
        }
    }

    /// The OpenTelemetry context of what a finding of the lane `name` is about, as far as there is one.
    pub(super) fn context(&self, name: &str, on: Subject) -> Option<Context> {
        match on {
            Subject::Request(id) => self.request(id)?.context().cloned(),
            Subject::Load(load) => {
                enter(&self.loads).get(name).filter(|span| span.load == load)?.context().cloned()
            }
        }
    }

    /// What a request on this lane links to: its newest load.
    pub(super) fn load_link(&self) -> Option<SpanContext> {
        let loads = enter(&self.loads);
        let context = loads.get(&self.name)?.context()?;
        Some(context.span().span_context().clone())
    }

    /// The requests that are in flight.
    pub(super) fn requests(&self) -> Vec<Arc<Request>> {
        enter(&self.requests).values().filter_map(Weak::upgrade).collect()
    }

    /// As [`context`](Self::context), and a request's OpenTelemetry span is started now if nobody did: one whose span
    /// was never entered can be wedged too. Never called inside callbacks.
    pub(super) fn started_context(
        &self,
        name: &str,
        on: Subject,
        dispatch: &Dispatch,
    ) -> Option<Context> {
        let Subject::Request(id) = on else { return self.context(name, on) };
        // Locked meanwhile: a request is taken out before its span is gone, and a span that is gone must not be asked
        // for.
        let requests = enter(&self.requests);
        let request = requests.get(&id)?.upgrade()?;
        if request.context().is_none()
            && let Some(context) = get_otel_context(request.span(), dispatch)
        {
            request.set_context(context);
        }
        request.context().cloned()
    }

    fn request(&self, id: RequestId) -> Option<Arc<Request>> {
        enter(&self.requests).get(&id).and_then(Weak::upgrade)
    }
}

// === impl Counts ===

impl Counts {
    pub(super) fn line(&self, kind: LineKind) {
        let count = match kind {
            LineKind::Evidence => &self.evidence,
            LineKind::Other => &self.other,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn truncated(&self, lines: u64) {
        self.truncated.fetch_add(lines, Ordering::Relaxed);
    }

    /// Takes what was counted since it was last taken: lines by kind, and lines cut.
    pub(super) fn take(&self) -> ([(LineKind, u64); 2], u64) {
        let take = |count: &AtomicU64| count.swap(0, Ordering::Relaxed);
        let lines =
            [(LineKind::Evidence, take(&self.evidence)), (LineKind::Other, take(&self.other))];
        (lines, take(&self.truncated))
    }
}
