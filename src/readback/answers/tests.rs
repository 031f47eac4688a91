//! Bodies of real and of other servers, and any bytes.

use proptest::prelude::*;

use super::*;
use crate::evidence::{Decoded, SlotWork};

const PS: &str = r#"{"models":[
    {"name":"gemma3:latest","model":"gemma3:latest","size":6591830464,"digest":"a2af6cc3eb7f",
     "details":{"format":"gguf","family":"gemma3"},"expires_at":"2025-10-17T16:47:07.93355-07:00",
     "size_vram":5333539264,"context_length":4096},
    {"name":"qwen3:8b","model":"qwen3:8b","size":"large","size_vram":-1},
    {"model":"only-model:1b","size":7,"size_vram":0},
    {"size":1,"size_vram":1},
    "no model"]}"#;

#[test]
fn loaded_models_are_read_and_what_is_missing_stays_unknown() {
    let known = LoadedModel {
        name: "gemma3:latest".into(),
        bytes: Some(6_591_830_464),
        accelerator_bytes: Some(5_333_539_264),
        context_tokens: Some(4096),
        expires: Some("2025-10-17T16:47:07.93355-07:00".into()),
    };
    let sizeless = LoadedModel { name: "qwen3:8b".into(), ..LoadedModel::default() };
    let on_host = LoadedModel {
        name: "only-model:1b".into(),
        bytes: Some(7),
        accelerator_bytes: Some(0),
        ..LoadedModel::default()
    };
    assert_eq!(read_models(PS.as_bytes()), Ok(vec![known, sizeless, on_host]));
    assert_eq!(read_models(br#"{"models":[]}"#), Ok(vec![]), "none is loaded");
}

const PROPS: &str = r#"{"default_generation_settings":{"params":{"seed":4294967295},"n_ctx":2048},"total_slots":4,
    "model_alias":"gemma","model_path":"/models/gemma.gguf","endpoint_slots":true,
    "chat_template":"{{ messages }}","build_info":"b1-0c1e570","is_sleeping":false}"#;

#[test]
fn properties_are_read() {
    let properties = EngineProperties {
        build: Some("b1-0c1e570".into()),
        model: Some("/models/gemma.gguf".into()),
        slots: Some(4),
        context_tokens: Some(2048),
    };
    assert_eq!(read_properties(PROPS.as_bytes()), Ok(properties));
    let oldest = EngineProperties { slots: Some(1), ..EngineProperties::default() };
    assert_eq!(read_properties(br#"{"total_slots":1,"build_info":"a\nb"}"#), Ok(oldest));
}

#[test]
fn slots_are_read_in_both_forms() {
    let now = r#"[{"id":0,"n_ctx":2048,"is_processing":false},
        {"id":1,"is_processing":false,"id_task":7,"next_token":[{"n_decoded":0}]},
        {"id":3,"is_processing":true,"id_task":22,"n_prompt_tokens":54,"n_prompt_tokens_processed":3,
         "next_token":[{"has_next_token":true,"n_remain":49,"n_decoded":51}]}]"#;
    let before = r#"[{"id":3,"is_processing":true,"id_task":22,"prompt":"words of a user",
         "next_token":{"has_next_token":true,"n_decoded":51}}]"#;
    let idle = |slot| SlotReading { slot, work: None };
    let busy = |prefilled| SlotReading {
        slot: 3,
        work: Some(SlotWork { task: 22, prefilled, decoded: 51 }),
    };
    assert_eq!(read_slots(now.as_bytes()), Ok(vec![idle(0), idle(1), busy(3)]));
    assert_eq!(read_slots(before.as_bytes()), Ok(vec![busy(0)]));
    assert_eq!(read_slots(b"[]"), Ok(vec![]));
}

