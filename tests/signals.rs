//! What an engine's lines and requests become: span events, alarms and metrics, as they are exported.

#![allow(
    clippy::unwrap_used,
    clippy::float_cmp,
    reason = "tests: what is exported is exact, and its absence is a failure"
)]

mod support;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use opentelemetry::trace::{SpanKind, Status};
use opentelemetry_sdk::trace::Sampler;
use serving_sentinel::lane::{LaneConfig, Policy};
use serving_sentinel::layer::{Lane, SentinelLayer, flush};
use serving_sentinel::placement::Plan;
use serving_sentinel::span_ext::SpanExt as _;
use serving_sentinel::throughput::{RateVerdict, TimingSource, Timings, TokensPerSecond};
use serving_sentinel::wedge::WedgePolicy;
use tracing::{Dispatch, dispatcher, error_span, info, info_span};
use tracing_subscriber::layer::SubscriberExt as _;

use support::memory::{Exported, Heard, Providers, SOON, attributes, export, listener};
use support::{feed, load_of, recording};

const BANNER_LIES: &str = "llama-server-no-gpu-banner-lies.stderr.log";
const ON_GPU: &str = "llama-server-remote-gpu-19-of-19.stderr.log";
const LANE: (&str, &str) = ("serving.lane.name", "chat-0");

fn config() -> LaneConfig {
    let config = LaneConfig::new("chat-0")
        .with_engine("llama.cpp")
        .with_model("gemma-3-270m")
        .with_plan(Plan::ALL_ON_GPU);
    config.with_expected_rate(100.0, "a test").unwrap()
}

fn loaded(recorded: &str) -> Lane {
    let lane = Lane::open(config());
    feed(&lane, &load_of(recorded));
    assert!(lane.flush(SOON));
    lane
}

fn decoded(rate: f64) -> Timings {
    let mut timings = Timings::new(TimingSource::EngineResponse);
    timings.decode_rate = TokensPerSecond::new(rate);
    timings.decode_tokens = Some(48);
    timings.prompt_tokens = Some(10);
    timings
}

