//! Loads as a scheduler tells them: a process (Ollama, llama-swap) that starts runners for models, plans where each
//! goes, and outlives them.

use std::time::Instant;

use crate::evidence::{Evidence, Role};
use crate::placement::ProcessFacts;

use super::load::Load;
use super::{Finding, LaneState};

impl LaneState {
    /// Takes what only a scheduler tells. Evidence of other kinds changes nothing here.
    pub(super) fn take_from_scheduler(
        &mut self,
        evidence: Evidence,
        now: Instant,
        out: &mut Vec<Finding>,
    ) {
        match evidence {
            Evidence::NoDeviceFound => self.process.find_no_device(),
            Evidence::Planned(_) => self.plan_load(evidence, now, out),
            Evidence::RunnerBegins { model } => self.runner_begins(model, now, out),
            Evidence::RunnerEnded { detail } => self.runner_ended(detail, now),
            Evidence::ProcessBegins => self.process_begins(now, out),
            _ => {}
        }
    }

    /// A runner starts for a model.
    fn runner_begins(&mut self, model: Option<String>, now: Instant, out: &mut Vec<Finding>) {
        if self.load.as_ref().is_some_and(|load| load.is_of_another(model.as_deref())) {
            // It never said that it was ready, and the next is on its way.
            self.settle_loading(now, out);
        }
        self.open_load(now, out);
        if let Some(load) = &mut self.load {
            load.retry(model);
            load.begin(Role::Main);
        }
    }

    /// A runner ended, for whatever reason. If it was loading, the load has failed, unless the next line says that it
    /// is tried again.
    fn runner_ended(&mut self, detail: String, now: Instant) {
        if let Some(load) = self.load.as_mut().filter(|load| load.is_loading()) {
            load.runner_ended(detail, now);
        }
    }

    /// The scheduler says what it will do. That is the first line of a load, or one more of it.
    fn plan_load(&mut self, plan: Evidence, now: Instant, out: &mut Vec<Finding>) {
        if self.load.as_ref().is_some_and(Load::is_told_by_loader) {
            self.settle_loading(now, out);
        }
        self.open_load(now, out);
        self.tell_load(plan, now);
    }

    /// The scheduler itself was started anew: nothing it said of itself holds.
    fn process_begins(&mut self, now: Instant, out: &mut Vec<Finding>) {
        self.settle_loading(now, out);
        self.process = ProcessFacts::default();
    }

    fn open_load(&mut self, now: Instant, out: &mut Vec<Finding>) {
        if !self.load.as_ref().is_some_and(Load::is_loading) {
            self.begin_load(now, out);
        }
    }
}
