//! The common `usage` of chat, completions and responses: counts, and neither times nor rates.

use super::Format;

pub(super) const FORMAT: Format = Format {
    markers: &["usage"],
    decode_tokens: &["usage.completion_tokens", "usage.output_tokens"],
    prompt_tokens: &["usage.prompt_tokens", "usage.input_tokens"],
    cached_tokens: &[
        "usage.prompt_tokens_details.cached_tokens",
        "usage.input_tokens_details.cached_tokens",
    ],
    ..Format::BASE
};
