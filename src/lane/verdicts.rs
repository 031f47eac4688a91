//! Loads and their verdicts: begun, settled, failed, and the alarms that follow from them.

use std::time::Instant;

use crate::alarm::Transition;
use crate::evidence::{Cause, Evidence, Residence};
use crate::placement::{Basis, Placement, PlacementVerdict};
use crate::wedge::ImpossibleProgress;

use super::load::{Load, Outcome};
use super::state::{LaneState, Process, Serving};
use super::telling::one_line;
use super::{AlarmKind, BlindCause, Finding, LoadId, SpanEvent, Subject};

impl LaneState {
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
        self.intervals.clear();
        self.readback.begin_load();
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
    pub(super) fn listen(&mut self, now: Instant, out: &mut Vec<Finding>) {
        if self.serving == Serving::NotYet {
            self.serving = Serving::Listens;
        }
        if self.load.is_some() {
            self.says_ready(now, out);
        }
    }

    /// The engine's own word that its load is done.
    pub(super) fn says_ready(&mut self, now: Instant, out: &mut Vec<Finding>) {
        if self.serving == Serving::Routes {
            return;
        }
        if self.load.is_none() {
            self.begin_load(now, out);
        }
        if let Some(load) = &mut self.load {
            load.says_ready(now);
        }
        self.settle(now, out);
    }

    /// A line that only a working model prints: a load that never said it was ready, is, and one whose lines were never
    /// seen is unreported. What an ended process left in its pipe tells of no load.
    pub(super) fn settle_working(&mut self, now: Instant, out: &mut Vec<Finding>) {
        let is_unseen = self.load.is_none() && !matches!(self.hearing, Process::Ended);
        if is_unseen || self.load.as_ref().is_some_and(Load::is_loading) {
            self.says_ready(now, out);
        }
    }

    /// A load that is on is judged as it stands.
    pub(super) fn settle_loading(&mut self, now: Instant, out: &mut Vec<Finding>) {
        if self.load.as_ref().is_some_and(Load::is_loading) {
            self.judge_load(now, out);
        }
    }

    /// The load is done, or later evidence has settled: the verdict, unless an answer of the engine may know better.
    pub(super) fn settle(&mut self, now: Instant, out: &mut Vec<Finding>) {
        if !self.awaits_readback(now) {
            self.judge_load(now, out);
        }
    }

    /// The verdict, by what is known.
    fn judge_load(&mut self, now: Instant, out: &mut Vec<Finding>) {
        if self.serving == Serving::Routes {
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
            self.fail_load(None, Some(&how), now, out);
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
        // Who reads back instead of listening can see.
        let is_read = self.placement().is_some_and(|it| it.basis == Basis::Readback);
        if self.lines == 0 {
            self.blind(BlindCause::NoOutput, !is_read, now, out);
        } else if self.engine.is_none() {
            self.blind(BlindCause::UnknownEngine, true, now, out);
        }
    }

    /// The serving process named the device type that it loads on. Each of its processes does, at its own time, so that
    /// the same words again are no news; other words after a verdict that rests on them are those of its next start.
    pub(super) fn take_platform(
        &mut self,
        device: String,
        residence: Residence,
        now: Instant,
        out: &mut Vec<Finding>,
    ) {
        let told = Some((device, residence));
        let known = std::mem::replace(&mut self.process.platform, told);
        let is_same = known == self.process.platform;
        let is_next_start = match self.load.as_ref().map(|load| &load.outcome) {
            None | Some(Outcome::Failed) => true,
            Some(Outcome::Judged(placement)) => placement.basis == Basis::Platform && !is_same,
            Some(Outcome::Loading) => false,
        };
        if is_next_start {
            self.begin_load(now, out);
        }
        if let Some((device, residence)) = self.process.platform.clone().filter(|_| !is_same) {
            self.tell_load(Evidence::Platform { device, residence }, now);
        }
    }

    pub(super) fn fail_load(
        &mut self,
        cause: Option<Cause>,
        how: Option<&str>,
        now: Instant,
        out: &mut Vec<Finding>,
    ) {
        if self.has_failed() {
            return; // engines say it more than once
        }
        if !self.load.as_ref().is_some_and(Load::is_loading) {
            self.begin_load(now, out);
        }
        let Some(load) = &mut self.load else { return };
        if let (Some(cause), Some(detail)) = (cause, how) {
            load.take(Evidence::Fault { cause, decides: false, detail: detail.to_owned() }, now);
        }
        load.outcome = Outcome::Failed;
        let id = load.id;
        let mut faults: Vec<_> =
            load.account().faults.iter().chain(&self.process.faults).cloned().collect();
        let mut seen = Vec::new();
        faults.retain(|fault| {
            let is_new = !seen.contains(&fault.cause);
            seen.push(fault.cause);
            is_new
        });
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

    pub(super) fn note_debug_build(
        &mut self,
        detail: String,
        now: Instant,
        out: &mut Vec<Finding>,
    ) {
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
