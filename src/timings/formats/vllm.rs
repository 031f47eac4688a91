//! vLLM's `metrics`: since 0.33, with `--enable-per-request-metrics`.
//!
//! `generation_time_ms` runs from the first token to the last (it is `mean_itl_ms` times n-1).

use super::{Format, Steps, Unit};

pub(super) const FORMAT: Format = Format {
    markers: &["metrics.tokens_per_second", "metrics.generation_time_ms"],
    decode_tokens: &["usage.completion_tokens", "usage.output_tokens"],
    decode_rate: &["metrics.tokens_per_second"],
    decode_time: Some(("metrics.generation_time_ms", Unit::Milliseconds)),
    steps: Steps::AllButFirst,
    ..Format::BASE
};
