//! One lane's state: the load that is on, the requests in flight, the alarms that stand.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::alarm::Transition;
use crate::evidence::{BufferKind, Evidence, Role};
use crate::placement::{Account, ProcessFacts, StatedFault};
use crate::throughput::TokensPerSecond;
use crate::wedge::{ImpossibleProgress, Stalls};

use super::interval::Intervals;
use super::load::{Load, Outcome};
use super::logged::LoggedRates;
use super::readback::Readback;
use super::telling::{Blindness, KeptAlarm};
use super::{AlarmKind, BlindCause, Finding, LaneConfig, Policy, RequestId, Subject};

/// Whether the process said that it serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Serving {
    /// It did not say so.
    NotYet,
    /// It listens: what it loaded is ready, if it loaded anything.
    Listens,
    /// It is a router: models are loaded by its children, each a lane of its own.
    Routes,
}

/// What is known of the engine's process.
#[derive(Clone, Copy, Debug)]
pub(super) enum Process {
    /// It speaks, or can.
    Open,
    /// Its output closed then. A process that ends closes it, too, a moment before its end is known.
    OutputClosed(Instant),
    /// It has ended, and its output with it.
    Ended,
}

/// One lane's state.
#[derive(Debug)]
pub struct LaneState {
    pub(super) config: LaneConfig,
    pub(super) policy: Policy,
    pub(super) engine: Option<Arc<str>>,
    pub(super) lines: u64,
    pub(super) process: ProcessFacts,
    pub(super) serving: Serving,
    pub(super) load: Option<Load>,
    pub(super) loads: u64,
    /// A device was chosen after the present load was done: for the next, whose opening line comes later.
    pub(super) chosen_ahead: Option<Evidence>,
    pub(super) requests: Stalls<RequestId>,
    pub(super) request_count: u64,
    pub(super) slots: Stalls<u32>,
    pub(super) impossible: ImpossibleProgress,
    /// The subjects already told to be wedged, so that each span gets the event once.
    pub(super) wedged: Vec<Subject>,
    pub(super) logged: LoggedRates,
    pub(super) intervals: Intervals,
    /// Whether a request told its rate since the last interval, in its answer or in the log: the better source.
    pub(super) told_since_interval: bool,
    /// What the engine answers when it is asked.
    pub(super) readback: Readback,
    /// Intervals under the floor in a row.
    pub(super) slow_intervals: u32,
    pub(super) prefill: Option<(u64, Option<TokensPerSecond>)>,
    pub(super) alarms: BTreeMap<AlarmKind, KeptAlarm>,
    pub(super) blind: BTreeMap<BlindCause, Blindness>,
    /// Whether the engine can still be heard.
    pub(super) hearing: Process,
    /// Whether its end is meant.
    pub(super) is_stopping: bool,
    /// When its last line was seen.
    pub(super) heard: Option<Instant>,
    pub(super) breaches: u32,
    pub(super) last_rate: Option<f64>,
    pub(super) shifted: Option<Instant>,
    pub(super) debug_build: Option<String>,
}

impl LaneState {
    /// An engine whose output closed and that has not ended after so long lives on unheard.
    const END_IS_DUE: Duration = Duration::from_secs(5);

    /// A lane about which nothing is known yet.
    pub fn new(config: LaneConfig, policy: Policy) -> Self {
        Self {
            engine: config.engine().cloned(),
            config,
            policy,
            lines: 0,
            process: ProcessFacts::default(),
            serving: Serving::NotYet,
            load: None,
            loads: 0,
            chosen_ahead: None,
            requests: Stalls::default(),
            request_count: 0,
            slots: Stalls::default(),
            impossible: ImpossibleProgress::default(),
            wedged: Vec::new(),
            logged: LoggedRates::default(),
            intervals: Intervals::default(),
            told_since_interval: false,
            readback: Readback::default(),
            slow_intervals: 0,
            prefill: None,
            alarms: BTreeMap::new(),
            blind: BTreeMap::new(),
            hearing: Process::Open,
            is_stopping: false,
            heard: None,
            breaches: 0,
            last_rate: None,
            shifted: None,
            debug_build: None,
        }
    }

