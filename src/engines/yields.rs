//! What a format can yield: the kinds of evidence, the fields each is made of, and how text becomes a typed value.

use std::borrow::Cow;
use std::str::FromStr;

use crate::evidence::{BufferKind, Cause, Evidence, LoadPlan, MetadataKey, Residence, Role};

use super::format::Reading;

/// A kind of evidence.
#[derive(Debug)]
pub(super) struct Kind {
    /// Its name in `yields`.
    pub(super) name: &'static str,
    /// Fields without which there is none.
    pub(super) required: &'static [&'static str],
    /// Fields that may be absent.
    pub(super) optional: &'static [&'static str],
    /// Makes it; `None` where a field's text is no value of its type, or states nothing.
    pub(super) make: fn(&Reading<'_>) -> Option<Evidence>,
}

/// The name of the kind that only says which engine a line is of.
pub(super) const NOTHING: &str = "nothing";

const OF_REQUEST: &[&str] = &["milliseconds", "seconds", "rate", "slot", "task"];
/// Old lines give no count of tokens, or the time of one token in milliseconds in place of a rate.
const OF_DECODE: &[&str] =
    &["tokens", "per_token", "milliseconds", "seconds", "rate", "slot", "task"];

/// Every kind there is.
pub(super) static KINDS: &[Kind] = &[
    Kind { name: NOTHING, required: &[], optional: &["slot", "task"], make: |_| None },
    Kind {
        name: "build",
        required: &["build"],
        optional: &[],
        make: |r| Some(Evidence::Build { build: r.string("build")? }),
    },
    Kind {
        name: "verbosity",
        required: &["level"],
        optional: &[],
        make: |r| Some(Evidence::Verbosity { level: r.number("level")? }),
    },
    Kind {
        name: "load_begins",
        required: &["role"],
        optional: &["model"],
        make: |r| {
            Some(Evidence::LoadBegins { role: r.word("role", role)?, model: r.string("model") })
        },
    },
    Kind {
        name: "block_begins",
        required: &[],
        optional: &[],
        make: |_| Some(Evidence::BlockBegins),
    },
    Kind { name: "block_ends", required: &[], optional: &[], make: |_| Some(Evidence::BlockEnds) },
    Kind {
        name: "banner",
        required: &["offloaded", "total"],
        optional: &[],
        make: |r| {
            Some(Evidence::Banner { offloaded: r.number("offloaded")?, total: r.number("total")? })
        },
    },
    Kind {
        name: "buffer",
        required: &["kind", "device", "bytes"],
        optional: &["unit", "residence"],
        make: |r| {
            let (device, residence) = r.device("device")?;
            Some(Evidence::Buffer {
                kind: r.word("kind", buffer_kind)?,
                device,
                residence,
                bytes: r.bytes("bytes")?,
            })
        },
    },
    Kind {
        name: "estimate",
        required: &["device", "bytes"],
        optional: &["unit", "residence"],
        make: |r| {
            let (device, residence) = r.device("device")?;
            Some(Evidence::Estimate { device, residence, bytes: r.bytes("bytes")? })
        },
    },
    Kind {
        name: "layer",
        required: &["index", "device"],
        optional: &["residence"],
        make: |r| {
            let (device, residence) = r.device("device")?;
            Some(Evidence::Layer { index: r.number("index")?, device, residence })
        },
    },
    Kind {
        name: "layer_range",
        required: &["first", "last", "device"],
        optional: &["residence"],
        make: |r| {
            let (device, residence) = r.device("device")?;
            let (first, last) = (r.number("first")?, r.number("last")?);
            Some(Evidence::LayerRange { first, last, device, residence })
        },
    },
    Kind {
        name: "platform",
        required: &["device"],
        optional: &["residence"],
        make: |r| {
            r.device("device").map(|(device, residence)| Evidence::Platform { device, residence })
        },
    },
    Kind {
        name: "overflow",
        required: &["layers"],
        optional: &[],
        make: |r| {
            Some(Evidence::Overflow { layers: r.number("layers").filter(|&layers| layers > 0)? })
        },
    },
    Kind {
        name: "host_override",
        required: &[],
        optional: &["from", "to", "detail"],
        make: host_override,
    },
    Kind {
        name: "device_seen",
        required: &["device"],
        optional: &["description", "residence"],
        make: |r| {
            r.device("device").map(|(device, residence)| Evidence::DeviceSeen { device, residence })
        },
    },
    Kind {
        name: "device_chosen",
        required: &["device"],
        optional: &["description", "residence"],
        make: |r| {
            r.device("device")
                .map(|(device, residence)| Evidence::DeviceChosen { device, residence })
        },
    },
    Kind {
        name: "backend_loaded",
        required: &["backend"],
        optional: &["residence"],
        make: |r| {
            r.device("backend")
                .map(|(backend, residence)| Evidence::BackendLoaded { backend, residence })
        },
    },
    Kind {
        name: "no_device_found",
        required: &[],
        optional: &[],
        make: |_| Some(Evidence::NoDeviceFound),
    },
    Kind {
        name: "plan",
        required: &[],
        optional: &["requested", "offloaded", "total", "required", "available"],
        make: |r| {
            Some(Evidence::Planned(LoadPlan {
                requested: r.number("requested"),
                offloaded: r.number("offloaded"),
                total: r.number("total"),
                required: r.sizes("required"),
                available: r.sizes("available"),
            }))
        },
    },
    Kind {
        name: "allotted",
        required: &["kind", "device", "bytes"],
        optional: &["unit", "residence"],
        make: |r| {
            let (device, residence) = r.device("device")?;
            Some(Evidence::Allotted {
                kind: r.word("kind", buffer_kind)?,
                device,
                residence,
                bytes: r.bytes("bytes")?,
            })
        },
    },
    Kind {
        name: "runner_begins",
        required: &[],
        optional: &["model"],
        make: |r| Some(Evidence::RunnerBegins { model: r.string("model") }),
    },
    Kind {
        name: "runner_ended",
        required: &[],
        optional: &["detail"],
        make: |r| Some(Evidence::RunnerEnded { detail: r.detail() }),
    },
    Kind {
        name: "process_begins",
        required: &[],
        optional: &[],
        make: |_| Some(Evidence::ProcessBegins),
    },
    Kind { name: "layers_asked", required: &["layers"], optional: &[], make: layers_asked },
    Kind {
        name: "metadata",
        required: &["key", "value"],
        optional: &["unit"],
        make: |r| {
            Some(Evidence::Metadata { key: r.word("key", metadata_key)?, value: r.bytes("value")? })
        },
    },
    Kind {
        name: "fault",
        required: &["cause"],
        optional: &["decides", "detail"],
        make: |r| {
            let decides = r.word("decides", |word| word.parse().ok()).unwrap_or(false);
            Some(Evidence::Fault {
                cause: r.word("cause", Cause::from_name)?,
                decides,
                detail: r.detail(),
            })
        },
    },
    Kind {
        name: "load_failed",
        required: &[],
        optional: &["cause", "detail"],
        make: |r| {
            let cause = r.word("cause", Cause::from_name);
            Some(Evidence::LoadFailed { cause, detail: r.detail() })
        },
    },
    Kind { name: "settled", required: &[], optional: &[], make: |_| Some(Evidence::Settled) },
    Kind { name: "listening", required: &[], optional: &[], make: |_| Some(Evidence::Listening) },
    Kind { name: "routes", required: &[], optional: &[], make: |_| Some(Evidence::Routes) },
    Kind {
        name: "child_begins",
        required: &["model", "port"],
        optional: &[],
        make: |r| {
            Some(Evidence::ChildBegins { model: r.string("model")?, port: r.string("port")? })
        },
    },
    Kind {
        name: "child_ends",
        required: &["model", "status"],
        optional: &[],
        make: |r| {
            Some(Evidence::ChildEnds { model: r.string("model")?, status: r.string("status")? })
        },
    },
    Kind { name: "exiting", required: &[], optional: &[], make: |_| Some(Evidence::Exiting) },
    Kind {
        name: "debug_build",
        required: &[],
        optional: &["detail"],
        make: |r| Some(Evidence::DebugBuild { detail: r.detail() }),
    },
    Kind { name: "decode", required: &[], optional: OF_DECODE, make: decode },
    Kind {
        name: "prefill",
        required: &["tokens"],
        optional: OF_REQUEST,
        make: |r| {
            let (milliseconds, rate) = (r.milliseconds(), r.decimal("rate"));
            let (slot, task) = (r.number("slot"), r.number("task"));
            Some(Evidence::Prefill { tokens: r.number("tokens")?, milliseconds, rate, slot, task })
        },
    },
    Kind {
        name: "interval",
        required: &["rate", "running"],
        optional: &["rank"],
        make: |r| {
            let (rate, running) = (r.decimal("rate")?, r.number("running")?);
            Some(Evidence::Interval { rate, running, rank: r.number("rank") })
        },
    },
    Kind {
        name: "decode_progress",
        required: &["slot", "task", "tokens"],
        optional: &["rate"],
        make: |r| {
            let (slot, task) = (r.number("slot")?, r.number("task")?);
            Some(Evidence::DecodeProgress {
                slot,
                task,
                tokens: r.number("tokens")?,
                rate: r.decimal("rate"),
            })
        },
    },
    Kind {
        name: "prefill_progress",
        required: &["slot", "task", "share"],
        optional: &[],
        make: |r| {
            let (slot, task) = (r.number("slot")?, r.number("task")?);
            Some(Evidence::PrefillProgress { slot, task, share: r.decimal("share")? })
        },
    },
    Kind {
        name: "task_launched",
        required: &["slot", "task"],
        optional: &[],
        make: |r| Some(Evidence::TaskLaunched { slot: r.number("slot")?, task: r.number("task")? }),
    },
    Kind {
        name: "task_released",
        required: &["slot", "task"],
        optional: &[],
        make: |r| Some(Evidence::TaskReleased { slot: r.number("slot")?, task: r.number("task")? }),
    },
    Kind {
        name: "context_shift",
        required: &["slot", "task"],
        optional: &[],
        make: |r| Some(Evidence::ContextShift { slot: r.number("slot")?, task: r.number("task")? }),
    },
];

