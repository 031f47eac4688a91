//! How a lane stands now: what gauges, tables and status pages read.

use crate::evidence::{BufferKind, Residence};
use crate::placement::Placement;
use crate::throughput::Expectation;

use super::load::{Load, Outcome};
use super::state::LaneState;
use super::{AlarmKind, BlindCause, LoadId};

impl LaneState {
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
}
