//! Sets up a layer. Every setting has a default that works.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use opentelemetry::metrics::MeterProvider;
use tracing::Subscriber;
use tracing_subscriber::registry::LookupSpan;

use crate::catalog::Catalog;
use crate::engines::Matcher;
use crate::lane::Policy;
use crate::layer::SentinelLayer;
use crate::layer::hub::{Hub, Settings};
use crate::layer::meters::{Meters, Provider};
use crate::telemetry::names;

/// Builds a [`SentinelLayer`].
///
/// ```
/// use serving_sentinel::layer::SentinelLayer;
/// use tracing_subscriber::layer::SubscriberExt;
///
/// let layer = SentinelLayer::builder().engine_target("my_app::engine").build();
/// let subscriber = tracing_subscriber::registry().with(layer);
/// # drop(subscriber);
/// ```
#[must_use]
pub struct SentinelLayerBuilder {
    policy: Policy,
    matcher: Option<Arc<Matcher>>,
    catalog: Catalog,
    meter_provider: Option<Provider>,
    meter_grace: Duration,
    max_lanes: usize,
    targets: Vec<String>,
}

impl Default for SentinelLayerBuilder {
    fn default() -> Self {
        Self {
            policy: Policy::default(),
            matcher: None,
            catalog: Catalog::default(),
            meter_provider: None,
            meter_grace: Self::DEFAULT_METER_GRACE,
            max_lanes: Self::DEFAULT_MAX_LANES,
            targets: vec![names::ENGINE_TARGET.to_owned()],
        }
    }
}

impl SentinelLayerBuilder {
    /// The SDK keeps 2,000 attribute sets per metric, and every lane takes several of some.
    pub const DEFAULT_MAX_LANES: usize = 1000;
    /// Two and a half of a periodic reader's default intervals of 60 s.
    pub const DEFAULT_METER_GRACE: Duration = Duration::from_secs(150);

    /// Sets the thresholds.
    ///
    /// By default, [`Policy::default`].
    pub fn policy(self, policy: Policy) -> Self {
        Self { policy, ..self }
    }

    /// Sets the recognisers of engine lines.
    ///
    /// By default, those that come with the crate.
    pub fn matcher(self, matcher: Arc<Matcher>) -> Self {
        Self { matcher: Some(matcher), ..self }
    }

    /// Sets the catalogue of expected decode rates. A lane that states no rate of its own is looked up in it by its model
    /// and engine, as far as its configuration names them, when it is opened.
    ///
    /// By default, it is empty.
    pub fn catalog(self, catalog: Catalog) -> Self {
        Self { catalog, ..self }
    }

    /// Sets where metrics go.
    ///
    /// By default, to OpenTelemetry's global meter provider, at whatever time it is set: what stands, and the answers and
    /// lines of lanes that are open, are kept until somebody collects. Violations counted before that are lost, and so
    /// are answers over 1,024 of one lane. A provider that somebody has collected from is kept.
    pub fn meter_provider(self, provider: impl MeterProvider + Send + Sync + 'static) -> Self {
        Self { meter_provider: Some(Arc::new(provider)), ..self }
    }

    /// Sets how long after the first finding a metrics reader may take to collect for the first time. After that,
    /// `serving.sentinel.blind` says that there is none (`no_meter_provider`).
    ///
    /// By default, this is [`DEFAULT_METER_GRACE`](Self::DEFAULT_METER_GRACE). Raise it with a longer export interval.
    pub fn meter_grace(self, grace: Duration) -> Self {
        Self { meter_grace: grace, ..self }
    }

    /// Sets the number of lanes that metrics have room for. More are watched when they are opened by
    /// [`Lane::open`](crate::layer::Lane::open), and `serving.sentinel.blind` says so (`too_many_lanes`); lanes that
    /// only events or spans name are not opened beyond it, and counted as dropped.
    ///
    /// By default, this is [`DEFAULT_MAX_LANES`](Self::DEFAULT_MAX_LANES).
    pub fn max_lanes(self, max_lanes: usize) -> Self {
        Self { max_lanes, ..self }
    }

    /// Names a target whose events are engine lines; modules within it belong to it. May be called several times.
    ///
    /// An event's line is its field `line`, else its message. Its lane is its field `lane` or `serving.lane.name`,
    /// else the lane of the request span it is said in, else the target's name. Records of the `log` crate count by
    /// their own target.
    ///
    /// By default, `serving_sentinel::engine`, which is always one of them.
    pub fn engine_target(mut self, target: impl Into<String>) -> Self {
        self.targets.push(target.into());
        self
    }

    /// The layer.
    pub fn build<S>(self) -> SentinelLayer<S>
    where
        S: Subscriber + for<'span> LookupSpan<'span>,
    {
        let settings = Settings {
            policy: self.policy,
            matcher: self.matcher.unwrap_or_else(Matcher::builtin),
            catalog: self.catalog,
            max_lanes: self.max_lanes,
            targets: self.targets.into(),
        };
        SentinelLayer::new(Hub::new(settings, Meters::new(self.meter_provider, self.meter_grace)))
    }
}

impl fmt::Debug for SentinelLayerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SentinelLayerBuilder")
            .field("policy", &self.policy)
            .field("meter_grace", &self.meter_grace)
            .field("max_lanes", &self.max_lanes)
            .field("targets", &self.targets)
            .finish_non_exhaustive()
    }
}
