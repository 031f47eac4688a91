//! A disabled event stays disabled, and its fields unevaluated, whatever the sentinel listens to.
//!
//! A file of its own: every subscriber of a process has a say in what a callsite wakes for.

mod support;

use std::cell::Cell;

use tracing::{Dispatch, Level, debug, dispatcher, event_enabled};
use tracing_subscriber::filter::{EnvFilter, LevelFilter};
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::{fmt, registry};

use support::memory::Providers;

#[test]
fn what_nobody_else_wants_stays_asleep() {
    type Arrange = fn(&Providers) -> Dispatch;
    let rows: [(&str, Arrange); 3] = [
        ("alone", |providers| registry().with(providers.sentinel()).into()),
        ("beside a filtered neighbour", |providers| {
            let quiet = fmt::layer().with_writer(std::io::sink).with_filter(LevelFilter::INFO);
            registry().with(quiet).with(providers.sentinel()).into()
        }),
        ("under a global filter", |providers| {
            registry().with(providers.sentinel()).with(EnvFilter::new("info")).into()
        }),
    ];
    for (case, arrange) in rows {
        let evaluated = Cell::new(0);
        let count = || evaluated.replace(evaluated.get() + 1);
        dispatcher::with_default(&arrange(&Providers::new()), || {
            debug!(value = count(), "asleep");
            assert!(!event_enabled!(Level::DEBUG), "{case}");
        });
        assert_eq!(evaluated.get(), 0, "{case}: a disabled event was woken");
    }
}
