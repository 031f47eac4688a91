//! Requests: a span each, with what its response told and what is wrong.

use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use serde_json::{Map, json};

use crate::facts::{fallback, object, on_device, sourced, take_advice, timing};
use crate::run::status;
use crate::wire::{attributes, event, events};
use crate::{COLLAPSING, HEALTHY, LANES, LYING, MODEL, SILENT};

#[test]
fn a_request_is_a_client_span_with_all_that_its_response_told() {
    for lane in LANES {
        let (requests, ends) = (lane.requests(), lane.recording().ends);
        assert_eq!(requests.len(), ends.len(), "{}", lane.name);
        let verdict = attributes(&lane.load().attributes)["serving.placement.verdict"].clone();
        for (request, end) in requests.iter().zip(&ends) {
            assert_eq!(request.kind(), SpanKind::Client, "{}", lane.name);
            assert_eq!(status(request), StatusCode::Unset, "{}", lane.name);
            let mut told = attributes(&request.attributes);
            let first = told.remove("gen_ai.response.time_to_first_chunk").unwrap();
            assert!((0.0..5.0).contains(&first.as_f64().unwrap()), "{}: {first} s", lane.name);
            let of_response = object(json!({
                "gen_ai.operation.name": "chat",
                "gen_ai.provider.name": "llama_cpp",
                "gen_ai.request.model": MODEL,
                // The engine answers with the path of its file, which is nobody's business.
                "gen_ai.response.model": "gemma-3-270m-q4_k_m.gguf",
                "gen_ai.response.id": end["id"],
                "gen_ai.response.finish_reasons": ["length"],
                "gen_ai.usage.input_tokens": end["usage"]["prompt_tokens"],
                "gen_ai.usage.cache_read.input_tokens":
                    end["usage"]["prompt_tokens_details"]["cached_tokens"],
                "gen_ai.usage.output_tokens": end["usage"]["completion_tokens"],
                "serving.lane.name": lane.name,
                "serving.engine.name": "llama.cpp",
                "serving.placement.verdict": verdict,
            }));
            let expected: Map<_, _> = of_response.into_iter().chain(timing(end)).collect();
            assert_eq!(told, expected, "{}", lane.name);
        }
    }
}

#[test]
fn a_request_links_the_load_that_serves_it() {
    for lane in LANES {
        let load = lane.load();
        for request in lane.requests() {
            let links: Vec<_> =
                request.links.iter().map(|link| (&link.trace_id, &link.span_id)).collect();
            assert_eq!(links, [(&load.trace_id, &load.span_id)], "{}", lane.name);
            assert_ne!(request.trace_id, load.trace_id, "a request is a trace of its own");
        }
    }
}

#[test]
fn each_request_shows_what_was_wrong_with_it_and_nothing_else() {
    let nothing: [&[&str]; 3] = [&[]; 3];
    let fallback: [&[&str]; 3] = [&["serving.placement.cpu_fallback"]; 3];
    let collapse: [&[&str]; 5] =
        [&[], &[], &[], &["serving.throughput.degraded"], &["serving.throughput.recovered"]];
    for (lane, expected) in [
        (&HEALTHY, &nothing[..]),
        (&LYING, &fallback),
        (&SILENT, &nothing),
        (&COLLAPSING, &collapse),
    ] {
        let told: Vec<_> = lane.requests().into_iter().map(events).collect();
        assert_eq!(told, expected, "{}", lane.name);
    }
}

#[test]
fn what_is_wrong_with_a_request_is_told_with_all_that_is_known() {
    for (request, end) in LYING.requests().iter().zip(&LYING.recording().ends) {
        let mut told = attributes(&event(request, "serving.placement.cpu_fallback").attributes);
        take_advice(&mut told, "--list-devices");
        let expected: Map<_, _> =
            fallback().into_iter().chain(timing(end)).chain(sourced()).collect();
        assert_eq!(told, expected);
    }
    let (requests, ends) = (COLLAPSING.requests(), COLLAPSING.recording().ends);
    let [.., slow, after] = requests[..] else { panic!("{requests:#?}") };
    let expected = |end| {
        on_device(&COLLAPSING)
            .into_iter()
            .chain(timing(end))
            .chain(sourced())
            .collect::<Map<_, _>>()
    };
    let mut told = attributes(&event(slow, "serving.throughput.degraded").attributes);
    take_advice(&mut told, "what else uses the device");
    assert_eq!(told, expected(&ends[3]));
    let told = attributes(&event(after, "serving.throughput.recovered").attributes);
    assert_eq!(told, expected(&ends[4]));
}
