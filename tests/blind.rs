//! When the sentinel cannot see, it says so, with the remedy.

#![allow(
    clippy::unwrap_used,
    clippy::float_cmp,
    reason = "tests: what is exported is exact, and its absence is a failure"
)]

mod support;

use std::time::Duration;

use opentelemetry::global;
use opentelemetry_sdk::metrics::SdkMeterProvider;
use serving_sentinel::lane::{BlindCause, LaneConfig};
use serving_sentinel::layer::{Lane, SentinelLayer};
use tracing::{Dispatch, dispatcher, warn};
use tracing_subscriber::filter::EnvFilter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::{registry, reload};

use support::memory::{Heard, Providers, SOON, listener};
use support::{feed, load_of};

const BLIND: &str = "serving.sentinel.blind";

fn under<R>(subscriber: impl Into<Dispatch>, body: impl FnOnce() -> R) -> R {
    dispatcher::with_default(&subscriber.into(), body)
}

#[track_caller]
fn expect_blind(heard: &Heard, cause: &str) -> std::collections::BTreeMap<String, String> {
    let told = heard.expect(BLIND);
    assert_eq!(told["serving.blind.cause"], cause, "{told:?}");
    assert!(!told["serving.advice"].is_empty());
    told
}

#[test]
fn a_subscriber_without_the_layer_is_told_when_a_lane_opens() {
    let (listener, heard) = listener();
    under(registry().with(listener), || {
        let lane = Lane::open(LaneConfig::new("chat-0"));
        lane.observe_line(b"nobody watches");
        lane.ready();
        assert_eq!(lane.snapshot(), None);
        assert!(lane.flush(Duration::ZERO));
        drop(lane.request_span("chat"));
    });
    let told = heard.so_far(BLIND);
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0]["serving.blind.cause"], "layer_not_installed");
    assert_eq!(told[0]["serving.lane.name"], "chat-0");
    assert!(told[0]["serving.advice"].contains("SentinelLayer"));
}

#[test]
fn a_layer_that_can_be_reloaded_cannot_be_found() {
    let (listener, heard) = listener();
    let (reloaded, _handle) = reload::Layer::new(SentinelLayer::default());
    under(registry().with(reloaded).with(listener), || Lane::open(LaneConfig::new("chat-0")));
    expect_blind(&heard, "layer_not_installed");
}

#[test]
fn a_filter_that_removes_request_spans_is_told_and_its_end_too() {
    let (listener, heard) = listener();
    let (filter, handle) = reload::Layer::new(EnvFilter::new("my_app=info,serving_sentinel=off"));
    under(registry().with(SentinelLayer::default()).with(filter).with(listener), || {
        let lane = Lane::open(LaneConfig::new("chat-0"));
        assert!(lane.request_span("chat").is_disabled());
        assert!(lane.request_span("chat").is_disabled());
        assert!(lane.flush(SOON));
        assert_eq!(lane.snapshot().map(|lane| lane.blind), Some(vec![BlindCause::SpansFiltered]));
        assert!(heard.so_far(BLIND).is_empty(), "the same filter hides the alarm");

        handle.reload(EnvFilter::new("info")).unwrap();
        assert!(!lane.request_span("chat").is_disabled());
        assert!(lane.flush(SOON));
        let told = expect_blind(&heard, "spans_filtered");
        assert_eq!(told["serving.alarm.state"], "cleared");
    });
}

#[test]
fn a_global_filter_that_hides_a_named_target_is_told() {
    let (listener, heard) = listener();
    let sentinel = SentinelLayer::builder().engine_target("my_app::engine").build();
    under(registry().with(sentinel).with(EnvFilter::new("info,my_app=off")).with(listener), || {
        let told = expect_blind(&heard, "events_filtered");
        assert!(told["serving.advice"].contains("my_app::engine"), "{told:?}");
        assert!(!told.contains_key("serving.lane.name"));
    });
}

#[test]
fn a_target_that_was_heard_at_its_own_level_is_not_hidden() {
    let (listener, heard) = listener();
    let sentinel = SentinelLayer::builder().engine_target("my_app::engine").max_lanes(1).build();
    under(registry().with(sentinel).with(EnvFilter::new("warn")).with(listener), || {
        warn!(target: "my_app::engine", "an engine's line");
        // The next thing that is told, a tick later, is another blindness.
        let _lanes = ["one", "two"].map(|name| Lane::open(LaneConfig::new(name)));
        expect_blind(&heard, "too_many_lanes");
    });
}

