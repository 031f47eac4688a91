//! Each fault of the contract on the wire that the recorded run of `otlp_roundtrip` does not have: on which span its
//! event is, what it says, and the alarm that is raised and ends.

#![cfg(feature = "otlp")]
#![allow(
    clippy::unwrap_used,
    clippy::float_cmp,
    reason = "tests: what is exported is exact, and its absence is a failure"
)]

#[path = "support/otlp.rs"]
mod otlp;
mod support;
#[path = "support/wire.rs"]
mod wire;

use std::time::Duration;

use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use serde_json::json;
use serving_sentinel::lane::{LaneConfig, Policy};
use serving_sentinel::layer::Lane;
use serving_sentinel::placement::Plan;
use serving_sentinel::wedge::WedgePolicy;
use tracing::dispatcher;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry;

use otlp::{Received, attribute};
use support::{feed, load_of};
use wire::{Exports, Series, attributes, event, events, exporting, records, rows, spans};

const ON_GPU: &str = "llama-server-remote-gpu-19-of-19.stderr.log";
const LANE: &str = "chat-0";
const LOAD: &str = "serving.load";

fn open() -> Lane {
    Lane::open(LaneConfig::new(LANE).with_engine("llama.cpp").with_plan(Plan::ALL_ON_GPU))
}

/// A recorded load of 19 of 19 layers, as if the device had room for five.
fn partial_load() -> Vec<Vec<u8>> {
    let fewer = |line: Vec<u8>| {
        let line = String::from_utf8(line).unwrap();
        line.replace("offloaded 19/19 layers", "offloaded 5/19 layers")
            .replace(
                "RPC0[127.0.0.1:50052] model buffer size =   235.16",
                "RPC0[127.0.0.1:50052] model buffer size =    20.00",
            )
            .into_bytes()
    };
    load_of(ON_GPU).into_iter().map(fewer).collect()
}

/// The alarms of the lane as they were told: name, level, state.
fn alarms(received: &Received) -> Vec<[String; 3]> {
    let told = records(received, LANE).into_iter().map(|record| {
        let state = attribute(&record.attributes, "serving.alarm.state").unwrap();
        [record.event_name.clone(), record.severity_text.clone(), state]
    });
    told.collect()
}

fn loads(received: &Received) -> Vec<&Span> {
    spans(received, LANE, LOAD)
}

/// Whether that alarm stands, by its gauge.
#[track_caller]
fn stands(received: &Received, alarm: &str) -> bool {
    Series::last(received).of("serving.alarms.active")[&format!("{LANE} {alarm}")] == 1.0
}

#[test]
fn a_part_on_the_device_and_its_recovery() {
    const PARTIAL: &str = "serving.placement.partial";
    const RECOVERED: &str = "serving.placement.recovered";
    exporting(|exports| {
        let lane = open();
        feed(&lane, &partial_load());
        let received = exports.take();
        let [load] = loads(&received)[..] else { panic!("{received:#?}") };
        assert_eq!(events(load), [PARTIAL]);
        let mut told = attributes(&event(load, PARTIAL).attributes);
        assert!(told.remove("serving.advice").is_some());
        assert_eq!(told["serving.placement.verdict"], "partial");
        assert_eq!(told["serving.placement.minimum_share"], 1.0);
        assert_eq!(told["serving.placement.layers.offloaded"], 5);
        assert_eq!(told["serving.placement.layers.total"], 19);
        assert_eq!(alarms(&received), [[PARTIAL, "WARN", "raised"]]);
        assert!(stands(&received, PARTIAL));
        assert_eq!(
            Series::last(&received).of("serving.placement.layers"),
            rows([("chat-0 accelerator", 5.0), ("chat-0 host", 14.0)])
        );

        feed(&lane, &load_of(ON_GPU));
        let received = exports.take();
        let [load] = loads(&received)[..] else { panic!("{received:#?}") };
        assert_eq!(events(load), [RECOVERED]);
        assert_eq!(
            attributes(&event(load, RECOVERED).attributes)["serving.placement.verdict"],
            "gpu"
        );
        assert_eq!(alarms(&received), [[RECOVERED, "INFO", "cleared"]]);
        assert!(!stands(&received, PARTIAL));
    });
}

