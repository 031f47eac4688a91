//! `TabbyAPI`: rates and times within `usage`. An unknown rate is the text `Indeterminate`.

use super::{Format, Unit};

pub(super) const FORMAT: Format = Format {
    markers: &["usage.completion_tokens_per_sec"],
    decode_tokens: &["usage.completion_tokens"],
    decode_rate: &["usage.completion_tokens_per_sec"],
    decode_time: Some(("usage.completion_time", Unit::Seconds)),
    prefill_rate: &["usage.prompt_tokens_per_sec"],
    ..Format::BASE
};