#[test]
fn more_lanes_than_the_metrics_have_room_for_are_watched_and_told() {
    let providers = Providers::new();
    let (listener, heard) = listener();
    let sentinel = providers.builder().max_lanes(1).build();
    let out = providers.export(registry().with(sentinel).with(listener), || {
        let lanes = ["one", "two"].map(|name| Lane::open(LaneConfig::new(name)));
        warn!(target: "serving_sentinel::engine", lane = "three", "a lane that nobody opened");
        lanes[1].ready();
        expect_blind(&heard, "too_many_lanes");
        lanes
    });
    assert_eq!(out.points("serving.placement.state", &[("serving.lane.name", "two")]).len(), 5);
    out.expect_no_point("serving.placement.state", &[("serving.lane.name", "three")]);
    assert_eq!(out.value("serving.sentinel.dropped", &[("serving.dropped.kind", "lane")]), 1.0);
}

#[test]
fn metrics_that_nobody_reads_are_told() {
    let (listener, heard) = listener();
    let unread = SdkMeterProvider::builder().build();
    let sentinel =
        SentinelLayer::builder().meter_provider(unread).meter_grace(Duration::ZERO).build();
    under(registry().with(sentinel).with(listener), || {
        let lane = Lane::open(LaneConfig::new("chat-0"));
        feed(&lane, &load_of("llama-server-remote-gpu-19-of-19.stderr.log"));
        let told = expect_blind(&heard, "no_meter_provider");
        assert_eq!(told["serving.alarm.state"], "raised");
    });
}

#[test]
fn a_global_meter_provider_that_is_set_late_is_found() {
    let providers = Providers::new();
    let (listener, heard) = listener();
    let sentinel = SentinelLayer::builder().meter_grace(Duration::ZERO).build();
    under(registry().with(sentinel).with(listener), || {
        let lane = Lane::open(LaneConfig::new("chat-0"));
        let request = lane.request_span("chat");
        feed(&lane, &load_of("llama-server-remote-gpu-19-of-19.stderr.log"));
        expect_blind(&heard, "no_meter_provider");

        global::set_meter_provider(providers.metrics.clone());
        // Followed at a tick, and read by the reader as often as it is asked.
        let told = loop {
            providers.collect();
            if let Some(told) = heard.so_far(BLIND).pop() {
                break told;
            }
            assert!(lane.flush(SOON));
        };
        assert_eq!(told["serving.alarm.state"], "cleared", "{told:?}");
        let out = providers.collect();
        assert_eq!(
            out.value("serving.placement.state", &[("serving.placement.verdict", "gpu")]),
            1.0
        );
        assert_eq!(
            out.value("serving.requests.in_flight", &[]),
            1.0,
            "a request that was in flight already"
        );
        drop(request);
    });
}

#[test]
fn an_engine_that_starts_again_ends_no_blindness_of_the_filter() {
    let filter = EnvFilter::new("serving_sentinel=off");
    under(registry().with(SentinelLayer::default()).with(filter), || {
        let lane = Lane::open(LaneConfig::new("chat-0"));
        let blind = || lane.snapshot().map(|lane| lane.blind);
        drop(lane.request_span("chat"));
        lane.ended("exit status: 0");
        assert_eq!(blind(), Some(vec![]));
        drop(lane.request_span("chat"));
        assert_eq!(blind(), Some(vec![BlindCause::SpansFiltered]));
    });
}

#[test]
fn the_time_in_blindness_is_counted() {
    let providers = Providers::new();
    let (listener, heard) = listener();
    under(registry().with(providers.sentinel()).with(listener), || {
        let lane = Lane::open(LaneConfig::new("chat-0"));
        lane.ready();
        expect_blind(&heard, "no_output");
        let silent = [("serving.lane.name", "chat-0"), ("serving.blind.cause", "no_output")];
        let unseen = loop {
            let out = providers.collect();
            if let [point] = out.points("serving.sentinel.unseen", &silent)[..] {
                break point.value;
            }
            assert!(lane.flush(SOON));
        };
        assert!((1.0..20.0).contains(&unseen), "{unseen} s after one tick");

        lane.observe_line(b"a line after all");
        let told = heard.expect(BLIND);
        assert_eq!(told["serving.alarm.state"], "cleared", "{told:?}");
    });
}

#[test]
fn a_lane_whose_engine_says_nothing_is_seen_all_the_same() {
    let providers = Providers::new();
    under(registry().with(providers.sentinel()), || {
        let _lane = Lane::open(LaneConfig::new("chat-0"));
        let step = Duration::from_millis(50);
        let mut waited = Duration::ZERO;
        let out = loop {
            let out = providers.collect();
            if !out.points("serving.placement.state", &[]).is_empty() {
                break out;
            }
            assert!(waited < SOON, "no series of a lane that is open");
            std::thread::sleep(step);
            waited += step;
        };
        for verdict in ["gpu", "partial", "cpu", "cpu_fallback", "unreported"] {
            let labels = [("serving.lane.name", "chat-0"), ("serving.placement.verdict", verdict)];
            assert_eq!(out.value("serving.placement.state", &labels), 0.0, "{verdict}");
        }
    });
}
