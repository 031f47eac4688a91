//! Standstill: requests, slots and loads that get nowhere, told as wedges.

use std::time::{Duration, Instant};

use super::load::Load;
use super::state::LaneState;
use super::{AlarmKind, Finding, SpanEvent, Subject};

impl LaneState {
    pub(super) fn watch_for_wedges(&mut self, now: Instant, out: &mut Vec<Finding>) {
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
    pub(super) fn silent_load(&self, now: Instant) -> Option<Duration> {
        let silent = now.saturating_duration_since(self.heard?);
        let is_loading = self.load.as_ref().is_some_and(Load::is_loading);
        (is_loading && silent >= self.policy.wedge.load_budget()).then_some(silent)
    }
}
