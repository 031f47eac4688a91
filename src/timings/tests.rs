//! Whole answers, a row for each form and each absurdity.

use serde_json::{Value, json};

use super::*;
use crate::throughput::TokensPerSecond;

fn read(body: &Value) -> Timings {
    Timings::from_response(body.to_string().as_bytes()).unwrap()
}

/// Decode tokens and rate, prompt tokens, prefill tokens and rate, cached tokens.
type Numbers = (Option<u64>, Option<f64>, Option<u64>, Option<u64>, Option<f64>, Option<u64>);

#[rustfmt::skip] // a table: one answer a row
const ANSWERS: [(&str, &str, Numbers); 36] = [
    ("llama-server, /completion", r#"{"content":"x","tokens_evaluated":29,"timings":{"cache_n":24,"prompt_n":5,"prompt_ms":20.0,"prompt_per_second":250.0,"predicted_n":40,"predicted_ms":400.0,"predicted_per_second":104.5}}"#, (Some(40), Some(104.5), Some(29), Some(5), Some(250.0), Some(24))),
    ("llama-server, chat", r#"{"choices":[],"usage":{"prompt_tokens":29,"completion_tokens":40,"total_tokens":69},"timings":{"cache_n":24,"prompt_n":5,"prompt_ms":20.0,"prompt_per_second":250.0,"predicted_n":40,"predicted_ms":400.0,"predicted_per_second":104.5}}"#, (Some(40), Some(104.5), Some(29), Some(5), Some(250.0), Some(24))),
    ("llama-server, /v1/responses, closing event", r#"{"response":{"usage":{"output_tokens":40},"timings":{"cache_n":24,"prompt_n":5,"prompt_ms":20.0,"prompt_per_second":250.0,"predicted_n":40,"predicted_ms":400.0,"predicted_per_second":104.5}}}"#, (Some(40), Some(104.5), Some(29), Some(5), Some(250.0), Some(24))),
    ("llama-server, /infill", r#"[{"timings":{"predicted_n":2}},{"timings":{"cache_n":24,"prompt_n":5,"prompt_ms":20.0,"prompt_per_second":250.0,"predicted_n":40,"predicted_ms":400.0,"predicted_per_second":104.5}}]"#, (Some(40), Some(104.5), Some(29), Some(5), Some(250.0), Some(24))),
    ("llama-server before cache_n", r#"{"tokens_evaluated":29,"timings":{"prompt_n":5,"predicted_n":40,"predicted_per_second":99.5}}"#, (Some(40), Some(99.5), Some(29), Some(5), None, None)),
    ("llama-server with speculation", r#"{"timings":{"predicted_n":40,"predicted_per_second":99.5,"draft_n":64,"draft_n_accepted":20}}"#, (Some(40), Some(99.5), None, None, None, None)),
    ("llama-server without a rate: n-1 steps", r#"{"timings":{"predicted_n":40,"predicted_ms":500}}"#, (Some(40), Some(78.0), None, None, None, None)),
    ("llama-server, a rate of 0 is not stated", r#"{"timings":{"predicted_n":40,"predicted_ms":500.0,"predicted_per_second":0.0}}"#, (Some(40), Some(78.0), None, None, None, None)),
    ("llama-server, one token has no rate", r#"{"timings":{"predicted_n":1,"predicted_ms":0.001,"predicted_per_second":999999.0}}"#, (Some(1), None, None, None, None, None)),
    ("llama-server, nothing cached is a statement", r#"{"timings":{"cache_n":0,"prompt_n":26}}"#, (None, None, Some(26), Some(26), None, Some(0))),
    ("ollama", r#"{"done":true,"prompt_eval_count":26,"prompt_eval_duration":383809000,"eval_count":298,"eval_duration":4000000000,"total_duration":5191566416}"#, (Some(298), Some(74.5), Some(26), None, None, None)),
    ("ollama, no prompt count", r#"{"done":true,"eval_count":40,"eval_duration":500000000}"#, (Some(40), Some(80.0), None, None, None, None)),
    ("ollama as openai", r#"{"usage":{"prompt_tokens":29,"completion_tokens":40,"total_tokens":69}}"#, (Some(40), None, Some(29), None, None, None)),
    ("sglang as ollama: never over the total", r#"{"done":true,"eval_count":40,"total_duration":500000000}"#, (Some(40), None, None, None, None, None)),
    ("vllm", r#"{"usage":{"prompt_tokens":29,"completion_tokens":40,"total_tokens":69,"prompt_tokens_details":{"cached_tokens":16},"completion_tokens_details":null}}"#, (Some(40), None, Some(29), Some(13), None, Some(16))),
    ("vllm with metrics", r#"{"usage":{"prompt_tokens":29,"completion_tokens":40,"total_tokens":69},"metrics":{"time_to_first_token_ms":41.2,"generation_time_ms":1201.4,"mean_itl_ms":30.8,"tokens_per_second":32.5}}"#, (Some(40), Some(32.5), Some(29), None, None, None)),
    ("vllm with a time alone: n-1 steps", r#"{"usage":{"prompt_tokens":29,"completion_tokens":40,"total_tokens":69},"metrics":{"generation_time_ms":500}}"#, (Some(40), Some(78.0), Some(29), None, None, None)),
    ("sglang", r#"{"text":"x","meta_info":{"prompt_tokens":29,"completion_tokens":40,"cached_tokens":16,"e2e_latency":1.2,"decode_throughput":33.1}}"#, (Some(40), Some(33.1), Some(29), Some(13), None, Some(16))),
    ("sglang without metrics", r#"{"meta_info":{"completion_tokens":40,"e2e_latency":1.2}}"#, (Some(40), None, None, None, None, None)),
    ("mistral.rs: of three averages the decode one", r#"{"usage":{"prompt_tokens":29,"completion_tokens":40,"total_tokens":69,"avg_tok_per_sec":57.3,"avg_prompt_tok_per_sec":512.5,"avg_compl_tok_per_sec":52.1,"total_completion_time_sec":1.1}}"#, (Some(40), Some(52.1), Some(29), None, Some(512.5), None)),
    ("mistral.rs with a time alone", r#"{"usage":{"prompt_tokens":29,"completion_tokens":40,"total_tokens":69,"total_completion_time_sec":0.5}}"#, (Some(40), Some(80.0), Some(29), None, None, None)),
    ("lm studio, v0", r#"{"usage":{"prompt_tokens":29,"completion_tokens":40,"total_tokens":69},"stats":{"tokens_per_second":51.4,"generation_time":0.954,"stop_reason":"eosFound"}}"#, (Some(40), Some(51.4), Some(29), None, None, None)),
    ("lm studio, v1", r#"{"stats":{"input_tokens":29,"total_output_tokens":40,"tokens_per_second":43.7}}"#, (Some(40), Some(43.7), Some(29), None, None, None)),
    ("tabbyapi", r#"{"usage":{"prompt_tokens":29,"completion_tokens":40,"total_tokens":69,"prompt_tokens_per_sec":512.5,"completion_time":0.8,"completion_tokens_per_sec":52.1}}"#, (Some(40), Some(52.1), Some(29), None, Some(512.5), None)),
    ("tabbyapi, indeterminate", r#"{"usage":{"prompt_tokens":29,"completion_tokens":40,"total_tokens":69,"completion_time":0.0,"completion_tokens_per_sec":"Indeterminate"}}"#, (Some(40), None, Some(29), None, None, None)),
    ("groq", r#"{"usage":{"prompt_tokens":29,"completion_tokens":40,"total_tokens":69,"completion_time":0.5,"total_time":9.0}}"#, (Some(40), Some(80.0), Some(29), None, None, None)),
    ("groq, a stream's last chunk", r#"{"choices":[],"x_groq":{"usage":{"prompt_tokens":29,"completion_tokens":40,"total_tokens":69,"completion_time":0.5}}}"#, (Some(40), Some(80.0), Some(29), None, None, None)),
    ("cerebras", r#"{"usage":{"prompt_tokens":29,"completion_tokens":40,"total_tokens":69},"time_info":{"completion_time":0.05}}"#, (Some(40), Some(800.0), Some(29), None, None, None)),
    ("cerebras, numbers as text", r#"{"usage":{"prompt_tokens":29,"completion_tokens":40,"total_tokens":69},"time_info":{"completion_time":"0.05"}}"#, (Some(40), Some(800.0), Some(29), None, None, None)),
    ("cerebras, no number as text", r#"{"usage":{"prompt_tokens":29,"completion_tokens":40,"total_tokens":69},"time_info":{"completion_time":"NaN"}}"#, (Some(40), None, Some(29), None, None, None)),
    ("localai", r#"{"usage":{"prompt_tokens":29,"completion_tokens":40,"total_tokens":69,"timing_prompt_processing":12.5,"timing_token_generation":500.0}}"#, (Some(40), Some(80.0), Some(29), None, None, None)),
    ("tgi", r#"[{"generated_text":"x","details":{"finish_reason":"length","generated_tokens":40,"prefill":[]}}]"#, (Some(40), None, None, None, None, None)),
    ("messages: input leaves out the cache", r#"{"type":"message","usage":{"input_tokens":5,"cache_read_input_tokens":24,"output_tokens":40}}"#, (Some(40), None, Some(29), Some(5), None, Some(24))),
    ("responses: input has the cache", r#"{"object":"response","error":null,"usage":{"input_tokens":29,"input_tokens_details":{"cached_tokens":24},"output_tokens":40}}"#, (Some(40), None, Some(29), Some(5), None, Some(24))),
    ("more cached than there is", r#"{"usage":{"prompt_tokens":5,"prompt_tokens_details":{"cached_tokens":9}}}"#, (None, None, Some(5), None, None, Some(9))),
    ("nothing stated", r#"{"id":"x","usage":null}"#, (None, None, None, None, None, None)),
];

fn numbers(timings: &Timings) -> Numbers {
    (
        timings.decode_tokens,
        timings.decode_rate.map(TokensPerSecond::get),
        timings.prompt_tokens,
        timings.prefill_tokens,
        timings.prefill_rate.map(TokensPerSecond::get),
        timings.cached_tokens,
    )
}

#[test]
fn each_engines_answer_gives_its_numbers() {
    for (case, body, expected) in ANSWERS {
        assert_eq!(numbers(&Timings::from_response(body.as_bytes()).unwrap()), expected, "{case}");
    }
}

#[test]
fn what_cannot_be_is_not_stated() {
    let absurd = [
        json!(0),
        json!(0.0),
        json!(-1),
        json!(-104.5),
        json!(1e308),
        json!(1e-300),
        json!(u64::MAX),
        json!("NaN"),
        json!("104.5"),
        json!(null),
        json!(true),
        json!([104.5]),
        json!({"rate": 104.5}),
    ];
    for value in absurd {
        let case = value.to_string();
        let rate = read(&json!({"timings": {"predicted_n": 40, "predicted_per_second": value}}));
        assert_eq!(
            (rate.decode_tokens, rate.decode_rate),
            (Some(40), None),
            "llama-server rate {case}"
        );
        let tokens = read(&json!({"timings": {"predicted_n": value, "predicted_ms": 500.0}}));
        assert_eq!(
            (tokens.decode_tokens, tokens.decode_rate),
            (None, None),
            "llama-server tokens {case}"
        );
        let ollama = read(&json!({"eval_count": 40, "eval_duration": value}));
        assert_eq!(
            (ollama.decode_tokens, ollama.decode_rate),
            (Some(40), None),
            "ollama duration {case}"
        );
        let usage = read(&json!({"usage": {"completion_tokens": value}}));
        assert_eq!((usage.decode_tokens, usage.decode_rate), (None, None), "usage {case}");
        for key in [
            "timings",
            "usage",
            "metrics",
            "meta_info",
            "stats",
            "time_info",
            "details",
            "response",
            "choices",
        ] {
            assert_eq!(
                numbers(&read(&json!({key: value}))),
                (None, None, None, None, None, None),
                "{key} {case}"
            );
        }
    }
}

#[test]
fn an_answer_gives_its_names_and_its_end() {
    let rows = [
        (
            json!({"id": "chatcmpl-7", "model": "/models/a.gguf", "choices": [{"finish_reason": "stop"}]}),
            (Some("a.gguf"), Some("chatcmpl-7"), Some("stop")),
        ),
        (
            json!({"model": "m:latest", "done": true, "done_reason": "length"}),
            (Some("m:latest"), None, Some("length")),
        ),
        (
            json!({"model": "a", "stop": true, "stop_type": "limit"}),
            (Some("a"), None, Some("limit")),
        ),
        (
            json!({"type": "message", "id": "msg_1", "stop_reason": "end_turn"}),
            (None, Some("msg_1"), Some("end_turn")),
        ),
        (
            json!({"meta_info": {"id": "7a", "finish_reason": {"type": "length", "length": 40}}}),
            (None, Some("7a"), Some("length")),
        ),
        (
            json!({"object": "response", "id": "resp_1", "status": "completed"}),
            (None, Some("resp_1"), Some("completed")),
        ),
        (
            json!({"object": "response", "status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}),
            (None, None, Some("max_output_tokens")),
        ),
        (json!({"response": {"object": "response", "status": "in_progress"}}), (None, None, None)),
        (json!({"id": 7, "model": "", "choices": [{"finish_reason": null}]}), (None, None, None)),
        (json!({"id": "x".repeat(300), "model": "a\nb"}), (None, None, None)),
    ];
    for (body, expected) in rows {
        let timings = read(&body);
        let told = (
            timings.response_model.as_deref(),
            timings.response_id.as_deref(),
            timings.finish_reason.as_deref(),
        );
        assert_eq!(told, expected, "{body}");
    }
}

#[test]
fn an_error_is_told_by_its_type_and_never_by_its_text() {
    let rows = [
        (
            json!({"error": {"code": 400, "message": "a secret", "type": "exceed_context_size_error"}}),
            "exceed_context_size_error",
        ),
        (json!({"error": {"code": 503, "message": "a secret"}}), "503"),
        (json!({"error": {"code": "model_not_found"}}), "model_not_found"),
        (json!({"error": "model 'a secret' not found"}), "_OTHER"),
        (json!({"error": {"type": "a secret"}}), "_OTHER"),
        (
            json!({"type": "error", "error": {"type": "overloaded_error", "message": "a secret"}}),
            "overloaded_error",
        ),
        (
            json!({"object": "error", "message": "a secret", "type": "BadRequestError", "code": 400}),
            "BadRequestError",
        ),
        (json!({"detail": "a secret"}), "_OTHER"),
        (json!({"response": {"error": {"code": "server_error"}}}), "server_error"),
    ];
    for (body, expected) in rows {
        let error = Timings::from_response(body.to_string().as_bytes()).unwrap_err();
        let text = error.to_string();
        assert!(
            matches!(&error, ParseTimingsError::Engine { kind } if kind == expected),
            "{body}: {error:?}"
        );
        assert!(!format!("{error:?} {text}").contains("secret"), "{body}: {text}");
    }
}

#[test]
fn what_is_no_answer_is_refused_with_what_it_is() {
    let rows = [
        (
            "",
            "the answer is not JSON; hand a whole JSON body to `from_response`, and a stream to `StreamTimings`",
        ),
        (
            "data: {}\n\n",
            "the answer is not JSON; hand a whole JSON body to `from_response`, and a stream to `StreamTimings`",
        ),
        (
            "[]",
            "the answer is an empty array; expected a JSON object, or an array that ends in one",
        ),
        (
            "[{}, 7]",
            "the answer is an array that ends in none; expected a JSON object, or an array that ends in one",
        ),
        ("7", "the answer is a number; expected a JSON object, or an array that ends in one"),
        ("null", "the answer is null; expected a JSON object, or an array that ends in one"),
        ("\"x\"", "the answer is a string; expected a JSON object, or an array that ends in one"),
        ("true", "the answer is a boolean; expected a JSON object, or an array that ends in one"),
    ];
    for (body, expected) in rows {
        assert_eq!(
            Timings::from_response(body.as_bytes()).unwrap_err().to_string(),
            expected,
            "{body}"
        );
    }
    let deep = "[".repeat(100_000);
    assert!(
        matches!(Timings::from_response(deep.as_bytes()), Err(ParseTimingsError::Json(_))),
        "no stack overflow"
    );
}