fn request(lane: &Lane, rate: f64) -> Option<RateVerdict> {
    let span = lane.request_span("chat");
    span.in_scope(|| {});
    span.record_timings(&decoded(rate))
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count of lines")]
fn lines_told(out: &Exported) -> usize {
    let points = out.points("serving.sentinel.lines", &[LANE]);
    points.iter().map(|point| point.value as usize).sum()
}

// === loads ===

#[test]
fn a_lying_banner_is_an_event_on_the_load_an_alarm_and_a_state() {
    let out = export(|| loaded(BANNER_LIES));

    let load = out.span("serving.load");
    assert_eq!(load.span_kind, SpanKind::Internal);
    let on_span = attributes(&load.attributes);
    let event = out.expect_event("serving.load", "serving.placement.cpu_fallback");
    for (key, expected) in [
        ("serving.lane.name", "chat-0"),
        ("serving.engine.name", "llama.cpp"),
        ("gen_ai.request.model", "gemma-3-270m"),
        ("serving.placement.plan", "gpu"),
        ("serving.placement.verdict", "cpu_fallback"),
        ("serving.placement.basis", "buffers"),
        ("serving.placement.contradicted", "banner 19/19"),
        ("serving.placement.layers.offloaded", "19"),
    ] {
        assert_eq!(event.get(key).map(String::as_str), Some(expected), "event: {key}");
        assert_eq!(on_span.get(key).map(String::as_str), Some(expected), "span: {key}");
    }

    let record = out.record("serving.placement.cpu_fallback");
    assert_eq!(record.severity, "ERROR");
    assert_eq!(record.attributes["serving.alarm.state"], "raised");
    assert_eq!(record.attributes["serving.placement.contradicted"], "banner 19/19");
    assert_eq!(
        record.trace,
        Some(load.span_context.trace_id().to_string()),
        "an alarm leads to its trace"
    );

    let state = |verdict| {
        out.value("serving.placement.state", &[LANE, ("serving.placement.verdict", verdict)])
    };
    assert_eq!(state("cpu_fallback"), 1.0);
    for verdict in ["gpu", "partial", "cpu", "unreported"] {
        assert_eq!(state(verdict), 0.0, "{verdict}");
    }
    let alarm = |name| out.value("serving.alarms.active", &[LANE, ("serving.alarm", name)]);
    assert_eq!(alarm("serving.placement.cpu_fallback"), 1.0);
    assert_eq!(alarm("serving.engine.wedged"), 0.0);
    assert_eq!(
        out.value("serving.placement.violations", &[("serving.placement.verdict", "cpu_fallback")]),
        1.0
    );
    let layers = |residence| {
        out.value("serving.placement.layers", &[("serving.placement.residence", residence)])
    };
    assert_eq!(
        (layers("accelerator"), layers("host")),
        (0.0, 19.0),
        "the refuted banner is no number"
    );
    assert_eq!(lines_told(&out), load_of(BANNER_LIES).len());
}

#[test]
fn a_load_that_keeps_its_plan_is_told_in_metrics_alone() {
    let out = export(|| loaded(ON_GPU));
    assert_eq!(
        attributes(&out.span("serving.load").attributes)["serving.placement.verdict"],
        "gpu"
    );
    out.expect_no_event("serving.");
    out.expect_no_record("serving.");
    assert_eq!(
        out.value("serving.placement.state", &[LANE, ("serving.placement.verdict", "gpu")]),
        1.0
    );
    let on_accelerator =
        [("serving.placement.residence", "accelerator"), ("serving.buffer", "model")];
    assert!(out.value("serving.placement.bytes", &on_accelerator) > 0.0);
    out.expect_no_point("serving.placement.violations", &[]);
}

#[test]
fn a_load_of_no_plan_that_told_nothing_has_its_event_and_breaks_no_plan() {
    const SILENT: &str = "llama-server-default-verbosity.stderr.log";
    let out = export(|| {
        let lane = Lane::open(LaneConfig::new("chat-0"));
        feed(&lane, &load_of(SILENT));
        assert!(lane.flush(SOON));
        lane
    });
    let event = out.expect_event("serving.load", "serving.placement.unreported");
    assert!(event["serving.advice"].contains("LLAMA_ARG_LOG_VERBOSITY=4"));
    out.expect_no_record("serving.");
    out.expect_no_point("serving.placement.violations", &[]);
}

#[test]
fn a_later_load_that_keeps_the_plan_is_told_as_recovered() {
    let out = export(|| {
        let lane = loaded(BANNER_LIES);
        lane.ended("exit status: 0");
        feed(&lane, &load_of(ON_GPU));
        lane
    });
    assert_eq!(out.spans("serving.load").len(), 2);
    assert_eq!(
        out.records("serving.placement.cpu_fallback").len(),
        2,
        "raised, then ended with its engine"
    );
    assert_eq!(
        out.value("serving.placement.state", &[LANE, ("serving.placement.verdict", "gpu")]),
        1.0
    );
}

#[test]
fn a_failed_load_has_the_error_status() {
    let out = export(|| {
        let lane = Lane::open(config());
        lane.observe_line(load_of(BANNER_LIES)[0].as_slice());
        lane.ended("exit status: 1");
        lane
    });
    out.expect_event("serving.load", "serving.engine.load_failed");
    assert!(
        matches!(out.span("serving.load").status, Status::Error { .. }),
        "{:?}",
        out.span("serving.load").status
    );
    assert_eq!(out.record("serving.engine.load_failed").severity, "ERROR");
}

#[test]
fn an_ended_lane_disappears_from_the_gauges() {
    let out = export(|| {
        let lane = loaded(ON_GPU);
        lane.ended("exit status: 0");
        lane
    });
    for metric in
        ["serving.placement.state", "serving.placement.bytes", "serving.decode.expected_rate"]
    {
        out.expect_no_point(metric, &[]);
    }
    let closed = export(|| drop(loaded(ON_GPU)));
    closed.expect_no_point("serving.placement.state", &[]);
    closed.expect_no_point("serving.alarms.active", &[LANE]);
}

/// What a router prints of a child, in order, as the child's own lines are passed on under its port.
fn router_child(lane: &Lane, model: &str, port: u16, recorded: &str) {
    let spawned = format!(
        "0.00.100.000 I srv          load: spawning server instance with name={model} on port {port}"
    );
    lane.observe_line(spawned.as_bytes());
    for line in recording(recorded) {
        lane.observe_line(&[format!("[{port}] ").as_bytes(), &line].concat());
    }
}

fn router() -> Lane {
    let lane = Lane::open(LaneConfig::new("router").with_plan(Plan::GPU));
    lane.observe_line(
        b"0.00.034.429 I srv  llama_server: starting server in router mode. models will be \
          automatically loaded on-demand",
    );
    lane.observe_line(b"0.00.040.000 I srv  llama_server: listening on http://127.0.0.1:8080");
    lane
}

#[test]
fn a_router_has_no_model_and_its_children_are_lanes_by_their_models() {
    let out = export(|| {
        let lane = router();
        lane.ready();
        // One after the other, as with `--models-max 1`: each comes under a port of its own.
        for port in 40_000..40_200 {
            router_child(&lane, "gemma", port, BANNER_LIES);
            lane.observe_line(
                b"0.00.200.000 I srv           run: instance name=gemma exited with status 0",
            );
        }
        router_child(&lane, "other", 50_000, ON_GPU);
        assert!(lane.flush(SOON));
        let within = lane.snapshots_within();
        assert_eq!(within.iter().map(|lane| &*lane.name).collect::<Vec<_>>(), ["router/other"]);
        lane
    });
    let lane = |name| [("serving.lane.name", name)];
    let state = |name, verdict| {
        let [lane] = lane(name);
        out.value("serving.placement.state", &[lane, ("serving.placement.verdict", verdict)])
    };
    assert_eq!(state("router/other", "gpu"), 1.0);
    out.expect_no_point("serving.placement.state", &lane("router/gemma"));
    assert_eq!(
        out.value("serving.placement.violations", &lane("router/gemma")),
        200.0,
        "each load of it is judged"
    );
    assert_eq!(out.value("serving.throughput.judged", &lane("router/gemma")), 200.0);
    for metric in ["serving.placement.violations", "serving.throughput.judged"] {
        out.expect_no_point(metric, &lane("router"));
    }
    out.expect_no_record("serving.placement.unreported");
    out.expect_no_record("serving.sentinel.blind");

    let ended = export(|| {
        let lane = router();
        lane.ended("exit status: 0");
        lane
    });
    ended.expect_no_record("serving.engine.load_failed");
}

#[test]
fn a_routers_child_that_fails_to_load_stands_until_it_loads() {
    let out = export(|| {
        let lane = router();
        lane.observe_line(
            b"0.00.100.000 I srv          load: spawning server instance with name=gemma on port 40000",
        );
        lane.observe_line(
            b"0.00.200.000 I srv           run: instance name=gemma exited with status 1",
        );
        assert!(lane.flush(SOON));
        assert_eq!(lane.snapshots_within().len(), 1, "what failed is still shown");
        router_child(&lane, "gemma", 40_001, ON_GPU);
        lane
    });
    let states: Vec<_> = out
        .records("serving.engine.load_failed")
        .iter()
        .map(|record| record.attributes["serving.alarm.state"].clone())
        .collect();
    assert_eq!(states, ["raised", "cleared"]);
}

#[test]
fn services_beyond_the_room_for_lanes_are_blindness_and_nobody_elses_facts() {
    let out = export(|| {
        let lane = Lane::open(config());
        feed(&lane, &load_of(ON_GPU));
        for port in 40_000..40_100 {
            let banner =
                format!("[{port}] 0.00.644.155 I load_tensors: offloaded 0/19 layers to GPU");
            lane.observe_line(banner.as_bytes());
        }
        lane
    });
    assert_eq!(
        out.value("serving.placement.state", &[LANE, ("serving.placement.verdict", "gpu")]),
        1.0
    );
    assert_eq!(
        out.record("serving.sentinel.blind").attributes["serving.blind.cause"],
        "too_many_lanes"
    );
}

#[test]
fn an_alarm_of_a_lane_that_is_closed_ends() {
    let failed = export(|| {
        let lane = Lane::open(config());
        lane.observe_line(load_of(BANNER_LIES)[0].as_slice());
        lane.ended("exit status: 1");
        drop(lane);
    });
    let slow = export(|| {
        let span = loaded(ON_GPU).request_span("chat");
        span.in_scope(|| {});
        span.record_timings(&decoded(4.0));
    });
    for (out, name) in
        [(failed, "serving.engine.load_failed"), (slow, "serving.throughput.degraded")]
    {
        let states: Vec<_> = out
            .records(name)
            .iter()
            .map(|record| record.attributes["serving.alarm.state"].clone())
            .collect();
        assert_eq!(states, ["raised", "expired"], "{name}");
        out.expect_no_point("serving.alarms.active", &[LANE]);
    }
}

#[test]
fn of_two_lanes_of_one_name_both_go_on_and_the_newer_is_shown() {
    let providers = Providers::new();
    let (ears, heard) = listener();
    let stack = tracing_subscriber::registry().with(providers.sentinel()).with(ears);
    providers.export(stack, || {
        let older = Lane::open(config());
        let newer = Lane::open(config());
        older.observe_line(&load_of(ON_GPU)[0]);
        // Judged by the passing of time alone.
        older.ready();
        heard.expect("serving.placement.unreported");

        let unreported = [LANE, ("serving.placement.verdict", "unreported")];
        let shown = || providers.collect().value("serving.placement.state", &unreported);
        assert_eq!(shown(), 0.0, "the newer is loading");
        drop(newer);
        assert_eq!(shown(), 1.0, "the older is the one that is left");
        older
    });
}

// === requests ===

#[test]
fn a_rate_that_only_the_log_tells_is_counted() {
    let out = export(|| {
        let lane = Lane::open(config());
        feed(&lane, &recording(ON_GPU));
        lane.ended("exit status: 0");
        lane
    });
    assert_eq!(
        out.value("serving.throughput.judged", &[LANE, ("serving.throughput.verdict", "on_par")]),
        1.0
    );
    assert!(
        out.value("serving.decode.rate", &[LANE, ("serving.timing.source", "engine_log")]) > 50.0
    );
    out.expect_no_point("gen_ai.server.request.duration", &[]);
}

#[test]
fn the_rate_of_an_interval_is_the_lanes_and_counts_no_request() {
    let interval_line = |rate, running| {
        format!(
            "INFO 06-13 11:38:03 [loggers.py:118] Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation \
             throughput: {rate} tokens/s, Running: {running} reqs, Waiting: 0 reqs, GPU KV cache usage: 0.6%"
        )
    };
    let out = export(|| {
        let lane = Lane::open(config());
        lane.observe_line(
            b"INFO 06-13 11:36:10 [__init__.py:244] Automatically detected platform cuda.",
        );
        for (rate, running) in [("0.0", 0), ("120.0", 2), ("160.0", 2), ("0.0", 0)] {
            lane.observe_line(interval_line(rate, running).as_bytes());
        }
        lane
    });
    let interval = [LANE, ("serving.timing.source", "interval")];
    let rates = out.points("serving.decode.rate", &interval);
    assert_eq!(rates.iter().map(|point| point.value).sum::<f64>(), 280.0, "of all requests");
    assert_eq!(
        out.value("serving.decode.ratio", &[LANE]),
        0.8,
        "a request's share, where it can be judged"
    );
    out.expect_no_point("serving.throughput.judged", &[LANE]);
    out.expect_no_point("gen_ai.server.time_per_output_token", &[]);
}

#[test]
fn a_request_is_a_client_span_with_its_rate_its_usage_and_its_load() {
    let out = export(|| {
        let lane = loaded(ON_GPU);
        assert_eq!(request(&lane, 90.0), Some(RateVerdict::OnPar));
        lane
    });
    let span = out.span("chat gemma-3-270m");
    assert_eq!(span.span_kind, SpanKind::Client);
    let on_span = attributes(&span.attributes);
    for (key, expected) in [
        ("gen_ai.operation.name", "chat"),
        ("gen_ai.provider.name", "llama_cpp"),
        ("gen_ai.request.model", "gemma-3-270m"),
        ("gen_ai.usage.input_tokens", "10"),
        ("gen_ai.usage.output_tokens", "48"),
        ("serving.lane.name", "chat-0"),
        ("serving.decode.rate", "90"),
        ("serving.placement.verdict", "gpu"),
    ] {
        assert_eq!(on_span.get(key).map(String::as_str), Some(expected), "{key}");
    }
    let load = out.span("serving.load").span_context.span_id();
    assert_eq!(
        span.links.iter().map(|link| link.span_context.span_id()).collect::<Vec<_>>(),
        [load],
        "linked once"
    );
    out.expect_no_event("serving.");

    assert_eq!(
        out.value("serving.throughput.judged", &[LANE, ("serving.throughput.verdict", "on_par")]),
        1.0
    );
    assert_eq!(
        out.value("serving.decode.rate", &[LANE, ("serving.timing.source", "engine_response")]),
        90.0
    );
    assert_eq!(
        out.value(
            "serving.decode.expected_rate",
            &[LANE, ("serving.expectation.source", "a test")]
        ),
        100.0
    );
    assert_eq!(out.value("serving.requests.in_flight", &[LANE]), 0.0);
    let chat = [("gen_ai.operation.name", "chat"), ("gen_ai.provider.name", "llama_cpp")];
    assert_eq!(out.points("gen_ai.server.request.duration", &chat).len(), 1);
    assert_eq!(out.value("gen_ai.server.time_per_output_token", &chat), 1.0 / 90.0);
    assert_eq!(out.value("gen_ai.client.token.usage", &[("gen_ai.token.type", "output")]), 48.0);
    out.expect_no_point("gen_ai.server.time_to_first_token", &[]);
}

#[test]
fn a_collapsed_rate_is_an_event_on_every_request_and_one_alarm() {
    let out = export(|| {
        let lane = loaded(ON_GPU);
        for rate in [4.0, 5.0, 90.0] {
            request(&lane, rate);
        }
        lane
    });
    let spans = out.spans("chat gemma-3-270m");
    let told: Vec<Vec<_>> =
        spans.iter().map(|span| span.events.iter().map(|event| &*event.name).collect()).collect();
    assert_eq!(
        told,
        [
            ["serving.throughput.degraded"],
            ["serving.throughput.degraded"],
            ["serving.throughput.recovered"]
        ]
    );
    let record = out.record("serving.throughput.degraded");
    assert_eq!(record.severity, "WARN");
    assert_eq!(record.trace, Some(spans[0].span_context.trace_id().to_string()));
    assert_eq!(record.attributes["serving.decode.ratio"], "0.04");
    assert_eq!(out.record("serving.throughput.recovered").severity, "INFO");
    assert_eq!(out.value("serving.throughput.violations", &[LANE]), 2.0);
}

#[test]
fn each_request_shows_the_placement_fault_that_stands() {
    let out = export(|| {
        let lane = loaded(BANNER_LIES);
        request(&lane, 90.0);
        lane
    });
    let event = out.expect_event("chat gemma-3-270m", "serving.placement.cpu_fallback");
    assert_eq!(event["serving.placement.basis"], "buffers");
    assert_eq!(
        out.records("serving.placement.cpu_fallback").len(),
        1,
        "told once, not once per request"
    );
}

#[test]
fn a_request_that_is_not_sampled_still_counts_and_alarms() {
    let providers = Providers::sampling(Sampler::AlwaysOff);
    let stack = tracing_subscriber::registry()
        .with(providers.sentinel())
        .with(providers.otel())
        .with(providers.bridge());
    let out = providers.export(stack, || {
        let lane = loaded(ON_GPU);
        request(&lane, 4.0);
        lane
    });
    assert!(out.spans.is_empty());
    out.record("serving.throughput.degraded");
    assert_eq!(out.value("serving.throughput.violations", &[LANE]), 1.0);
}

#[test]
fn any_span_that_names_its_lane_is_a_request_and_spans_within_belong_to_it() {
    let out = export(|| {
        let lane = loaded(ON_GPU);
        let outer = info_span!("handle", serving.lane.name = "chat-0");
        let inner = info_span!(parent: &outer, "decode");
        assert_eq!(inner.record_timings(&decoded(4.0)), Some(RateVerdict::Degraded));
        let unnamed = info_span!("late", serving.lane.name = tracing::field::Empty);
        assert_eq!(unnamed.record_timings(&decoded(4.0)), None, "no lane yet");
        unnamed.record("serving.lane.name", "chat-0");
        assert_eq!(unnamed.record_timings(None), Some(RateVerdict::NoTimings));
        assert_eq!(info_span!("other").record_timings(&decoded(4.0)), None);
        lane
    });
    out.expect_event("handle", "serving.throughput.degraded");
    assert!(out.span("decode").events.is_empty(), "the event is the request's");
    assert_eq!(
        out.value("serving.throughput.judged", &[("serving.throughput.verdict", "no_timings")]),
        1.0
    );
}

#[test]
fn requests_are_in_flight_as_long_as_their_spans_are_open() {
    let out = export(|| {
        let lane = loaded(ON_GPU);
        let open = [lane.request_span("chat"), lane.request_span("chat")];
        drop(lane.request_span("chat"));
        assert_eq!(lane.snapshot().map(|lane| lane.in_flight), Some(2));
        (open, lane)
    });
    assert_eq!(out.value("serving.requests.in_flight", &[LANE]), 2.0);
}

#[test]
fn requests_of_many_threads_are_all_counted() {
    let out = export(|| {
        let lane = loaded(ON_GPU);
        let dispatch = dispatcher::get_default(Clone::clone);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    dispatcher::with_default(&dispatch, || {
                        for _ in 0..25 {
                            request(&lane, 90.0);
                            lane.observe_line(b"nothing of note");
                        }
                    });
                });
            }
        });
        lane
    });
    assert_eq!(out.spans("chat gemma-3-270m").len(), 200);
    let on_par = [LANE, ("serving.throughput.verdict", "on_par")];
    assert_eq!(out.value("serving.throughput.judged", &on_par), 200.0);
    assert_eq!(out.value("serving.requests.in_flight", &[LANE]), 0.0);
    assert_eq!(lines_told(&out), load_of(ON_GPU).len() + 200);
}

