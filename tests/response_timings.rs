//! Timings of real answers, by the engine's clock and by the client's, wherever a stream is cut.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test, and it needs some instant to count from"
)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use serde_json::Value;
use serving_sentinel::throughput::{TimingSource, Timings, TokensPerSecond};
use serving_sentinel::timings::{MAX_EVENT_BYTES, ParseTimingsError, StreamTimings};

fn recording(name: &str) -> Vec<u8> {
    read(&Path::new("tests/fixtures/recordings").join(name))
}

fn read(path: &Path) -> Vec<u8> {
    fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn recorded_streams() -> Vec<PathBuf> {
    let entries =
        fs::read_dir("tests/fixtures/recordings").unwrap().map(|entry| entry.unwrap().path());
    let streams: Vec<_> =
        entries.filter(|path| path.to_string_lossy().ends_with(".chat.sse")).collect();
    assert_eq!(streams.len(), 4, "four streams were recorded");
    streams
}

/// Feeds all chunks at one instant, so that nothing but the cuts differs.
fn feed<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> Fed {
    let mut stream = StreamTimings::begin(*START);
    let now = *START + Duration::from_millis(250);
    let mut progress = false;
    for chunk in chunks {
        progress |= stream.push(chunk, now);
    }
    let (complete, unread) = (stream.is_complete(), stream.unread_events());
    let timings = stream.finish(now).map_err(|error| error.to_string());
    Fed { timings, progress, complete, unread }
}

/// All that a stream tells.
#[derive(Debug, PartialEq)]
struct Fed {
    timings: Result<Timings, String>,
    progress: bool,
    complete: bool,
    unread: u64,
}

static START: std::sync::LazyLock<Instant> = std::sync::LazyLock::new(Instant::now);

fn rate(timings: &Timings) -> Option<f64> {
    timings.decode_rate.map(TokensPerSecond::get)
}

#[test]
fn a_whole_answer_of_llama_server_gives_what_it_states() {
    let body = read(Path::new("tests/fixtures/responses/llama-server-completion.json"));
    let timings = Timings::from_response(&body).unwrap();
    assert_eq!(timings.source, TimingSource::EngineResponse);
    assert_eq!(timings.decode_tokens, Some(20));
    assert_eq!(rate(&timings), Some(49.522_369_775_715_795));
    assert_eq!(
        (timings.prompt_tokens, timings.prefill_tokens, timings.cached_tokens),
        (Some(2), Some(2), Some(0))
    );
    assert_eq!(timings.prefill_rate.map(TokensPerSecond::get), Some(80.064_051_240_992_8));
    assert_eq!(timings.response_model.as_deref(), Some("gemma-3-270m-q4_k_m.gguf"));
    assert_eq!(timings.finish_reason.as_deref(), Some("limit"));
    assert_eq!((timings.time_to_first_token, timings.duration), (None, None));
}

#[test]
fn a_recorded_stream_gives_what_its_last_chunk_states() {
    let timings =
        feed([recording("llama-server-cpu-only-build.chat.sse").as_slice()]).timings.unwrap();
    assert_eq!(timings.source, TimingSource::EngineResponse);
    assert_eq!(timings.decode_tokens, Some(32));
    assert_eq!(rate(&timings), Some(98.720_769_894_623_54));
    assert_eq!(
        (timings.prompt_tokens, timings.prefill_tokens, timings.cached_tokens),
        (Some(26), Some(26), Some(0))
    );
    assert_eq!(timings.response_model.as_deref(), Some("gemma-3-270m-q4_k_m.gguf"));
    assert_eq!(timings.response_id.as_deref(), Some("chatcmpl-ZLmT3IQtoQcXWuJOM2CVnVT9i19ZeuQZ"));
    assert_eq!(timings.finish_reason.as_deref(), Some("length"));
    assert_eq!(timings.duration, Some(Duration::from_millis(250)));
}

#[test]
fn a_recorded_stream_is_the_same_wherever_it_is_cut() {
    for path in recorded_streams() {
        let bytes = read(&path);
        let whole = feed([bytes.as_slice()]);
        assert!(
            whole.timings.as_ref().is_ok_and(|timings| timings.decode_rate.is_some()),
            "{}",
            path.display()
        );
        assert!(
            whole.progress && whole.complete && whole.unread == 0,
            "{}: {whole:?}",
            path.display()
        );
        for size in 1..=64 {
            assert_eq!(feed(bytes.chunks(size)), whole, "{}: in chunks of {size}", path.display());
        }
        // Every cut in two, of as much as has one event of each kind: the rest is more of the same.
        let short = ends_of(&bytes);
        let whole = feed([short.as_slice()]);
        for cut in 0..=short.len() {
            let (head, tail) = short.split_at(cut);
            assert_eq!(feed([head, tail]), whole, "{}: cut at {cut}", path.display());
        }
    }
}

/// A stream's first two events and its last three.
fn ends_of(stream: &[u8]) -> Vec<u8> {
    let text = str::from_utf8(stream).unwrap();
    let events: Vec<&str> = text.split_inclusive("\n\n").collect();
    let (first, last) = (&events[..2], &events[events.len() - 3..]);
    [first.concat(), last.concat()].concat().into_bytes()
}

/// One streamed request of a timed run, as the client saw it.
#[derive(Default)]
struct Replay {
    begun: f64,
    lines: Vec<(f64, String)>,
    ended: f64,
}

fn replays(name: &str) -> Vec<Replay> {
    let mut requests: BTreeMap<u64, Replay> = BTreeMap::new();
    for line in String::from_utf8(recording(name)).unwrap().lines() {
        let entry: Value = serde_json::from_str(line).unwrap();
        let Some(id) = entry["id"].as_u64() else { continue };
        let at = entry["t"].as_f64().unwrap();
        let request = requests.entry(id).or_default();
        match entry["kind"].as_str().unwrap() {
            "request" => request.begun = at,
            "sse" => request.lines.push((at, entry["data"].as_str().unwrap().to_owned())),
            "end" => request.ended = at,
            other => panic!("unknown kind {other}"),
        }
    }
    requests.into_values().collect()
}

#[test]
fn both_clocks_agree_on_every_recorded_request() {
    let runs = [
        ("on-device-healthy.jsonl", 3),
        ("no-gpu-banner-lies.jsonl", 3),
        ("default-verbosity-silent.jsonl", 3),
        ("decode-collapses.jsonl", 7),
    ];
    for (run, requests) in runs {
        let replays = replays(run);
        assert_eq!(replays.len(), requests, "{run}");
        for (id, replay) in replays.iter().enumerate() {
            let at = |seconds: f64| *START + Duration::from_secs_f64(seconds);
            let stated = replay.lines.iter().rev().find_map(|(_, line)| {
                let object: Value = serde_json::from_str(line.strip_prefix("data: ")?).ok()?;
                object["timings"]["predicted_per_second"].as_f64()
            });
            let mut stream = StreamTimings::begin(at(replay.begun));
            for (seconds, line) in &replay.lines {
                stream.push(format!("{line}\n\n").as_bytes(), at(*seconds));
            }
            let by_client = stream.client_clock_rate().unwrap().get();
            let first = stream.first_piece_at().unwrap();
            assert!(stream.is_complete(), "{run}, request {id}");
            let timings = stream.finish(at(replay.ended)).unwrap();
            assert_eq!(
                rate(&timings),
                stated,
                "{run}, request {id}: the engine's rate as it is stated"
            );
            assert_eq!(timings.source, TimingSource::EngineResponse);
            let ratio = by_client / stated.unwrap();
            assert!(
                (0.9..1.1).contains(&ratio),
                "{run}, request {id}: client {by_client}, engine {stated:?}"
            );
            assert_eq!(timings.time_to_first_token, Some(first - at(replay.begun)));
            assert_eq!(timings.duration, Some(at(replay.ended) - at(replay.begun)));
        }
    }
}

/// A stream of `(milliseconds, chunk)`.
fn timed(chunks: &[(u64, &str)]) -> StreamTimings {
    let mut stream = StreamTimings::begin(*START);
    for (milliseconds, chunk) in chunks {
        stream
            .push(format!("{chunk}\n\n").as_bytes(), *START + Duration::from_millis(*milliseconds));
    }
    stream
}

/// A stream, and what is told of it.
struct StreamRow {
    case: &'static str,
    /// Milliseconds since the request, and what came then.
    chunks: &'static [(u64, &'static str)],
    source: TimingSource,
    tokens: Option<u64>,
    rate: Option<f64>,
    /// Milliseconds to the first token.
    first: Option<u64>,
}

