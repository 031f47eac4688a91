//! Where instruments come from. They are made at the first use, as OpenTelemetry's global provider starts as a no-op
//! and never becomes a real one: a provider that is set after the layer was made must work.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use std::time::{Duration, Instant};

use opentelemetry::metrics::MeterProvider;
use opentelemetry::{InstrumentationScope, global};

use crate::layer::{enter, now};
use crate::telemetry::gauges::Lanes;
use crate::telemetry::instruments::Instruments;
use crate::telemetry::names;

/// A meter provider of any make.
pub(super) type Provider = Arc<dyn MeterProvider + Send + Sync>;

/// The instruments of one hub.
pub(super) struct Meters {
    /// The builder's; `None` for the global one.
    given: Option<Provider>,
    grace: Duration,
    made: RwLock<Option<Made>>,
    /// Held while instruments are made.
    making: Mutex<()>,
    /// Whether any reader ever collected.
    collected: AtomicBool,
}

#[derive(Clone)]
struct Made {
    instruments: Arc<Instruments>,
    provider: Provider,
    since: Instant,
}

impl Meters {
    pub(super) fn new(given: Option<Provider>, grace: Duration) -> Self {
        Self {
            given,
            grace,
            made: RwLock::default(),
            making: Mutex::default(),
            collected: AtomicBool::new(false),
        }
    }

    /// The instruments, if they were made already. Inside a layer's callback nothing else may be asked for: the SDK
    /// says `tracing` events of its own when it makes one.
    pub(super) fn get(&self) -> Option<Arc<Instruments>> {
        self.made().map(|made| made.instruments)
    }

    /// Whether the instruments were made, and are those to record on.
    pub(super) fn is_settled(&self) -> bool {
        self.made
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .as_ref()
            .is_some_and(|made| self.suits(made))
    }

    /// The instruments, made now if need be: at first, and when a global provider was set since, as long as nobody
    /// collects the old ones. `on_made` is called with new ones. Never called inside a callback.
    pub(super) fn get_or_make(
        &self,
        lanes: &Weak<dyn Lanes>,
        on_made: impl FnOnce(&Arc<Instruments>),
    ) -> Arc<Instruments> {
        if let Some(made) = self.made().filter(|made| self.suits(made)) {
            return made.instruments;
        }
        let _making = enter(&self.making);
        match self.made().filter(|made| self.suits(made)) {
            Some(made) => made.instruments,
            None => self.make(lanes, self.provider(), on_made),
        }
    }

    /// Moves to a global provider that was set after the instruments were made, if they were.
    pub(super) fn follow(&self, lanes: &Weak<dyn Lanes>, on_made: impl FnOnce(&Arc<Instruments>)) {
        if self.made().is_some() {
            self.get_or_make(lanes, on_made);
        }
    }

    /// Whether these are the instruments to record on.
    fn suits(&self, made: &Made) -> bool {
        self.given.is_some()
            || self.is_collected()
            || is_same(&global::meter_provider(), &made.provider)
    }

    /// Whether a reader should have collected by now, and none ever did.
    pub(super) fn is_unread(&self, now: Instant) -> bool {
        let is_late = |made: Made| now.saturating_duration_since(made.since) >= self.grace;
        !self.is_collected() && self.made().is_some_and(is_late)
    }

    /// A reader collected.
    pub(super) fn collected(&self) {
        self.collected.store(true, Ordering::Relaxed);
    }

    /// Whether any reader ever collected.
    pub(super) fn is_collected(&self) -> bool {
        self.collected.load(Ordering::Relaxed)
    }

    fn provider(&self) -> Provider {
        self.given.clone().unwrap_or_else(global::meter_provider)
    }

    fn make(
        &self,
        lanes: &Weak<dyn Lanes>,
        provider: Provider,
        on_made: impl FnOnce(&Arc<Instruments>),
    ) -> Arc<Instruments> {
        let scope = InstrumentationScope::builder(names::SCOPE)
            .with_version(env!("CARGO_PKG_VERSION"))
            .with_schema_url(names::SCHEMA_URL)
            .build();
        let instruments = Arc::new(Instruments::new(&provider.meter_with_scope(scope), lanes));
        let since = self.made().map_or_else(now, |made| made.since);
        let made = Made { instruments: instruments.clone(), provider, since };
        *self.made.write().unwrap_or_else(PoisonError::into_inner) = Some(made);
        on_made(&instruments);
        instruments
    }

    fn made(&self) -> Option<Made> {
        self.made.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl fmt::Debug for Meters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Meters").field("collected", &self.collected).finish_non_exhaustive()
    }
}

fn is_same(one: &Provider, other: &Provider) -> bool {
    std::ptr::addr_eq(Arc::as_ptr(one), Arc::as_ptr(other))
}
