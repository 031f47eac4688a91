//! One engine's output, line by line: recognises each, hands its facts to the lane they are of, gives findings.
//!
//! The pure heart that a layer, a scan and a test all drive.

use std::sync::Arc;
use std::time::Instant;

use crate::engines::Matcher;
use crate::lane::{Finding, LaneConfig, LaneState, Policy};

/// Watches one engine's output.
#[derive(Debug)]
pub struct Observer {
    lane: LaneState,
}

/// Whether a line told anything: `serving.line.kind`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineKind {
    /// It holds evidence.
    Evidence,
    /// It does not.
    Other,
}

/// A finding and the lane it is of.
pub type LaneFinding = (Arc<str>, Finding);

#[allow(unused_variables, clippy::todo, reason = "being written")]
impl Observer {
    /// An observer of a lane's engine.
    pub fn new(config: LaneConfig, policy: Policy, matcher: Arc<Matcher>) -> Self {
        Self { lane: LaneState::new(config, policy) }
    }

    /// Takes one line, without its line end.
    pub fn line(&mut self, line: &[u8], now: Instant, out: &mut Vec<LaneFinding>) -> LineKind {
        todo!()
    }

    /// Hands one lane the time, a request or a word of the caller; findings go to `out` under its name.
    pub fn with_lane<R>(
        &mut self,
        out: &mut Vec<LaneFinding>,
        act: impl FnOnce(&mut LaneState, &mut Vec<Finding>) -> R,
    ) -> R {
        let mut findings = Vec::new();
        let result = act(&mut self.lane, &mut findings);
        let name = self.lane.config().name().clone();
        out.extend(findings.into_iter().map(|finding| (name.clone(), finding)));
        result
    }

    /// Time passes, for this lane and every lane found within its stream.
    pub fn tick(&mut self, now: Instant, out: &mut Vec<LaneFinding>) {
        todo!()
    }

    /// The lane itself.
    pub fn lane(&self) -> &LaneState {
        &self.lane
    }

    /// The lane, and those found within its stream: a router's children, services of one log.
    pub fn lanes(&self) -> impl Iterator<Item = &LaneState> {
        std::iter::once(&self.lane)
    }
}