fn decode(reading: &Reading<'_>) -> Option<Evidence> {
    let milliseconds = reading.milliseconds();
    let per_token = || reading.decimal("per_token").filter(|time| *time > 0.0);
    let rate = reading.decimal("rate").or_else(|| Some(1000.0 / per_token()?));
    let counted = || to_whole(milliseconds? / 1000.0 * rate?);
    let tokens = reading.number("tokens").or_else(counted)?;
    let (slot, task) = (reading.number("slot"), reading.number("task"));
    Some(Evidence::Decode { tokens, milliseconds, rate, slot, task })
}

/// Tensors that went from one kind of host buffer to another were on the host by design.
fn host_override(reading: &Reading<'_>) -> Option<Evidence> {
    let residence = |field| reading.text(field).map(|name| reading.residence_of(&name));
    let moved_away = residence("from").is_none_or(|from| from == Residence::Accelerator);
    let to_host = residence("to").is_none_or(|to| to == Residence::Host);
    (moved_away && to_host).then(|| Evidence::HostOverride { detail: reading.detail() })
}

/// A number above 0 is that many, a word (`all`, `auto`) or a negative number is no number, and 0 asks for nothing.
fn layers_asked(reading: &Reading<'_>) -> Option<Evidence> {
    let text = reading.text("layers")?;
    match text.parse::<i64>() {
        Ok(0) => None,
        Ok(layers) => Some(Evidence::LayersAsked { layers: u32::try_from(layers).ok() }),
        Err(_) => Some(Evidence::LayersAsked { layers: None }),
    }
}

