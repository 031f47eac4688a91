//! Request timings: bytes of an answer in, [`Timings`] out.
//!
//! A whole body is read by [`Timings::from_response`], a stream by [`StreamTimings`]. Both read every JSON object
//! through the same table of formats, so an engine is known to both or to neither. Only counts, rates, names and
//! reasons are kept: nothing of what was asked or answered.

mod answer;
mod clock;
mod events;
mod formats;
mod json;
mod pieces;
mod stream;

use serde_json::Value;

use crate::throughput::{TimingSource, Timings};

use answer::Answer;

pub use events::MAX_EVENT_BYTES;
pub use stream::StreamTimings;

/// Why an answer gives no timings.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ParseTimingsError {
    /// The body is no JSON.
    #[error(
        "the answer is not JSON; hand a whole JSON body to `from_response`, and a stream to `StreamTimings`"
    )]
    Json(#[source] serde_json::Error),
    /// The body is JSON, and no object.
    #[error("the answer is {found}; expected a JSON object, or an array that ends in one")]
    NotAnObject {
        /// What it is.
        found: &'static str,
    },
    /// The engine answered with an error. Its text is not repeated, since it may quote the request.
    #[error("the engine answered with an error of type `{kind}`; there is nothing to time")]
    Engine {
        /// The error's type or code in the engine's words, fit for `error.type`; `_OTHER` where it states none.
        kind: String,
    },
}

impl Timings {
    /// Reads what a whole, non-streamed answer states about itself.
    ///
    /// Known are the answers of llama-server (all completion endpoints), Ollama, vLLM, `SGLang`, TGI, mistral.rs,
    /// LM Studio, `TabbyAPI`, `LocalAI`, Groq and Cerebras, and the common `usage` of `OpenAI`, Anthropic and whoever
    /// speaks like them. The engine's own rate wins; else the rate is from tokens and decode time. An answer with
    /// `usage` alone has counts and no rate, and one that states nothing has no field set.
    ///
    /// A value that cannot be (0, negative, not a number, `1e308`, a text) is as good as not stated.
    ///
    /// # Errors
    ///
    /// [`ParseTimingsError`] when the body is no JSON object, or is the engine's error.
    pub fn from_response(body: &[u8]) -> Result<Self, ParseTimingsError> {
        let body = object(serde_json::from_slice(body).map_err(ParseTimingsError::Json)?)?;
        if let Some(kind) = answer::error_kind(&body) {
            return Err(ParseTimingsError::Engine { kind });
        }
        Ok(Answer::read(&body).into_timings(TimingSource::EngineResponse))
    }
}

/// The object that speaks for the answer. Some versions of llama-server's `/infill` answer with an array: its last
/// element.
fn object(value: Value) -> Result<Value, ParseTimingsError> {
    match value {
        Value::Object(_) => Ok(value),
        Value::Array(mut elements) => match elements.pop() {
            Some(last @ Value::Object(_)) => Ok(last),
            Some(_) => Err(ParseTimingsError::NotAnObject { found: "an array that ends in none" }),
            None => Err(ParseTimingsError::NotAnObject { found: "an empty array" }),
        },
        Value::Null => Err(ParseTimingsError::NotAnObject { found: "null" }),
        Value::Bool(_) => Err(ParseTimingsError::NotAnObject { found: "a boolean" }),
        Value::Number(_) => Err(ParseTimingsError::NotAnObject { found: "a number" }),
        Value::String(_) => Err(ParseTimingsError::NotAnObject { found: "a string" }),
    }
}

#[cfg(test)]
mod tests;
