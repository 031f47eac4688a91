//! Ollama's own endpoints (`/api/generate`, `/api/chat`): counts, and durations in nanoseconds.
//!
//! A field of value 0 is left out. No rate is stated: Ollama's own `--verbose` divides all tokens by the time, and so
//! does this. The prompt's rate is not read: with a warm cache its count has the cached tokens and its time has not.
//! `SGLang` answers in this format without `eval_duration`, and then there is no rate.

use super::{Format, Unit};

pub(super) const FORMAT: Format = Format {
    markers: &["eval_count", "prompt_eval_count"],
    decode_tokens: &["eval_count"],
    decode_time: Some(("eval_duration", Unit::Nanoseconds)),
    prompt_tokens: &["prompt_eval_count"],
    ..Format::BASE
};