    /// What the operator says of the lane.
    pub const fn config(&self) -> &LaneConfig {
        &self.config
    }

    /// The engine's name: as configured, else as its lines show it; `None` before the first line of a known form.
    pub const fn engine(&self) -> Option<&Arc<str>> {
        self.engine.as_ref()
    }

    /// The lines of the engine known so far turn out to be within another's, such as Ollama's. A configured name stays.
    pub fn is_rather(&mut self, engine: &Arc<str>) {
        if self.config.engine().is_none() {
            self.engine = Some(engine.clone());
        }
    }

    // === what the engine says ===

    /// One line was seen. `engine` is the engine whose format it has, if any.
    pub fn line(&mut self, engine: Option<&Arc<str>>, now: Instant, out: &mut Vec<Finding>) {
        self.lines = self.lines.saturating_add(1);
        self.heard = Some(now);
        if self.engine.is_none() && engine.is_some() {
            self.engine = engine.cloned();
        }
        if matches!(self.hearing, Process::OutputClosed(_)) {
            self.hearing = Process::Open;
        }
        if !self.blind.is_empty() {
            self.blind(BlindCause::OutputClosed, false, now, out);
            self.blind(BlindCause::NoOutput, false, now, out);
            if self.engine.is_some() {
                self.blind(BlindCause::UnknownEngine, false, now, out);
            }
        }
    }

    /// Takes one fact.
    pub fn take(&mut self, evidence: Evidence, now: Instant, out: &mut Vec<Finding>) {
        self.judge_held(&evidence, now, out);
        match evidence {
            Evidence::Verbosity { level } => self.process.verbosity = Some(level),
            Evidence::DeviceSeen { residence, .. } => self.process.see_device(residence),
            Evidence::BackendLoaded { backend, residence } => {
                self.process.see_backend(&backend, residence);
            }
            Evidence::Platform { device, residence } => {
                self.take_platform(device, residence, now, out);
            }
            Evidence::LayersAsked { layers } => self.process.layers_asked |= layers != Some(0),
            Evidence::LoadBegins { role, .. } => {
                if role == Role::Main && !self.load.as_ref().is_some_and(Load::is_loading) {
                    self.begin_load(now, out);
                }
                if let Some(load) = &mut self.load {
                    load.begin(role);
                }
            }
            Evidence::Fault { cause, decides, detail } if ProcessFacts::concerns(cause) => {
                Account::add_fault(
                    &mut self.process.faults,
                    StatedFault { cause, decides, detail },
                );
            }
            Evidence::Fault { .. } => {
                // Memory faults of a load that is over are those of the next attempt.
                if self.load.as_ref().is_some_and(|load| matches!(load.outcome, Outcome::Loading)) {
                    self.tell_load(evidence, now);
                }
            }
            Evidence::BlockBegins => {
                if !self.load.as_ref().is_some_and(Load::takes_block) {
                    self.begin_load(now, out);
                }
                self.tell_load(evidence, now);
            }
            Evidence::DeviceChosen { .. } if self.load.as_ref().is_some_and(Load::is_done) => {
                self.chosen_ahead = Some(evidence);
            }
            Evidence::Banner { .. }
            | Evidence::Layer { .. }
            | Evidence::LayerRange { .. }
            | Evidence::Buffer { kind: BufferKind::Model, .. }
            | Evidence::Allotted { kind: BufferKind::Model, .. }
            | Evidence::DeviceChosen { .. } => {
                if !self.load.as_ref().is_some_and(Load::takes_loader_lines) {
                    self.begin_load(now, out);
                }
                self.tell_load(evidence, now);
            }
            Evidence::Overflow { .. }
            | Evidence::HostOverride { .. }
            | Evidence::Metadata { .. }
            | Evidence::Estimate { .. } => {
                if self.load.is_none() {
                    self.begin_load(now, out);
                }
                self.tell_load(evidence, now);
            }
            Evidence::Buffer { .. } | Evidence::Allotted { .. } | Evidence::BlockEnds => {
                self.tell_load(evidence, now);
            }
            Evidence::NoDeviceFound
            | Evidence::Planned(_)
            | Evidence::RunnerBegins { .. }
            | Evidence::RunnerEnded { .. }
            | Evidence::ProcessBegins => self.take_from_scheduler(evidence, now, out),
            Evidence::LoadFailed { cause, detail } => {
                self.fail_load(cause, Some(&detail), now, out);
            }
            Evidence::Settled => self.says_ready(now, out),
            Evidence::Listening => self.listen(now, out),
            Evidence::DebugBuild { detail } => self.note_debug_build(detail, now, out),
            Evidence::Decode { .. }
            | Evidence::Prefill { .. }
            | Evidence::Interval { .. }
            | Evidence::DecodeProgress { .. }
            | Evidence::PrefillProgress { .. }
            | Evidence::TaskLaunched { .. }
            | Evidence::TaskReleased { .. }
            | Evidence::ContextShift { .. } => self.take_work(&evidence, now, out),
            Evidence::Routes => {
                self.serving = Serving::Routes;
                self.load = None;
            }
            Evidence::Build { .. }
            | Evidence::ChildBegins { .. }
            | Evidence::ChildEnds { .. }
            | Evidence::Exiting => {}
        }
    }

