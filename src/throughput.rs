//! Decode rates: what was measured, what was expected, and what to make of it.
//!
//! Decode only. Prefill, queueing and load time are never part of a rate here, and a rate without an expectation
//! or on too few tokens is never a verdict.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

/// A rate in tokens per second: finite and above zero.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct TokensPerSecond(f64);

impl TokensPerSecond {
    /// `None` unless `rate` is finite and above 0: engines print 0, `inf` and `nan` for "unknown".
    pub fn new(rate: f64) -> Option<Self> {
        (rate.is_finite() && rate > 0.0).then_some(Self(rate))
    }

    /// `None` unless there is at least one step and some time for it.
    pub fn from_steps(steps: u64, time: Duration) -> Option<Self> {
        #[expect(clippy::cast_precision_loss, reason = "token counts are far below 2^52")]
        Self::new(steps as f64 / time.as_secs_f64())
    }

    /// The rate in tokens/s.
    pub const fn get(self) -> f64 {
        self.0
    }
}

/// Whose clock measured a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TimingSource {
    /// The engine's own, in its response.
    EngineResponse,
    /// The engine's own, in its log.
    EngineLog,
    /// The engine's own, summed over an interval and all running requests. In the facts of an alarm, one request's
    /// share of that.
    Interval,
    /// The client's, from the first to the last piece of a stream.
    ClientClock,
}

impl TimingSource {
    /// The value of `serving.timing.source`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::EngineResponse => "engine_response",
            Self::EngineLog => "engine_log",
            Self::Interval => "interval",
            Self::ClientClock => "client_clock",
        }
    }
}

/// What one request took. Every field is `None` when nobody said.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Timings {
    /// Whose clock `decode_rate` is from.
    pub source: TimingSource,
    /// Tokens decoded, accepted drafts among them.
    pub decode_tokens: Option<u64>,
    /// The decode rate: the engine's own where it states one, since engines differ in what they divide by.
    pub decode_rate: Option<TokensPerSecond>,
    /// Tokens of the prompt, cached ones among them.
    pub prompt_tokens: Option<u64>,
    /// Prompt tokens that were processed now.
    pub prefill_tokens: Option<u64>,
    /// The prefill rate, where the engine states it.
    pub prefill_rate: Option<TokensPerSecond>,
    /// Prompt tokens taken from a cache.
    pub cached_tokens: Option<u64>,
    /// From sending the request to the first piece of content, by the client's clock.
    pub time_to_first_token: Option<Duration>,
    /// From sending the request to its last byte, by the client's clock.
    pub duration: Option<Duration>,
    /// The model that answered, in the engine's words.
    pub response_model: Option<String>,
    /// The response's id, in the engine's words.
    pub response_id: Option<String>,
    /// Why the answer ended, in the engine's words.
    pub finish_reason: Option<String>,
}

impl Timings {
    /// Nothing known yet but whose clock it will be.
    pub const fn new(source: TimingSource) -> Self {
        Self {
            source,
            decode_tokens: None,
            decode_rate: None,
            prompt_tokens: None,
            prefill_tokens: None,
            prefill_rate: None,
            cached_tokens: None,
            time_to_first_token: None,
            duration: None,
            response_model: None,
            response_id: None,
            finish_reason: None,
        }
    }

    /// The numbers alone, without the engine's words.
    pub(crate) const fn numbers(&self) -> Self {
        Self { response_model: None, response_id: None, finish_reason: None, ..*self }
    }
}

/// The decode rate a lane should reach, and who says so.
#[derive(Clone, Debug, PartialEq)]
pub struct Expectation {
    rate: TokensPerSecond,
    source: Arc<str>,
}

impl Expectation {
    /// An expected `rate` in tokens/s with its `source` in words (`measured 2026-06, one stream`).
    ///
    /// # Errors
    ///
    /// [`ExpectationError`] unless the rate is finite and above 0 and the source says something.
    pub fn new(rate: f64, source: impl Into<Arc<str>>) -> Result<Self, ExpectationError> {
        let source = source.into();
        let Some(rate) = TokensPerSecond::new(rate) else {
            return Err(ExpectationError::Rate { given: rate });
        };
        if source.trim().is_empty() {
            return Err(ExpectationError::Source);
        }
        Ok(Self { rate, source })
    }

    /// The rate.
    pub const fn rate(&self) -> TokensPerSecond {
        self.rate
    }

    /// Where the rate is from.
    pub fn source(&self) -> &Arc<str> {
        &self.source
    }
}

/// Why something is no expectation.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ExpectationError {
    /// The rate is no rate.
    #[error("expected rate {given} is no rate; give tokens/s, a finite number above 0")]
    Rate {
        /// What was given.
        given: f64,
    },
    /// The source is empty.
    #[error(
        "the expectation names no source; say where the rate is from, such as `measured 2026-06, one stream`"
    )]
    Source,
}

/// When a measured rate counts as collapsed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ThroughputPolicy {
    min_tokens: NonZeroU32,
    floor: f64,
    above: f64,
    consecutive_contended: NonZeroU32,
}

