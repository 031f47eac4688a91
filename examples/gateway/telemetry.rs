//! Where what is found goes: log lines to stderr and, where a collector is named, everything by OTLP.

use serving_sentinel::layer::SentinelLayer;
use serving_sentinel::otlp::Otlp;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _, fmt};

use crate::screen::Screen;

/// Warnings of everyone, and all that the sentinel says; an engine's lines are its own business.
const DEFAULT_FILTER: &str = "warn,serving_sentinel=info,serving_sentinel::engine=off";

/// Installs the subscriber. What it gives back sends what is left when it is dropped.
pub(crate) fn install(screen: &Screen) -> anyhow::Result<Option<Otlp>> {
    let otlp =
        std::env::var_os("OTEL_EXPORTER_OTLP_ENDPOINT").map(|_| Otlp::from_env()).transpose()?;
    let filter =
        EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(DEFAULT_FILTER));
    let logs = fmt::layer()
        .with_ansi(screen.colours_logs())
        .with_writer(screen.clone())
        .with_filter(filter);
    let sentinel = SentinelLayer::builder();
    let sentinel = match &otlp {
        Some(otlp) => sentinel.meter_provider(otlp.meter_provider()),
        None => sentinel,
    };
    tracing_subscriber::registry()
        .with(logs)
        .with(otlp.as_ref().map(Otlp::layer))
        .with(sentinel.build())
        .init();
    Ok(otlp)
}
