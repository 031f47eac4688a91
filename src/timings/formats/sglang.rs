//! `SGLang`'s own `/generate`: `meta_info`, whose rate is there with `--enable-metrics` (seen in 0.5.23).
//!
//! `e2e_latency` has queue and prefill in it, so it gives no rate.

use super::Format;

pub(super) const FORMAT: Format = Format {
    markers: &["meta_info"],
    decode_tokens: &["meta_info.completion_tokens"],
    decode_rate: &["meta_info.decode_throughput"],
    prompt_tokens: &["meta_info.prompt_tokens"],
    cached_tokens: &["meta_info.cached_tokens"],
    ..Format::BASE
};
