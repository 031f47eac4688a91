//! Says the few lines that exporting has to say, where the program's log can hear them.
//!
//! Exports run on threads of the SDK, which know only the global subscriber. The layer tells which
//! one it is part of.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tracing::dispatcher::{self, Dispatch, WeakDispatch};

use super::health::ExportTrouble;
use super::signal::Signal;
use super::variables::IgnoredSetting;

/// One line. Each is said at most once for one change.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Line {
    Away { trouble: ExportTrouble, hint: Option<String> },
    Back { collector: Arc<str>, lost: u64 },
    Refused { trouble: ExportTrouble, hint: Option<String> },
    Taken { collector: Arc<str>, signal: Signal },
    Ignored(IgnoredSetting),
}

/// Where lines go: the subscriber that the layer is in, else the current one.
#[derive(Debug, Default)]
pub(super) struct Voice {
    subscriber: Mutex<Option<WeakDispatch>>,
    /// Lines from before there can be a subscriber.
    kept: Mutex<Vec<Line>>,
}

impl Voice {
    /// Keeps lines to be said later.
    pub(super) fn keep(&self, lines: impl Iterator<Item = Line>) {
        lock(&self.kept).extend(lines);
    }

    /// From now on this subscriber hears the lines.
    pub(super) fn speak_to(&self, subscriber: &Dispatch) {
        *lock(&self.subscriber) = Some(subscriber.downgrade());
    }

    /// Says what is still kept.
    pub(super) fn say_kept(&self) {
        let lines = std::mem::take(&mut *lock(&self.kept));
        for line in &lines {
            self.say(line);
        }
    }

    /// Says one line. Never called from within a layer, where it would be lost.
    pub(super) fn say(&self, line: &Line) {
        self.within(|| line.say());
    }

    /// Does something under the subscriber that hears the lines.
    pub(super) fn within<R>(&self, act: impl FnOnce() -> R) -> R {
        let subscriber = lock(&self.subscriber).as_ref().and_then(WeakDispatch::upgrade);
        match subscriber {
            Some(subscriber) => dispatcher::with_default(&subscriber, act),
            None => act(),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Line {
    fn say(&self) {
        match self {
            Self::Away { trouble, hint } => tracing::warn!(
                target: super::TARGET,
                "{trouble}; telemetry is dropped until it answers{}",
                Hint(hint.as_deref())
            ),
            Self::Back { collector, lost } => tracing::info!(
                target: super::TARGET,
                "the collector at {collector} answers again; {lost} spans and log records were dropped meanwhile"
            ),
            Self::Refused { trouble, hint } => {
                let signal = trouble.signal;
                tracing::warn!(
                    target: super::TARGET,
                    "{trouble}; {signal} are dropped until it takes them{}",
                    Hint(hint.as_deref())
                );
            }
            Self::Taken { collector, signal } => {
                tracing::info!(target: super::TARGET, "the collector at {collector} takes {signal} again");
            }
            Self::Ignored(setting) => tracing::warn!(target: super::TARGET, "{setting}"),
        }
    }
}

/// Advice behind a line, where there is some.
struct Hint<'a>(Option<&'a str>);

impl std::fmt::Display for Hint<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.map_or(Ok(()), |hint| write!(f, " ({hint})"))
    }
}
