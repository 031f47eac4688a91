//! Alarms and facts: what stands, in which words it is told, and what a finding carries.

use std::time::Instant;

use crate::alarm::{Alarm, Transition};

use super::state::LaneState;
use super::{AlarmKind, BlindCause, Facts, Finding, Subject};

impl LaneState {
    pub(super) fn is_standing(&self, kind: AlarmKind) -> bool {
        self.alarms.get(&kind).is_some_and(|kept| kept.alarm.is_active())
    }

    pub(super) fn observe_alarm(
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

    pub(super) fn end_alarm(
        &mut self,
        kind: AlarmKind,
        transition: Transition,
        out: &mut Vec<Finding>,
    ) {
        if let Some(kept) = self.alarms.get_mut(&kind) {
            let ended = kept.alarm.end(transition);
            kept.tell(kind, ended, out);
        }
    }

    pub(super) fn tell_blind(
        &self,
        cause: BlindCause,
        transition: Option<Transition>,
        out: &mut Vec<Finding>,
    ) {
        let Some(transition) = transition else { return };
        let mut facts = self.base_facts();
        facts.blind = Some(cause);
        let detail = self.blind.get(&cause).and_then(|kept| kept.detail.as_deref());
        facts.advice = Some(cause.advice_on(detail));
        out.push(Finding::Alarm {
            kind: AlarmKind::Blind,
            transition,
            on: None,
            facts: Box::new(facts),
        });
    }

    pub(super) fn on_load(&self) -> Option<Subject> {
        self.load().map(Subject::Load)
    }

    pub(super) fn base_facts(&self) -> Facts {
        Facts {
            engine: self.engine.clone(),
            model: self.config.model().cloned(),
            plan: Some(self.config.plan()),
            ..Facts::default()
        }
    }

    pub(super) fn placement_facts(&self) -> Facts {
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

/// A blindness, and what exactly cannot be seen.
#[derive(Debug, Default)]
pub(super) struct Blindness {
    pub(super) alarm: Alarm,
    pub(super) detail: Option<String>,
}

/// An alarm, with what it was last raised for: it is renewed in the same words.
#[derive(Debug, Default)]
pub(super) struct KeptAlarm {
    pub(super) alarm: Alarm,
    pub(super) on: Option<Subject>,
    pub(super) facts: Facts,
}

// === impl KeptAlarm ===

impl KeptAlarm {
    pub(super) fn tell(
        &self,
        kind: AlarmKind,
        transition: Option<Transition>,
        out: &mut Vec<Finding>,
    ) {
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

/// An engine's own words as an attribute: one line, at most 256 bytes, control characters escaped.
pub(super) fn one_line(words: &str) -> String {
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