#[test]
fn a_request_continues_its_callers_trace() {
    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
    let out = export(|| {
        let lane = loaded(ON_GPU);
        let header = format!("00-{TRACE}-b7ad6b7169203331-01");
        let headers = HashMap::from([("traceparent".to_owned(), header)]);
        let span = lane.request_span("chat");
        assert!(span.continue_trace(&headers), "a linked span still takes its parent");
        span.in_scope(|| {});
        span.record_timings(&decoded(90.0));
        assert!(!lane.request_span("embeddings").continue_trace(&HashMap::new()));
        lane
    });
    let span = out.span("chat gemma-3-270m");
    assert_eq!(span.span_context.trace_id().to_string(), TRACE);
    assert_eq!(span.parent_span_id.to_string(), "b7ad6b7169203331");
    assert_eq!(span.links.len(), 1);
}

#[test]
fn a_failed_request_has_the_error_status_and_counts_once() {
    let out = export(|| {
        let lane = loaded(ON_GPU);
        let span = lane.request_span("chat");
        span.record_progress();
        span.record_error("timeout");
        span.record_error("timeout");
        lane
    });
    let span = out.span("chat gemma-3-270m");
    assert!(matches!(span.status, Status::Error { .. }));
    assert_eq!(attributes(&span.attributes)["error.type"], "timeout");
    let failed = out.points("gen_ai.server.request.duration", &[("error.type", "timeout")]);
    assert_eq!(failed.iter().map(|point| point.count).collect::<Vec<_>>(), [1]);
}

