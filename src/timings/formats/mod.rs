//! The formats in which engines state counts and rates, one file each, tried in the order of one table.
//!
//! A format is data: where in a JSON object a value stands, and in which unit. A new engine is a new file and its row.

mod anthropic;
mod cerebras;
mod groq;
mod llama_cpp;
mod lm_studio;
mod local_ai;
mod mistral_rs;
mod ollama;
mod openai;
mod sglang;
mod tabby_api;
mod tgi;
mod vllm;

use serde_json::Value;

use super::json;
use crate::throughput::TokensPerSecond;

/// Every format, the more telling first: what one states, none after it changes.
const FORMATS: [&Format; 13] = [
    &llama_cpp::FORMAT,
    &ollama::FORMAT,
    &vllm::FORMAT,
    &sglang::FORMAT,
    &mistral_rs::FORMAT,
    &lm_studio::FORMAT,
    &tabby_api::FORMAT,
    &groq::FORMAT,
    &cerebras::FORMAT,
    &local_ai::FORMAT,
    &tgi::FORMAT,
    // The common ones last: they fill in counts beside the rates of those above.
    &anthropic::FORMAT,
    &openai::FORMAT,
];

/// Where one engine's answers state what. A list of paths is read in order, and the first that holds a value counts.
struct Format {
    /// An object without any of these paths is of another format.
    markers: &'static [&'static str],
    decode_tokens: &'static [&'static str],
    decode_rate: &'static [&'static str],
    decode_time: Option<(&'static str, Unit)>,
    steps: Steps,
    prompt_tokens: &'static [&'static str],
    prefill_tokens: &'static [&'static str],
    prefill_rate: &'static [&'static str],
    cached_tokens: &'static [&'static str],
    number: fn(&Value) -> Option<f64>,
}

/// The unit of a stated time.
#[derive(Clone, Copy)]
enum Unit {
    Seconds,
    Milliseconds,
    Nanoseconds,
}

/// What a decode time is the time of, where no rate is stated.
#[derive(Clone, Copy)]
enum Steps {
    /// All tokens.
    All,
    /// All but the first, which prefill gave.
    AllButFirst,
}

/// What one object states.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Reading {
    pub(super) decode_tokens: Option<u64>,
    pub(super) decode_rate: Option<TokensPerSecond>,
    pub(super) prompt_tokens: Option<u64>,
    pub(super) prefill_tokens: Option<u64>,
    pub(super) prefill_rate: Option<TokensPerSecond>,
    pub(super) cached_tokens: Option<u64>,
}

/// Reads an object by every format that it has.
pub(super) fn read(object: &Value) -> Reading {
    FORMATS.iter().fold(Reading::default(), |known, format| match format.read(object) {
        Some(reading) => known.or(reading),
        None => known,
    })
}

// === impl Format ===

impl Format {
    /// States nothing: the base that each format fills in.
    const BASE: Self = Self {
        markers: &[],
        decode_tokens: &[],
        decode_rate: &[],
        decode_time: None,
        steps: Steps::All,
        prompt_tokens: &[],
        prefill_tokens: &[],
        prefill_rate: &[],
        cached_tokens: &[],
        number: json::number,
    };

    /// `None` when the object is of another format.
    fn read(&self, object: &Value) -> Option<Reading> {
        self.markers.iter().find_map(|marker| json::at(object, marker))?;
        let count =
            |paths: &[&str]| paths.iter().find_map(|path| json::count(json::at(object, path)?));
        let number = |path: &str| (self.number)(json::at(object, path)?);
        let rate = |paths: &[&str]| paths.iter().find_map(|path| json::rate(number(path)?));
        let decode_tokens = count(self.decode_tokens).filter(|tokens| *tokens > 0);
        let derived = || {
            let (path, unit) = self.decode_time?;
            json::rate_of(self.steps.of(decode_tokens?), unit.seconds(number(path)?))
        };
        Some(Reading {
            decode_tokens,
            // One token has no rate, whatever is stated: prefill gave it.
            decode_rate: rate(self.decode_rate)
                .or_else(derived)
                .filter(|_| decode_tokens != Some(1)),
            prompt_tokens: count(self.prompt_tokens),
            prefill_tokens: count(self.prefill_tokens),
            prefill_rate: rate(self.prefill_rate),
            cached_tokens: count(self.cached_tokens),
        })
    }
}

// === impl Unit ===

impl Unit {
    fn seconds(self, time: f64) -> f64 {
        match self {
            Self::Seconds => time,
            Self::Milliseconds => time / 1e3,
            Self::Nanoseconds => time / 1e9,
        }
    }
}

// === impl Steps ===

impl Steps {
    fn of(self, tokens: u64) -> u64 {
        match self {
            Self::All => tokens,
            Self::AllButFirst => tokens.saturating_sub(1),
        }
    }
}

// === impl Reading ===

impl Reading {
    /// What this one states, and for the rest what `other` does.
    pub(super) fn or(self, other: Self) -> Self {
        Self {
            decode_tokens: self.decode_tokens.or(other.decode_tokens),
            decode_rate: self.decode_rate.or(other.decode_rate),
            prompt_tokens: self.prompt_tokens.or(other.prompt_tokens),
            prefill_tokens: self.prefill_tokens.or(other.prefill_tokens),
            prefill_rate: self.prefill_rate.or(other.prefill_rate),
            cached_tokens: self.cached_tokens.or(other.cached_tokens),
        }
        .completed()
    }

    /// A prompt is what was processed and what was cached: of the three counts, two give the third.
    fn completed(self) -> Self {
        let sum = || self.prefill_tokens?.checked_add(self.cached_tokens?);
        let rest = || self.prompt_tokens?.checked_sub(self.cached_tokens?);
        Self {
            prompt_tokens: self.prompt_tokens.or_else(sum),
            prefill_tokens: self.prefill_tokens.or_else(rest),
            ..self
        }
    }
}
