//! One lane of a hub: its observer, what was counted of it, and the spans that are open on it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use opentelemetry::trace::{SpanContext, TraceContextExt};
use opentelemetry::{Context, KeyValue};
use tracing::Dispatch;
use tracing_opentelemetry::get_otel_context;

use crate::lane::{LaneState, RequestId, Subject};
use crate::layer::enter;
use crate::layer::load_span::LoadSpan;
use crate::layer::request::Request;
use crate::observer::{LineKind, Observer};
use crate::telemetry::instruments::{GenAi, Instruments, labels};
use crate::throughput::{RateJudgement, Timings};

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
    pub(super) answers: Answers,
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

/// One answered request, as metrics want to know of it.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) operation: &'static str,
    pub(super) judgement: RateJudgement,
    /// `None` when nobody told any.
    pub(super) timings: Option<Timings>,
    /// `None` when the request's end was counted before.
    pub(super) duration: Option<Duration>,
}

/// Answers not told to any instrument yet. One of them takes eight records or so, which the caller need not wait for:
/// they are made before the next collection, by the teller or the reader, whichever comes first.
#[derive(Debug)]
pub(super) struct Answers {
    /// `None` once the lane is closed: nobody looks any more.
    kept: Mutex<Option<Vec<Answer>>>,
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
            answers: Answers::default(),
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

impl LaneEntry {
    /// Tells instruments what was only counted or kept.
    pub(super) fn tell_counts(&self, instruments: &Instruments) {
        self.tell(instruments, self.answers.take());
    }

    /// As [`tell_counts`](Self::tell_counts), for the last time: what comes later is told by whoever brings it.
    pub(super) fn tell_last_counts(&self, instruments: &Instruments) {
        self.tell(instruments, self.answers.close());
    }

    fn tell(&self, instruments: &Instruments, answers: Vec<Answer>) {
        let (lines, truncated) = self.counts.take();
        if truncated == 0 && answers.is_empty() && lines.iter().all(|(_, lines)| *lines == 0) {
            return;
        }
        let observer = enter(&self.observer);
        let labels = labels(observer.lane());
        for (kind, lines) in lines.into_iter().filter(|(_, lines)| *lines > 0) {
            instruments.lines(&labels, kind, lines);
        }
        if truncated > 0 {
            instruments.truncated(&labels, truncated);
        }
        for answer in answers {
            answer.tell(instruments, &labels, observer.lane());
        }
    }
}

// === impl Answer ===

impl Answer {
    pub(super) fn tell(&self, instruments: &Instruments, labels: &[KeyValue], lane: &LaneState) {
        let gen_ai = GenAi::new(lane, self.operation);
        instruments.judged(labels, self.timings.as_ref(), self.judgement);
        if let Some(timings) = &self.timings {
            instruments.answered(&gen_ai, timings);
        }
        if let Some(duration) = self.duration {
            instruments.finished(&gen_ai, duration, None);
        }
    }
}

// === impl Answers ===

impl Default for Answers {
    fn default() -> Self {
        Self { kept: Mutex::new(Some(Vec::new())) }
    }
}

impl Answers {
    /// More than these are told by whoever brings them.
    const CAPACITY: usize = 1024;

    /// Keeps one; gives it back when there is no room, or nobody to tell it later.
    pub(super) fn keep(&self, answer: Answer) -> Option<Answer> {
        match &mut *enter(&self.kept) {
            Some(kept) if kept.len() < Self::CAPACITY => {
                kept.push(answer);
                None
            }
            _ => Some(answer),
        }
    }

    fn take(&self) -> Vec<Answer> {
        enter(&self.kept).as_mut().map(std::mem::take).unwrap_or_default()
    }

    fn close(&self) -> Vec<Answer> {
        enter(&self.kept).take().unwrap_or_default()
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