#[test]
fn a_load_that_fails_says_why_in_the_engines_words() {
    const FAILED: &str = "serving.engine.load_failed";
    exporting(|exports| {
        let lane = open();
        let log = include_bytes!("fixtures/cases/010-cuda-oom-load-failed.log");
        lane.observe_line(log);
        let received = exports.take();
        let [load] = loads(&received)[..] else { panic!("{received:#?}") };
        assert_eq!(events(load), [FAILED]);
        let mut told = attributes(&event(load, FAILED).attributes);
        assert!(told.remove("serving.advice").unwrap().as_str().unwrap().contains("memory"));
        let detail = told.remove("serving.cause_detail").unwrap();
        let detail = detail.as_str().unwrap();
        assert!(detail.contains("out of memory"), "{detail}");
        assert!(log.windows(detail.len()).any(|part| part == detail.as_bytes()), "{detail}");
        let expected = json!({
            "serving.lane.name": LANE,
            "serving.engine.name": "llama.cpp",
            "serving.placement.plan": "gpu",
            "serving.placement.minimum_share": 1.0,
            "serving.placement.verdict": "unreported",
            "serving.cause": "out_of_memory",
            "serving.causes": ["out_of_memory"],
        });
        assert_eq!(serde_json::Value::Object(told), expected);
        let status = load.status.as_ref().unwrap();
        assert_eq!((status.code(), status.message.as_str()), (StatusCode::Error, detail));
        assert_eq!(alarms(&received), [[FAILED, "ERROR", "raised"]]);
        assert_eq!(records(&received, LANE)[0].trace_id, load.trace_id);
        assert!(stands(&received, FAILED));

        feed(&lane, &load_of(ON_GPU));
        let received = exports.take();
        assert_eq!(alarms(&received), [[FAILED, "INFO", "cleared"]]);
        assert!(!stands(&received, FAILED));
    });
}

#[test]
fn a_debug_build() {
    const DEBUG_BUILD: &str = "serving.engine.debug_build";
    exporting(|exports| {
        let lane = open();
        lane.observe_line(b"warning: debug build, performance may be affected");
        feed(&lane, &load_of(ON_GPU));
        let received = exports.take();
        let [load] = loads(&received)[..] else { panic!("{received:#?}") };
        assert_eq!(events(load), [DEBUG_BUILD]);
        let told = attributes(&event(load, DEBUG_BUILD).attributes);
        assert_eq!(told["serving.cause"], "debug_build");
        assert_eq!(alarms(&received), [[DEBUG_BUILD, "WARN", "raised"]]);
        assert!(stands(&received, DEBUG_BUILD));
    });
}

#[test]
fn a_request_that_never_ends_is_told_while_it_runs() {
    const WEDGED: &str = "serving.engine.wedged";
    let exports = Exports::new();
    let mut policy = Policy::default();
    policy.wedge = WedgePolicy::default().with_bulk_budget(Duration::ZERO);
    let sentinel = exports.sentinel().policy(policy).build();
    let layers = registry().with(exports.otlp.layer()).with(sentinel);
    dispatcher::with_default(&layers.into(), || {
        let lane = open();
        feed(&lane, &load_of(ON_GPU));
        let request = lane.request_span("chat");
        request.in_scope(|| {});
        // The first tick finds it.
        let record = exports.collector.wait_for_log(WEDGED).data;
        assert_eq!((record.severity_text.as_str(), record.trace_id.len()), ("ERROR", 16));
        let received = exports.take();
        assert!(spans(&received, LANE, "chat").is_empty(), "it still runs");
        assert!(stands(&received, WEDGED));

        drop(request);
        let received = exports.take();
        let [span] = spans(&received, LANE, "chat")[..] else { panic!("{received:#?}") };
        assert_eq!(events(span), [WEDGED]);
        assert_eq!(span.trace_id, record.trace_id, "the record led to its trace");
        assert_eq!(alarms(&received), [[WEDGED, "INFO", "cleared"]]);
        assert!(!stands(&received, WEDGED));
    });
}

#[test]
fn impossible_progress_is_told_on_a_span_of_its_own() {
    const WEDGED: &str = "serving.engine.wedged";
    exporting(|exports| {
        let lane = open();
        feed(&lane, &load_of(ON_GPU));
        let progress = "0.05.000.000 I slot print_timing: id  2 | task 7 | prompt processing, n_tokens =  36864, \
                    progress = 1.24, t =  21.09 s / 1748.02 tokens per second";
        for _ in 0..4 {
            lane.observe_line(progress.as_bytes());
        }
        let received = exports.take();
        // The load's own span left with its verdict.
        let [load, wedged] = loads(&received)[..] else { panic!("{received:#?}") };
        assert!(load.events.is_empty());
        assert_eq!(events(wedged), [WEDGED]);
        let links: Vec<_> = wedged.links.iter().map(|link| &link.span_id).collect();
        assert_eq!(links, [&load.span_id]);
        assert_eq!(attributes(&event(wedged, WEDGED).attributes)["serving.slot"], 2);
        assert_eq!(alarms(&received), [[WEDGED, "ERROR", "raised"]]);
        assert!(stands(&received, WEDGED));
    });
}
