//! The one thread that tells: opens and closes load spans, says alarms, and lets time pass for every lane.
//!
//! A `tracing` event said inside a layer's callback is lost, or slips into other layers' sinks. So callbacks queue, and
//! this thread says it. It starts with the first lane and ends with the hub.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use opentelemetry::Context;
use tracing::{Dispatch, dispatcher};

use crate::lane::{AlarmKind, Facts, Finding, LoadId, SpanEvent, Subject};
use crate::layer::blind;
use crate::layer::entry::LaneEntry;
use crate::layer::hub::{Hub, Item};
use crate::layer::load_span::LoadSpan;
use crate::layer::queue::{Next, Queue};
use crate::layer::{enter, now};
use crate::telemetry::alarms::{Told, say};
use crate::telemetry::instruments::{DroppedKind, labels, labels_of};
use crate::telemetry::span_events;

const THREAD: &str = "serving-sentinel";
/// How often time passes for lanes.
const TICK: Duration = Duration::from_secs(1);

/// Starts the thread of a hub. Where the system gives no thread, nothing is told, and that is counted.
pub(super) fn start(hub: &Arc<Hub>) {
    let (queue, weak) = (hub.queue.clone(), Arc::downgrade(hub));
    if thread::Builder::new().name(THREAD.to_owned()).spawn(move || run(&queue, &weak)).is_err() {
        hub.queue.close();
    }
}

fn run(queue: &Queue<Item>, hub: &Weak<Hub>) {
    let mut ticked = now();
    let mut watch = blind::Watch::default();
    loop {
        let due = TICK.saturating_sub(now().saturating_duration_since(ticked));
        let Next::Round(items, round) = queue.next(due) else { return };
        let Some(hub) = hub.upgrade() else { return };
        for item in items {
            // Other layers run on this thread. One that panics must not end all that is ever told.
            if catch_unwind(AssertUnwindSafe(|| tell(&hub, item))).is_err() {
                hub.count_dropped(DroppedKind::Finding, 1);
            }
        }
        let at = now();
        let passed = at.saturating_duration_since(ticked);
        if passed >= TICK {
            ticked = at;
            tick(&hub, at, passed);
            // As above.
            let _ = catch_unwind(AssertUnwindSafe(|| watch.look(&hub, at)));
        }
        // Until somebody collects, the provider may be the one that keeps nothing.
        if hub.meters.is_collected() {
            hub.tell_counts();
        }
        queue.ended(round);
    }
}

// === time ===

fn tick(hub: &Arc<Hub>, at: Instant, passed: Duration) {
    let mut unseen = Vec::new();
    let lanes = hub.lanes();
    if !lanes.is_empty() {
        // An engine that says nothing gives nothing to tell, and its lane is to be seen all the same.
        hub.instruments();
    }
    for lane in lanes {
        hub.act(&lane, |observer, out| {
            observer.tick(at, out);
            for state in observer.lanes() {
                unseen.extend(state.blind_causes().map(|cause| (labels(state), cause)));
            }
        });
    }
    let own = enter(&hub.blind);
    let standing = own.iter().filter(|(_, alarm)| alarm.is_active());
    unseen.extend(standing.map(|(cause, _)| (Vec::new(), *cause)));
    drop(own);
    for (labels, cause) in unseen {
        // Blindness is something found: it may be all that ever is.
        hub.instruments().unseen(&labels, cause, passed);
    }
}

// === findings ===

fn tell(hub: &Arc<Hub>, item: Item) {
    let dispatch = hub.dispatch();
    match item {
        Item::Finding { lane, name, finding, context } => {
            // The first finding is the time to make instruments: a program is set up by then.
            hub.instruments();
            let telling = Telling { hub, dispatch: dispatch.as_ref(), lane: &lane, name };
            telling.tell(finding, context);
        }
        Item::Closed(lane) => {
            lane.tell_last_counts(&hub.instruments());
            if let Some(dispatch) = dispatch {
                let open = std::mem::take(&mut *enter(&lane.loads));
                for mut span in open.into_values() {
                    span.close(&dispatch);
                }
            }
        }
    }
}

/// What it takes to tell one finding.
struct Telling<'a> {
    hub: &'a Arc<Hub>,
    /// The subscriber to tell it to; `None` when that is gone, and metrics alone are left.
    dispatch: Option<&'a Dispatch>,
    lane: &'a LaneEntry,
    name: Arc<str>,
}

