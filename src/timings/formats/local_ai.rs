//! `LocalAI`, asked with the header `Extra-Usage`: decode time within `usage`, no rate.

use super::{Format, Unit};

pub(super) const FORMAT: Format = Format {
    markers: &["usage.timing_token_generation"],
    decode_tokens: &["usage.completion_tokens"],
    decode_time: Some(("usage.timing_token_generation", Unit::Milliseconds)),
    ..Format::BASE
};
