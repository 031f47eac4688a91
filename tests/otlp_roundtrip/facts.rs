//! What must be told of each lane, in the attributes of the contract.

use serde_json::{Map, Value, json};

use crate::{EXPECTATION_SOURCE, EXPECTED_RATE, LYING, Lane, MODEL};

/// Bytes, as the recordings print them.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a size of a recorded buffer"
)]
pub(crate) fn mib(size: f64) -> u64 {
    (size * 1_048_576.0).round() as u64
}

/// What is known of every lane here.
fn lane_facts(lane: &Lane) -> Map<String, Value> {
    object(json!({
        "serving.lane.name": lane.name,
        "serving.engine.name": "llama.cpp",
        "gen_ai.request.model": MODEL,
        "serving.placement.plan": "gpu",
        "serving.placement.minimum_share": 1.0,
    }))
}

/// The same, and more.
pub(crate) fn facts(lane: &Lane, more: Value) -> Map<String, Value> {
    lane_facts(lane).into_iter().chain(object(more)).collect()
}

pub(crate) fn object(value: Value) -> Map<String, Value> {
    let Value::Object(object) = value else { panic!("no object: {value}") };
    object
}

/// What the lying lane's evidence says: its recording prints 235.16 MiB of weights in `CPU_Mapped` and 12.66 MiB in
/// `CPU_REPACK`, behind a banner of 19/19.
pub(crate) fn fallback() -> Map<String, Value> {
    facts(
        &LYING,
        json!({
            "serving.placement.verdict": "cpu_fallback",
            "serving.placement.basis": "buffers",
            "serving.placement.contradicted": "banner 19/19",
            "serving.placement.layers.offloaded": 19,
            "serving.placement.layers.total": 19,
            "serving.placement.bytes.accelerator": 0,
            "serving.placement.bytes.host": mib(235.16) + mib(12.66),
            "serving.cause": "no_device",
            "serving.causes": ["no_device"],
        }),
    )
}

/// What is said of a lane on its device.
pub(crate) fn on_device(lane: &Lane) -> Map<String, Value> {
    facts(
        lane,
        json!({
            "serving.placement.verdict": "gpu",
            "serving.placement.basis": "buffers",
            "serving.placement.layers.offloaded": 19,
            "serving.placement.layers.total": 19,
            "serving.placement.bytes.accelerator": mib(235.16),
            "serving.placement.bytes.host": mib(170.0),
        }),
    )
}

/// What one request took, by the last chunk of its recorded response.
pub(crate) fn timing(end: &Value) -> Map<String, Value> {
    let rate = end["timings"]["predicted_per_second"].as_f64().unwrap();
    object(json!({
        "serving.decode.rate": rate,
        "serving.decode.expected_rate": EXPECTED_RATE,
        "serving.decode.ratio": rate / EXPECTED_RATE,
        "serving.decode.tokens": end["usage"]["completion_tokens"],
        "serving.requests.in_flight": 1,
        "serving.timing.source": "engine_response",
    }))
}

pub(crate) fn sourced() -> Map<String, Value> {
    object(json!({ "serving.expectation.source": EXPECTATION_SOURCE }))
}

/// Takes the advice out and checks what it names.
#[track_caller]
pub(crate) fn take_advice(attributes: &mut Map<String, Value>, names: &str) {
    let advice = attributes.remove("serving.advice").expect("no advice");
    let advice = advice.as_str().unwrap();
    assert!(advice.contains(names), "the advice does not name {names}: {advice}");
}