impl Telling<'_> {
    fn tell(&self, finding: Finding, context: Option<Context>) {
        match finding {
            Finding::LoadStarted { load, .. } => self.start_load(load),
            Finding::Judged { load, again, violates, event, facts } => {
                if violates {
                    self.count_violation(&facts);
                }
                self.judge_load(load, again, event, &facts);
            }
            Finding::LoadFailed { load, facts } => self.fail_load(load, &facts),
            Finding::Noted { on: Subject::Load(load), event, facts } => {
                self.note_load(load, event, &facts);
            }
            Finding::Noted { on, event, facts } => {
                if let Some(context) = context.or_else(|| self.context(on)) {
                    span_events::add(&context, event, &self.name, &facts);
                }
            }
            Finding::LoggedRate { timings, judgement, facts } => {
                let labels = self.labels(&facts);
                self.hub.instruments().judged(&labels, Some(&timings), judgement);
            }
            Finding::IntervalRate { rate, judgement, facts, .. } => {
                self.hub.instruments().interval(&self.labels(&facts), rate, judgement);
            }
            Finding::Alarm { kind, transition, on, facts } => {
                let Some(dispatch) = self.dispatch else { return };
                let context = context.or_else(|| self.context(on?));
                let told = Told { kind, transition, lane: Some(&self.name), facts: &facts };
                // The context gives the alarm's log record its trace id.
                let _attached = context.map(Context::attach);
                dispatcher::with_default(dispatch, || say(told));
            }
        }
    }

    fn context(&self, on: Subject) -> Option<Context> {
        self.lane.started_context(&self.name, on, self.dispatch?)
    }

    fn start_load(&self, load: LoadId) {
        let Some(dispatch) = self.dispatch else { return };
        let unjudged = self.newest();
        self.keep(LoadSpan::open(dispatch, &self.name, load, None));
        if let Some(mut unjudged) = unjudged {
            unjudged.close(dispatch);
        }
    }

    fn count_violation(&self, facts: &Facts) {
        let (Some(verdict), cause) = (facts.verdict, facts.causes.first().copied()) else { return };
        let labels = self.labels(facts);
        self.hub.instruments().placement_violated(&labels, verdict, cause);
    }

    fn judge_load(&self, load: LoadId, again: bool, event: Option<SpanEvent>, facts: &Facts) {
        self.end_load(load, again, |span| {
            span.describe(&self.name, facts);
            if let Some(event) = event {
                span.note(event, &self.name, facts);
            }
        });
    }

    fn fail_load(&self, load: LoadId, facts: &Facts) {
        self.end_load(load, false, |span| {
            span.describe(&self.name, facts);
            span.note(SpanEvent::Fault(AlarmKind::LoadFailed), &self.name, facts);
            span.fail(facts.cause_detail.as_deref());
        });
    }

    /// What shows on a load that is judged already goes on a span of its own, as the load's was exported.
    fn note_load(&self, load: LoadId, event: SpanEvent, facts: &Facts) {
        match self.newest() {
            Some(span) if span.load == load && span.is_open() => {
                span.note(event, &self.name, facts);
            }
            _ => self.end_load(load, true, |span| {
                span.describe(&self.name, facts);
                span.note(event, &self.name, facts);
            }),
        }
    }

    /// Closes the span of `load` after `describe`. A load that has none open gets a new one, linked to the first.
    fn end_load(&self, load: LoadId, again: bool, describe: impl FnOnce(&LoadSpan)) {
        let Some(dispatch) = self.dispatch else { return };
        let mut span = match self.newest().filter(|span| span.load == load) {
            Some(span) if span.is_open() && !again => span,
            known => LoadSpan::open(
                dispatch,
                &self.name,
                load,
                known.and_then(|span| span.span_context()),
            ),
        };
        describe(&span);
        span.close(dispatch);
        self.keep(span);
    }

    /// The lane's newest load span. This thread alone opens and closes them, so none is locked while other layers run.
    fn newest(&self) -> Option<LoadSpan> {
        enter(&self.lane.loads).get(&self.name).cloned()
    }

    fn keep(&self, span: LoadSpan) {
        enter(&self.lane.loads).insert(self.name.clone(), span);
    }

    /// The metric attributes of the lane that is told of, which may be gone by now.
    fn labels(&self, facts: &Facts) -> Vec<opentelemetry::KeyValue> {
        labels_of(&self.name, facts.engine.as_ref(), facts.model.as_ref())
    }
}
