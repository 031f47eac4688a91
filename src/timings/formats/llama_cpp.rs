//! llama-server: `timings` on every completion endpoint, in the answer or in a stream's last object.
//!
//! Since 2023-07 (llama.cpp #2116). Up to 2026-07 the stated rate is over n tokens, since then over n-1; so it is taken
//! as stated, and only where it is missing is it made, over n-1. `cache_n` is known from builds after 2025-08.

use super::{Format, Steps, Unit};

pub(super) const FORMAT: Format = Format {
    markers: &["timings"],
    decode_tokens: &["timings.predicted_n"],
    decode_rate: &["timings.predicted_per_second"],
    decode_time: Some(("timings.predicted_ms", Unit::Milliseconds)),
    steps: Steps::AllButFirst,
    // Of `/completion` alone; the other endpoints have `usage`.
    prompt_tokens: &["tokens_evaluated"],
    prefill_tokens: &["timings.prompt_n"],
    prefill_rate: &["timings.prompt_per_second"],
    cached_tokens: &["timings.cache_n"],
    ..Format::BASE
};
