//! What a layer, its lanes and its thread share: the table of lanes, and the queue of what is to be told.
//!
//! Callbacks ask it, it asks the core, and findings are queued. What is said aloud is said by the teller.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Once, Weak};
use std::time::Duration;

use opentelemetry::Context;
use tracing::dispatcher::{self, WeakDispatch};
use tracing::span::Id;
use tracing::{Dispatch, Level};

use crate::alarm::Alarm;
use crate::catalog::{Catalog, Query};
use crate::engines::Matcher;
use crate::lane::{BlindCause, Finding, LaneConfig, LaneState, Policy};
use crate::layer::entry::LaneEntry;
use crate::layer::filter::is_within;
use crate::layer::meters::Meters;
use crate::layer::queue::Queue;
use crate::layer::{Request, Watcher, deadline, enter, now, teller};
use crate::observer::{LaneFinding, Observer};
use crate::telemetry::gauges::Lanes;
use crate::telemetry::instruments::{DroppedKind, Instruments};

/// Findings are rare. So many at once are a storm, and a storm's first findings say enough.
const QUEUE_CAPACITY: usize = 4096;

/// What the builder was told.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) policy: Policy,
    pub(super) matcher: Arc<Matcher>,
    pub(super) catalog: Catalog,
    pub(super) max_lanes: usize,
    pub(super) targets: Arc<[String]>,
}

impl Settings {
    /// The lane with the catalogue's expectation, where it has none of its own.
    fn expecting(&self, config: LaneConfig) -> LaneConfig {
        let Some(model) = config.model().filter(|_| config.expectation().is_none()) else {
            return config;
        };
        let query = Query { engine: config.engine().map(|engine| &**engine), ..Query::new(model) };
        match self.catalog.lookup(&query) {
            Some(expectation) => config.with_expectation(expectation),
            None => config,
        }
    }
}

/// For the teller to deal with.
#[derive(Debug)]
pub(super) enum Item {
    /// Tell this.
    Finding {
        lane: Arc<LaneEntry>,
        /// The lane within `lane`'s stream that it is of, mostly `lane` itself.
        name: Arc<str>,
        finding: Finding,
        /// The OpenTelemetry context of the request it is about: the request may be over when it is told.
        context: Option<Context>,
    },
    /// The lane is no longer watched: close what is open of it.
    Closed(Arc<LaneEntry>),
}

/// One per layer.
#[derive(Debug)]
pub(crate) struct Hub {
    pub(super) settings: Settings,
    pub(super) meters: Meters,
    pub(super) queue: Arc<Queue<Item>>,
    /// Causes of blindness that are of no single lane.
    pub(super) blind: Mutex<BTreeMap<BlindCause, Alarm>>,
    /// The level at which engine events were last heard, per target.
    pub(super) heard: Vec<Mutex<Option<Level>>>,
    /// By name; of several that are open the last is the one that shows.
    lanes: Mutex<HashMap<Arc<str>, Vec<Arc<LaneEntry>>>>,
    dispatch: Mutex<Option<WeakDispatch>>,
    /// Whether another layer of the same subscriber is asked in this one's place.
    is_shadowed: AtomicBool,
    dropped: [AtomicU64; DroppedKind::ALL.len()],
    teller: Once,
}

impl Hub {
    pub(super) fn new(settings: Settings, meters: Meters) -> Arc<Self> {
        let heard = settings.targets.iter().map(|_| Mutex::default()).collect();
        Arc::new(Self {
            settings,
            meters,
            queue: Arc::new(Queue::new(QUEUE_CAPACITY)),
            blind: Mutex::default(),
            heard,
            lanes: Mutex::default(),
            dispatch: Mutex::default(),
            is_shadowed: AtomicBool::new(false),
            dropped: Default::default(),
            teller: Once::new(),
        })
    }

    /// The hub of that subscriber's layer; `None` when it has none.
    pub(crate) fn of(dispatch: &Dispatch) -> Option<Arc<Self>> {
        dispatch.downcast_ref::<Watcher>().map(|watcher| watcher.hub().clone())
    }

    /// The request that a span is of, itself or one of its parents.
    pub(super) fn request(dispatch: &Dispatch, id: &Id) -> Option<(Id, Arc<Request>)> {
        dispatch.downcast_ref::<Watcher>()?.request(dispatch, id)
    }

