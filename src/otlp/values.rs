//! The grammar of single `OTEL_*` values.

use std::str::FromStr;
use std::time::Duration;

use opentelemetry_otlp::Compression;
use opentelemetry_sdk::trace::Sampler;
use reqwest::Url;

use super::settings::Signal;

// What each kind of value may be, in the words of a warning.
pub(super) const YES_NO: &str = "`true` or `false`";
pub(super) const EXPORTER: &str = "`otlp` or `none`";
pub(super) const PROTOCOL: &str = "`grpc` or `http/protobuf`";
pub(super) const COMPRESSION: &str = "`gzip` or `none`";
pub(super) const TEMPORALITY: &str = "`cumulative`, `delta` or `lowmemory`";
pub(super) const SAMPLER: &str =
    "`always_on`, `always_off`, `traceidratio`, or one of these with `parentbased_` before it";
pub(super) const PROPAGATORS: &str = "a list of `tracecontext`, `baggage`, or `none`";
pub(super) const RATIO: &str = "a number from 0 to 1";
pub(super) const MILLIS: &str = "a whole number of milliseconds above 0";
pub(super) const COUNT: &str = "a whole number above 0";
pub(super) const PAIRS: &str = "a list `key=value,key=value`, special characters as %XX";

/// How OTLP is carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Grpc,
    Http,
}

impl Protocol {
    /// As in `OTEL_EXPORTER_OTLP_PROTOCOL`.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Grpc => "grpc",
            Self::Http => "http/protobuf",
        }
    }

    /// The specification's.
    pub(super) const fn default_endpoint(self) -> &'static str {
        match self {
            Self::Grpc => "http://localhost:4317",
            Self::Http => "http://localhost:4318",
        }
    }

    /// The port on which a collector speaks the other protocol.
    pub(super) const fn port_of_the_other(self) -> u16 {
        match self {
            Self::Grpc => 4318,
            Self::Http => 4317,
        }
    }

    pub(super) const fn other(self) -> Self {
        match self {
            Self::Grpc => Self::Http,
            Self::Http => Self::Grpc,
        }
    }
}

/// A protocol that the specification names: ours, or the one that is not built in.
pub(super) enum NamedProtocol {
    Known(Protocol),
    Json,
}

impl FromStr for NamedProtocol {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text.to_ascii_lowercase().as_str() {
            "grpc" => Ok(Self::Known(Protocol::Grpc)),
            "http/protobuf" => Ok(Self::Known(Protocol::Http)),
            "http/json" => Ok(Self::Json),
            _ => Err(()),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExporterChoice {
    Otlp,
    None,
}

/// A list is allowed; of what we do not have in it, nothing is said as long as `otlp` is there.
pub(super) fn parse_exporters(text: &str) -> Option<ExporterChoice> {
    let mut names = text.split(',').map(str::trim);
    if names.clone().any(|name| name == "otlp") {
        Some(ExporterChoice::Otlp)
    } else {
        names.all(|name| name == "none").then_some(ExporterChoice::None)
    }
}

pub(super) fn parse_yes_no(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "true" => Some(true),
        "false" => Some(false),
        _ => None,
    }
}

pub(super) fn parse_millis(text: &str) -> Option<Duration> {
    text.parse().ok().filter(|&millis| millis > 0).map(Duration::from_millis)
}

pub(super) fn parse_count(text: &str) -> Option<usize> {
    text.parse().ok().filter(|&count| count > 0)
}

pub(super) fn parse_ratio(text: &str) -> Option<f64> {
    text.parse().ok().filter(|ratio| (0.0..=1.0).contains(ratio))
}

/// The outer `None` is a value not understood, the inner one is `none`.
pub(super) fn parse_compression(text: &str) -> Option<Option<Compression>> {
    match text.to_ascii_lowercase().as_str() {
        "gzip" => Some(Some(Compression::Gzip)),
        "none" => Some(None),
        _ => None,
    }
}

/// A sampler by its name; the ratio is in a variable of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NamedSampler {
    parent_based: bool,
    root: RootSampler,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RootSampler {
    On,
    Off,
    Ratio,
}

impl Default for NamedSampler {
    fn default() -> Self {
        Self { parent_based: true, root: RootSampler::On }
    }
}

impl FromStr for NamedSampler {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (parent_based, name) = match text.strip_prefix("parentbased_") {
            Some(name) => (true, name),
            None => (false, text),
        };
        let root = match name {
            "always_on" => RootSampler::On,
            "always_off" => RootSampler::Off,
            "traceidratio" => RootSampler::Ratio,
            _ => return Err(()),
        };
        Ok(Self { parent_based, root })
    }
}

impl NamedSampler {
    pub(super) fn takes_ratio(self) -> bool {
        self.root == RootSampler::Ratio
    }

    pub(super) fn with_ratio(self, ratio: f64) -> Sampler {
        let root = match self.root {
            RootSampler::On => Sampler::AlwaysOn,
            RootSampler::Off => Sampler::AlwaysOff,
            RootSampler::Ratio => Sampler::TraceIdRatioBased(ratio),
        };
        if self.parent_based { Sampler::ParentBased(Box::new(root)) } else { root }
    }
}

/// Makes a full URL of an endpoint, or says what is wrong with it. `base_for` is the signal whose path an HTTP base
/// URL still lacks.
pub(super) fn endpoint(
    text: &str,
    protocol: Protocol,
    base_for: Option<Signal>,
    insecure: bool,
) -> Result<String, String> {
    let mut full = match protocol {
        // Only gRPC may leave the scheme out, and is secure then unless told otherwise.
        Protocol::Grpc if !text.contains("://") => {
            format!("{}://{text}", if insecure { "http" } else { "https" })
        }
        Protocol::Grpc | Protocol::Http => text.to_owned(),
    };
    if let (Protocol::Http, Some(signal)) = (protocol, base_for) {
        full = format!("{}/v1/{signal}", full.trim_end_matches('/'));
    }
    let url = Url::parse(&full).map_err(|error| format!("`{text}` is no URL ({error})"))?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err(format!("`{text}` does not start with http:// or https:// and a host"));
    }
    Ok(full)
}

/// Reads a list of headers, and whether all of it could be read.
pub(super) fn parse_headers(text: &str) -> (Vec<(String, String)>, bool) {
    let entries: Vec<Option<(String, String)>> = entries(text).map(parse_pair).collect();
    let all_good = entries.iter().all(Option::is_some);
    (entries.into_iter().flatten().collect(), all_good)
}

/// One bad entry spoils all, as the specification has it.
pub(super) fn parse_resource_attributes(text: &str) -> Option<Vec<(String, String)>> {
    entries(text).map(parse_pair).collect()
}

fn entries(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|entry| !entry.is_empty())
}

fn parse_pair(entry: &str) -> Option<(String, String)> {
    let (key, value) = entry.split_once('=')?;
    let key = decode(key.trim()).filter(|key| !key.is_empty())?;
    Some((key, decode(value.trim())?))
}

/// Replaces each `%XX` by its byte.
fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte == b'%' {
            let digits = std::str::from_utf8(rest.get(..2)?)
                .ok()
                .filter(|digits| !digits.starts_with('+'))?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = &rest[2..];
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}