impl Default for ThroughputPolicy {
    fn default() -> Self {
        Self {
            min_tokens: Self::DEFAULT_MIN_TOKENS,
            floor: Self::DEFAULT_FLOOR,
            above: Self::DEFAULT_ABOVE,
            consecutive_contended: Self::DEFAULT_CONSECUTIVE_CONTENDED,
        }
    }
}

impl ThroughputPolicy {
    /// A shorter answer says little: its first steps weigh too much.
    pub const DEFAULT_MIN_TOKENS: NonZeroU32 = NonZeroU32::new(16).unwrap();
    /// An alarm for collapse, not a tracker of variance.
    pub const DEFAULT_FLOOR: f64 = 0.25;
    /// Over this the expectation is too low to tell a collapse.
    pub const DEFAULT_ABOVE: f64 = 1.5;
    /// With others in flight and only a single-stream expectation, one slow request proves little.
    pub const DEFAULT_CONSECUTIVE_CONTENDED: NonZeroU32 = NonZeroU32::new(3).unwrap();

    /// Sets how many decoded tokens a request needs to be judged.
    ///
    /// By default, this is [`DEFAULT_MIN_TOKENS`](Self::DEFAULT_MIN_TOKENS).
    #[must_use]
    pub const fn with_min_tokens(self, min_tokens: NonZeroU32) -> Self {
        Self { min_tokens, ..self }
    }

    /// Sets the share of the expected rate under which a request is degraded.
    ///
    /// By default, this is [`DEFAULT_FLOOR`](Self::DEFAULT_FLOOR).
    ///
    /// # Errors
    ///
    /// [`PolicyError::Floor`] unless `floor` is above 0 and at most 1.
    pub fn with_floor(self, floor: f64) -> Result<Self, PolicyError> {
        if floor > 0.0 && floor <= 1.0 {
            Ok(Self { floor, ..self })
        } else {
            Err(PolicyError::Floor { given: floor })
        }
    }

    /// Sets the multiple of the expected rate over which a request counts as `above_par`.
    ///
    /// By default, this is [`DEFAULT_ABOVE`](Self::DEFAULT_ABOVE).
    ///
    /// # Errors
    ///
    /// [`PolicyError::Above`] unless `above` is finite and above 1.
    pub fn with_above(self, above: f64) -> Result<Self, PolicyError> {
        if above > 1.0 && above.is_finite() {
            Ok(Self { above, ..self })
        } else {
            Err(PolicyError::Above { given: above })
        }
    }

    /// Sets how many requests in a row must breach before the alarm is raised while others are in flight.
    ///
    /// By default, this is [`DEFAULT_CONSECUTIVE_CONTENDED`](Self::DEFAULT_CONSECUTIVE_CONTENDED). Alone on its
    /// lane, one breaching request raises it.
    #[must_use]
    pub const fn with_consecutive_contended(self, consecutive: NonZeroU32) -> Self {
        Self { consecutive_contended: consecutive, ..self }
    }

    /// Breaching requests in a row that raise the alarm, with `in_flight` requests on the lane (itself included).
    pub(crate) const fn consecutive(&self, in_flight: u32) -> u32 {
        if in_flight > 1 { self.consecutive_contended.get() } else { 1 }
    }

    /// Breaching intervals in a row that raise the alarm: an interval holds other requests' prefill, so one proves as
    /// little as one contended request.
    pub(crate) const fn consecutive_intervals(&self) -> u32 {
        self.consecutive_contended.get()
    }
}

/// Why a policy is refused.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// The floor is no share.
    #[error(
        "floor {given} is not a share of the expected rate; give a number above 0 and at most 1"
    )]
    Floor {
        /// What was given.
        given: f64,
    },
    /// The upper bound is no multiple.
    #[error(
        "{given} is not a multiple of the expected rate to call above par; give a finite number above 1"
    )]
    Above {
        /// What was given.
        given: f64,
    },
}

/// What is made of one request's decode rate: `serving.throughput.verdict`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RateVerdict {
    /// At or over the floor.
    OnPar,
    /// So far over the expectation that the expectation is worth a look.
    AbovePar,
    /// Under the floor, on a large enough sample.
    Degraded,
    /// Too few tokens to tell.
    SmallSample,
    /// Nobody said what to expect.
    NoExpectation,
    /// Nobody said how long it took or how much came.
    NoTimings,
}

impl RateVerdict {
    /// The value of `serving.throughput.verdict`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OnPar => "on_par",
            Self::AbovePar => "above_par",
            Self::Degraded => "degraded",
            Self::SmallSample => "small_sample",
            Self::NoExpectation => "no_expectation",
            Self::NoTimings => "no_timings",
        }
    }
}

/// One request's rate, judged.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateJudgement {
    /// The verdict.
    pub verdict: RateVerdict,
    /// Measured over expected; `None` unless there is a rate on enough tokens and an expectation.
    pub ratio: Option<f64>,
}

