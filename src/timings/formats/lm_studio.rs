//! LM Studio's REST answers: `stats` (v0 beside `usage`, v1 with counts of its own).

use super::Format;

pub(super) const FORMAT: Format = Format {
    markers: &["stats.tokens_per_second"],
    decode_tokens: &["stats.total_output_tokens", "usage.completion_tokens"],
    decode_rate: &["stats.tokens_per_second"],
    prompt_tokens: &["stats.input_tokens"],
    ..Format::BASE
};