impl Kind {
    /// The kind of that name.
    pub(super) fn from_name(name: &str) -> Option<&'static Self> {
        KINDS.iter().find(|kind| kind.name == name)
    }

    /// The field of that name, if the kind has one.
    pub(super) fn field(&self, name: &str) -> Option<&'static str> {
        self.required.iter().chain(self.optional).copied().find(|&field| field == name)
    }
}

impl Reading<'_> {
    fn string(&self, field: &str) -> Option<String> {
        self.text(field).map(Cow::into_owned)
    }

    fn number<T: FromStr>(&self, field: &str) -> Option<T> {
        self.text(field)?.parse().ok()
    }

    fn decimal(&self, field: &str) -> Option<f64> {
        parse_decimal(&self.text(field)?)
    }

    fn word<T>(&self, field: &str, parse: fn(&str) -> Option<T>) -> Option<T> {
        parse(&self.text(field)?)
    }

    /// A size in its unit, as bytes; a plain count where there is no unit.
    fn bytes(&self, field: &str) -> Option<u64> {
        let unit = self.text("unit").map_or(Some(1.0), |unit| unit_bytes(&unit))?;
        to_whole(self.decimal(field)? * unit)
    }

    /// The sum of sizes with their units, in brackets or alone (`[2.8 GiB 1.0 GiB]`), as bytes.
    fn sizes(&self, field: &str) -> Option<u64> {
        let text = self.text(field)?;
        let mut words = text.trim_matches(['[', ']']).split_whitespace();
        let mut sum = None;
        while let Some(number) = words.next() {
            let bytes = to_whole(parse_decimal(number)? * unit_bytes(words.next()?)?)?;
            sum = Some(bytes.saturating_add(sum.unwrap_or(0)));
        }
        sum
    }

    /// A time, printed in milliseconds or in seconds.
    fn milliseconds(&self) -> Option<f64> {
        self.decimal("milliseconds").or_else(|| Some(self.decimal("seconds")? * 1000.0))
    }

    /// A device's name, and where it is: as the format says, else as its description or name tells.
    fn device(&self, field: &str) -> Option<(String, Residence)> {
        let name = self.string(field)?;
        let residence = match self.word("residence", residence) {
            Some(residence) => residence,
            None if self
                .text("description")
                .is_some_and(|description| self.is_software(&description)) =>
            {
                Residence::Host
            }
            None => self.residence_of(&name),
        };
        Some((name, residence))
    }

    fn detail(&self) -> String {
        self.string("detail").unwrap_or_else(|| String::from_utf8_lossy(self.message).into_owned())
    }
}

