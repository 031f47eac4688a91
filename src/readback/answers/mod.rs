//! Reads what engines answer: bytes of a body in, evidence out.
//!
//! Lenient with what is not needed and strict with what is: a field of another kind is as good as absent, and a body
//! without the fields that make it an answer of that endpoint is none. Nothing of a prompt or a template is kept.

mod llama_cpp;
mod metrics;
mod ollama;
#[cfg(test)]
mod tests;

use serde_json::Value;

use crate::evidence::{Counters, EngineProperties, LoadedModel, SlotReading};

pub(super) use llama_cpp::{read_properties, read_slots};
pub(super) use metrics::read_counters;
pub(super) use ollama::read_models;

/// What an endpoint answered.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Answer {
    /// The models that a process has loaded.
    Models(Vec<LoadedModel>),
    /// What the engine says of itself.
    Properties(EngineProperties),
    /// What its slots do.
    Slots(Vec<SlotReading>),
    /// Its counters, and which engine names them so.
    Counters(&'static str, Counters),
}

/// Why a body is no answer of that endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum UnreadableError {
    /// It is no JSON.
    #[error("the answer is not JSON")]
    Json,
    /// It is JSON of another form.
    #[error("the answer has no {missing}")]
    Form {
        /// What makes it an answer of that endpoint.
        missing: &'static str,
    },
}

fn json(body: &[u8]) -> Result<Value, UnreadableError> {
    serde_json::from_slice(body).map_err(|_| UnreadableError::Json)
}

/// A count at a path (`/next_token/0/n_decoded`); `None` when it is not there, negative, or no whole number.
fn count(value: &Value, path: &str) -> Option<u64> {
    value.pointer(path)?.as_u64()
}

fn small_count(value: &Value, path: &str) -> Option<u32> {
    count(value, path).and_then(|count| u32::try_from(count).ok())
}

/// A name, path or time at a path: short and printable, or `None`.
fn words(value: &Value, path: &str) -> Option<String> {
    /// Longer ones are no names.
    const MAX_BYTES: usize = 4096;
    let words = value.pointer(path)?.as_str()?.trim();
    let is_fit =
        !words.is_empty() && words.len() <= MAX_BYTES && !words.chars().any(char::is_control);
    is_fit.then(|| words.to_owned())
}
