//! Cerebras: `time_info` beside `usage`. Old answers wrote its numbers as text.

use super::super::json;
use super::{Format, Unit};

pub(super) const FORMAT: Format = Format {
    markers: &["time_info"],
    decode_tokens: &["usage.completion_tokens"],
    decode_time: Some(("time_info.completion_time", Unit::Seconds)),
    number: json::number_or_text,
    ..Format::BASE
};
