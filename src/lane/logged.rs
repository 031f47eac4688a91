//! Rates that the engine logs, and the requests of ours that they belong to.
//!
//! One request counts once, from its best source: a rate that a response told already is not counted again when the
//! engine's log tells it too.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::throughput::{TimingSource, Timings, TokensPerSecond};

/// Rates that wait for their other half.
#[derive(Clone, Debug, Default)]
pub(super) struct LoggedRates {
    /// Logged, and not claimed by a response yet.
    unclaimed: VecDeque<(Timings, Instant)>,
    /// Told by a response, and not seen in the log yet.
    told: VecDeque<(Told, Instant)>,
}

/// What tells one request's rate from another's.
#[derive(Clone, Copy, Debug)]
struct Told {
    tokens: Option<u64>,
    rate: Option<TokensPerSecond>,
}

impl From<&Timings> for Told {
    fn from(timings: &Timings) -> Self {
        // The client's clock and the engine's agree in no digit that counts.
        let rate = timings.decode_rate.filter(|_| timings.source != TimingSource::ClientClock);
        Self { tokens: timings.decode_tokens, rate }
    }
}

impl Told {
    /// Whether both are of one request, as far as both tell: what the one does not know agrees with anything.
    fn is_same(self, other: Self) -> bool {
        /// The log prints two decimals.
        const PRINTED_PRECISION: f64 = 0.01;
        let counts_agree = self.tokens.zip(other.tokens).is_none_or(|(one, two)| one == two);
        let rates_agree = self.rate.zip(other.rate).is_none_or(|(one, two)| {
            (one.get() - two.get()).abs() <= PRINTED_PRECISION * two.get()
        });
        counts_agree && rates_agree
    }
}

impl LoggedRates {
    /// Log and response of one request arrive by two ways: so long the one waits for the other.
    const GRACE: Duration = Duration::from_secs(5);
    /// More requests than this do not end within the grace time.
    const CAPACITY: usize = 1024;

    /// The engine logged a request's rate.
    pub(super) fn log(&mut self, timings: Timings, now: Instant) {
        if let Some(found) = self.told.iter().position(|(told, _)| told.is_same((&timings).into()))
        {
            self.told.remove(found);
            return;
        }
        Self::push(&mut self.unclaimed, timings, now);
    }

    /// A response told a request's rate.
    pub(super) fn tell(&mut self, timings: &Timings, now: Instant) {
        let told = Told::from(timings);
        if let Some(found) =
            self.unclaimed.iter().position(|(logged, _)| told.is_same(logged.into()))
        {
            self.unclaimed.remove(found);
            return;
        }
        Self::push(&mut self.told, told, now);
    }

    /// A request of ours told no rate: the log may have, since it began. A line of another count is of another request.
    pub(super) fn claim(&mut self, tokens: Option<u64>, begun: Option<Instant>) -> Option<Timings> {
        let told = Told { tokens, rate: None };
        let found = self.unclaimed.iter().position(|(logged, at)| {
            told.is_same(logged.into()) && begun.is_none_or(|begun| *at >= begun)
        })?;
        self.unclaimed.remove(found).map(|(timings, _)| timings)
    }

    /// The logged rates that nobody claims in time: requests that are not ours.
    pub(super) fn due(&mut self, now: Instant) -> Vec<Timings> {
        let is_old = |at: &Instant| now.saturating_duration_since(*at) >= Self::GRACE;
        while self.told.front().is_some_and(|(_, at)| is_old(at)) {
            self.told.pop_front();
        }
        let mut due = Vec::new();
        while self.unclaimed.front().is_some_and(|(_, at)| is_old(at)) {
            due.extend(self.unclaimed.pop_front().map(|(timings, _)| timings));
        }
        due
    }

    /// All that is left: the engine is gone.
    pub(super) fn drain(&mut self) -> Vec<Timings> {
        self.told.clear();
        self.unclaimed.drain(..).map(|(timings, _)| timings).collect()
    }

    fn push<T>(queue: &mut VecDeque<(T, Instant)>, one: T, now: Instant) {
        if queue.len() == Self::CAPACITY {
            queue.pop_front();
        }
        queue.push_back((one, now));
    }
}
