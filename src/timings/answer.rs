//! One JSON object of an answer, whole or a stream's: its numbers, names, reasons, and whether it is an error.

use serde_json::Value;

use super::formats::{self, Reading};
use super::json;
use crate::throughput::{TimingSource, Timings};

/// Where an object's statements can stand besides its top: in the closing events of `/v1/responses` (`response`) and
/// the opening one of `/v1/messages` (`message`), Groq's last chunk (`x_groq`), LM Studio's closing event (`result`).
const NESTED: [&str; 4] = ["response", "message", "x_groq", "result"];

/// Where a reason to end can stand, by format: `OpenAI`; Ollama; llama-server's `/completion`; `/v1/messages`, whole and
/// streamed; `/v1/responses`; `SGLang`, new and old; TGI; LM Studio.
const FINISH_REASONS: [&str; 10] = [
    "choices.0.finish_reason",
    "done_reason",
    "stop_type",
    "stop_reason",
    "delta.stop_reason",
    "incomplete_details.reason",
    "meta_info.finish_reason.type",
    "meta_info.finish_reason",
    "details.finish_reason",
    "stats.stop_reason",
];

/// A type that no engine states: `error.type` of an error without one.
const OTHER_ERROR: &str = "_OTHER";

/// What an answer has stated so far.
#[derive(Debug, Default)]
pub(super) struct Answer {
    pub(super) reading: Reading,
    model: Option<String>,
    id: Option<String>,
    finish_reason: Option<String>,
}

impl Answer {
    /// Reads one object.
    pub(super) fn read(object: &Value) -> Self {
        statements(object).fold(Self::default(), |known, part| known.or(Self::read_part(part)))
    }

    fn read_part(part: &Value) -> Self {
        let word = |path: &str| json::word(json::at(part, path)?).map(str::to_owned);
        Self {
            reading: formats::read(part),
            model: part.get("model").and_then(json::word).and_then(model_name).map(str::to_owned),
            id: word("id").or_else(|| word("meta_info.id")).or_else(|| word("response_id")),
            finish_reason: FINISH_REASONS
                .iter()
                .find_map(|path| word(path))
                .or_else(|| status(part)),
        }
    }

    /// What this one states, and for the rest what `other` does.
    pub(super) fn or(self, other: Self) -> Self {
        Self {
            reading: self.reading.or(other.reading),
            model: self.model.or(other.model),
            id: self.id.or(other.id),
            finish_reason: self.finish_reason.or(other.finish_reason),
        }
    }

    /// As timings that no client's clock has measured yet.
    pub(super) fn into_timings(self, source: TimingSource) -> Timings {
        let Reading {
            decode_tokens,
            decode_rate,
            prompt_tokens,
            prefill_tokens,
            prefill_rate,
            cached_tokens,
        } = self.reading;
        Timings {
            decode_tokens,
            decode_rate,
            prompt_tokens,
            prefill_tokens,
            prefill_rate,
            cached_tokens,
            response_model: self.model,
            response_id: self.id,
            finish_reason: self.finish_reason,
            ..Timings::new(source)
        }
    }
}

/// The type of the error that an object is; `None` when it is an answer.
pub(super) fn error_kind(object: &Value) -> Option<String> {
    let error =
        statements(object).find_map(|part| part.get("error").filter(|error| is_stated(error)));
    let described = error.or_else(|| {
        // The shapes of older vLLM and of bare FastAPI.
        let is_error = object.get("object").and_then(Value::as_str) == Some("error");
        let is_detail = object
            .as_object()
            .is_some_and(|members| members.len() == 1 && members.contains_key("detail"));
        (is_error || is_detail).then_some(object)
    })?;
    Some(described_kind(described))
}

/// The type of the error that a stream sent as one; its data can be bare, and need not be JSON.
pub(super) fn error_event_kind(data: &[u8]) -> String {
    let error: Value = serde_json::from_slice(data).unwrap_or_default();
    error_kind(&error).unwrap_or_else(|| described_kind(&error))
}

