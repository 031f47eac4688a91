//! A lane as a program holds it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tracing::dispatcher::{self, WeakDispatch};
use tracing::{Dispatch, Level, Span, span};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

use crate::alarm::Transition;
use crate::lane::{AlarmKind, BlindCause, Finding, LaneConfig, LaneState, ReadBackFacts};
use crate::layer::blind::say_blind;
use crate::layer::entry::LaneEntry;
use crate::layer::hub::Hub;
use crate::layer::{enter, now};
use crate::placement::{Placement, Plan};
use crate::telemetry::instruments::DroppedKind;
use crate::telemetry::{names, span_events};
use crate::throughput::Expectation;

/// One lane, open as long as a clone of this lives. It reports to the `SentinelLayer` of the subscriber that was
/// current when it was opened.
///
/// Without such a layer, opening it says `serving.sentinel.blind` once, and it then does nothing.
#[derive(Clone, Debug)]
pub struct Lane {
    inner: Arc<Opened>,
}

#[derive(Debug)]
struct Opened {
    config: LaneConfig,
    dispatch: WeakDispatch,
    watch: Option<Watch>,
}

/// Who watches the lane.
#[derive(Debug)]
struct Watch {
    hub: Arc<Hub>,
    lane: Arc<LaneEntry>,
}

/// How a lane is now, for a table or a status page.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct LaneSnapshot {
    /// The lane's name.
    pub name: Arc<str>,
    /// The engine, once known.
    pub engine: Option<Arc<str>>,
    /// The model as configured.
    pub model: Option<Arc<str>>,
    /// The plan.
    pub plan: Plan,
    /// The present load's placement; `None` before its verdict.
    pub placement: Option<Placement>,
    /// The last judged decode rate, tokens/s.
    pub decode_rate: Option<f64>,
    /// The expected decode rate, tokens/s.
    pub expected_rate: Option<f64>,
    /// Where the expected rate is from.
    pub expectation_source: Option<Arc<str>>,
    /// Requests on the lane now.
    pub in_flight: u32,
    /// The alarms that stand, blindness aside.
    pub alarms: Vec<AlarmKind>,
    /// Why the sentinel cannot see, if it cannot.
    pub blind: Vec<BlindCause>,
    /// What the engine's endpoints told last; `None` when nobody asks them, or they have not answered.
    pub read_back: Option<ReadBackFacts>,
}

/// Waits until all that the current subscriber's `SentinelLayer` has found so far is told, at most `timeout`.
///
/// Call it before the exporters shut down. `true` when all is told, and when there is no such layer.
pub fn flush(timeout: Duration) -> bool {
    Hub::current().is_none_or(|hub| hub.flush(timeout))
}

impl Lane {
    /// Opens a lane under the current subscriber.
    ///
    /// A lane of that name that is open already goes on for its holders, and is not shown in metrics while this one is
    /// open.
    pub fn open(config: LaneConfig) -> Self {
        let dispatch = dispatcher::get_default(Dispatch::downgrade);
        let watch = Hub::current().map(|hub| Watch { lane: hub.open(config.clone()), hub });
        if watch.is_none() {
            say_blind(Some(config.name()), BlindCause::LayerNotInstalled, None, Transition::Raised);
        }
        Self { inner: Arc::new(Opened { config, dispatch, watch }) }
    }

    /// The lane's name.
    pub fn name(&self) -> &str {
        self.inner.config.name()
    }

    /// Hands the sentinel one line of the engine's output, or several, with or without line ends. Never blocks.
    ///
    /// No log filter can hide lines that are handed over here.
    pub fn observe_line(&self, line: &[u8]) {
        if let Some(Watch { hub, lane }) = &self.inner.watch {
            hub.observe(lane, line);
        }
    }

    /// The engine answers, the program knows by other means (a health endpoint): the verdict is due.
    pub fn ready(&self) {
        self.lives();
        self.act(|state, findings| state.ready(now(), findings));
    }