    /// Takes one fact of requests being served.
    pub(super) fn take_work(&mut self, evidence: &Evidence, now: Instant, out: &mut Vec<Finding>) {
        match *evidence {
            Evidence::Decode { tokens, milliseconds, rate, slot, .. } => {
                self.settle_working(now, out);
                self.log_rate(tokens, milliseconds, rate, now);
                if let Some(slot) = slot {
                    self.slots.progress(slot, true, now);
                }
            }
            Evidence::Interval { rate, running, rank } => {
                self.settle_working(now, out);
                self.take_interval(rate, running, rank, now, out);
            }
            Evidence::Prefill { tokens, rate, .. } => {
                self.settle_working(now, out);
                self.prefill = Some((tokens, rate.and_then(TokensPerSecond::new)));
            }
            Evidence::DecodeProgress { slot, .. } => self.slots.progress(slot, true, now),
            Evidence::PrefillProgress { slot, share, .. } => {
                self.slots.progress(slot, false, now);
                self.impossible.observe(slot, share);
                self.watch_for_wedges(now, out);
            }
            Evidence::TaskLaunched { slot, .. } => self.slots.begin(slot, now),
            Evidence::TaskReleased { slot, .. } => {
                self.slots.end(slot);
                self.watch_for_wedges(now, out);
            }
            Evidence::ContextShift { slot, .. } => {
                self.slots.progress(slot, true, now);
                self.shifted = Some(now);
            }
            _ => {}
        }
    }

    /// The caller knows that the engine answers (its health endpoint says so): the verdict is due, as soon as lines
    /// that are still on their way have arrived.
    pub fn ready(&mut self, now: Instant, out: &mut Vec<Finding>) {
        if self.serving == Serving::Routes {
            return;
        }
        if self.load.is_none() {
            self.begin_load(now, out);
        }
        let Some(load) = &mut self.load else { return };
        load.answers(now);
        if load.is_told() {
            self.settle(now, out);
        }
    }

    /// No line will come any more, and nothing is known of the process: what is open is judged as it stands. For
    /// logs that are read after the fact.
    pub fn conclude(&mut self, now: Instant, out: &mut Vec<Finding>) {
        // An engine that tells of no load, and yet that it will run on the CPU.
        let decides = self.process.faults.iter().any(|fault| fault.decides);
        if self.load.is_none() && self.serving != Serving::Routes && decides {
            self.begin_load(now, out);
        }
        self.settle_loading(now, out);
        self.count_logged_rates(true, now, out);
    }

    /// The program stops the engine: its end is meant, and no failed load.
    pub const fn stopping(&mut self) {
        self.is_stopping = true;
    }