/// A sentinel that gives a request no time at all, and what is heard of it.
fn impatient(providers: &Providers) -> (Dispatch, Heard) {
    let (ears, heard) = listener();
    let mut policy = Policy::default();
    policy.wedge = WedgePolicy::default().with_bulk_budget(Duration::ZERO);
    let layers = tracing_subscriber::registry()
        .with(providers.otel())
        .with(providers.bridge())
        .with(providers.builder().policy(policy).build())
        .with(ears);
    (layers.into(), heard)
}

#[test]
fn a_request_that_makes_no_progress_is_told_while_it_is_open() {
    let providers = Providers::new();
    let (layers, heard) = impatient(&providers);
    let out = providers.export(layers, || {
        let lane = loaded(ON_GPU);
        let stuck = lane.request_span("chat");
        stuck.in_scope(|| heard.expect("serving.engine.wedged"));
        drop(stuck);
        lane
    });
    out.expect_event("chat gemma-3-270m", "serving.engine.wedged");
    let [raised, cleared] = out.records("serving.engine.wedged")[..] else {
        panic!("{:#?}", out.records)
    };
    assert_eq!((&*raised.severity, &*cleared.severity), ("ERROR", "INFO"));
    let trace = out.span("chat gemma-3-270m").span_context.trace_id().to_string();
    assert_eq!(raised.trace, Some(trace), "the log record leads to the request's trace");
}

