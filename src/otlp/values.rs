//! The grammar of single `OTEL_*` values.

use std::num::NonZeroUsize;
use std::time::Duration;

use opentelemetry_otlp::Compression;
use opentelemetry_sdk::metrics::Temporality;
use opentelemetry_sdk::trace::Sampler;
use url::Url;

use super::signal::Signal;

/// What may stand in a variable.
pub(super) trait Value: Sized {
    /// What is understood, in the words of a warning.
    const EXPECTED: &'static str;

    /// Reads it; `None` when it is not understood.
    fn parse(text: &str) -> Option<Self>;
}

impl Value for bool {
    const EXPECTED: &'static str = "`true` or `false`";

    fn parse(text: &str) -> Option<Self> {
        text.to_ascii_lowercase().parse().ok()
    }
}

impl Value for Duration {
    const EXPECTED: &'static str = "a whole number of milliseconds above 0";

    fn parse(text: &str) -> Option<Self> {
        text.parse().ok().filter(|&millis| millis > 0).map(Self::from_millis)
    }
}

impl Value for NonZeroUsize {
    const EXPECTED: &'static str = "a whole number above 0";

    fn parse(text: &str) -> Option<Self> {
        text.parse().ok()
    }
}

impl Value for Temporality {
    const EXPECTED: &'static str = "`cumulative`, `delta` or `lowmemory`";

    fn parse(text: &str) -> Option<Self> {
        text.parse().ok()
    }
}

/// A share of traces, from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Ratio(pub(super) f64);

impl Value for Ratio {
    const EXPECTED: &'static str = "a number from 0 to 1";

    fn parse(text: &str) -> Option<Self> {
        text.parse().ok().filter(|ratio| (0.0..=1.0).contains(ratio)).map(Self)
    }
}

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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NamedProtocol {
    Known(Protocol),
    Json,
}

impl Value for NamedProtocol {
    const EXPECTED: &'static str = "`grpc` or `http/protobuf`";

    fn parse(text: &str) -> Option<Self> {
        match text.to_ascii_lowercase().as_str() {
            "grpc" => Some(Self::Known(Protocol::Grpc)),
            "http/protobuf" => Some(Self::Known(Protocol::Http)),
            "http/json" => Some(Self::Json),
            _ => None,
        }
    }
}

/// Whether a signal is exported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExporterChoice {
    Otlp,
    None,
}

impl Value for ExporterChoice {
    const EXPECTED: &'static str = "`otlp` or `none`";

    /// A list is allowed; of what else is in it, nothing is said as long as `otlp` is.
    fn parse(text: &str) -> Option<Self> {
        let mut names = text.split(',').map(str::trim);
        if names.clone().any(|name| name == "otlp") {
            Some(Self::Otlp)
        } else {
            names.all(|name| name == "none").then_some(Self::None)
        }
    }
}

/// A compression, or expressly none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NamedCompression(pub(super) Option<Compression>);

impl Value for NamedCompression {
    const EXPECTED: &'static str = "`gzip` or `none`";

    fn parse(text: &str) -> Option<Self> {
        match text.to_ascii_lowercase().as_str() {
            "gzip" => Some(Self(Some(Compression::Gzip))),
            "none" => Some(Self(None)),
            _ => None,
        }
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

impl Value for NamedSampler {
    const EXPECTED: &'static str =
        "`always_on`, `always_off`, `traceidratio`, or one of these with `parentbased_` before it";

    fn parse(text: &str) -> Option<Self> {
        let (parent_based, name) = match text.strip_prefix("parentbased_") {
            Some(name) => (true, name),
            None => (false, text),
        };
        let root = match name {
            "always_on" => RootSampler::On,
            "always_off" => RootSampler::Off,
            "traceidratio" => RootSampler::Ratio,
            _ => return None,
        };
        Some(Self { parent_based, root })
    }
}

impl NamedSampler {
    pub(super) fn takes_ratio(self) -> bool {
        self.root == RootSampler::Ratio
    }

    pub(super) fn with_ratio(self, Ratio(ratio): Ratio) -> Sampler {
        let root = match self.root {
            RootSampler::On => Sampler::AlwaysOn,
            RootSampler::Off => Sampler::AlwaysOff,
            RootSampler::Ratio => Sampler::TraceIdRatioBased(ratio),
        };
        if self.parent_based { Sampler::ParentBased(Box::new(root)) } else { root }
    }
}

/// Makes a full URL of an endpoint, or says what is wrong with it. `base_for` is the signal whose
/// path an HTTP base URL still lacks.
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

/// A list of pairs, special characters as `%XX`. Each that cannot be read is `None`.
pub(super) fn pairs(text: &str) -> impl Iterator<Item = Option<(String, String)>> {
    text.split(',').map(str::trim).filter(|entry| !entry.is_empty()).map(parse_pair)
}

/// The words for [`pairs`].
pub(super) const PAIRS: &str = "a list `key=value,key=value`, special characters as %XX";

/// Attributes of the resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Attributes(pub(super) Vec<(String, String)>);

impl Value for Attributes {
    const EXPECTED: &'static str = PAIRS;

    /// One bad pair spoils all, as the specification has it.
    fn parse(text: &str) -> Option<Self> {
        pairs(text).collect::<Option<_>>().map(Self)
    }
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
