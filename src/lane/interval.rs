//! Rates that an engine sums over an interval and all running requests, and which of them can be judged.
//!
//! An interval that starts or ends idle holds idle time, so its rate is no decode rate. Only one with requests running
//! at both ends tells how fast each of them decodes.

use std::collections::BTreeMap;

use crate::throughput::TokensPerSecond;

/// The last interval of each data-parallel engine of one lane.
#[derive(Clone, Debug, Default)]
pub(super) struct Intervals {
    /// Requests that ran at its end.
    running: BTreeMap<Option<u32>, u32>,
}

impl Intervals {
    /// Ranks come from text: so many are told apart, and no more.
    const MOST_RANKS: usize = 256;

    /// An interval ended. Gives the rate of one of its requests; `None` where it had idle time, or decoded nothing.
    pub(super) fn observe(
        &mut self,
        rate: f64,
        running: u32,
        rank: Option<u32>,
    ) -> Option<TokensPerSecond> {
        if self.running.len() >= Self::MOST_RANKS && !self.running.contains_key(&rank) {
            return None;
        }
        let before = self.running.insert(rank, running).unwrap_or(0);
        if before == 0 || running == 0 {
            return None;
        }
        TokensPerSecond::new(rate / f64::from(running))
    }

    /// A load begins: nothing runs.
    pub(super) fn clear(&mut self) {
        self.running.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_a_decode_rate_by_the_table() {
        /// Rate, running, rank.
        type Line = (f64, u32, Option<u32>);
        // What the last interval of each row says of one request.
        let rows: &[(&str, &[Line], Option<f64>)] = &[
            ("the first that is seen", &[(40.0, 1, None)], None),
            ("the first after idle", &[(0.0, 0, None), (40.0, 1, None)], None),
            ("running at both ends", &[(40.0, 1, None), (44.0, 1, None)], Some(44.0)),
            ("shared", &[(40.0, 1, None), (88.0, 4, None)], Some(22.0)),
            ("ends idle", &[(40.0, 1, None), (12.0, 0, None)], None),
            ("idle", &[(0.0, 0, None), (0.0, 0, None)], None),
            ("prefill alone", &[(40.0, 1, None), (0.0, 1, None)], None),
            ("no number", &[(40.0, 1, None), (f64::NAN, 1, None)], None),
            ("another rank's start", &[(40.0, 1, Some(0)), (40.0, 1, Some(1))], None),
            (
                "between another's",
                &[(40.0, 1, Some(0)), (0.0, 0, Some(1)), (41.0, 1, Some(0))],
                Some(41.0),
            ),
        ];
        for (case, lines, expected) in rows {
            let mut intervals = Intervals::default();
            let told = lines
                .iter()
                .map(|&(rate, running, rank)| intervals.observe(rate, running, rank))
                .last()
                .flatten();
            assert_eq!(told.map(TokensPerSecond::get), *expected, "{case}");
        }
    }

    #[test]
    fn ranks_are_bounded() {
        let mut intervals = Intervals::default();
        for rank in 0..2 * u32::try_from(Intervals::MOST_RANKS).unwrap() {
            intervals.observe(1.0, 1, Some(rank));
        }
        assert_eq!(intervals.running.len(), Intervals::MOST_RANKS);
    }
}
