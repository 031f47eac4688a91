//! Groq: times within `usage`, no rate. A stream has them in `x_groq` of its last chunk.

use super::{Format, Unit};

pub(super) const FORMAT: Format = Format {
    markers: &["usage.completion_time"],
    decode_tokens: &["usage.completion_tokens"],
    decode_time: Some(("usage.completion_time", Unit::Seconds)),
    ..Format::BASE
};
