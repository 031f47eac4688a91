//! Progress and stall of slots and streams: when an engine that answers `/health` has stopped working.
//!
//! Judged from the engine's own progress lines and from the pieces of streams; the clock is handed in.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// When no progress is a wedge.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WedgePolicy {
    bulk: Duration,
    drip: Duration,
    load: Duration,
}

impl Default for WedgePolicy {
    fn default() -> Self {
        Self {
            bulk: Self::DEFAULT_BULK_BUDGET,
            drip: Self::DEFAULT_DRIP_BUDGET,
            load: Self::DEFAULT_LOAD_BUDGET,
        }
    }
}

impl WedgePolicy {
    /// Queueing and prefill: a long prompt on a slow machine takes minutes in silence.
    pub const DEFAULT_BULK_BUDGET: Duration = Duration::from_secs(300);
    /// Decode: tokens drip, even slow ones within seconds.
    pub const DEFAULT_DRIP_BUDGET: Duration = Duration::from_secs(30);
    /// Loading: hundreds of gigabytes from a slow disk take long, and print dots without a line's end meanwhile.
    pub const DEFAULT_LOAD_BUDGET: Duration = Duration::from_secs(1800);
    /// A share of a prompt that is done can round to a little over 1, never to more than this.
    pub const IMPOSSIBLE_SHARE: f64 = 1.001;
    /// So many impossible progress lines of one slot in a row are a wedge.
    pub const IMPOSSIBLE_IN_A_ROW: u32 = 4;

    /// Sets how long a request may queue and prefill without any progress.
    ///
    /// By default, this is [`DEFAULT_BULK_BUDGET`](Self::DEFAULT_BULK_BUDGET).
    #[must_use]
    pub const fn with_bulk_budget(self, budget: Duration) -> Self {
        Self { bulk: budget, ..self }
    }

    /// Sets how long a decode may stand still.
    ///
    /// By default, this is [`DEFAULT_DRIP_BUDGET`](Self::DEFAULT_DRIP_BUDGET).
    #[must_use]
    pub const fn with_drip_budget(self, budget: Duration) -> Self {
        Self { drip: budget, ..self }
    }

    /// Sets how long an engine may load without printing a line.
    ///
    /// By default, this is [`DEFAULT_LOAD_BUDGET`](Self::DEFAULT_LOAD_BUDGET).
    #[must_use]
    pub const fn with_load_budget(self, budget: Duration) -> Self {
        Self { load: budget, ..self }
    }

    /// How long a load may be silent.
    pub const fn load_budget(&self) -> Duration {
        self.load
    }

    /// The budget of a request that has, or has not yet, given its first piece.
    pub const fn budget(&self, decoding: bool) -> Duration {
        if decoding { self.drip } else { self.bulk }
    }
}

/// One piece of work in flight, and when it last got anywhere.
#[derive(Clone, Copy, Debug)]
struct Work {
    begun: Instant,
    progressed: Instant,
    decoding: bool,
}

/// Watches pieces of work of one sort (slots, or requests) for a standstill.
#[derive(Clone, Debug)]
pub(crate) struct Stalls<K> {
    works: BTreeMap<K, Work>,
}

impl<K> Default for Stalls<K> {
    fn default() -> Self {
        Self { works: BTreeMap::new() }
    }
}

impl<K: Copy + Ord> Stalls<K> {
    /// Work begins: it queues or reads its prompt.
    pub(crate) fn begin(&mut self, key: K, now: Instant) {
        self.works.insert(key, Work { begun: now, progressed: now, decoding: false });
    }

    /// Work got on. Progress of work that was never begun tells nothing: its beginning may have been long ago.
    pub(crate) fn progress(&mut self, key: K, decoding: bool, now: Instant) {
        if let Some(work) = self.works.get_mut(&key) {
            work.progressed = now;
            work.decoding |= decoding;
        }
    }

    /// Whether work decodes, where that is known by other means than its progress.
    pub(crate) fn set_decoding(&mut self, key: K, decoding: bool) {
        if let Some(work) = self.works.get_mut(&key) {
            work.decoding = decoding;
        }
    }

    /// When that work began; `None` when it did not, or is over.
    pub(crate) fn begun(&self, key: K) -> Option<Instant> {
        self.works.get(&key).map(|work| work.begun)
    }

    /// Work is over. Says whether there was any.
    pub(crate) fn end(&mut self, key: K) -> bool {
        self.works.remove(&key).is_some()
    }

