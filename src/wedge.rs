//! Progress and stall of slots and streams: when an engine that answers `/health` has stopped working.
//!
//! Judged from the engine's own progress lines and from the pieces of streams; the clock is handed in.

use std::time::Duration;

/// When no progress is a wedge.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WedgePolicy {
    bulk_budget: Duration,
    drip_budget: Duration,
}

impl Default for WedgePolicy {
    fn default() -> Self {
        Self { bulk_budget: Self::DEFAULT_BULK_BUDGET, drip_budget: Self::DEFAULT_DRIP_BUDGET }
    }
}

impl WedgePolicy {
    /// Queueing and prefill: a long prompt on a slow machine takes minutes in silence.
    pub const DEFAULT_BULK_BUDGET: Duration = Duration::from_secs(300);
    /// Decode: tokens drip, even slow ones within seconds.
    pub const DEFAULT_DRIP_BUDGET: Duration = Duration::from_secs(30);
    /// A share of a prompt that is done can round to a little over 1, never to more than this.
    pub const IMPOSSIBLE_SHARE: f64 = 1.001;
    /// So many impossible progress lines of one slot in a row are a wedge.
    pub const IMPOSSIBLE_IN_A_ROW: u32 = 4;

    /// Sets how long a request may queue and prefill without any progress.
    ///
    /// By default, this is [`DEFAULT_BULK_BUDGET`](Self::DEFAULT_BULK_BUDGET).
    #[must_use]
    pub const fn with_bulk_budget(self, budget: Duration) -> Self {
        Self { bulk_budget: budget, ..self }
    }

    /// Sets how long a decode may stand still.
    ///
    /// By default, this is [`DEFAULT_DRIP_BUDGET`](Self::DEFAULT_DRIP_BUDGET).
    #[must_use]
    pub const fn with_drip_budget(self, budget: Duration) -> Self {
        Self { drip_budget: budget, ..self }
    }

    /// The budget of a request that has, or has not yet, given its first piece.
    pub const fn budget(&self, decoding: bool) -> Duration {
        if decoding { self.drip_budget } else { self.bulk_budget }
    }
}
