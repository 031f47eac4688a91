//! One lane's state: the load that is on, the requests in flight, the alarms that stand.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::alarm::{Alarm, Transition};
use crate::evidence::{BufferKind, Cause, Evidence, Residence, Role};
use crate::placement::{Account, Placement, PlacementVerdict, Plan, ProcessFacts, StatedFault};
use crate::throughput::{Expectation, RateVerdict, TimingSource, Timings, TokensPerSecond, judge};
use crate::wedge::{ImpossibleProgress, Stalls};

use super::load::{Load, Outcome};
use super::logged::LoggedRates;
use super::{
    AlarmKind, BlindCause, Facts, Finding, LaneConfig, LoadId, Policy, Recorded, RequestId,
    SpanEvent, Subject,
};

/// An alarm, with what it was last raised for: it is renewed in the same words.
#[derive(Debug, Default)]
struct KeptAlarm {
    alarm: Alarm,
    on: Option<Subject>,
    facts: Facts,
}

/// What is known of the engine's process.
#[derive(Clone, Copy, Debug)]
enum Process {
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
    config: LaneConfig,
    policy: Policy,
    engine: Option<Arc<str>>,
    lines: u64,
    pub(super) process: ProcessFacts,
    /// The engine is a router: models are loaded by its children, each a lane of its own.
    routes: bool,
    pub(super) load: Option<Load>,
    loads: u64,
    /// A device was chosen after the present load was done: for the next, whose opening line comes later.
    chosen_ahead: Option<Evidence>,
    requests: Stalls<RequestId>,
    request_count: u64,
    slots: Stalls<u32>,
    impossible: ImpossibleProgress,
    /// The subjects already told to be wedged, so that each span gets the event once.
    wedged: Vec<Subject>,
    logged: LoggedRates,
    prefill: Option<(u64, Option<TokensPerSecond>)>,
    alarms: BTreeMap<AlarmKind, KeptAlarm>,
    blind: BTreeMap<BlindCause, Alarm>,
    /// Whether the engine can still be heard.
    hearing: Process,
    /// Whether it said that it listens.
    listens: bool,
    /// Whether its end is meant.
    is_stopping: bool,
    /// When its last line was seen.
    heard: Option<Instant>,
    breaches: u32,
    last_rate: Option<f64>,
    shifted: Option<Instant>,
    debug_build: Option<String>,
}