#[test]
fn a_request_that_was_never_entered_is_told_too() {
    let providers = Providers::new();
    let (layers, heard) = impatient(&providers);
    let out = providers.export(layers, || {
        let lane = loaded(ON_GPU);
        let stuck = lane.request_span("chat");
        heard.expect("serving.engine.wedged");
        drop(stuck);
        lane
    });
    out.expect_event("chat gemma-3-270m", "serving.engine.wedged");
    let trace = out.span("chat gemma-3-270m").span_context.trace_id().to_string();
    assert_eq!(out.records("serving.engine.wedged")[0].trace, Some(trace));
}

#[test]
fn a_lane_that_is_closed_with_requests_in_flight_has_none_at_their_end() {
    let out = export(|| {
        let lane = loaded(ON_GPU);
        let open = [lane.request_span("chat"), lane.request_span("chat")];
        assert_eq!(open[0].record_timings(&decoded(90.0)), Some(RateVerdict::OnPar));
        drop(lane);
        assert_eq!(open[1].record_timings(&decoded(90.0)), Some(RateVerdict::OnPar));
    });
    assert_eq!(out.value("serving.requests.in_flight", &[LANE]), 0.0);
    assert_eq!(out.value("serving.throughput.judged", &[LANE]), 2.0);
}

#[test]
fn a_wait_without_an_end_ends() {
    export(|| {
        let lane = loaded(ON_GPU);
        assert!(lane.flush(Duration::MAX) && flush(Duration::MAX));
        lane
    });
}

