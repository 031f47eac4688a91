//! `/metrics` in Prometheus' text form: of llama-server and vLLM, the few counters that tell a rate.
//!
//! Averages since the start (`llamacpp:predicted_tokens_seconds`) are no rate of now; differences of totals are.

use super::{Counters, UnreadableError};
use crate::evidence::Decoded;

/// The names of one engine's counters.
struct Dialect {
    engine: &'static str,
    running: &'static str,
    waiting: &'static str,
    tokens: &'static str,
    /// The time that the decode of `tokens` took; `None` where they are counted as they come.
    seconds: Option<&'static str>,
}

const DIALECTS: [Dialect; 2] = [
    Dialect {
        engine: "llama.cpp",
        running: "llamacpp:requests_processing",
        waiting: "llamacpp:requests_deferred",
        tokens: "llamacpp:tokens_predicted_total",
        seconds: Some("llamacpp:tokens_predicted_seconds_total"),
    },
    Dialect {
        engine: "vllm",
        running: "vllm:num_requests_running",
        waiting: "vllm:num_requests_waiting",
        tokens: "vllm:generation_tokens_total",
        seconds: None,
    },
];

pub(in super::super) fn read_counters(
    body: &[u8],
) -> Result<(&'static str, Counters), UnreadableError> {
    let known = DIALECTS.iter().find_map(|dialect| Some((dialect.engine, dialect.read(body)?)));
    known.ok_or(UnreadableError::Form { missing: "counter of llama-server or vLLM" })
}

impl Dialect {
    /// `None` when the body holds none of the names.
    fn read(&self, body: &[u8]) -> Option<Counters> {
        let tokens = sum(body, self.tokens);
        let decoded = match self.seconds {
            None => tokens.map(|tokens| Decoded::Running { tokens }),
            Some(seconds) => tokens
                .zip(sum(body, seconds))
                .map(|(tokens, seconds)| Decoded::Ended { tokens, seconds }),
        };
        let counters = Counters {
            running: sum(body, self.running).and_then(whole),
            waiting: sum(body, self.waiting).and_then(whole),
            decoded,
        };
        (counters != Counters::default()).then_some(counters)
    }
}

/// The samples of that name, added up over their labels: an engine with several ranks has one for each. `None` when
/// there is none, or one that is no number.
fn sum(body: &[u8], name: &str) -> Option<f64> {
    let mut values = body
        .split(|byte| *byte == b'\n')
        .filter_map(|line| std::str::from_utf8(line).ok())
        .filter_map(|line| line.trim().strip_prefix(name).and_then(value))
        .peekable();
    values.peek()?;
    Some(values.sum()).filter(|sum: &f64| sum.is_finite() && *sum >= 0.0)
}

/// The value behind a sample's name: ` 4`, or `{label="words"} 4 1700000000`. `None` when the name goes on.
fn value(rest: &str) -> Option<f64> {
    let rest = if rest.starts_with('{') { after_labels(rest)? } else { rest };
    if !rest.starts_with([' ', '\t']) {
        return None;
    }
    rest.split_ascii_whitespace().next()?.parse().ok()
}

/// What follows the labels. A label's value is quoted and can hold a brace.
fn after_labels(labels: &str) -> Option<&str> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    let end = labels.find(|character| {
        match character {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = is_quoted,
            '"' => is_quoted = !is_quoted,
            '}' => return !is_quoted,
            _ => {}
        }
        false
    })?;
    Some(&labels[end + 1..])
}

/// A gauge of requests.
fn whole(number: f64) -> Option<u32> {
    let is_whole = number.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(&number);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "whole, and within bounds"
    )]
    let whole = number as u32;
    is_whole.then_some(whole)
}
