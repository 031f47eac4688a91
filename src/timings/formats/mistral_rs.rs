//! mistral.rs: rates and times within `usage`. `avg_tok_per_sec` is over everything, so it is not the decode rate.

use super::{Format, Unit};

pub(super) const FORMAT: Format = Format {
    markers: &["usage.avg_compl_tok_per_sec", "usage.total_completion_time_sec"],
    decode_tokens: &["usage.completion_tokens"],
    decode_rate: &["usage.avg_compl_tok_per_sec"],
    decode_time: Some(("usage.total_completion_time_sec", Unit::Seconds)),
    prefill_rate: &["usage.avg_prompt_tok_per_sec"],
    ..Format::BASE
};
