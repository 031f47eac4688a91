//! Whether one object of a stream bears something the model decoded: text, reasoning, or a tool call.
//!
//! A piece only starts and stops the clock. Pieces are not tokens: one can hold several.

use serde_json::Value;

/// What decoded text is called, by whichever engine.
const TEXTS: [&str; 9] = [
    "content",
    "text",
    "response",
    "reasoning_content",
    "reasoning",
    "thinking",
    "refusal",
    "partial_json",
    "arguments",
];

/// Whether the object has a piece in it. An empty text, or a role alone, is none.
pub(super) fn has_piece(object: &Value) -> bool {
    let kind = object.get("type").and_then(Value::as_str).unwrap_or_default();
    // `/v1/responses` repeats the whole text in events that end in `.done`.
    if kind.starts_with("response.") {
        let is_delta = kind.rsplit('.').next() == Some("delta");
        return is_delta && object.get("delta").is_some_and(is_text);
    }
    let choices = object.get("choices").and_then(Value::as_array).into_iter().flatten();
    std::iter::once(object).chain(choices).any(|bearer| {
        bears_text(bearer)
            || ["delta", "message", "token"]
                .iter()
                .filter_map(|key| bearer.get(key))
                .any(bears_text)
    })
}

fn bears_text(bearer: &Value) -> bool {
    let calls = bearer.get("tool_calls").and_then(Value::as_array).into_iter().flatten();
    TEXTS.iter().filter_map(|key| bearer.get(key)).any(is_text)
        || calls
            .filter_map(|call| call.get("function"))
            .chain(bearer.get("function_call"))
            .any(bears_call)
}

/// A call's name is decoded as its arguments are; Ollama gives the arguments as an object.
fn bears_call(function: &Value) -> bool {
    ["name", "arguments"]
        .iter()
        .filter_map(|key| function.get(key))
        .any(|part| is_text(part) || part.is_object())
}

/// A text that is not empty, or a list of parts with one.
fn is_text(value: &Value) -> bool {
    match value {
        Value::String(text) => !text.is_empty(),
        Value::Array(parts) => parts.iter().any(|part| {
            part.as_str()
                .or_else(|| part.get("text")?.as_str())
                .is_some_and(|text| !text.is_empty())
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_is_what_the_model_decoded() {
        let rows = [
            (true, "chat", r#"{"choices":[{"delta":{"content":"Hi"}}]}"#),
            (true, "the second choice", r#"{"choices":[{"delta":{}},{"delta":{"content":"Hi"}}]}"#),
            (true, "a blank is decoded too", r#"{"choices":[{"delta":{"content":" "}}]}"#),
            (
                true,
                "content in parts",
                r#"{"choices":[{"delta":{"content":[{"type":"text","text":"Hi"}]}}]}"#,
            ),
            (
                true,
                "reasoning",
                r#"{"choices":[{"delta":{"content":null,"reasoning_content":"Hm"}}]}"#,
            ),
            (true, "reasoning, newer name", r#"{"choices":[{"delta":{"reasoning":"Hm"}}]}"#),
            (true, "thinking", r#"{"choices":[{"delta":{"thinking":"Hm"}}]}"#),
            (
                true,
                "a tool's name",
                r#"{"choices":[{"delta":{"tool_calls":[{"function":{"name":"f","arguments":""}}]}}]}"#,
            ),
            (
                true,
                "a tool's arguments",
                r#"{"choices":[{"delta":{"tool_calls":[{"function":{"arguments":"{"}}]}}]}"#,
            ),
            (
                true,
                "the older function call",
                r#"{"choices":[{"delta":{"function_call":{"arguments":"{"}}}]}"#,
            ),
            (true, "completions", r#"{"choices":[{"text":"Hi"}]}"#),
            (true, "llama-server /completion", r#"{"content":"Hi","stop":false}"#),
            (true, "ollama generate", r#"{"response":"Hi","done":false}"#),
            (true, "ollama chat", r#"{"message":{"role":"assistant","content":"Hi"}}"#),
            (
                true,
                "ollama thinking",
                r#"{"message":{"role":"assistant","content":"","thinking":"Hm"}}"#,
            ),
            (
                true,
                "ollama tool",
                r#"{"message":{"tool_calls":[{"function":{"name":"f","arguments":{}}}]}}"#,
            ),
            (
                true,
                "messages",
                r#"{"type":"content_block_delta","delta":{"type":"text_delta","text":"Hi"}}"#,
            ),
            (
                true,
                "messages, tool",
                r#"{"type":"content_block_delta","delta":{"partial_json":"{"}}"#,
            ),
            (true, "responses", r#"{"type":"response.output_text.delta","delta":"Hi"}"#),
            (true, "sglang", r#"{"text":"Hi","meta_info":{}}"#),
            (true, "tgi", r#"{"token":{"id":7,"text":"Hi"}}"#),
            (true, "lm studio", r#"{"type":"message.delta","content":"Hi"}"#),
            (
                false,
                "a role alone",
                r#"{"choices":[{"delta":{"role":"assistant","content":null}}]}"#,
            ),
            (
                false,
                "a role and nothing",
                r#"{"choices":[{"delta":{"role":"assistant","content":""}}]}"#,
            ),
            (false, "the finish", r#"{"choices":[{"finish_reason":"stop","delta":{}}]}"#),
            (false, "usage", r#"{"choices":[],"usage":{"completion_tokens":4}}"#),
            (false, "no tools", r#"{"choices":[{"delta":{"content":"","tool_calls":[]}}]}"#),
            (false, "an empty call", r#"{"choices":[{"delta":{"tool_calls":[{"index":0}]}}]}"#),
            (
                false,
                "messages begin",
                r#"{"type":"message_start","message":{"role":"assistant","content":[]}}"#,
            ),
            (
                false,
                "a block begins",
                r#"{"type":"content_block_start","content_block":{"type":"text","text":""}}"#,
            ),
            (false, "responses repeat", r#"{"type":"response.output_text.done","text":"Hi"}"#),
            (false, "responses end", r#"{"type":"response.completed","response":{"output":[]}}"#),
            (
                false,
                "prompt progress",
                r#"{"choices":[{"delta":{"content":null}}],"prompt_progress":{"total":9}}"#,
            ),
            (
                false,
                "the end of ollama",
                r#"{"message":{"content":""},"done":true,"eval_count":4}"#,
            ),
            (false, "other shapes", r#"{"choices":"x","message":7,"delta":null,"content":true}"#),
        ];
        for (expected, case, object) in rows {
            assert_eq!(has_piece(&serde_json::from_str(object).unwrap()), expected, "{case}");
        }
    }
}
