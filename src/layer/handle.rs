//! A lane as a program holds it.

use std::sync::Arc;

use tracing::{Dispatch, Span};

use crate::lane::{AlarmKind, BlindCause, LaneConfig};
use crate::placement::{Placement, Plan};

/// One lane, open as long as a clone of this lives. It reports to the `SentinelLayer` of the subscriber that was
/// current when it was opened.
#[derive(Clone, Debug)]
pub struct Lane {}

/// How a lane is now, for a table or a status page.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct LaneSnapshot {
    /// The lane's name.
    pub name: Arc<str>,
    /// The engine, once known.
    pub engine: Option<Arc<str>>,
    /// The model as configured.
    pub model: Option<Arc<str>>,
    /// The plan.
    pub plan: Plan,
    /// The present load's placement; `None` before its verdict.
    pub placement: Option<Placement>,
    /// The last judged decode rate, tokens/s.
    pub decode_rate: Option<f64>,
    /// The expected decode rate, tokens/s.
    pub expected_rate: Option<f64>,
    /// Where the expected rate is from.
    pub expectation_source: Option<Arc<str>>,
    /// Requests on the lane now.
    pub in_flight: u32,
    /// The alarms that stand.
    pub alarms: Vec<AlarmKind>,
    /// Why the sentinel cannot see, if it cannot.
    pub blind: Vec<BlindCause>,
}

#[allow(unused_variables, clippy::todo, reason = "being written")]
impl Lane {
    /// Opens a lane under the current subscriber.
    pub fn open(config: LaneConfig) -> Self {
        todo!()
    }

    /// The lane's name.
    pub fn name(&self) -> &str {
        todo!()
    }

    /// Hands the sentinel one line of the engine's output, without its line end. Never blocks.
    pub fn observe_line(&self, line: &[u8]) {
        todo!()
    }

    /// The engine answers, the program knows by other means (a health endpoint): the verdict is due.
    pub fn ready(&self) {
        todo!()
    }

    /// The engine's process ended; `how` in words (`exit status: 1`).
    pub fn ended(&self, how: &str) {
        todo!()
    }

    /// The engine's output is closed. If the engine lives on, that is blindness.
    pub fn output_closed(&self) {
        todo!()
    }

    /// Counts lines of its output of which only the beginning was observed: `serving.sentinel.truncated`.
    pub fn count_truncated(&self, lines: u64) {
        todo!()
    }

    /// Counts what was dropped on the way to its place: `serving.sentinel.dropped`, of that `serving.dropped.kind`.
    pub fn count_dropped(&self, kind: &'static str, items: u64) {
        todo!()
    }

    /// The subscriber it reports to.
    pub fn dispatch(&self) -> &Dispatch {
        todo!()
    }

    /// A span for one request on this lane: `operation` is `chat`, `text_completion` or `embeddings`. Continue a
    /// caller's trace by `set_parent` on it before it is entered.
    pub fn request_span(&self, operation: &str) -> Span {
        todo!()
    }

    /// How the lane is now; `None` when no `SentinelLayer` is there to ask.
    pub fn snapshot(&self) -> Option<LaneSnapshot> {
        todo!()
    }
}
