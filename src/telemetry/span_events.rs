//! Facts as OpenTelemetry attributes, put on the OpenTelemetry span itself, where no log filter can hide them.
//!
//! An attribute that is not known is left out: never an empty string, never a guess.

use opentelemetry::trace::TraceContextExt;
use opentelemetry::{Array, Context, KeyValue, StringValue, Value};

use crate::evidence::Cause;
use crate::lane::{BlindCause, Facts, SpanEvent};
use crate::placement::{Basis, PlacementVerdict, Plan};
use crate::telemetry::names;
use crate::throughput::{TimingSource, Timings};

/// Adds a span event with its facts to the span of `context`.
pub(crate) fn add(context: &Context, event: SpanEvent, lane: &str, facts: &Facts) {
    context.span().add_event(names::span_event(event), attributes(lane, facts));
}

/// The known facts of one lane, in the order of the contract.
pub(crate) fn attributes(lane: &str, facts: &Facts) -> Vec<KeyValue> {
    let mut known = Known(vec![KeyValue::new(names::LANE_NAME, lane.to_owned())]);
    known.text(names::ENGINE_NAME, facts.engine.as_deref());
    known.text(names::REQUEST_MODEL, facts.model.as_deref());
    known.word(names::PLAN, facts.plan.map(Plan::as_str));
    known.float(names::MINIMUM_SHARE, facts.plan.and_then(Plan::minimum_share));
    known.word(names::VERDICT, facts.verdict.map(PlacementVerdict::as_str));
    known.word(names::BASIS, facts.basis.map(Basis::as_str));
    known.text(names::CONTRADICTED, facts.contradicted.as_deref());
    known.count(names::LAYERS_OFFLOADED, facts.layers.map(|(offloaded, _)| offloaded.into()));
    known.count(names::LAYERS_TOTAL, facts.layers.map(|(_, total)| total.into()));
    known.count(names::BYTES_ACCELERATOR, facts.bytes_accelerator);
    known.count(names::BYTES_HOST, facts.bytes_host);
    known.word(names::CAUSE, facts.causes.first().copied().map(Cause::as_str));
    known.words(names::CAUSES, facts.causes.iter().map(|cause| cause.as_str()));
    known.text(names::CAUSE_DETAIL, facts.cause_detail.as_deref());
    known.text(names::ADVICE, facts.advice.as_deref());
    known.float(names::DECODE_RATE, facts.decode_rate);
    known.float(names::EXPECTED_RATE, facts.expected_rate);
    known.float(names::DECODE_RATIO, facts.ratio);
    known.count(names::DECODE_TOKENS, facts.tokens);
    known.text(names::EXPECTATION_SOURCE, facts.expectation_source.as_deref());
    known.count(names::IN_FLIGHT, facts.in_flight.map(Into::into));
    known.word(names::TIMING_SOURCE, facts.timing_source.map(TimingSource::as_str));
    known.words(names::SUSPECTS, facts.suspects.iter().copied());
    known.word(names::BLIND_CAUSE, facts.blind.map(BlindCause::as_str));
    known.count(names::SLOT, facts.slot.map(Into::into));
    known.0
}

/// What a request span tells of its response: usage, model, id, why it ended.
pub(crate) fn response_attributes(timings: &Timings) -> Vec<KeyValue> {
    let mut known = Known(Vec::new());
    known.count(names::INPUT_TOKENS, timings.prompt_tokens);
    known.count(names::CACHED_TOKENS, timings.cached_tokens);
    known.count(names::OUTPUT_TOKENS, timings.decode_tokens);
    known.text(names::RESPONSE_MODEL, timings.response_model.as_deref());
    known.text(names::RESPONSE_ID, timings.response_id.as_deref());
    known.float(names::TIME_TO_FIRST_CHUNK, timings.time_to_first_token.map(|it| it.as_secs_f64()));
    if let Some(reason) = timings.finish_reason.as_deref().filter(|reason| !reason.is_empty()) {
        known.0.push(KeyValue::new(
            names::FINISH_REASONS,
            strings([StringValue::from(reason.to_owned())]),
        ));
    }
    known.0
}

/// `gen_ai.provider.name` of an engine: our own values, as the conventions name no engine.
pub(crate) fn provider(engine: &str) -> String {
    engine.replace('.', "_")
}