// === lines that a program logs itself ===

#[test]
fn events_of_a_named_target_are_engine_lines() {
    type Say = fn(&[String]);
    let rows: [(&str, Say); 6] = [
        ("my_app::engine", |lines| {
            for line in lines {
                info!(target: "my_app::engine", "{line}");
            }
        }),
        ("field", |lines| {
            for line in lines {
                info!(target: "my_app::engine", lane = "field", line);
            }
        }),
        ("scope", |lines| {
            let _entered = error_span!("request", serving.lane.name = "scope").entered();
            for line in lines {
                info!(target: "my_app::engine", %line, "said");
            }
        }),
        ("debug", |lines| {
            for line in lines {
                info!(target: "my_app::engine", lane = ?"debug", ?line);
            }
        }),
        ("my_app::engine::log", |lines| {
            for line in lines {
                log::info!(target: "my_app::engine::log", "{line}");
                log::info!(target: "my_app::engineer", "{line}");
            }
        }),
        ("whole", |lines| {
            info!(target: "my_app::engine::stderr", lane = "whole", line = %lines.join("\r\n"));
        }),
    ];
    let lines: Vec<_> =
        load_of(BANNER_LIES).into_iter().map(|line| String::from_utf8(line).unwrap()).collect();
    tracing_log::LogTracer::init().unwrap();
    for (lane, say) in rows {
        let providers = Providers::new();
        let sentinel = providers.builder().engine_target("my_app::engine").build();
        let stack = tracing_subscriber::registry().with(sentinel).with(providers.otel());
        let out = providers.export(stack, || say(&lines));
        let load = attributes(&out.span("serving.load").attributes);
        assert_eq!(load["serving.lane.name"], lane);
        assert_eq!(load["serving.placement.basis"], "buffers", "{lane}");
    }
}