    /// The program is about to stop the engine: if that ends while it loads, it is no failed load.
    pub fn stopping(&self) {
        self.act(|state, _| state.stopping());
    }

    /// The engine's process ended; `how` in words (`exit status: 1`). Before readiness, that is a failed load.
    ///
    /// The lane stays open for the engine's next start, and is not shown in metrics until then.
    pub fn ended(&self, how: &str) {
        if let Some(Watch { hub, lane }) = &self.inner.watch {
            lane.lives.store(false, Ordering::Relaxed);
            hub.act(lane, |observer, out| observer.ended(how, now(), out));
        }
    }

    /// The engine's output is closed. If its end is not told within a few seconds, it lives on, and that is blindness.
    pub fn output_closed(&self) {
        self.act(|state, _| state.output_closed(now()));
    }

    /// Counts lines of its output of which only the beginning was observed: `serving.sentinel.truncated`.
    pub fn count_truncated(&self, lines: u64) {
        if let Some(Watch { lane, .. }) = &self.inner.watch {
            lane.counts.truncated(lines);
        }
    }

    /// Counts what was dropped on the way to its place: `serving.sentinel.dropped`.
    pub fn count_dropped(&self, kind: DroppedKind, items: u64) {
        if let Some(Watch { hub, .. }) = &self.inner.watch {
            hub.count_dropped(kind, items);
        }
    }

    /// The subscriber that was current when the lane was opened; `None` when it is gone, as a lane keeps none alive.
    pub fn dispatch(&self) -> Option<Dispatch> {
        self.inner.dispatch.upgrade()
    }

    /// A span for one request on this lane: `operation` is `chat`, `text_completion` or `embeddings`. Its timings are
    /// given to it by [`SpanExt::record_timings`](crate::span_ext::SpanExt::record_timings), and the request is over
    /// when it is closed.
    ///
    /// In OpenTelemetry it is named `{operation} {model}`, of kind CLIENT, linked to the lane's load. Continue a
    /// caller's trace by [`SpanExt::continue_trace`](crate::span_ext::SpanExt::continue_trace), or `set_parent`, before
    /// it is entered.
    pub fn request_span(&self, operation: &str) -> Span {
        let config = &self.inner.config;
        let model = config.model().map(|model| &**model);
        let name =
            model.map_or_else(|| operation.to_owned(), |model| format!("{operation} {model}"));
        let provider = self.engine().as_deref().map(span_events::provider);
        // ERROR, so that a log filter such as `warn` does not remove it: a span's level is no statement on its outcome.
        let span = span!(
            target: names::TARGET,
            Level::ERROR,
            names::REQUEST_SPAN,
            { names::OTEL_NAME } = name,
            { names::OTEL_KIND } = names::OTEL_KIND_CLIENT,
            { names::OPERATION } = operation,
            { names::PROVIDER } = provider,
            { names::REQUEST_MODEL } = model,
            { names::LANE_NAME } = self.name(),
        );
        if let Some(watch) = &self.inner.watch {
            watch.notice(&span);
        }
        span
    }

    /// How the lane is now; `None` when no `SentinelLayer` is there to ask.
    pub fn snapshot(&self) -> Option<LaneSnapshot> {
        let Watch { lane, .. } = self.inner.watch.as_ref()?;
        Some(LaneSnapshot::of(enter(&lane.observer).lane()))
    }

    /// How the lanes found within this one's stream are now, by name: a router's children, further services of one log.
    pub fn snapshots_within(&self) -> Vec<LaneSnapshot> {
        let Some(Watch { lane, .. }) = &self.inner.watch else { return Vec::new() };
        let mut within: Vec<_> =
            enter(&lane.observer).lanes().skip(1).map(LaneSnapshot::of).collect();
        within.sort_by(|one, other| one.name.cmp(&other.name));
        within
    }