    /// The hub of the current subscriber's layer.
    pub(crate) fn current() -> Option<Arc<Self>> {
        // Looked up only: while the closure runs, nothing that is said on this thread is heard.
        let (hub, dispatch) =
            dispatcher::get_default(|dispatch| (Self::of(dispatch), dispatch.downgrade()));
        let hub = hub?;
        hub.know(&dispatch);
        Some(hub)
    }

    // === the subscriber ===

    /// Keeps the subscriber that the layer is in. Some wrappers of layers do not tell it when it is made.
    pub(crate) fn know(&self, dispatch: &WeakDispatch) {
        enter(&self.dispatch).get_or_insert_with(|| dispatch.clone());
    }

    /// A layer further out is found in this one's place. Of two in one subscriber this one falls silent, so that nothing
    /// counts twice.
    pub(super) fn shadow(&self) {
        self.is_shadowed.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_shadowed(&self) -> bool {
        self.is_shadowed.load(Ordering::Relaxed)
    }

    fn is_of(&self, dispatch: &Dispatch) -> bool {
        dispatch
            .downcast_ref::<Watcher>()
            .is_some_and(|watcher| std::ptr::eq(&raw const **watcher.hub(), self))
    }

    /// The subscriber that the layer is in; `None` when it is gone, or was never made known.
    pub(super) fn dispatch(&self) -> Option<Dispatch> {
        let known = enter(&self.dispatch).clone();
        if let Some(known) = known {
            return known.upgrade();
        }
        let current = dispatcher::get_default(Clone::clone);
        self.is_of(&current).then_some(current)
    }

    /// Starts the thread that tells, once.
    pub(super) fn start(self: &Arc<Self>) {
        self.teller.call_once(|| teller::start(self));
    }

    // === lanes ===

    /// Opens a lane for somebody who holds it. One of the same name that is open already is not shown meanwhile, and
    /// goes on for those who hold it.
    pub(super) fn open(self: &Arc<Self>, config: LaneConfig) -> Arc<LaneEntry> {
        let lane = self.entry(config, true);
        let mut lanes = enter(&self.lanes);
        let known = lanes.entry(lane.name.clone()).or_default();
        let unheld = known.pop_if(|known| !known.is_held);
        known.push(lane.clone());
        drop(lanes);
        if let Some(unheld) = unheld {
            self.close(&unheld);
        }
        self.start();
        lane
    }

    /// The lane of that name, opened if need be: events and spans name lanes that nobody opened. `None` beyond the
    /// limit of lanes, as a name may come from anywhere.
    pub(super) fn lane(self: &Arc<Self>, name: &str) -> Option<Arc<LaneEntry>> {
        let mut lanes = enter(&self.lanes);
        if let Some(known) = lanes.get(name).and_then(|known| known.last()) {
            return Some(known.clone());
        }
        if lanes.len() >= self.settings.max_lanes {
            self.count_dropped(DroppedKind::Lane, 1);
            return None;
        }
        let lane = self.entry(LaneConfig::new(name), false);
        lanes.insert(lane.name.clone(), vec![lane.clone()]);
        drop(lanes);
        self.start();
        Some(lane)
    }

    fn entry(&self, config: LaneConfig, is_held: bool) -> Arc<LaneEntry> {
        let config = self.settings.expecting(config);
        let name = config.name().clone();
        let observer = Observer::new(config, self.settings.policy, self.settings.matcher.clone());
        Arc::new(LaneEntry::new(name, observer, is_held))
    }

    /// A lane is no longer watched: nobody holds it.
    pub(super) fn close(&self, lane: &Arc<LaneEntry>) {
        lane.is_closed.store(true, Ordering::Relaxed);
        self.act(lane, |observer, out| observer.close(now(), out));
        let mut lanes = enter(&self.lanes);
        if let Some(open) = lanes.get_mut(&lane.name) {
            open.retain(|open| !Arc::ptr_eq(open, lane));
            if open.is_empty() {
                lanes.remove(&lane.name);
            }
        }
        drop(lanes);
        self.queue.push_over(Item::Closed(lane.clone()));
    }

    /// All open lanes.
    pub(super) fn lanes(&self) -> Vec<Arc<LaneEntry>> {
        enter(&self.lanes).values().flatten().cloned().collect()
    }

    /// The open lanes that show: one of each name.
    pub(super) fn shown_lanes(&self) -> Vec<Arc<LaneEntry>> {
        enter(&self.lanes).values().filter_map(|open| open.last().cloned()).collect()
    }

    // === lines ===

    /// Takes what one event or one call holds: a line, or several.
    pub(super) fn observe(&self, lane: &Arc<LaneEntry>, lines: &[u8]) {
        let at = now();
        lane.lives.store(true, Ordering::Relaxed);
        self.act(lane, |observer, out| {
            let lines = lines.strip_suffix(b"\n").unwrap_or(lines);
            for line in lines.split(|byte| *byte == b'\n') {
                let kind = observer.line(line.strip_suffix(b"\r").unwrap_or(line), at, out);
                lane.counts.line(kind);
            }
        });
    }

    /// An engine event came through: no filter hides its target.
    pub(super) fn heard(&self, target: &str, level: Level) {
        let mut targets = self.settings.targets.iter();
        if let Some(engine) = targets.position(|engine| is_within(target, engine)) {
            *enter(&self.heard[engine]) = Some(level);
        }
    }

    // === findings ===

    /// Asks the core, and queues what it finds. The lane stays locked until all is queued, which keeps the order.
    pub(super) fn act<R>(
        &self,
        lane: &Arc<LaneEntry>,
        ask: impl FnOnce(&mut Observer, &mut Vec<LaneFinding>) -> R,
    ) -> R {
        let mut findings = Vec::new();
        let mut observer = enter(&lane.observer);
        let answer = ask(&mut observer, &mut findings);
        for (name, finding) in findings {
            let on = match &finding {
                Finding::Noted { on, .. } | Finding::Alarm { on: Some(on), .. } => Some(*on),
                _ => None,
            };
            let context = on.and_then(|on| lane.context(&name, on));
            if !self.queue.push(Item::Finding { lane: lane.clone(), name, finding, context }) {
                self.count_dropped(DroppedKind::Finding, 1);
            }
        }
        answer
    }

    /// Waits until all that was found before is told; `false` when that takes longer than `timeout`.
    pub(crate) fn flush(self: &Arc<Self>, timeout: Duration) -> bool {
        self.start();
        self.queue.wait(deadline(timeout), now)
    }

    // === metrics ===

    /// The instruments, made now if need be. Never called inside a callback.
    pub(super) fn instruments(self: &Arc<Self>) -> Arc<Instruments> {
        self.meters.get_or_make(&self.as_lanes(), |made| self.count_in_flight(made))
    }

    /// Moves to a meter provider that was set late.
    pub(super) fn follow_provider(self: &Arc<Self>) {
        self.meters.follow(&self.as_lanes(), |made| self.count_in_flight(made));
    }

    /// Tells the instruments what callers and callbacks only counted or kept. Also called while a reader collects, so
    /// that each collection has all that was recorded before it.
    pub(super) fn tell_counts(&self) {
        let Some(instruments) = self.meters.get() else { return };
        for lane in self.lanes() {
            lane.tell_counts(&instruments);
        }
        for kind in DroppedKind::ALL {
            let items = self.dropped[kind as usize].swap(0, Ordering::Relaxed);
            if items > 0 {
                instruments.dropped(kind, items);
            }
        }
    }

    pub(super) fn count_dropped(&self, kind: DroppedKind, items: u64) {
        self.dropped[kind as usize].fetch_add(items, Ordering::Relaxed);
    }

    fn count_in_flight(&self, instruments: &Arc<Instruments>) {
        for lane in self.lanes() {
            for request in lane.requests() {
                request.count_on(instruments);
            }
        }
    }

    fn as_lanes(self: &Arc<Self>) -> Weak<dyn Lanes> {
        let hub: Weak<Self> = Arc::downgrade(self);
        hub
    }
}

impl Lanes for Hub {
    fn each(&self, visit: &mut dyn FnMut(&LaneState, bool)) {
        for lane in self.shown_lanes() {
            let lives = lane.lives.load(Ordering::Relaxed);
            enter(&lane.observer).lanes().for_each(|state| visit(state, lives));
        }
    }

    fn is_blind(&self) -> bool {
        enter(&self.blind).values().any(Alarm::is_active)
    }

    fn collected(&self) {
        self.meters.collected();
        self.tell_counts();
    }
}

impl Drop for Hub {
    /// The teller ends with the hub. Nobody is left to hear of findings; what was counted is still told.
    fn drop(&mut self) {
        self.tell_counts();
        let left = self.queue.close();
        let Some(instruments) = self.meters.get() else { return };
        for item in left {
            if let Item::Closed(lane) = item {
                lane.tell_last_counts(&instruments);
            }
        }
    }
}
