//! One lane's state: takes evidence, timings and the time, gives findings.
//!
//! A lane is one engine process serving one model. It can load again; each load has its own account and verdict.

mod finding;

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::alarm::AlarmPolicy;
use crate::evidence::{BufferKind, Evidence, Residence};
use crate::placement::{Placement, PlacementPolicy, Plan};
use crate::throughput::{Expectation, ExpectationError, RateJudgement, ThroughputPolicy, Timings};
use crate::wedge::WedgePolicy;

pub use finding::{AlarmKind, BlindCause, Facts, Finding, LoadId, RequestId, SpanEvent, Subject};

/// What the operator says of a lane.
#[derive(Clone, Debug, PartialEq)]
pub struct LaneConfig {
    name: Arc<str>,
    engine: Option<Arc<str>>,
    model: Option<Arc<str>>,
    plan: Plan,
    expectation: Option<Expectation>,
}

impl LaneConfig {
    /// A lane of that name, `serving.lane.name` in all that is told of it. Its plan is unknown, and no rate is
    /// expected, until said otherwise.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self { name: name.into(), engine: None, model: None, plan: Plan::Unknown, expectation: None }
    }

    /// Sets the engine's name (`llama.cpp`, `ollama`).
    ///
    /// By default, it is read from the engine's own lines.
    #[must_use]
    pub fn with_engine(self, engine: impl Into<Arc<str>>) -> Self {
        Self { engine: Some(engine.into()), ..self }
    }

    /// Sets the model's name as configured: `gen_ai.request.model`.
    #[must_use]
    pub fn with_model(self, model: impl Into<Arc<str>>) -> Self {
        Self { model: Some(model.into()), ..self }
    }

    /// Sets what was intended for the lane.
    ///
    /// By default, this is [`Plan::Unknown`].
    #[must_use]
    pub fn with_plan(self, plan: Plan) -> Self {
        Self { plan, ..self }
    }

    /// Sets the decode rate the lane should reach.
    ///
    /// By default, the layer's catalogue is asked for the lane's model.
    #[must_use]
    pub fn with_expectation(self, expectation: Expectation) -> Self {
        Self { expectation: Some(expectation), ..self }
    }

    /// Sets the decode rate the lane should reach, in tokens/s, and where that number is from.
    ///
    /// # Errors
    ///
    /// As [`Expectation::new`].
    pub fn with_expected_rate(self, rate: f64, source: impl Into<Arc<str>>) -> Result<Self, ExpectationError> {
        Ok(self.with_expectation(Expectation::new(rate, source)?))
    }

    /// The lane's name.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// The engine's name as configured; `None` when it is to be read from its lines.
    pub fn engine(&self) -> Option<&Arc<str>> {
        self.engine.as_ref()
    }

    /// The model's name; `None` when nobody said.
    pub fn model(&self) -> Option<&Arc<str>> {
        self.model.as_ref()
    }

    /// What was intended.
    pub fn plan(&self) -> Plan {
        self.plan
    }

    /// The expected decode rate; `None` when nobody said.
    pub fn expectation(&self) -> Option<&Expectation> {
        self.expectation.as_ref()
    }
}

/// Every threshold there is, in one place. All have documented defaults.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Policy {
    /// When host weights make a load partial.
    pub placement: PlacementPolicy,
    /// When a rate counts as collapsed.
    pub throughput: ThroughputPolicy,
    /// How long an alarm lives.
    pub alarm: AlarmPolicy,
    /// When no progress is a wedge.
    pub wedge: WedgePolicy,
}

/// What became of one request's timings.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Recorded {
    /// The rate's verdict.
    pub judgement: RateJudgement,
    /// The events for the request's span, in order: a rate that collapsed or recovered, a placement fault that stands.
    pub events: Vec<(SpanEvent, Facts)>,
    /// The facts for the request span's own attributes: its rate, and its lane's placement.
    pub facts: Facts,
}

/// One lane's state.
#[derive(Debug)]
pub struct LaneState {
    config: LaneConfig,
    policy: Policy,
}

#[allow(unused_variables, clippy::todo, missing_docs, reason = "being written")]
impl LaneState {
    pub fn new(config: LaneConfig, policy: Policy) -> Self {
        Self { config, policy }
    }

    pub fn config(&self) -> &LaneConfig {
        &self.config
    }

    /// The engine's name: as configured, else as its lines show it.
    pub fn engine(&self) -> Option<&Arc<str>> {
        todo!()
    }

    /// One line was seen. `engine` is the engine whose format it has, if any.
    pub fn line(&mut self, engine: Option<&Arc<str>>, now: Instant) {
        todo!()
    }

    /// Takes one fact.
    pub fn take(&mut self, evidence: Evidence, now: Instant, out: &mut Vec<Finding>) {
        todo!()
    }

    /// The caller knows that the engine answers (its health endpoint says so): the verdict is due.
    pub fn ready(&mut self, now: Instant, out: &mut Vec<Finding>) {
        todo!()
    }

    /// The engine's process ended. Before readiness, that is a failed load.
    pub fn ended(&mut self, how: &str, now: Instant, out: &mut Vec<Finding>) {
        todo!()
    }

    /// Says that the sentinel cannot see for `cause`, or that it can again.
    pub fn blind(&mut self, cause: BlindCause, standing: bool, now: Instant, out: &mut Vec<Finding>) {
        todo!()
    }

    /// Time passes: renewals, expiries, budgets, late evidence that has settled. Called about once a second.
    pub fn tick(&mut self, now: Instant, out: &mut Vec<Finding>) {
        todo!()
    }

    /// A request of ours is sent to the lane.
    pub fn request_started(&mut self, now: Instant) -> RequestId {
        todo!()
    }

    /// A piece of the answer came: the request makes progress (for the wedge budgets).
    pub fn request_progress(&mut self, request: RequestId, now: Instant) {
        todo!()
    }

    /// A request of ours is over, with or without timings.
    pub fn request_ended(&mut self, request: RequestId, now: Instant, out: &mut Vec<Finding>) {
        todo!()
    }

    /// Judges one request. `timings` is `None` when its response told none.
    pub fn record(
        &mut self,
        request: Option<RequestId>,
        timings: Option<&Timings>,
        now: Instant,
        out: &mut Vec<Finding>,
    ) -> Recorded {
        todo!()
    }

    /// The present load's placement; `None` before its verdict and after the lane's end.
    pub fn placement(&self) -> Option<&Placement> {
        todo!()
    }

    /// The present load, judged or not; `None` when none began.
    pub fn load(&self) -> Option<LoadId> {
        todo!()
    }

    /// What the present load's buffers hold: name as printed, where, what, bytes.
    pub fn buffers(&self) -> impl Iterator<Item = (&str, Residence, BufferKind, u64)> {
        std::iter::empty()
    }

    /// The expectation a request would be judged by.
    pub fn expectation(&self) -> Option<&Expectation> {
        self.config.expectation()
    }

    /// Requests of ours on the lane now.
    pub fn in_flight(&self) -> u32 {
        todo!()
    }

    /// The last judged decode rate in tokens/s; `None` before the first.
    pub fn last_rate(&self) -> Option<f64> {
        todo!()
    }

    /// The alarms that stand.
    pub fn alarms(&self) -> impl Iterator<Item = AlarmKind> {
        std::iter::empty()
    }

    /// The causes for which the sentinel cannot see, now.
    pub fn blind_causes(&self) -> impl Iterator<Item = BlindCause> {
        std::iter::empty()
    }
}
