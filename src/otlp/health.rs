//! Whether what is exported arrives: one line when the collector goes away, one when it is back.
//!
//! An outage is a fact of its own, so it is kept here, once, for the log, the program and the
//! `blind` alarm. How long it lasts and how many exports fail in it changes nothing in the log.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use super::route::Route;
use super::signal::Signal;
use super::voice::{Line, Voice};

/// How long a signal's failure stands while another signal's exports reach the same collector, and
/// how long an outage must be apart from the last one told of to be told of too.
const SETTLING: Duration = Duration::from_secs(60);

/// How exports go. Cheap to clone, and to ask.
#[derive(Clone)]
pub struct ExportHealth {
    shared: Arc<Shared>,
}

/// What keeps one signal from arriving.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ExportTrouble {
    /// What is not exported.
    pub signal: Signal,
    /// The collector, as scheme, host and port.
    pub collector: Arc<str>,
    /// Whether the collector is away or does not want it.
    pub kind: TroubleKind,
    /// When the first of these failures was noted.
    pub since: Instant,
    /// Failed exports in a row, each after its retries.
    pub failures: u64,
    /// The last failure's own words.
    pub error: String,
}

impl fmt::Display for ExportTrouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { signal, collector, kind, error, .. } = self;
        match kind {
            TroubleKind::Unreachable => {
                write!(f, "the collector at {collector} cannot be reached: {error}")
            }
            TroubleKind::Refused => {
                write!(f, "the collector at {collector} refuses {signal}: {error}")
            }
        }
    }
}

/// The two ways in which an export fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TroubleKind {
    /// No answer, or one that asks to come again later: the next export may succeed.
    Unreachable,
    /// An answer that will be the same next time: a missing pipeline, a wrong path, missing
    /// credentials.
    Refused,
}

impl TroubleKind {
    /// Told from the words of the exporter, which names the gRPC code or the HTTP status.
    fn of(error: &str) -> Self {
        const TRANSIENT_CODES: [&str; 6] = [
            "Unavailable",
            "DeadlineExceeded",
            "Cancelled",
            "Aborted",
            "ResourceExhausted",
            "Unknown",
        ];
        let word_after = |lead: &str| {
            let rest = &error[error.find(lead)? + lead.len()..];
            rest.split(|c: char| !c.is_ascii_alphanumeric()).find(|word| !word.is_empty())
        };
        let refused = if let Some(code) = word_after("gRPC code: ") {
            !TRANSIENT_CODES.contains(&code)
        } else if let Some(status) = word_after("status code: ") {
            status.starts_with(['3', '4']) && !matches!(status, "408" | "429")
        } else {
            false
        };
        if refused { Self::Refused } else { Self::Unreachable }
    }
}

/// Why nothing leaves this process, if its collector does not take it: the first trouble of any
/// [`Otlp`](super::Otlp) that is alive.
pub fn collector_unreachable() -> Option<String> {
    let all: Vec<_> = lock(&ALIVE).iter().filter_map(Weak::upgrade).collect();
    all.into_iter().find_map(|shared| Some(ExportHealth { shared }.trouble()?.to_string()))
}

static ALIVE: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());

struct Shared {
    state: Mutex<State>,
    voice: Arc<Voice>,
}

#[derive(Default)]
struct State {
    signals: Vec<SignalState>,
    outages: Vec<Outage>,
    lost: u64,
}

/// The last outage of one collector that was told of.
struct Outage {
    collector: Arc<str>,
    told: Instant,
    /// Whether it is still to be told that it is over.
    open: bool,
    lost: u64,
}

struct SignalState {
    signal: Signal,
    collector: Arc<str>,
    hint: Option<String>,
    trouble: Option<(ExportTrouble, Instant)>,
}

impl ExportHealth {
    /// Health of these routes; what is to be said is said by `voice`.
    pub(super) fn new<'a>(
        routes: impl Iterator<Item = (Signal, &'a Route)>,
        voice: Arc<Voice>,
    ) -> Self {
        let signals = routes
            .map(|(signal, route)| SignalState {
                signal,
                collector: route.collector(),
                hint: route.hint(),
                trouble: None,
            })
            .collect();
        let shared =
            Arc::new(Shared { state: Mutex::new(State { signals, ..State::default() }), voice });
        let mut alive = lock(&ALIVE);
        alive.retain(|other| other.strong_count() > 0);
        alive.push(Arc::downgrade(&shared));
        drop(alive);
        Self { shared }
    }

    /// What keeps telemetry from arriving; `None` while all exports succeed, and before the first.
    pub fn trouble(&self) -> Option<ExportTrouble> {
        lock(&self.shared.state)
            .signals
            .iter()
            .find_map(|state| Some(state.trouble.as_ref()?.0.clone()))
    }