#[rustfmt::skip] // a table: one chunk a row
const STREAMS: [StreamRow; 12] = [
    StreamRow {
        case: "usage alone: n-1 tokens from the first piece to the last; neither the role nor the end counts",
        chunks: &[
            (50, r#"data: {"choices":[{"delta":{"role":"assistant","content":""}}]}"#),
            (100, r#"data: {"choices":[{"delta":{"content":"a"}}]}"#),
            (1100, r#"data: {"choices":[{"delta":{"content":"z"}}]}"#),
            (9000, r#"data: {"choices":[{"finish_reason":"stop","delta":{}}]}"#),
            (9000, r#"data: {"choices":[],"usage":{"completion_tokens":41}}"#),
            (9000, "data: [DONE]"),
        ],
        source: TimingSource::ClientClock, tokens: Some(41), rate: Some(40.0), first: Some(100),
    },
    StreamRow {
        case: "no count: pieces are not tokens",
        chunks: &[
            (100, r#"data: {"choices":[{"delta":{"content":"a"}}]}"#),
            (1100, r#"data: {"choices":[{"delta":{"content":"z"}}]}"#),
            (1100, r#"data: {"choices":[{"finish_reason":"stop","delta":{}}]}"#),
        ],
        source: TimingSource::ClientClock, tokens: None, rate: None, first: Some(100),
    },
    StreamRow {
        case: "all at once has no rate",
        chunks: &[
            (100, r#"data: {"choices":[{"delta":{"content":"a"}}]}"#),
            (100, r#"data: {"choices":[{"delta":{"content":"z"}}]}"#),
            (100, r#"data: {"choices":[],"usage":{"completion_tokens":41}}"#),
        ],
        source: TimingSource::ClientClock, tokens: Some(41), rate: None, first: Some(100),
    },
    StreamRow {
        case: "no piece, no clock",
        chunks: &[
            (100, r#"data: {"choices":[{"finish_reason":"stop","delta":{}}]}"#),
            (100, r#"data: {"choices":[],"usage":{"completion_tokens":41}}"#),
        ],
        source: TimingSource::ClientClock, tokens: Some(41), rate: None, first: None,
    },
    StreamRow {
        case: "reasoning starts the clock",
        chunks: &[
            (100, r#"data: {"choices":[{"delta":{"reasoning_content":"hm"}}]}"#),
            (1100, r#"data: {"choices":[{"delta":{"content":"z"}}]}"#),
            (1100, r#"data: {"choices":[],"usage":{"completion_tokens":41}}"#),
        ],
        source: TimingSource::ClientClock, tokens: Some(41), rate: Some(40.0), first: Some(100),
    },
    StreamRow {
        case: "a tool call starts the clock",
        chunks: &[
            (100, r#"data: {"choices":[{"delta":{"tool_calls":[{"function":{"name":"f","arguments":""}}]}}]}"#),
            (1100, r#"data: {"choices":[{"delta":{"tool_calls":[{"function":{"arguments":"{}"}}]}}]}"#),
            (1100, r#"data: {"choices":[],"usage":{"completion_tokens":41}}"#),
        ],
        source: TimingSource::ClientClock, tokens: Some(41), rate: Some(40.0), first: Some(100),
    },
    StreamRow {
        case: "running usage: the last counts; what came with the first piece took no time",
        chunks: &[
            (100, r#"data: {"choices":[{"delta":{"content":"abc"}}],"usage":{"completion_tokens":3}}"#),
            (600, r#"data: {"choices":[{"delta":{"content":"d"}}],"usage":{"completion_tokens":20}}"#),
            (1100, r#"data: {"choices":[{"delta":{"content":"e"}}],"usage":{"completion_tokens":43}}"#),
        ],
        source: TimingSource::ClientClock, tokens: Some(43), rate: Some(40.0), first: Some(100),
    },
    StreamRow {
        case: "running timings: the last count",
        chunks: &[
            (100, r#"data: {"choices":[{"delta":{"content":"a"}}],"timings":{"predicted_n":1,"predicted_ms":0.001,"predicted_per_second":0.0}}"#),
            (600, r#"data: {"choices":[{"delta":{"content":"b"}}],"timings":{"predicted_n":20,"predicted_ms":500,"predicted_per_second":38.0}}"#),
            (1100, r#"data: {"choices":[{"delta":{}}],"timings":{"predicted_n":41,"predicted_ms":1000,"predicted_per_second":40.5}}"#),
        ],
        source: TimingSource::EngineResponse, tokens: Some(41), rate: Some(40.5), first: Some(100),
    },
    StreamRow {
        case: "llama-server, /completion",
        chunks: &[
            (100, r#"data: {"content":"a","stop":false}"#),
            (1100, r#"data: {"content":"","stop":true,"timings":{"predicted_n":41,"predicted_per_second":40.5}}"#),
        ],
        source: TimingSource::EngineResponse, tokens: Some(41), rate: Some(40.5), first: Some(100),
    },
    StreamRow {
        case: "ollama: a line an object",
        chunks: &[
            (100, r#"{"model":"m","message":{"content":"a"},"done":false}"#),
            (1100, r#"{"model":"m","message":{"content":""},"done":true,"eval_count":40,"eval_duration":1000000000}"#),
        ],
        source: TimingSource::EngineResponse, tokens: Some(40), rate: Some(40.0), first: Some(100),
    },
    StreamRow {
        case: "messages: counts at both ends",
        chunks: &[
            (20, "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":5,\"output_tokens\":1}}}"),
            (100, r#"data: {"type":"content_block_delta","delta":{"text":"a"}}"#),
            (1100, r#"data: {"type":"content_block_delta","delta":{"text":"b"}}"#),
            (1100, r#"data: {"type":"message_delta","delta":{},"usage":{"output_tokens":41}}"#),
        ],
        source: TimingSource::ClientClock, tokens: Some(41), rate: Some(40.0), first: Some(100),
    },
    StreamRow {
        case: "responses: the closing event has the count, and repeats of the text are no pieces",
        chunks: &[
            (100, r#"data: {"type":"response.output_text.delta","delta":"a"}"#),
            (1100, r#"data: {"type":"response.output_text.delta","delta":"b"}"#),
            (5000, r#"data: {"type":"response.output_text.done","text":"ab"}"#),
            (5000, r#"data: {"type":"response.completed","response":{"usage":{"output_tokens":41}}}"#),
        ],
        source: TimingSource::ClientClock, tokens: Some(41), rate: Some(40.0), first: Some(100),
    },
];

#[test]
fn streams_of_every_kind_give_their_rate_and_say_by_whose_clock() {
    for row in STREAMS {
        let timings = timed(row.chunks).finish(*START + Duration::from_secs(10)).unwrap();
        assert_eq!((timings.decode_tokens, rate(&timings)), (row.tokens, row.rate), "{}", row.case);
        assert_eq!(timings.source, row.source, "{}", row.case);
        assert_eq!(
            timings.time_to_first_token,
            row.first.map(Duration::from_millis),
            "{}",
            row.case
        );
        assert_eq!(timings.duration, Some(Duration::from_secs(10)), "{}", row.case);
    }
}

#[test]
fn a_stream_that_breaks_off_tells_what_is_known() {
    let bytes = recording("llama-server-default-verbosity.chat.sse");
    let half = feed([&bytes[..bytes.len() / 2]]);
    let timings = half.timings.unwrap();
    assert!(half.progress && !half.complete);
    assert_eq!(
        (timings.finish_reason, timings.decode_tokens, timings.decode_rate),
        (None, None, None)
    );
    assert_eq!(timings.time_to_first_token, Some(Duration::from_millis(250)));
    assert_eq!(timings.response_model.as_deref(), Some("gemma-3-270m-q4_k_m.gguf"));

    let nothing = feed([]);
    assert!(!nothing.progress && !nothing.complete);
    assert_eq!(nothing.timings.unwrap().duration, Some(Duration::from_millis(250)));
}

#[test]
fn an_error_within_a_stream_is_told_by_its_type() {
    let rows = [
        (
            "as data",
            r#"data: {"error":{"code":400,"message":"a secret","type":"invalid_request_error"}}"#,
            "invalid_request_error",
        ),
        (
            "as an event",
            "event: error\ndata: {\"type\":\"overloaded_error\",\"message\":\"a secret\"}",
            "overloaded_error",
        ),
        ("as an event that is no JSON", "event: error\ndata: a secret", "_OTHER"),
        (
            "as llama-server once did",
            r#"error: {"code":500,"message":"a secret","type":"server_error"}"#,
            "server_error",
        ),
        ("as ollama does", r#"{"error":"a secret"}"#, "_OTHER"),
    ];
    for (case, chunk, expected) in rows {
        let error = timed(&[(10, r#"data: {"choices":[{"delta":{"content":"a"}}]}"#), (20, chunk)])
            .finish(*START);
        assert!(
            matches!(&error, Err(ParseTimingsError::Engine { kind }) if kind == expected),
            "{case}: {error:?}"
        );
    }
}

#[test]
fn what_cannot_be_read_is_counted_and_the_rest_is_read() {
    let long = format!(
        "data: {{\"choices\":[{{\"delta\":{{\"content\":\"{}\"}}}}]}}",
        "x".repeat(MAX_EVENT_BYTES)
    );
    let mut stream =
        timed(&[(10, &long), (20, "data: {broken"), (30, "data: 7"), (30, ": a comment")]);
    assert_eq!((stream.unread_events(), stream.first_piece_at()), (3, None));
    assert!(stream.push(b"data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n", *START));
    assert!(
        !stream.push(b"data: {\"choices\":[],\"usage\":{\"completion_tokens\":4}}\n\n", *START)
    );
    assert_eq!(stream.finish(*START).unwrap().decode_tokens, Some(4));
}

#[test]
fn a_clock_that_goes_back_makes_no_rate() {
    let mut stream = StreamTimings::begin(*START + Duration::from_secs(9));
    stream.push(
        b"data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n",
        *START + Duration::from_secs(2),
    );
    stream.push(b"data: {\"choices\":[{\"delta\":{\"content\":\"b\"}}],\"usage\":{\"completion_tokens\":4}}\n\n", *START);
    let timings = stream.finish(*START).unwrap();
    assert_eq!((timings.decode_rate, timings.time_to_first_token), (None, Some(Duration::ZERO)));
}

/// Parts that real streams are made of, well formed and not.
fn fragment() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        Just(b"data: ".to_vec()),
        Just(b"data:".to_vec()),
        Just(b"event: error\n".to_vec()),
        Just(b": ping\n".to_vec()),
        Just(b"\n".to_vec()),
        Just(b"\r\n".to_vec()),
        Just(b"\r".to_vec()),
        Just(b"[DONE]\n\n".to_vec()),
        Just("\u{feff}\u{1f600}".as_bytes().to_vec()),
        Just(br#"{"choices":[{"delta":{"content":"a"}}]}"#.to_vec()),
        Just(br#"{"usage":{"completion_tokens":40},"id":"x"}"#.to_vec()),
        Just(br#"{"timings":{"predicted_n":40,"predicted_per_second":1e308}}"#.to_vec()),
        Just(br#"{"eval_count":40,"eval_duration":-1,"done":true}"#.to_vec()),
        Just(br#"{"error":{"type":"x"}}"#.to_vec()),
        prop::collection::vec(any::<u8>(), 0..12),
    ]
}

proptest! {
    #[test]
    fn any_bytes_cut_anywhere_give_the_same(
        parts in prop::collection::vec(fragment(), 0..40),
        cuts in prop::collection::vec(1_usize..20, 1..40),
    ) {
        let bytes = parts.concat();
        let whole = feed([bytes.as_slice()]);
        let mut rest = bytes.as_slice();
        let mut sizes = cuts.iter().cycle();
        let chunks = std::iter::from_fn(|| {
            let (head, tail) = rest.split_at((*sizes.next()?).min(rest.len()));
            rest = tail;
            (!head.is_empty()).then_some(head)
        });
        prop_assert_eq!(feed(chunks), whole);
    }

    #[test]
    fn any_body_is_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Timings::from_response(&bytes);
    }

    #[test]
    fn any_rate_is_true_or_none(number in any::<f64>(), tokens in any::<i64>()) {
        let body = format!(r#"{{"timings":{{"predicted_n":{tokens},"predicted_ms":{number:e}}}}}"#);
        if let Ok(timings) = Timings::from_response(body.as_bytes()) {
            prop_assert!(timings.decode_rate.is_none_or(|rate| rate.get() >= 1e-3 && rate.get() < 1e6));
        }
    }
}
