//! Loads: one span each, ended and sent at its verdict.

use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use serde_json::json;

use crate::facts::{facts, fallback, on_device, take_advice};
use crate::run::{RUN, status};
use crate::wire::{attributes, event, events};
use crate::{COLLAPSING, HEALTHY, LANES, LYING, SILENT};

#[test]
fn a_load_arrives_while_its_engine_runs() {
    assert_eq!(RUN.early_loads, LANES.len(), "loads that arrived before the program ended");
    for lane in LANES {
        let (load, requests) = (lane.load(), lane.requests());
        assert_eq!(load.kind(), SpanKind::Internal, "{}", lane.name);
        assert!(load.parent_span_id.is_empty(), "{}: a load is a root", lane.name);
        assert!(load.start_time_unix_nano < load.end_time_unix_nano, "{}", lane.name);
        assert!(load.end_time_unix_nano < requests[0].end_time_unix_nano, "{}", lane.name);
        assert_eq!(status(load), StatusCode::Unset, "{}: its engine serves", lane.name);
    }
}

#[test]
fn a_lying_banner_is_told_with_all_that_is_known() {
    let load = LYING.load();
    assert_eq!(events(load), ["serving.placement.cpu_fallback"]);
    let told = event(load, "serving.placement.cpu_fallback");
    for told in [&told.attributes, &load.attributes] {
        let mut told = attributes(told);
        take_advice(&mut told, "--list-devices");
        assert_eq!(told, fallback());
    }
}

#[test]
fn a_silent_engine_is_told_with_how_to_make_it_speak() {
    let load = SILENT.load();
    assert_eq!(events(load), ["serving.placement.unreported"]);
    let mut told = attributes(&event(load, "serving.placement.unreported").attributes);
    take_advice(&mut told, "LLAMA_ARG_LOG_VERBOSITY=4");
    let unreported = json!({
        "serving.placement.verdict": "unreported",
        "serving.placement.basis": "none",
    });
    assert_eq!(told, facts(&SILENT, unreported));
}

#[test]
fn a_load_that_keeps_its_plan_has_its_verdict_and_no_event() {
    for lane in [&HEALTHY, &COLLAPSING] {
        assert_eq!(attributes(&lane.load().attributes), on_device(lane), "{}", lane.name);
        assert!(lane.load().events.is_empty(), "{}", lane.name);
    }
}
