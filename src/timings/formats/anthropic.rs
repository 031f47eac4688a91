//! The `usage` of `/v1/messages`: unlike elsewhere, `input_tokens` leaves out what the cache gave.

use super::Format;

pub(super) const FORMAT: Format = Format {
    markers: &["usage.cache_read_input_tokens"],
    decode_tokens: &["usage.output_tokens"],
    prefill_tokens: &["usage.input_tokens"],
    cached_tokens: &["usage.cache_read_input_tokens"],
    ..Format::BASE
};