impl LaneState {
    /// So long after a context shift a slow request may be slow because of it.
    const SHIFT_EXPLAINS: Duration = Duration::from_secs(60);

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
            routes: false,
            load: None,
            loads: 0,
            chosen_ahead: None,
            requests: Stalls::default(),
            request_count: 0,
            slots: Stalls::default(),
            impossible: ImpossibleProgress::default(),
            wedged: Vec::new(),
            logged: LoggedRates::default(),
            prefill: None,
            alarms: BTreeMap::new(),
            blind: BTreeMap::new(),
            hearing: Process::Open,
            listens: false,
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
    #[expect(clippy::too_many_lines, reason = "one arm for each fact there is")]
    pub fn take(&mut self, evidence: Evidence, now: Instant, out: &mut Vec<Finding>) {
        match evidence {
            Evidence::Verbosity { level } => self.process.verbosity = Some(level),
            Evidence::DeviceSeen { residence, .. } => self.process.see_device(residence),
            Evidence::BackendLoaded { backend, residence } => {
                self.process.see_backend(&backend, residence);
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
            Evidence::LoadFailed { detail } => self.fail_load(Some(&detail), now, out),
            Evidence::Settled => self.settle(now, out),
            Evidence::Listening => self.listen(now, out),
            Evidence::DebugBuild { detail } => self.note_debug_build(detail, now, out),
            Evidence::Decode { tokens, milliseconds, rate, slot, .. } => {
                self.settle_working(now, out);
                self.log_rate(tokens, milliseconds, rate, now);
                if let Some(slot) = slot {
                    self.slots.progress(slot, true, now);
                }
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
            Evidence::Routes => {
                self.routes = true;
                self.load = None;
            }
            Evidence::Build { .. }
            | Evidence::ChildBegins { .. }
            | Evidence::ChildEnds { .. }
            | Evidence::Exiting => {}
        }
    }

    /// The caller knows that the engine answers (its health endpoint says so): the verdict is due, as soon as lines
    /// that are still on their way have arrived.
    pub fn ready(&mut self, now: Instant, out: &mut Vec<Finding>) {
        if self.routes {
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
        self.settle_loading(now, out);
        self.count_logged_rates(true, now, out);
    }

    /// The program stops the engine: its end is meant, and no failed load.
    pub const fn stopping(&mut self) {
        self.is_stopping = true;
    }

    /// The engine's process ended. Before readiness, that is a failed load. Its alarms end with it.
    pub fn ended(&mut self, how: &str, now: Instant, out: &mut Vec<Finding>) {
        // An engine that ends in silence was not ready either. One that listened was, if it had a model at all, and one
        // whose end is told twice ended once.
        let is_loading = match &self.load {
            Some(load) => load.is_loading(),
            None => !self.routes && !self.listens && !matches!(self.hearing, Process::Ended),
        };
        if is_loading && !self.is_stopping {
            self.fail_load(Some(&format!("the engine ended before it was ready: {how}")), now, out);
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
            let transition =
                self.blind.get_mut(&cause).and_then(|alarm| alarm.end(Transition::Expired));
            self.tell_blind(cause, transition, out);
        }
        self.blind.clear();
        self.hearing = Process::Open;
        self.listens = false;
        self.is_stopping = false;
        self.heard = None;
        self.slots.clear();
        self.impossible = ImpossibleProgress::default();
        self.wedged.clear();
        self.process = ProcessFacts::default();
        self.routes = false;
        self.load = None;
        self.chosen_ahead = None;
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
        let transition =
            self.blind.entry(cause).or_default().observe(standing, now, self.policy.alarm);
        if !standing {
            self.blind.remove(&cause);
        }
        self.tell_blind(cause, transition, out);
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

    // === requests ===

    /// A request of ours is sent to the lane.
    pub fn request_started(&mut self, now: Instant) -> RequestId {
        self.request_count += 1;
        let request = RequestId(self.request_count);
        self.requests.begin(request, now);
        request
    }

    /// A piece of the answer came: the request makes progress.
    pub fn request_progress(&mut self, request: RequestId, now: Instant) {
        self.requests.progress(request, true, now);
    }

    /// A request of ours is over, with or without timings.
    pub fn request_ended(&mut self, request: RequestId, now: Instant, out: &mut Vec<Finding>) {
        self.requests.end(request);
        self.watch_for_wedges(now, out);
    }

    /// Judges one request. `timings` is `None` when its response told none; the engine's log may have.
    pub fn record(
        &mut self,
        request: Option<RequestId>,
        timings: Option<&Timings>,
        now: Instant,
        out: &mut Vec<Finding>,
    ) -> Recorded {
        // Who answers is ready, whatever its lines said: then the verdict is due.
        let is_judged = self.placement().is_some() || self.has_failed();
        if timings.is_some() && !is_judged && !matches!(self.hearing, Process::Ended) {
            self.ready(now, out);
        }
        let from_log;
        let timings = match timings {
            Some(told) if told.decode_rate.is_some() => {
                self.logged.tell(told, now);
                Some(told)
            }
            told => {
                let begun = request.and_then(|request| self.requests.begun(request));
                let tokens = told.and_then(|told| told.decode_tokens);
                from_log = self.logged.claim(tokens, begun).map(|logged| merge(told, logged));
                from_log.as_ref().or(told)
            }
        };
        self.judge_rate(request.map(Subject::Request), timings, now, out)
    }

    // === how it stands ===

    /// The present load's placement; `None` before its verdict and after the lane's end.
    pub fn placement(&self) -> Option<&Placement> {
        self.load.as_ref().and_then(Load::placement)
    }

    /// The present load, judged or not; `None` when none began.
    pub fn load(&self) -> Option<LoadId> {
        self.load.as_ref().map(|load| load.id)
    }

    /// Whether the present load has failed.
    pub fn has_failed(&self) -> bool {
        self.load.as_ref().is_some_and(|load| matches!(load.outcome, Outcome::Failed))
    }

    /// What the present load's buffers hold: name as printed, where, what, bytes. Empty until the load is judged, so
    /// that a dry run never shows.
    pub fn buffers(&self) -> impl Iterator<Item = (&str, Residence, BufferKind, u64)> {
        self.load
            .as_ref()
            .filter(|load| load.placement().is_some())
            .into_iter()
            .flat_map(|load| load.account().buffers())
            .map(|(device, kind, held)| (device, held.residence, kind, held.bytes))
    }

    /// The expectation a request would be judged by.
    pub fn expectation(&self) -> Option<&Expectation> {
        self.config.expectation()
    }

    /// Requests of ours on the lane now.
    pub fn in_flight(&self) -> u32 {
        u32::try_from(self.requests.len()).unwrap_or(u32::MAX)
    }

    /// The last decode rate in tokens/s; `None` before the first.
    pub const fn last_rate(&self) -> Option<f64> {
        self.last_rate
    }

    /// The alarms that stand, blindness aside.
    pub fn alarms(&self) -> impl Iterator<Item = AlarmKind> {
        self.alarms.iter().filter(|(_, kept)| kept.alarm.is_active()).map(|(kind, _)| *kind)
    }

    /// The causes for which the sentinel cannot see, now.
    pub fn blind_causes(&self) -> impl Iterator<Item = BlindCause> {
        self.blind.keys().copied()
    }

    // === loads ===

    pub(super) fn begin_load(&mut self, now: Instant, out: &mut Vec<Finding>) {
        self.loads += 1;
        // What an ended process left in its pipe begins no load: this is its next start.
        self.hearing = Process::Open;
        let load = LoadId(self.loads);
        self.load = Some(Load::new(load));
        if let Some(chosen) = self.chosen_ahead.take() {
            self.tell_load(chosen, now);
        }
        self.slots.clear();
        self.impossible = ImpossibleProgress::default();
        self.wedged.retain(|subject| matches!(subject, Subject::Request(_)));
        out.push(Finding::LoadStarted { load, at: now });
    }

    pub(super) fn tell_load(&mut self, evidence: Evidence, now: Instant) {
        if let Some(load) = &mut self.load {
            load.take(evidence, now);
        }
    }

    /// It listens, so that what it loaded is ready. A router listens before it has any model.
    fn listen(&mut self, now: Instant, out: &mut Vec<Finding>) {
        self.listens = true;
        if self.load.is_some() {
            self.settle(now, out);
        }
    }

    /// A line that only a working model prints: a load that never said it was ready, is, and one whose lines were never
    /// seen is unreported. What an ended process left in its pipe tells of no load.
    fn settle_working(&mut self, now: Instant, out: &mut Vec<Finding>) {
        if self.load.is_none() && !matches!(self.hearing, Process::Ended) {
            self.settle(now, out);
        }
        self.settle_loading(now, out);
    }

    /// A load that is on is judged as it stands.
    pub(super) fn settle_loading(&mut self, now: Instant, out: &mut Vec<Finding>) {
        if self.load.as_ref().is_some_and(Load::is_loading) {
            self.settle(now, out);
        }
    }

    /// The load is done, or later evidence has settled: the verdict.
    fn settle(&mut self, now: Instant, out: &mut Vec<Finding>) {
        if self.routes {
            return;
        }
        if self.load.is_none() {
            self.begin_load(now, out);
        }
        let (plan, policy) = (self.config.plan(), self.policy.placement);
        let Some(load) = &mut self.load else { return };
        if matches!(load.outcome, Outcome::Failed) {
            return;
        }
        if let Some(how) = load.take_end() {
            self.fail_load(Some(&how), now, out);
            return;
        }
        let again = !load.is_loading();
        let id = load.id;
        let Some(placement) = load.judge(&self.process, plan, policy) else { return };
        let violated = violation(placement);
        let had_fault = PLACEMENT_FAULTS.iter().any(|kind| self.is_standing(*kind));
        let event = match violated {
            Some(kind) => Some(SpanEvent::Fault(kind)),
            // The plan asks for nothing, yet nothing is known: the load's own span says so.
            None if self
                .placement()
                .is_some_and(|it| it.verdict == PlacementVerdict::Unreported) =>
            {
                Some(SpanEvent::Fault(AlarmKind::Unreported))
            }
            None if had_fault => Some(SpanEvent::PlacementRecovered),
            None => None,
        };
        let facts = self.placement_facts();
        out.push(Finding::Judged {
            load: id,
            again,
            violates: violated.is_some(),
            event,
            facts: Box::new(facts.clone()),
        });
        let on = Some(Subject::Load(id));
        for kind in PLACEMENT_FAULTS {
            if violated.is_some() && violated != Some(kind) {
                self.end_alarm(kind, Transition::Replaced, out);
            } else {
                self.observe_alarm(kind, violated == Some(kind), on, facts.clone(), now, out);
            }
        }
        if self.lines == 0 {
            // Who planned nothing and gave no output asked for rates alone.
            if self.config.plan() != Plan::Unknown {
                self.blind(BlindCause::NoOutput, true, now, out);
            }
        } else if self.engine.is_none() {
            self.blind(BlindCause::UnknownEngine, true, now, out);
        }
    }

    pub(super) fn fail_load(&mut self, how: Option<&str>, now: Instant, out: &mut Vec<Finding>) {
        if self.has_failed() {
            return; // engines say it more than once
        }
        if !self.load.as_ref().is_some_and(Load::is_loading) {
            self.begin_load(now, out);
        }
        let Some(load) = &mut self.load else { return };
        load.outcome = Outcome::Failed;
        let id = load.id;
        let mut faults: Vec<_> =
            load.account().faults.iter().chain(&self.process.faults).cloned().collect();
        // Whoever failed to load for want of memory had a device.
        faults.sort_by_key(|fault| fault.cause != Cause::OutOfMemory);
        let mut facts = self.base_facts();
        facts.verdict = Some(PlacementVerdict::Unreported);
        facts.cause_detail =
            faults.first().map(|fault| fault.detail.as_str()).or(how).map(one_line);
        facts.causes = faults.iter().map(|fault| fault.cause).collect();
        facts.advice = Some(
            match facts.causes.first() {
                Some(Cause::OutOfMemory) => {
                    "free device memory, or use a smaller context (`-c`), a smaller quantisation or fewer layers (`-ngl`)"
                }
                _ => "see the engine's last lines: the model file, its memory, the port it listens on",
            }
            .to_owned(),
        );
        if facts.causes.is_empty() {
            facts.causes.push(Cause::Unknown);
        }
        out.push(Finding::LoadFailed { load: id, facts: Box::new(facts.clone()) });
        let placement_faults =
            PLACEMENT_FAULTS.into_iter().filter(|kind| *kind != AlarmKind::LoadFailed);
        for kind in placement_faults {
            self.end_alarm(kind, Transition::Replaced, out);
        }
        self.observe_alarm(AlarmKind::LoadFailed, true, Some(Subject::Load(id)), facts, now, out);
    }

    fn note_debug_build(&mut self, detail: String, now: Instant, out: &mut Vec<Finding>) {
        if self.load.is_none() {
            self.begin_load(now, out);
        }
        let mut facts = self.base_facts();
        facts.causes = vec![Cause::DebugBuild];
        facts.cause_detail = Some(one_line(&detail));
        facts.advice = Some(
            "build the engine in release mode: rates of a debug build mean nothing".to_owned(),
        );
        self.debug_build = Some(detail);
        let Some(on) = self.on_load() else { return };
        let event = SpanEvent::Fault(AlarmKind::DebugBuild);
        out.push(Finding::Noted { on, event, facts: Box::new(facts.clone()) });
        self.observe_alarm(AlarmKind::DebugBuild, true, Some(on), facts, now, out);
    }

    // === rates ===

    fn log_rate(
        &mut self,
        tokens: u64,
        milliseconds: Option<f64>,
        rate: Option<f64>,
        now: Instant,
    ) {
        let computed = || {
            let time = Duration::try_from_secs_f64(milliseconds? / 1000.0).ok()?;
            TokensPerSecond::from_steps(tokens, time)
        };
        let mut timings = Timings::new(TimingSource::EngineLog);
        timings.decode_tokens = Some(tokens);
        timings.decode_rate = rate.and_then(TokensPerSecond::new).or_else(computed);
        if let Some((tokens, rate)) = self.prefill.take() {
            timings.prefill_tokens = Some(tokens);
            timings.prefill_rate = rate;
        }
        self.logged.log(timings, now);
    }

    /// Counts what the engine logged and no request of ours claimed.
    fn count_logged_rates(&mut self, all: bool, now: Instant, out: &mut Vec<Finding>) {
        let due = if all { self.logged.drain() } else { self.logged.due(now) };
        for timings in due {
            let recorded = self.judge_rate(None, Some(&timings), now, out);
            out.push(Finding::LoggedRate {
                timings: Box::new(timings),
                judgement: recorded.judgement,
                facts: Box::new(recorded.facts),
            });
        }
    }

    fn judge_rate(
        &mut self,
        on: Option<Subject>,
        timings: Option<&Timings>,
        now: Instant,
        out: &mut Vec<Finding>,
    ) -> Recorded {
        let judgement = judge(timings, self.expectation(), &self.policy.throughput);
        let in_flight = self.in_flight();
        let rate = timings.and_then(|it| it.decode_rate).map(TokensPerSecond::get);
        self.last_rate = rate.or(self.last_rate);

        let mut facts = self.placement_facts();
        let advice = facts.advice.take();
        facts.decode_rate = rate;
        facts.tokens = timings.and_then(|it| it.decode_tokens);
        facts.timing_source = timings.map(|it| it.source);
        facts.in_flight = Some(in_flight);
        facts.ratio = judgement.ratio;
        if let Some(expectation) = self.expectation() {
            facts.expected_rate = Some(expectation.rate().get());
            facts.expectation_source = Some(expectation.source().clone());
        }

        let mut events = Vec::new();
        if self.is_standing(AlarmKind::CpuFallback) {
            let facts = Facts { advice, ..facts.clone() };
            events.push((SpanEvent::Fault(AlarmKind::CpuFallback), facts));
        }
        match judgement.verdict {
            RateVerdict::Degraded => {
                self.breaches = self.breaches.saturating_add(1);
                let mut degraded = facts.clone();
                degraded.suspects = self.suspects(in_flight, now);
                degraded.advice = Some(slow_advice(&degraded.suspects));
                events.push((SpanEvent::Fault(AlarmKind::Degraded), degraded.clone()));
                let is_enough = self.breaches >= self.policy.throughput.consecutive(in_flight);
                if is_enough || self.is_standing(AlarmKind::Degraded) {
                    self.observe_alarm(AlarmKind::Degraded, true, on, degraded, now, out);
                }
            }
            RateVerdict::OnPar | RateVerdict::AbovePar => {
                if self.breaches > 0 {
                    events.push((SpanEvent::ThroughputRecovered, facts.clone()));
                }
                self.breaches = 0;
                if self.is_standing(AlarmKind::Degraded) {
                    self.observe_alarm(AlarmKind::Degraded, false, on, facts.clone(), now, out);
                }
            }
            RateVerdict::SmallSample | RateVerdict::NoExpectation | RateVerdict::NoTimings => {}
        }
        Recorded { judgement, events, facts, timings: timings.cloned() }
    }

    /// The standing facts that can explain a slow request, most likely first.
    fn suspects(&self, in_flight: u32, now: Instant) -> Vec<&'static str> {
        let mut suspects = Vec::new();
        if in_flight > 1 {
            suspects.push(Cause::Contention.as_str());
        }
        if let Some(placement) = self.placement() {
            if matches!(
                placement.verdict,
                PlacementVerdict::CpuFallback | PlacementVerdict::Partial
            ) {
                suspects.push(placement.verdict.as_str());
            }
            suspects.extend(placement.causes.iter().map(|cause| cause.as_str()));
        }
        if self.shifted.is_some_and(|at| now.saturating_duration_since(at) < Self::SHIFT_EXPLAINS) {
            suspects.push(Cause::ContextShift.as_str());
        }
        if self.debug_build.is_some() {
            suspects.push(Cause::DebugBuild.as_str());
        }
        suspects
    }

    // === wedges ===

    fn watch_for_wedges(&mut self, now: Instant, out: &mut Vec<Finding>) {
        let requests = self.requests.stalled(now, self.policy.wedge);
        let slots = self.slots.stalled(now, self.policy.wedge);
        let impossible = self.impossible.wedged();
        let silent_load = self.silent_load(now);
        if requests.is_empty()
            && slots.is_empty()
            && impossible.is_none()
            && silent_load.is_none()
            && !self.is_standing(AlarmKind::Wedged)
        {
            return;
        }

        let mut facts = self.base_facts();
        facts.in_flight = Some(self.in_flight());
        facts.slot = impossible.or_else(|| slots.first().map(|(slot, _)| *slot));
        let still = requests
            .iter()
            .map(|(_, still)| *still)
            .chain(slots.iter().map(|(_, still)| *still))
            .max();
        facts.cause_detail = match (impossible, still, silent_load) {
            (Some(_), _, _) => Some("progress over 1 in four lines in a row".to_owned()),
            (None, Some(still), _) => Some(format!("no progress for {} s", still.as_secs())),
            (None, None, Some(silent)) => {
                Some(format!("no line for {} s while it loads", silent.as_secs()))
            }
            (None, None, None) => None,
        };
        facts.advice = Some(
            "look at the engine's slots (`/slots`) and its last lines; restart it if it does not get on".to_owned(),
        );

        let mut subjects: Vec<Subject> =
            requests.iter().map(|(request, _)| Subject::Request(*request)).collect();
        if impossible.is_some() || silent_load.is_some() || !slots.is_empty() {
            subjects.extend(self.on_load());
        }
        for on in &subjects {
            if !self.wedged.contains(on) {
                let event = SpanEvent::Fault(AlarmKind::Wedged);
                out.push(Finding::Noted { on: *on, event, facts: Box::new(facts.clone()) });
            }
        }
        let first = subjects.first().copied();
        self.wedged = subjects;
        self.observe_alarm(AlarmKind::Wedged, first.is_some(), first, facts, now, out);
    }

    /// How long an engine has loaded without a line, if that is too long.
    fn silent_load(&self, now: Instant) -> Option<Duration> {
        let silent = now.saturating_duration_since(self.heard?);
        let is_loading = self.load.as_ref().is_some_and(Load::is_loading);
        (is_loading && silent >= self.policy.wedge.load_budget()).then_some(silent)
    }

    // === alarms ===

    fn is_standing(&self, kind: AlarmKind) -> bool {
        self.alarms.get(&kind).is_some_and(|kept| kept.alarm.is_active())
    }

    fn observe_alarm(
        &mut self,
        kind: AlarmKind,
        faulty: bool,
        on: Option<Subject>,
        facts: Facts,
        now: Instant,
        out: &mut Vec<Finding>,
    ) {
        let kept = self.alarms.entry(kind).or_default();
        let transition = kept.alarm.observe(faulty, now, self.policy.alarm);
        if faulty || transition.is_some() {
            (kept.on, kept.facts) = (on, facts);
        }
        kept.tell(kind, transition, out);
    }

    fn end_alarm(&mut self, kind: AlarmKind, transition: Transition, out: &mut Vec<Finding>) {
        if let Some(kept) = self.alarms.get_mut(&kind) {
            let ended = kept.alarm.end(transition);
            kept.tell(kind, ended, out);
        }
    }

    fn tell_blind(
        &self,
        cause: BlindCause,
        transition: Option<Transition>,
        out: &mut Vec<Finding>,
    ) {
        let Some(transition) = transition else { return };
        let mut facts = self.base_facts();
        facts.blind = Some(cause);
        facts.advice = Some(cause.advice().to_owned());
        out.push(Finding::Alarm {
            kind: AlarmKind::Blind,
            transition,
            on: None,
            facts: Box::new(facts),
        });
    }

    fn on_load(&self) -> Option<Subject> {
        self.load().map(Subject::Load)
    }

    // === facts ===

    fn base_facts(&self) -> Facts {
        Facts {
            engine: self.engine.clone(),
            model: self.config.model().cloned(),
            plan: Some(self.config.plan()),
            ..Facts::default()
        }
    }

    fn placement_facts(&self) -> Facts {
        let mut facts = self.base_facts();
        let Some(placement) = self.placement() else { return facts };
        facts.verdict = Some(placement.verdict);
        facts.basis = Some(placement.basis);
        facts.contradicted.clone_from(&placement.contradicted);
        facts.layers = placement.layers;
        facts.bytes_accelerator = placement.bytes_accelerator;
        facts.bytes_host = placement.bytes_host;
        facts.causes.clone_from(&placement.causes);
        facts.cause_detail = placement.cause_detail.as_deref().map(one_line);
        facts.advice.clone_from(&placement.advice);
        facts
    }
}

// === impl KeptAlarm ===

impl KeptAlarm {
    fn tell(&self, kind: AlarmKind, transition: Option<Transition>, out: &mut Vec<Finding>) {
        if let Some(transition) = transition {
            out.push(Finding::Alarm {
                kind,
                transition,
                on: self.on,
                facts: Box::new(self.facts.clone()),
            });
        }
    }
}

/// The alarms of a load, of which at most one stands.
const PLACEMENT_FAULTS: [AlarmKind; 4] =
    [AlarmKind::CpuFallback, AlarmKind::Partial, AlarmKind::Unreported, AlarmKind::LoadFailed];

/// The alarm of a placement that breaks its plan.
fn violation(placement: &Placement) -> Option<AlarmKind> {
    if !placement.violates {
        return None;
    }
    match placement.verdict {
        PlacementVerdict::CpuFallback => Some(AlarmKind::CpuFallback),
        PlacementVerdict::Partial => Some(AlarmKind::Partial),
        PlacementVerdict::Unreported => Some(AlarmKind::Unreported),
        PlacementVerdict::Gpu | PlacementVerdict::Cpu => None,
    }
}

/// What a response told, completed by what the log did.
fn merge(told: Option<&Timings>, logged: Timings) -> Timings {
    let Some(told) = told else { return logged };
    Timings {
        source: logged.source,
        decode_tokens: logged.decode_tokens.or(told.decode_tokens),
        decode_rate: logged.decode_rate,
        prefill_tokens: told.prefill_tokens.or(logged.prefill_tokens),
        prefill_rate: told.prefill_rate.or(logged.prefill_rate),
        ..told.clone()
    }
}

fn slow_advice(suspects: &[&str]) -> String {
    match suspects.first() {
        Some(&"contention") => "other requests shared the engine: compare with a single request, or expect a rate for \
             this concurrency",
        Some(&("cpu_fallback" | "partial")) => "the model is not where it was planned: mend its placement first",
        Some(_) => "mend what is suspected first, then compare again",
        None => "look for what else uses the device and its host: other processes, heat and power limits, swapping",
    }
    .to_owned()
}

/// An engine's own words as an attribute: one line, at most 256 bytes, control characters escaped.
fn one_line(words: &str) -> String {
    const LIMIT: usize = 256;
    let mut line = String::new();
    for character in words.trim().chars() {
        let mut push = |text: &str| {
            let fits = line.len() + text.len() <= LIMIT;
            if fits {
                line.push_str(text);
            }
            fits
        };
        let fits = if character.is_control() {
            push(&character.escape_default().to_string())
        } else {
            push(character.encode_utf8(&mut [0; 4]))
        };
        if !fits {
            break;
        }
    }
    line
}