#[test]
fn counters_are_read_by_the_table() {
    let llama = |running, waiting, tokens, seconds| {
        let decoded = Some(Decoded::Ended { tokens, seconds });
        Ok(("llama.cpp", Counters { running: Some(running), waiting: Some(waiting), decoded }))
    };
    let vllm = |running, waiting, tokens| {
        let decoded = Some(Decoded::Running { tokens });
        Ok(("vllm", Counters { running: Some(running), waiting: Some(waiting), decoded }))
    };
    let only =
        |running| Ok(("llama.cpp", Counters { running: Some(running), ..Counters::default() }));
    let none = Err(UnreadableError::Form { missing: "counter of llama-server or vLLM" });
    let rows = [
        (
            "llama-server",
            "# HELP llamacpp:tokens_predicted_total Number of generation tokens processed\n\
             # TYPE llamacpp:tokens_predicted_total counter\n\
             llamacpp:tokens_predicted_total 100\n\
             llamacpp:tokens_predicted_seconds_total 3.4219\n\
             llamacpp:predicted_tokens_seconds 28.9313\n\
             llamacpp:requests_processing 1\nllamacpp:requests_deferred 0\n",
            llama(1, 0, 100.0, 3.4219),
        ),
        (
            "six digits, line ends of Windows, a time",
            "llamacpp:tokens_predicted_total 1.23457e+06 1700000000000\r\n\
             llamacpp:tokens_predicted_seconds_total 12345.7\r\n\
             llamacpp:requests_processing 2\r\nllamacpp:requests_deferred 3\r\n",
            llama(2, 3, 1_234_570.0, 12345.7),
        ),
        (
            "vLLM with two ranks, and labels that hold anything",
            "vllm:generation_tokens_total{engine=\"0\",model_name=\"a } 9 \\\" {\"} 40.0\n\
             vllm:generation_tokens_total{engine=\"1\",model_name=\"a\"} 2.0\n\
             vllm:generation_tokens_created{engine=\"0\",model_name=\"a\"} 1.7e+09\n\
             vllm:num_requests_running{engine=\"0\",model_name=\"a\"} 3.0\n\
             vllm:num_requests_running{engine=\"1\",model_name=\"a\"} 1.0\n\
             vllm:num_requests_waiting{engine=\"0\",model_name=\"a\"} 0.0\n",
            vllm(4, 0, 42.0),
        ),
        ("one gauge alone", "llamacpp:requests_processing 7\n", only(7)),
        (
            "what is no number is not there",
            "llamacpp:requests_processing 7\nllamacpp:requests_deferred NaN\n\
             llamacpp:tokens_predicted_total -1\nllamacpp:tokens_predicted_seconds_total +Inf\n",
            only(7),
        ),
        ("half a request", "llamacpp:requests_processing 0.5\n", none),
        ("longer names", "llamacpp:requests_processing_max 7\n", none),
        ("labels without an end", "vllm:num_requests_running{engine=\"0} 3\n", none),
        ("another program", "go_goroutines 12\nprocess_cpu_seconds_total 4.2\n", none),
        ("a page", "<!doctype html><html>llamacpp:requests_processing 7</html>", none),
        ("nothing", "", none),
    ];
    for (case, body, expected) in rows {
        assert_eq!(read_counters(body.as_bytes()), expected, "{case}");
    }
}

#[test]
fn bodies_of_another_form_are_no_answers() {
    let bodies: [&[u8]; 12] = [
        b"",
        b"ok",
        b"null",
        b"[1]",
        b"[{}]",
        b"{}",
        b"<!doctype html>",
        br#"{"models":{}}"#,
        br#"{"error":{"code":404,"message":"File Not Found"}}"#,
        br#"[{"id":-1,"is_processing":false}]"#,
        br#"[{"id":0,"is_processing":true,"id_task":-1,"next_token":[]}]"#,
        b"\xff\xfe\x00",
    ];
    for body in bodies {
        let shown = String::from_utf8_lossy(body);
        assert!(read_models(body).is_err(), "{shown}");
        assert!(read_properties(body).is_err(), "{shown}");
        assert!(read_slots(body).is_err(), "{shown}");
        assert!(read_counters(body).is_err(), "{shown}");
    }
}

/// Pieces of real bodies in any order, and anything between them.
fn body() -> impl Strategy<Value = Vec<u8>> {
    let pieces = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..40),
        "[ \\[\\]{}:,\"\\\\0-9a-z\n]{0,40}".prop_map(String::into_bytes),
        prop::sample::select(vec![
            PS,
            PROPS,
            "{\"models\":[",
            "\"size_vram\":1e400",
            "[{\"id\":0,\"is_processing\":true,",
            "\"next_token\":[{\"n_decoded\":18446744073709551616}]",
            "vllm:num_requests_running{engine=\"",
            "llamacpp:tokens_predicted_total ",
        ])
        .prop_map(|piece| piece.as_bytes().to_vec()),
    ];
    prop::collection::vec(pieces, 0..6).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn any_body_is_read_or_refused(body in body()) {
        for model in read_models(&body).into_iter().flatten() {
            prop_assert!(!model.name.is_empty());
        }
        if let Ok((_, counters)) = read_counters(&body) {
            prop_assert!(counters != Counters::default());
        }
        let _ = (read_properties(&body), read_slots(&body));
    }

    #[test]
    fn a_body_that_was_cut_is_no_answer(cut in 1..PS.len()) {
        prop_assert_eq!(read_models(&PS.as_bytes()[..cut]), Err(UnreadableError::Json));
    }
}
