//! The global meter provider may be set after the layer is at work. Alone in its process, as there is one such provider.

#![allow(
    clippy::unwrap_used,
    clippy::float_cmp,
    reason = "tests: what is exported is exact, and its absence is a failure"
)]

mod support;

use opentelemetry::global;
use serving_sentinel::lane::LaneConfig;
use serving_sentinel::layer::{Lane, SentinelLayer};
use serving_sentinel::span_ext::SpanExt as _;
use serving_sentinel::throughput::RateVerdict;
use tracing::{Dispatch, dispatcher};
use tracing_subscriber::layer::SubscriberExt as _;

use support::memory::Providers;

#[test]
fn a_request_counts_from_the_moment_the_global_provider_is_set() {
    let subscriber = tracing_subscriber::registry().with(SentinelLayer::default());
    dispatcher::with_default(&Dispatch::new(subscriber), || {
        let lane = Lane::open(LaneConfig::new("chat-0"));
        let before = lane.request_span("chat");
        assert_eq!(before.record_timings(None), Some(RateVerdict::NoTimings));

        let providers = Providers::new();
        global::set_meter_provider(providers.metrics.clone());
        let after = lane.request_span("chat");
        assert_eq!(after.record_timings(None), Some(RateVerdict::NoTimings));
        let out = providers.collect();
        assert_eq!(
            out.value("serving.throughput.judged", &[]),
            2.0,
            "kept until somebody collects"
        );
        assert_eq!(out.value("serving.requests.in_flight", &[]), 2.0);
        drop((before, after));
        assert_eq!(providers.collect().value("serving.requests.in_flight", &[]), 0.0);
    });
}
