//! TGI's own `/generate`, asked with `details`: a count. Its times are in headers and have prefill in them.

use super::Format;

pub(super) const FORMAT: Format = Format {
    markers: &["details.generated_tokens"],
    decode_tokens: &["details.generated_tokens"],
    prompt_tokens: &["details.input_length"],
    ..Format::BASE
};