fn described_kind(error: &Value) -> String {
    let kind = ["type", "code"].iter().find_map(|key| match error.get(key)? {
        Value::Number(code) => Some(code.to_string()),
        word => json::word(word).filter(|word| is_identifier(word)).map(str::to_owned),
    });
    kind.unwrap_or_else(|| OTHER_ERROR.to_owned())
}

/// Whether a stream's object says that it is the last one of its answer.
///
/// A finish reason alone does not: `usage` and `timings` can follow it.
pub(super) fn is_end(object: &Value) -> bool {
    let is_true = |key: &str| object.get(key).and_then(Value::as_bool) == Some(true);
    let ends = |name: &str| {
        matches!(
            name,
            "message_stop"
                | "response.completed"
                | "response.incomplete"
                | "response.failed"
                | "chat.end"
        )
    };
    is_true("done")
        || is_true("stop")
        || object.get("type").and_then(Value::as_str).is_some_and(ends)
}

/// The object itself, and those within it that speak for the answer.
fn statements(object: &Value) -> impl Iterator<Item = &Value> {
    let nested = NESTED.iter().filter_map(|key| object.get(key)).filter(|part| part.is_object());
    std::iter::once(object).chain(nested)
}

/// Engines also write `"error": null`, and some an empty one.
fn is_stated(error: &Value) -> bool {
    match error {
        Value::Null | Value::Bool(false) => false,
        Value::String(text) => !text.is_empty(),
        Value::Bool(true) | Value::Number(_) | Value::Array(_) | Value::Object(_) => true,
    }
}

/// A type is an identifier; anything else under that key may be a text that quotes the request.
fn is_identifier(word: &str) -> bool {
    word.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.'))
}

/// The closed vocabulary of a `/v1/responses` object's end.
fn status(part: &Value) -> Option<String> {
    if part.get("object").and_then(Value::as_str) != Some("response") {
        return None;
    }
    let status = part.get("status").and_then(Value::as_str)?;
    matches!(status, "completed" | "incomplete" | "failed" | "cancelled").then(|| status.to_owned())
}

/// The model's name: of a path only its last part, since a whole one tells about the file system.
///
/// `org/model` is a name on a hub and stays whole.
fn model_name(model: &str) -> Option<&str> {
    let is_file = [".gguf", ".safetensors", ".bin"]
        .iter()
        .any(|end| model.to_ascii_lowercase().ends_with(end));
    let has_drive =
        model.as_bytes().get(1) == Some(&b':') && model.as_bytes()[0].is_ascii_alphabetic();
    let is_path = is_file
        || has_drive
        || model.starts_with(['/', '.', '~'])
        || model.contains('\\')
        || model.contains("//");
    if !is_path {
        return Some(model);
    }
    model.split(['/', '\\']).rfind(|part| !part.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_gives_its_base_name_and_a_name_stays_whole() {
        let rows = [
            ("gemma-3-270m", Some("gemma-3-270m")),
            ("qwen3:8b", Some("qwen3:8b")),
            ("meta-llama/Llama-3.1-8B", Some("meta-llama/Llama-3.1-8B")),
            ("hf.co/org/Model-GGUF:Q4_K_M", Some("hf.co/org/Model-GGUF:Q4_K_M")),
            ("/models/gemma-3-270m-q4_k_m.gguf", Some("gemma-3-270m-q4_k_m.gguf")),
            ("/srv/models/llama/", Some("llama")),
            ("./model", Some("model")),
            ("../up/model", Some("model")),
            ("~/model", Some("model")),
            ("models/a/b.GGUF", Some("b.GGUF")),
            (r"C:\models\a.gguf", Some("a.gguf")),
            ("D:/models/llama", Some("llama")),
            (r"\\host\share\llama", Some("llama")),
            ("file:///models/llama", Some("llama")),
            ("/", None),
        ];
        for (model, expected) in rows {
            assert_eq!(model_name(model), expected, "{model}");
        }
    }
}