/// Judges one request. `timings` is `None` when nothing could be read from its response.
pub fn judge(
    timings: Option<&Timings>,
    expectation: Option<&Expectation>,
    policy: &ThroughputPolicy,
) -> RateJudgement {
    let unjudged = |verdict| RateJudgement { verdict, ratio: None };
    let Some(timings) = timings else { return unjudged(RateVerdict::NoTimings) };
    let Some(tokens) = timings.decode_tokens else { return unjudged(RateVerdict::NoTimings) };
    // Size goes first: a one-token answer has no rate in any engine, and that is no lack of timings.
    if tokens < u64::from(policy.min_tokens.get()) {
        return unjudged(RateVerdict::SmallSample);
    }
    let Some(rate) = timings.decode_rate else { return unjudged(RateVerdict::NoTimings) };
    compare(rate, expectation, policy)
}

/// Compares a rate that rests on enough tokens with what was expected.
pub(crate) fn compare(
    rate: TokensPerSecond,
    expectation: Option<&Expectation>,
    policy: &ThroughputPolicy,
) -> RateJudgement {
    let Some(expectation) = expectation else {
        return RateJudgement { verdict: RateVerdict::NoExpectation, ratio: None };
    };
    let ratio = rate.get() / expectation.rate().get();
    let verdict = if ratio < policy.floor {
        RateVerdict::Degraded
    } else if ratio > policy.above {
        RateVerdict::AbovePar
    } else {
        RateVerdict::OnPar
    };
    RateJudgement { verdict, ratio: Some(ratio) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timings(tokens: Option<u64>, rate: f64) -> Timings {
        Timings {
            decode_tokens: tokens,
            decode_rate: TokensPerSecond::new(rate),
            ..Timings::new(TimingSource::EngineResponse)
        }
    }

    #[test]
    fn a_rate_is_judged_by_the_table() {
        let rows = [
            ("at the expectation", Some(48), 100.0, RateVerdict::OnPar),
            ("twice too high an expectation stays silent", Some(48), 50.0, RateVerdict::OnPar),
            ("at the floor", Some(48), 25.0, RateVerdict::OnPar),
            ("under the floor", Some(48), 24.9, RateVerdict::Degraded),
            ("far above", Some(48), 151.0, RateVerdict::AbovePar),
            ("the last small sample", Some(15), 1.0, RateVerdict::SmallSample),
            ("the first large sample", Some(16), 1.0, RateVerdict::Degraded),
            ("one token", Some(1), f64::INFINITY, RateVerdict::SmallSample),
            ("no token", Some(0), f64::NAN, RateVerdict::SmallSample),
            ("no count", None, 1.0, RateVerdict::NoTimings),
            ("zero", Some(48), 0.0, RateVerdict::NoTimings),
            ("negative", Some(48), -3.0, RateVerdict::NoTimings),
            ("not a number", Some(48), f64::NAN, RateVerdict::NoTimings),
            ("infinite", Some(48), f64::INFINITY, RateVerdict::NoTimings),
        ];
        let expectation = Expectation::new(100.0, "a test").unwrap();
        for (case, tokens, rate, verdict) in rows {
            let given = timings(tokens, rate);
            let judged = judge(Some(&given), Some(&expectation), &ThroughputPolicy::default());
            assert_eq!(judged.verdict, verdict, "{case}");
            let has_ratio = matches!(
                verdict,
                RateVerdict::OnPar | RateVerdict::AbovePar | RateVerdict::Degraded
            );
            assert_eq!(judged.ratio.is_some(), has_ratio, "{case}");
            let blind = judge(Some(&given), None, &ThroughputPolicy::default()).verdict;
            assert_eq!(
                blind,
                if has_ratio { RateVerdict::NoExpectation } else { verdict },
                "{case}, nothing expected"
            );
        }
        assert_eq!(
            judge(None, Some(&expectation), &ThroughputPolicy::default()).verdict,
            RateVerdict::NoTimings
        );
    }

    #[test]
    fn a_policy_refuses_what_is_no_share() {
        for floor in [0.0, -0.1, 1.01, f64::NAN, f64::INFINITY] {
            assert!(ThroughputPolicy::default().with_floor(floor).is_err(), "{floor}");
        }
        for above in [1.0, 0.5, f64::NAN, f64::INFINITY] {
            assert!(ThroughputPolicy::default().with_above(above).is_err(), "{above}");
        }
        for rate in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(Expectation::new(rate, "a test").is_err(), "{rate}");
        }
        assert_eq!(Expectation::new(1.0, " "), Err(ExpectationError::Source));
    }

    #[test]
    fn no_time_gives_no_rate() {
        assert_eq!(TokensPerSecond::from_steps(10, Duration::ZERO), None);
        assert_eq!(TokensPerSecond::from_steps(0, Duration::from_secs(1)), None);
        assert_eq!(
            TokensPerSecond::from_steps(10, Duration::from_secs(2)).map(TokensPerSecond::get),
            Some(5.0)
        );
    }
}