/// Whether `value` can be a field's fixed value.
pub(super) fn is_value(field: &str, value: &str) -> bool {
    match field {
        "role" => role(value).is_some(),
        "kind" => buffer_kind(value).is_some(),
        "residence" => residence(value).is_some(),
        "key" => metadata_key(value).is_some(),
        "cause" => Cause::from_name(value).is_some(),
        "decides" => value.parse::<bool>().is_ok(),
        "unit" => unit_bytes(value).is_some(),
        "build" | "model" | "device" | "description" | "from" | "to" | "backend" | "detail" => {
            !value.is_empty()
        }
        _ => parse_decimal(value).is_some(),
    }
}

/// `None` for what engines print when there is no number: `nan`, `-nan(ind)`, `inf`. Some locales print a comma.
fn parse_decimal(text: &str) -> Option<f64> {
    let number: f64 =
        if text.contains(',') { text.replacen(',', ".", 1).parse() } else { text.parse() }.ok()?;
    number.is_finite().then_some(number)
}

/// `None` below zero. Sizes are far below 2^53.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "checked to be a size, and rounded"
)]
fn to_whole(number: f64) -> Option<u64> {
    (number >= 0.0).then(|| number.round() as u64)
}

fn unit_bytes(unit: &str) -> Option<f64> {
    Some(match unit {
        "B" => 1.0,
        "kB" | "KB" => 1e3,
        "MB" => 1e6,
        "GB" => 1e9,
        "KiB" => 1024.0,
        "MiB" => 1024.0 * 1024.0,
        "GiB" => 1024.0 * 1024.0 * 1024.0,
        "TiB" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
        _ => return None,
    })
}

/// The residence of that name.
pub(super) fn residence(name: &str) -> Option<Residence> {
    [Residence::Accelerator, Residence::Host, Residence::Unknown]
        .into_iter()
        .find(|known| known.as_str() == name)
}

fn role(name: &str) -> Option<Role> {
    [Role::Main, Role::Draft, Role::Projector, Role::Auxiliary]
        .into_iter()
        .find(|known| known.as_str() == name)
}

fn buffer_kind(name: &str) -> Option<BufferKind> {
    [BufferKind::Model, BufferKind::Kv, BufferKind::Compute]
        .into_iter()
        .find(|known| known.as_str() == name)
}

fn metadata_key(name: &str) -> Option<MetadataKey> {
    Some(match name {
        "vocabulary" => MetadataKey::Vocabulary,
        "embedding" => MetadataKey::Embedding,
        "layers" => MetadataKey::Layers,
        "weight_bytes" => MetadataKey::WeightBytes,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_engines_print_them() {
        let rows = [
            ("16131.90", Some(16131.9)),
            ("0.00", Some(0.0)),
            ("16131,90", Some(16131.9)),
            ("-3", Some(-3.0)),
            ("1e+06", Some(1e6)),
            ("inf", None),
            ("-inf", None),
            ("nan", None),
            ("-nan", None),
            ("-nan(ind)", None),
            ("Indeterminate", None),
            ("", None),
        ];
        for (text, expected) in rows {
            assert_eq!(parse_decimal(text), expected, "{text:?}");
        }
    }

    #[test]
    fn sizes_are_whole_bytes_or_nothing() {
        assert_eq!(to_whole(235.16 * 1024.0 * 1024.0), Some(246_583_132));
        assert_eq!(to_whole(-0.5), None);
        assert_eq!(to_whole(f64::NAN), None);
    }

    #[test]
    fn kinds_are_told_apart_by_name() {
        for kind in KINDS {
            assert_eq!(
                KINDS.iter().filter(|other| other.name == kind.name).count(),
                1,
                "{}",
                kind.name
            );
        }
    }
}