    /// Waits until all that was found so far, on this lane and others of the same layer, is told: at most `timeout`.
    /// `true` when all is told.
    pub fn flush(&self, timeout: Duration) -> bool {
        self.inner.watch.as_ref().is_none_or(|watch| watch.hub.flush(timeout))
    }

    fn engine(&self) -> Option<Arc<str>> {
        let configured = self.inner.config.engine().cloned();
        configured
            .or_else(|| enter(&self.inner.watch.as_ref()?.lane.observer).lane().engine().cloned())
    }

    /// `None` when no `SentinelLayer` is there.
    pub(crate) fn act<R>(
        &self,
        act: impl FnOnce(&mut LaneState, &mut Vec<Finding>) -> R,
    ) -> Option<R> {
        let Watch { hub, lane } = self.inner.watch.as_ref()?;
        Some(hub.act(lane, |observer, out| observer.with_lane(out, act)))
    }

    /// The engine shows by other means than its lines that it lives.
    pub(crate) fn lives(&self) {
        if let Some(Watch { lane, .. }) = &self.inner.watch {
            lane.lives.store(true, Ordering::Relaxed);
        }
    }
}

/// A lane that does not stay open for this.
#[cfg(feature = "readback")]
#[derive(Clone, Debug)]
pub(crate) struct WeakLane(std::sync::Weak<Opened>);

#[cfg(feature = "readback")]
impl Lane {
    pub(crate) fn downgrade(&self) -> WeakLane {
        WeakLane(Arc::downgrade(&self.inner))
    }
}

#[cfg(feature = "readback")]
impl WeakLane {
    /// `None` when nobody holds the lane any more.
    pub(crate) fn upgrade(&self) -> Option<Lane> {
        self.0.upgrade().map(|inner| Lane { inner })
    }

    /// Whether somebody holds the lane, and a `SentinelLayer` watches it.
    pub(crate) fn is_watched(&self) -> bool {
        self.0.upgrade().is_some_and(|opened| opened.watch.is_some())
    }
}

// === impl Watch ===

impl Watch {
    /// Links a new request span to the lane's load, or learns that a filter keeps such spans from existing.
    fn notice(&self, span: &Span) {
        let is_filtered = span.is_disabled();
        // Said again each time: an engine's end has ended all that stood, and the filter may still be there.
        if self.lane.spans_filtered.swap(is_filtered, Ordering::Relaxed) || is_filtered {
            self.hub.act(&self.lane, |observer, out| {
                let cause = BlindCause::SpansFiltered;
                observer.with_lane(out, |state, findings| {
                    state.blind(cause, is_filtered, now(), findings);
                });
            });
        }
        let Some(load) = self.lane.load_link() else { return };
        // A link does not start the OpenTelemetry span: it can still be given its parent.
        span.add_link(load);
        span.with_subscriber(|(id, dispatch)| {
            if let Some((_, request)) = Hub::request(dispatch, id) {
                request.set_linked();
            }
        });
    }
}

// === impl Opened ===

impl Drop for Opened {
    fn drop(&mut self) {
        if let Some(Watch { hub, lane }) = &self.watch {
            hub.close(lane);
        }
    }
}

// === impl LaneSnapshot ===

impl LaneSnapshot {
    fn of(lane: &LaneState) -> Self {
        Self {
            name: lane.config().name().clone(),
            engine: lane.engine().cloned(),
            model: lane.config().model().cloned(),
            plan: lane.config().plan(),
            placement: lane.placement().cloned(),
            decode_rate: lane.last_rate(),
            expected_rate: lane.expectation().map(|expectation| expectation.rate().get()),
            expectation_source: lane.expectation().map(Expectation::source).cloned(),
            in_flight: lane.in_flight(),
            alarms: lane.alarms().collect(),
            blind: lane.blind_causes().collect(),
            read_back: lane.read_back_facts().cloned(),
        }
    }
}