    /// The engine's process ended. Before readiness, that is a failed load. Its alarms end with it.
    pub fn ended(&mut self, how: &str, now: Instant, out: &mut Vec<Finding>) {
        // A verdict that waits for an answer waits no longer: whoever answers has loaded.
        if !self.is_stopping && self.load.as_ref().is_some_and(Load::can_be_asked) {
            self.settle_loading(now, out);
        }
        // An engine that ends in silence was not ready either. One that listened was, if it had a model at all, and one
        // whose end is told twice ended once.
        let is_loading = match &self.load {
            Some(load) => load.is_loading(),
            None => self.serving == Serving::NotYet && !matches!(self.hearing, Process::Ended),
        };
        if is_loading && !self.is_stopping {
            let how = format!("the engine ended before it was ready: {how}");
            self.fail_load(None, Some(&how), now, out);
        }
        self.end(now, out);
        self.hearing = Process::Ended;
    }

    /// The engine's output is closed: blindness, unless the process turns out to have ended.
    pub const fn output_closed(&mut self, now: Instant) {
        if matches!(self.hearing, Process::Open) {
            self.hearing = Process::OutputClosed(now);
        }
    }

    /// The lane is no longer watched: what stands of it ends, and that is no recovery.
    pub fn close(&mut self, now: Instant, out: &mut Vec<Finding>) {
        self.end(now, out);
        self.end_alarm(AlarmKind::LoadFailed, Transition::Expired, out);
    }

    /// The engine is gone. What is left to see is why: a load that failed.
    pub(crate) fn end(&mut self, now: Instant, out: &mut Vec<Finding>) {
        self.count_logged_rates(true, now, out);
        let standing: Vec<AlarmKind> =
            self.alarms().filter(|kind| *kind != AlarmKind::LoadFailed).collect();
        for kind in standing {
            self.end_alarm(kind, Transition::Expired, out);
        }
        for cause in self.blind_causes().collect::<Vec<_>>() {
            let ended =
                self.blind.get_mut(&cause).and_then(|kept| kept.alarm.end(Transition::Expired));
            self.tell_blind(cause, ended, out);
        }
        self.blind.clear();
        self.hearing = Process::Open;
        self.serving = Serving::NotYet;
        self.is_stopping = false;
        self.heard = None;
        self.slots.clear();
        self.impossible = ImpossibleProgress::default();
        self.wedged.clear();
        self.process = ProcessFacts::default();
        self.load = None;
        self.chosen_ahead = None;
        self.readback.end();
    }

    /// Says that the sentinel cannot see for `cause`, or that it can again.
    pub fn blind(
        &mut self,
        cause: BlindCause,
        standing: bool,
        now: Instant,
        out: &mut Vec<Finding>,
    ) {
        if !standing && !self.blind.contains_key(&cause) {
            return;
        }
        let kept = self.blind.entry(cause).or_default();
        let transition = kept.alarm.observe(standing, now, self.policy.alarm);
        self.tell_blind(cause, transition, out);
        if !standing {
            self.blind.remove(&cause);
        }
    }

    /// Time passes: renewals, expiries, budgets, evidence that has gone quiet. Called about once a second.
    pub fn tick(&mut self, now: Instant, out: &mut Vec<Finding>) {
        if self.load.as_ref().is_some_and(|load| load.is_due(now)) {
            self.settle(now, out);
        }
        self.watch_for_wedges(now, out);
        self.count_logged_rates(false, now, out);
        let policy = self.policy.alarm;
        for (kind, kept) in &mut self.alarms {
            let transition = match kind {
                // Requests alone show a rate, so that without any the alarm grows old.
                AlarmKind::Degraded => kept.alarm.expire(now, policy),
                _ if kept.alarm.is_active() => kept.alarm.observe(true, now, policy),
                _ => None,
            };
            kept.tell(*kind, transition, out);
        }
        if matches!(self.hearing, Process::OutputClosed(at) if now.duration_since(at) >= Self::END_IS_DUE)
        {
            self.blind(BlindCause::OutputClosed, true, now, out);
        }
        for cause in self.blind_causes().collect::<Vec<_>>() {
            self.blind(cause, true, now, out);
        }
    }
}
