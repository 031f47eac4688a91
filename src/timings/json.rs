//! Lenient reading of foreign JSON: a value of the wrong kind or size is `None`, as if it were not there.
//!
//! The bounds of what can be true stand here, once for all formats.

use std::time::Duration;

use serde_json::Value;

use crate::throughput::TokensPerSecond;

/// More tokens than any request has; a larger count is an overflow or a mistake.
const MAX_COUNT: u64 = 1_000_000_000;

/// No decode or prefill of one request is at or over this. Engines state it for a step that took "no" time: a first
/// token in 0.001 ms.
const MAX_RATE: f64 = 1e6;

/// Slower than a token in 17 minutes is no decode, but a mistake of units.
const MIN_RATE: f64 = 1e-3;

/// Longer names are no names.
const MAX_WORD_BYTES: usize = 256;

/// The value at a dotted path; a number in it is an array's index.
pub(super) fn at<'v>(value: &'v Value, path: &str) -> Option<&'v Value> {
    path.split('.').try_fold(value, |value, key| match value {
        Value::Object(members) => members.get(key),
        Value::Array(elements) => elements.get(key.parse::<usize>().ok()?),
        _ => None,
    })
}

/// A finite number.
pub(super) fn number(value: &Value) -> Option<f64> {
    value.as_f64().filter(|number| number.is_finite())
}

/// A finite number, also one written as text.
pub(super) fn number_or_text(value: &Value) -> Option<f64> {
    number(value)
        .or_else(|| value.as_str()?.trim().parse().ok())
        .filter(|number: &f64| number.is_finite())
}

/// A count of tokens, 0 among them; a whole number written as a float is one.
pub(super) fn count(value: &Value) -> Option<u64> {
    let count = value.as_u64().or_else(|| {
        let float = number(value).filter(|float| *float >= 0.0 && float.fract() == 0.0)?;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "whole, not negative; saturates"
        )]
        Some(float as u64)
    });
    count.filter(|count| *count <= MAX_COUNT)
}

/// A rate that can be.
pub(super) fn rate(number: f64) -> Option<TokensPerSecond> {
    TokensPerSecond::new(number).filter(|_| (MIN_RATE..MAX_RATE).contains(&number))
}

/// The rate of `steps` in `seconds`, where it can be.
pub(super) fn rate_of(steps: u64, seconds: f64) -> Option<TokensPerSecond> {
    let time = Duration::try_from_secs_f64(seconds).ok()?;
    rate(TokensPerSecond::from_steps(steps, time)?.get())
}

/// A name, id or reason: short, printable, and not empty.
pub(super) fn word(value: &Value) -> Option<&str> {
    let word = value.as_str()?.trim();
    let is_word =
        !word.is_empty() && word.len() <= MAX_WORD_BYTES && !word.chars().any(char::is_control);
    is_word.then_some(word)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_a_count_is_a_count() {
        let rows = [
            (json!(0), Some(0)),
            (json!(40), Some(40)),
            (json!(40.0), Some(40)),
            (json!(1_000_000_000), Some(1_000_000_000)),
            (json!(1_000_000_001), None),
            (json!(u64::MAX), None),
            (json!(40.5), None),
            (json!(-1), None),
            (json!(-1.0), None),
            (json!(1e308), None),
            (json!("40"), None),
            (json!(null), None),
            (json!([40]), None),
            (json!({"n": 40}), None),
        ];
        for (value, expected) in rows {
            assert_eq!(count(&value), expected, "{value}");
        }
    }

    #[test]
    fn only_a_rate_that_can_be_is_a_rate() {
        let rows = [
            (json!(98.5), Some(98.5)),
            (json!(98), Some(98.0)),
            (json!(0.05), Some(0.05)),
            (json!(999_999.0), Some(999_999.0)),
            (json!(1e6), None),
            (json!(1e308), None),
            (json!(1e-300), None),
            (json!(0), None),
            (json!(-0.0), None),
            (json!(-98.5), None),
            (json!("98.5"), None),
            (json!("NaN"), None),
            (json!("Indeterminate"), None),
            (json!(null), None),
        ];
        for (value, expected) in rows {
            assert_eq!(
                number(&value).and_then(rate).map(TokensPerSecond::get),
                expected,
                "{value}"
            );
        }
    }

    #[test]
    fn a_number_as_text_is_read_only_where_asked_for() {
        let rows = [
            ("0.5", Some(0.5)),
            (" 2 ", Some(2.0)),
            ("NaN", None),
            ("inf", None),
            ("", None),
            ("1e999", None),
        ];
        for (text, expected) in rows {
            assert_eq!(number_or_text(&json!(text)), expected, "{text}");
            assert_eq!(number(&json!(text)), None, "{text}");
        }
    }

    #[test]
    fn a_rate_needs_steps_and_a_time_that_can_be() {
        let rows = [
            (39, 0.5, Some(78.0)),
            (0, 0.5, None),
            (39, 0.0, None),
            (39, -1.0, None),
            (39, f64::NAN, None),
            (39, f64::INFINITY, None),
            (39, 1e308, None),
            (39, 1e9, None),
            (39, 1e-9, None),
        ];
        for (steps, seconds, expected) in rows {
            assert_eq!(
                rate_of(steps, seconds).map(TokensPerSecond::get),
                expected,
                "{steps} in {seconds}"
            );
        }
    }

    #[test]
    fn a_word_is_short_and_printable() {
        assert_eq!(word(&json!(" stop ")), Some("stop"));
        for value in [
            json!(""),
            json!("  "),
            json!("a\nb"),
            json!("\u{1b}[31m"),
            json!("x".repeat(257)),
            json!(7),
        ] {
            assert_eq!(word(&value), None, "{value}");
        }
    }

    #[test]
    fn a_path_goes_through_objects_and_arrays() {
        let value = json!({"choices": [{"delta": {"content": "x"}}]});
        assert_eq!(at(&value, "choices.0.delta.content"), Some(&json!("x")));
        for path in ["choices.1", "choices.x", "choices.0.delta.content.0", "nothing", ""] {
            assert_eq!(at(&value, path), None, "{path}");
        }
    }
}
