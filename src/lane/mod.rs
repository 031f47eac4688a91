//! One lane's state: takes evidence, timings and the time, gives findings.
//!
//! A lane is one engine process serving one model. It can load again; each load has its own account and verdict.

mod finding;
mod interval;
mod load;
mod logged;
mod rates;
mod readback;
mod runner;
mod standstill;
mod state;
mod telling;
#[cfg(test)]
mod tests;
mod verdicts;
mod view;

use std::sync::Arc;

use crate::alarm::AlarmPolicy;
use crate::placement::{PlacementPolicy, Plan};
use crate::throughput::{Expectation, ExpectationError, RateJudgement, ThroughputPolicy, Timings};
use crate::wedge::WedgePolicy;

pub use readback::{ReadBackFacts, Sought};
pub use state::LaneState;

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
        Self {
            name: name.into(),
            engine: None,
            model: None,
            plan: Plan::Unknown,
            expectation: None,
        }
    }

    /// Sets the engine's name (`llama.cpp`, `ollama`). An empty one is none.
    ///
    /// By default, it is read from the engine's own lines.
    #[must_use]
    pub fn with_engine(self, engine: impl Into<Arc<str>>) -> Self {
        Self { engine: Some(engine.into()).filter(|engine| !engine.is_empty()), ..self }
    }

    /// Sets the model's name as configured: `gen_ai.request.model`. An empty one is none.
    #[must_use]
    pub fn with_model(self, model: impl Into<Arc<str>>) -> Self {
        Self { model: Some(model.into()).filter(|model| !model.is_empty()), ..self }
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
    pub fn with_expected_rate(
        self,
        rate: f64,
        source: impl Into<Arc<str>>,
    ) -> Result<Self, ExpectationError> {
        Ok(self.with_expectation(Expectation::new(rate, source)?))
    }

    /// The same lane under another name: a lane found within this one's stream.
    pub(crate) fn named(&self, name: impl Into<Arc<str>>) -> Self {
        Self { name: name.into(), ..self.clone() }
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
    /// What it was judged by: what the response told, completed by what the engine logged; `None` when neither did.
    pub timings: Option<Timings>,
}