#[test]
fn what_the_reader_says_for_the_log_is_not_taken_twice() {
    let out = export(|| {
        let lane = loaded(BANNER_LIES);
        for line in load_of(BANNER_LIES) {
            let text = String::from_utf8(line).unwrap();
            info!(name: "serving.engine.line", target: "serving_sentinel::engine", lane = "chat-0", line = text);
        }
        lane
    });
    assert_eq!(lines_told(&out), load_of(BANNER_LIES).len());
    assert_eq!(out.spans("serving.load").len(), 1);
}

#[test]
fn a_lane_that_events_named_gives_way_to_one_that_is_opened() {
    let out = export(|| {
        info!(target: "serving_sentinel::engine", lane = "chat-0", line = "first");
        loaded(ON_GPU)
    });
    assert_eq!(attributes(&out.span("serving.load").attributes)["serving.placement.plan"], "gpu");
    assert_eq!(out.points("serving.placement.state", &[LANE]).len(), 5, "one lane of that name");
}

#[test]
fn a_name_that_is_empty_is_no_name() {
    let out = export(|| {
        info!(target: "serving_sentinel::engine", lane = "", line = "said");
        let span = info_span!("handle", serving.lane.name = "");
        assert_eq!(span.record_timings(&decoded(4.0)), None);
        let lane = Lane::open(LaneConfig::new("chat-0").with_model("").with_engine(""));
        assert!(lane.request_span("chat").record_timings(None).is_some());
        lane
    });
    let named: Vec<_> = out.points.iter().flat_map(|point| &point.attributes).collect();
    assert!(named.iter().all(|(_, value)| !value.is_empty()), "{named:?}");
    let lines = out.points("serving.sentinel.lines", &[("serving.line.kind", "other")]);
    assert_eq!(lines[0].attributes["serving.lane.name"], "serving_sentinel::engine");
    out.span("chat");
}

// === ends ===

#[test]
fn an_open_load_and_an_open_lane_do_not_keep_the_subscriber_alive() {
    struct Token(#[expect(dead_code, reason = "counted")] Arc<()>);
    impl<S: tracing::Subscriber> tracing_subscriber::Layer<S> for Token {}

    let token = Arc::new(());
    let providers = Providers::new();
    let stack = tracing_subscriber::registry()
        .with(providers.otel())
        .with(SentinelLayer::default())
        .with(Token(token.clone()));
    let dispatch = Dispatch::new(stack);
    let lane = dispatcher::with_default(&dispatch, || {
        let lane = Lane::open(config());
        let loading = load_of(ON_GPU);
        feed(&lane, &loading[..loading.len() / 2]);
        assert!(lane.flush(SOON));
        lane
    });
    drop(dispatch);
    assert_eq!(Arc::strong_count(&token), 1);
    lane.observe_line(b"a line that nobody hears");
}
