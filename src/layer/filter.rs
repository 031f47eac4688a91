//! What the layer wants to hear: engine lines, and spans that name their lane.
//!
//! Decided by metadata alone, once per callsite, so that all else costs nothing and no neighbour's filter is touched.

use std::sync::Arc;

use tracing::subscriber::Interest;
use tracing::{Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Filter};

use crate::telemetry::names;

/// The layer's own per-layer filter. It gives no level hint: it knows none, and the layer needs none.
#[derive(Clone, Debug)]
pub(super) struct SentinelFilter {
    targets: Arc<[String]>,
}

impl SentinelFilter {
    pub(super) fn new(targets: Arc<[String]>) -> Self {
        Self { targets }
    }

    fn wants(&self, metadata: &Metadata<'_>) -> bool {
        if metadata.is_span() {
            // The load span names its lane too, but is no request.
            metadata.name() != names::LOAD_SPAN
                && metadata.fields().field(names::LANE_NAME).is_some()
        } else {
            metadata.is_event()
                && metadata.name() != names::LINE_EVENT
                && self.targets.iter().any(|target| is_within(metadata.target(), target))
        }
    }

    fn interest(&self, metadata: &Metadata<'_>) -> Interest {
        if self.wants(metadata) { Interest::always() } else { Interest::never() }
    }
}

/// Whether `target` is `root` or, as modules nest, within it.
pub(crate) fn is_within(target: &str, root: &str) -> bool {
    target.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

impl<S: Subscriber> Filter<S> for SentinelFilter {
    fn enabled(&self, metadata: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        self.wants(metadata)
    }

    fn callsite_enabled(&self, metadata: &'static Metadata<'static>) -> Interest {
        self.interest(metadata)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    macro_rules! callsite {
        ($kind:ident, $name:expr, $target:expr, $($field:expr),*) => {{
            struct Here;
            impl tracing::callsite::Callsite for Here {
                fn set_interest(&self, _: Interest) {}
                fn metadata(&self) -> &Metadata<'_> {
                    &METADATA
                }
            }
            static METADATA: Metadata<'static> = tracing::metadata! {
                name: $name,
                target: $target,
                level: tracing::Level::DEBUG,
                fields: &[$($field),*],
                callsite: &Here,
                kind: tracing::metadata::Kind::$kind,
            };
            &METADATA
        }};
    }

    #[test]
    fn engine_lines_and_lane_spans_alone_are_wanted() {
        let targets = [names::ENGINE_TARGET.to_owned(), "my_app::engine".to_owned()];
        let filter = SentinelFilter::new(targets.into());
        let rows = [
            ("an engine line", callsite!(EVENT, "event", "serving_sentinel::engine", "line"), true),
            ("a named target", callsite!(EVENT, "event", "my_app::engine", "message"), true),
            (
                "a module within",
                callsite!(EVENT, "event", "my_app::engine::stderr", "message"),
                true,
            ),
            ("another module", callsite!(EVENT, "event", "my_app::engineer", "message"), false),
            ("the module above", callsite!(EVENT, "event", "my_app", "line", "lane"), false),
            (
                "a line for the log alone",
                callsite!(EVENT, "serving.engine.line", "serving_sentinel::engine", "line"),
                false,
            ),
            (
                "our alarm",
                callsite!(EVENT, "serving.sentinel.blind", "serving_sentinel", "serving.lane.name"),
                false,
            ),
            ("a request", callsite!(SPAN, "chat", "my_app", "serving.lane.name"), true),
            ("any other span", callsite!(SPAN, "chat", "my_app::engine", "lane"), false),
            (
                "a load",
                callsite!(SPAN, "serving.load", "serving_sentinel", "serving.lane.name"),
                false,
            ),
        ];
        for (case, metadata, expected) in rows {
            assert_eq!(filter.wants(metadata), expected, "{case}");
            assert_eq!(filter.interest(metadata).is_always(), expected, "{case}");
            assert_eq!(filter.interest(metadata).is_never(), !expected, "{case}");
        }
        let hint = Filter::<tracing_subscriber::Registry>::max_level_hint(&filter);
        assert!(hint.is_none(), "a hint would wake other layers' callsites, or put them to sleep");
    }
}