    /// Spans and log records that were exported in vain, since the start. Metrics are not counted:
    /// the next export carries their totals. Nor is what a collector says it took but in part: the exporter tells
    /// nobody of that.
    pub fn lost(&self) -> u64 {
        lock(&self.shared.state).lost
    }

    /// Notes how one export ended, and says what changed by it.
    #[expect(clippy::disallowed_methods, reason = "an exporter is an edge")]
    pub(super) fn note(&self, signal: Signal, items: usize, outcome: Result<(), String>) {
        let lines = lock(&self.shared.state).note(signal, items, outcome, Instant::now());
        for line in lines {
            self.shared.voice.say(&line);
        }
    }
}

impl fmt::Debug for ExportHealth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExportHealth").field("trouble", &self.trouble()).finish_non_exhaustive()
    }
}

// === impl State ===

impl State {
    fn note(
        &mut self,
        signal: Signal,
        items: usize,
        outcome: Result<(), String>,
        now: Instant,
    ) -> Vec<Line> {
        let Some(index) = self.signals.iter().position(|state| state.signal == signal) else {
            return Vec::new();
        };
        let collector = self.signals[index].collector.clone();
        let was_away = self.away(&collector).is_some();
        let lost = if outcome.is_err() { items as u64 } else { 0 };
        let mut lines = match outcome {
            Ok(()) => self.succeeded(index, now),
            Err(error) => self.failed(index, error, now),
        };
        match (was_away, self.away(&collector).cloned()) {
            (false, Some(trouble)) if self.begin_outage(&collector, now) => {
                lines.push(Line::Away { trouble, hint: self.signals[index].hint.clone() });
            }
            (true, None) => lines.extend(self.end_outage(&collector)),
            (_, Some(_)) | (false, None) => {}
        }
        self.lost += lost;
        if let Some(outage) = self.outage(&collector) {
            outage.lost += lost;
        }
        lines
    }

    /// The outage of a collector, by any signal that cannot reach it.
    fn away(&self, collector: &str) -> Option<&ExportTrouble> {
        self.signals
            .iter()
            .filter(|state| &*state.collector == collector)
            .filter_map(|state| Some(&state.trouble.as_ref()?.0))
            .find(|trouble| trouble.kind == TroubleKind::Unreachable)
    }

    fn succeeded(&mut self, index: usize, now: Instant) -> Vec<Line> {
        let collector = self.signals[index].collector.clone();
        // A signal with nothing to send cannot show that it would arrive again; after a while
        // another speaks for it.
        for other in self.signals.iter_mut().filter(|state| state.collector == collector) {
            other.trouble.take_if(|(trouble, last)| {
                trouble.kind == TroubleKind::Unreachable
                    && now.saturating_duration_since(*last) >= SETTLING
            });
        }
        let state = &mut self.signals[index];
        match state.trouble.take() {
            Some((ExportTrouble { kind: TroubleKind::Refused, .. }, _)) => {
                vec![Line::Taken { collector, signal: state.signal }]
            }
            Some(_) | None => Vec::new(),
        }
    }

    fn failed(&mut self, index: usize, error: String, now: Instant) -> Vec<Line> {
        let SignalState { signal, collector, hint, trouble } = &mut self.signals[index];
        let kind = TroubleKind::of(&error);
        let before =
            trouble.take().map(|(trouble, _)| trouble).filter(|trouble| trouble.kind == kind);
        let is_new = before.is_none();
        let (since, failures) = before.map_or((now, 0), |before| (before.since, before.failures));
        let now_wrong = ExportTrouble {
            signal: *signal,
            collector: collector.clone(),
            kind,
            since,
            failures: failures + 1,
            error,
        };
        let told = (kind == TroubleKind::Refused && is_new)
            .then(|| Line::Refused { trouble: now_wrong.clone(), hint: hint.clone() });
        *trouble = Some((now_wrong, now));
        told.into_iter().collect()
    }

    fn outage(&mut self, collector: &str) -> Option<&mut Outage> {
        self.outages.iter_mut().find(|outage| &*outage.collector == collector)
    }

    /// Whether to tell of an outage that begins: not when one was told of just now.
    fn begin_outage(&mut self, collector: &Arc<str>, now: Instant) -> bool {
        let begun = Outage { collector: collector.clone(), told: now, open: true, lost: 0 };
        match self.outage(collector) {
            Some(outage) if now.saturating_duration_since(outage.told) < SETTLING => return false,
            Some(outage) => *outage = begun,
            None => self.outages.push(begun),
        }
        true
    }

    /// What to tell of an outage that is over, if its beginning was told.
    fn end_outage(&mut self, collector: &Arc<str>) -> Option<Line> {
        let outage = self.outage(collector).filter(|outage| outage.open)?;
        outage.open = false;
        Some(Line::Back { collector: collector.clone(), lost: outage.lost })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