    /// Work was over at `then`. What has got on since is other work.
    pub(crate) fn end_before(&mut self, key: K, then: Instant) {
        if self.works.get(&key).is_some_and(|work| work.progressed <= then) {
            self.works.remove(&key);
        }
    }

    pub(crate) fn clear(&mut self) {
        self.works.clear();
    }

    pub(crate) fn len(&self) -> usize {
        self.works.len()
    }

    /// What stands still past its budget, longest first.
    pub(crate) fn stalled(&self, now: Instant, policy: WedgePolicy) -> Vec<(K, Duration)> {
        let mut stalled: Vec<_> = self
            .works
            .iter()
            .map(|(key, work)| (*key, work, now.saturating_duration_since(work.progressed)))
            .filter(|(_, work, still)| *still >= policy.budget(work.decoding))
            .map(|(key, _, still)| (key, still))
            .collect();
        stalled.sort_by_key(|(_, still)| std::cmp::Reverse(*still));
        stalled
    }
}

/// Counts impossible progress of each slot. Once a slot is found wedged, that stands until the next load.
#[derive(Clone, Debug, Default)]
pub(crate) struct ImpossibleProgress {
    in_a_row: BTreeMap<u32, u32>,
    wedged: Option<u32>,
}

impl ImpossibleProgress {
    /// Takes one progress line. A valid one resets its slot's count.
    pub(crate) fn observe(&mut self, slot: u32, share: f64) {
        let count = self.in_a_row.entry(slot).or_default();
        *count = if share > WedgePolicy::IMPOSSIBLE_SHARE { *count + 1 } else { 0 };
        if *count >= WedgePolicy::IMPOSSIBLE_IN_A_ROW {
            self.wedged.get_or_insert(slot);
        }
    }

    /// The slot that is wedged.
    pub(crate) const fn wedged(&self) -> Option<u32> {
        self.wedged
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test needs some instant to count from")]
mod tests {
    use super::*;

    #[test]
    fn four_impossible_lines_in_a_row_are_a_wedge_and_a_valid_one_resets() {
        let rows: [(&str, &[f64], Option<u32>); 5] = [
            ("three", &[1.1, 1.2, 1.3], None),
            ("four", &[1.1, 1.2, 1.3, 1.4], Some(0)),
            ("a valid one between", &[1.1, 1.2, 0.9, 1.3, 1.4, 1.5], None),
            ("rounding", &[1.001, 1.0, 1.001, 1.001, 1.001], None),
            ("it stands", &[1.1, 1.1, 1.1, 1.1, 0.5], Some(0)),
        ];
        for (case, shares, wedged) in rows {
            let mut progress = ImpossibleProgress::default();
            for share in shares {
                progress.observe(0, *share);
            }
            assert_eq!(progress.wedged(), wedged, "{case}");
        }
        let mut slots = ImpossibleProgress::default();
        for slot in [0, 1, 0, 1, 0, 1] {
            slots.observe(slot, 1.1);
        }
        assert_eq!(slots.wedged(), None, "three of each slot are not four in a row");
        slots.observe(1, f64::NAN);
        slots.observe(1, 1.1);
        assert_eq!(slots.wedged(), None, "no number is no impossible progress");
    }

    #[test]
    fn work_stalls_past_the_budget_of_what_it_does() {
        let policy = WedgePolicy::default();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut stalls = Stalls::default();
        stalls.begin(7_u32, start);
        assert!(stalls.stalled(at(299), policy).is_empty(), "prefill has the bulk budget");
        assert_eq!(stalls.stalled(at(300), policy), [(7, Duration::from_secs(300))]);
        stalls.progress(7, false, at(300));
        assert!(stalls.stalled(at(599), policy).is_empty(), "prefill that gets on");
        stalls.progress(7, true, at(599));
        assert!(stalls.stalled(at(628), policy).is_empty(), "decode has the drip budget");
        assert_eq!(stalls.stalled(at(629), policy).len(), 1);
        stalls.progress(8, true, at(630));
        assert!(stalls.end(7) && !stalls.end(8), "progress of unknown work begins nothing");
        assert!(stalls.stalled(at(10_000), policy).is_empty());
        stalls.begin(9, at(10_000));
        stalls.set_decoding(9, true);
        assert_eq!(stalls.stalled(at(10_030), policy), [(9, Duration::from_secs(30))]);
        stalls.end_before(9, at(9_999));
        assert_eq!(stalls.len(), 1, "begun since");
        stalls.end_before(9, at(10_000));
        assert_eq!(stalls.len(), 0);
    }
}
