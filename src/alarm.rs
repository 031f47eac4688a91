//! An alarm's life: raised once, renewed while the fault stands, cleared when it is gone.
//!
//! A person reading logs is told once and reminded, not once per request. The clock is handed in.

use std::time::{Duration, Instant};

/// How long an alarm lives without being seen again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AlarmPolicy {
    time_to_live: Duration,
}

impl Default for AlarmPolicy {
    fn default() -> Self {
        Self { time_to_live: Self::DEFAULT_TIME_TO_LIVE }
    }
}

impl AlarmPolicy {
    /// Long enough that a person is not told the same thing every minute.
    pub const DEFAULT_TIME_TO_LIVE: Duration = Duration::from_secs(15 * 60);

    /// Sets how long an alarm stands after its fault was last seen. It is renewed every third of that.
    ///
    /// By default, this is [`DEFAULT_TIME_TO_LIVE`](Self::DEFAULT_TIME_TO_LIVE).
    #[must_use]
    pub const fn with_time_to_live(self, time_to_live: Duration) -> Self {
        Self { time_to_live }
    }
}

/// What happened to an alarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transition {
    /// The fault is new.
    Raised,
    /// The fault stands, and a third of the time to live has passed since it was last told.
    Renewed,
    /// The fault is gone.
    Cleared,
    /// The fault was not seen again within the time to live, or its lane ended. That is no recovery.
    Expired,
    /// Another fault took its place. That is no recovery.
    Replaced,
}

impl Transition {
    /// The value of `serving.alarm.state`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Raised => "raised",
            Self::Renewed => "renewed",
            Self::Cleared => "cleared",
            Self::Expired => "expired",
            Self::Replaced => "replaced",
        }
    }
}

/// One alarm of one lane.
#[derive(Clone, Copy, Debug, Default)]
pub struct Alarm {
    standing: Option<Standing>,
}

#[derive(Clone, Copy, Debug)]
struct Standing {
    seen: Instant,
    told: Instant,
}

impl Alarm {
    /// Whether it stands.
    pub const fn is_active(&self) -> bool {
        self.standing.is_some()
    }

    /// Takes one observation, that the fault is there or that it is gone, and says what to tell, if anything.
    pub fn observe(
        &mut self,
        faulty: bool,
        now: Instant,
        policy: AlarmPolicy,
    ) -> Option<Transition> {
        match (&mut self.standing, faulty) {
            (None, false) => None,
            (None, true) => {
                self.standing = Some(Standing { seen: now, told: now });
                Some(Transition::Raised)
            }
            (Some(_), false) => {
                self.standing = None;
                Some(Transition::Cleared)
            }
            (Some(standing), true) => {
                standing.seen = now;
                if now.saturating_duration_since(standing.told) < policy.time_to_live / 3 {
                    return None;
                }
                standing.told = now;
                Some(Transition::Renewed)
            }
        }
    }

    /// Ends it without a recovery: its lane ended, or another fault took its place.
    pub fn end(&mut self, as_transition: Transition) -> Option<Transition> {
        self.standing.take().map(|_| as_transition)
    }

    /// Lets it expire when its fault was not seen within the time to live.
    pub fn expire(&mut self, now: Instant, policy: AlarmPolicy) -> Option<Transition> {
        let standing = self.standing?;
        if now.saturating_duration_since(standing.seen) < policy.time_to_live {
            return None;
        }
        self.standing = None;
        Some(Transition::Expired)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test needs some instant to count from")]
    fn an_alarm_is_told_once_renewed_by_thirds_and_cleared_once() {
        let policy = AlarmPolicy::default().with_time_to_live(Duration::from_secs(90));
        let start = Instant::now();
        let rows = [
            (0, false, None, "nothing wrong"),
            (1, true, Some(Transition::Raised), "the first fault"),
            (2, true, None, "the same fault"),
            (30, true, None, "just under a third"),
            (31, true, Some(Transition::Renewed), "a third after it was told"),
            (60, true, None, "counted from the renewal"),
            (61, true, Some(Transition::Renewed), "a third after the renewal"),
            (62, false, Some(Transition::Cleared), "gone"),
            (63, false, None, "still gone"),
            (64, true, Some(Transition::Raised), "back"),
        ];
        let mut alarm = Alarm::default();
        for (seconds, faulty, told, case) in rows {
            assert_eq!(
                alarm.observe(faulty, start + Duration::from_secs(seconds), policy),
                told,
                "{case}"
            );
        }
        assert_eq!(alarm.expire(start + Duration::from_secs(153), policy), None);
        assert_eq!(
            alarm.expire(start + Duration::from_secs(154), policy),
            Some(Transition::Expired)
        );
        assert!(!alarm.is_active());
    }
}