/// A list in one string, for carriers that have no lists.
pub(crate) fn joined(words: impl Iterator<Item = &'static str>) -> Option<String> {
    let words: Vec<_> = words.collect();
    (!words.is_empty()).then(|| words.join(","))
}

fn strings(values: impl IntoIterator<Item = StringValue>) -> Value {
    Value::Array(Array::String(values.into_iter().collect()))
}

/// Attributes that are known.
struct Known(Vec<KeyValue>);

impl Known {
    fn text(&mut self, key: &'static str, value: Option<&str>) {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            self.0.push(KeyValue::new(key, value.to_owned()));
        }
    }

    fn word(&mut self, key: &'static str, value: Option<&'static str>) {
        self.0.extend(value.map(|value| KeyValue::new(key, value)));
    }

    fn words(&mut self, key: &'static str, words: impl Iterator<Item = &'static str>) {
        let mut words = words.map(StringValue::from).peekable();
        if words.peek().is_some() {
            self.0.push(KeyValue::new(key, strings(words)));
        }
    }

    fn count(&mut self, key: &'static str, value: Option<u64>) {
        self.0.extend(value.map(|value| KeyValue::new(key, int(value))));
    }

    fn float(&mut self, key: &'static str, value: Option<f64>) {
        self.0
            .extend(value.filter(|value| value.is_finite()).map(|value| KeyValue::new(key, value)));
    }
}

/// OpenTelemetry's integers are signed. No count of ours comes near the end of them.
fn int(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(attributes: &[KeyValue]) -> Vec<&str> {
        attributes.iter().map(|attribute| attribute.key.as_str()).collect()
    }

    #[test]
    fn what_is_not_known_is_left_out() {
        assert_eq!(keys(&attributes("chat-0", &Facts::default())), [names::LANE_NAME]);
        let empty = Facts {
            contradicted: Some(String::new()),
            cause_detail: Some(String::new()),
            ratio: Some(f64::NAN),
            ..Facts::default()
        };
        assert_eq!(keys(&attributes("chat-0", &empty)), [names::LANE_NAME]);
    }

    #[test]
    fn facts_become_typed_attributes() {
        let facts = Facts {
            plan: Some(Plan::ALL_ON_GPU),
            verdict: Some(PlacementVerdict::CpuFallback),
            basis: Some(Basis::Buffers),
            contradicted: Some("banner 19/19".into()),
            layers: Some((19, 19)),
            bytes_accelerator: Some(0),
            causes: vec![Cause::NoDevice, Cause::Unknown],
            in_flight: Some(2),
            ..Facts::default()
        };
        let attributes = attributes("chat-0", &facts);
        let value = |key: &str| {
            let found = attributes.iter().find(|attribute| attribute.key.as_str() == key);
            found.unwrap_or_else(|| panic!("no {key} among {:?}", keys(&attributes))).value.clone()
        };
        let rows = [
            (names::LANE_NAME, Value::from("chat-0")),
            (names::PLAN, Value::from("gpu")),
            (names::MINIMUM_SHARE, Value::F64(1.0)),
            (names::VERDICT, Value::from("cpu_fallback")),
            (names::BASIS, Value::from("buffers")),
            (names::CONTRADICTED, Value::from("banner 19/19")),
            (names::LAYERS_OFFLOADED, Value::I64(19)),
            (names::BYTES_ACCELERATOR, Value::I64(0)),
            (names::CAUSE, Value::from("no_device")),
            (names::CAUSES, strings(["no_device".into(), "unknown".into()])),
            (names::IN_FLIGHT, Value::I64(2)),
        ];
        for (key, expected) in rows {
            assert_eq!(value(key), expected, "{key}");
        }
        let causes = facts.causes.iter().map(|cause| cause.as_str());
        assert_eq!(joined(causes).as_deref(), Some("no_device,unknown"));
        assert_eq!(joined(std::iter::empty()), None);
    }

    #[test]
    fn an_engine_names_its_provider_without_dots() {
        for (engine, expected) in
            [("llama.cpp", "llama_cpp"), ("ollama", "ollama"), ("vllm", "vllm")]
        {
            assert_eq!(provider(engine), expected);
        }
    }
}
