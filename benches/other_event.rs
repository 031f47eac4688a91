//! What does an event that is no engine output cost, beside the bare registry and beside tracing-opentelemetry's own
//! metrics layer?

use std::time::Duration;

use opentelemetry_sdk::metrics::{InMemoryMetricExporter, SdkMeterProvider};
use serving_sentinel::layer::SentinelLayer;
use tracing::level_filters::LevelFilter;
use tracing::subscriber::with_default;
use tracing::{Event, Subscriber};
use tracing_opentelemetry::MetricsLayer;
use tracing_subscriber::layer::{Context, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{Layer, registry};

mod support;

/// A neighbour that wants events, and does next to nothing with them.
struct Listener;

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Listener {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        std::hint::black_box(event.metadata().level());
    }
}

fn main() {
    let mut criterion = support::criterion();
    support::Question::new("other_event/registry")
        .timed("bare_registry", |times| events(times, registry()))
        .timed("with_sentinel", |times| events(times, registry().with(sentinel())))
        .timed("with_metrics_layer", |times| {
            events(times, registry().with(MetricsLayer::new(meters())))
        })
        .ask(&mut criterion);

    let heard = || registry().with(Listener);
    support::Question::new("other_event/registry_and_a_listener")
        .timed("without_sentinel", |times| events(times, heard()))
        .timed("with_sentinel", |times| events(times, heard().with(sentinel())))
        .timed("with_metrics_layer", |times| {
            events(times, heard().with(MetricsLayer::new(meters())))
        })
        .ask(&mut criterion);

    // A debug event that the only other layer filters out: nobody wants it, so its callsite stays asleep.
    let info_only = || registry().with(Listener.with_filter(LevelFilter::INFO));
    support::Question::new("other_event/debug_disabled")
        .timed("without_sentinel", |times| debug_events(times, info_only()))
        .timed("with_sentinel", |times| debug_events(times, info_only().with(sentinel())))
        .ask(&mut criterion);
    criterion.final_summary();
}

fn meters() -> SdkMeterProvider {
    SdkMeterProvider::builder().with_periodic_exporter(InMemoryMetricExporter::default()).build()
}

fn sentinel<S: Subscriber + for<'a> LookupSpan<'a> + Send + Sync>() -> SentinelLayer<S> {
    SentinelLayer::builder().meter_provider(meters()).build()
}

// A callsite remembers who wants it, over all subscribers alive: so each turn has the one it measures, and no other.

fn events(times: u64, subscriber: impl Subscriber + Send + Sync + 'static) -> Duration {
    with_default(subscriber, || {
        support::time(times, || tracing::info!(answer = 42, "no engine output"))
    })
}

fn debug_events(times: u64, subscriber: impl Subscriber + Send + Sync + 'static) -> Duration {
    with_default(subscriber, || {
        support::time(times, || tracing::debug!(answer = 42, "no engine output"))
    })
}
