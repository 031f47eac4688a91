//! Evidence in words, as the files of recognisers write it: the kind, and each field's text.

use std::collections::BTreeMap;

use serving_sentinel::evidence::{Evidence, MetadataKey, Residence};

/// A fact's kind, as in `yields`, and its fields, those that are not told left out.
#[derive(Debug, PartialEq)]
pub(crate) struct Words {
    pub(crate) kind: &'static str,
    pub(crate) fields: BTreeMap<&'static str, String>,
}

type Field = (&'static str, Option<String>);

fn told(name: &'static str, value: &(impl ToString + ?Sized)) -> Field {
    (name, Some(value.to_string()))
}

fn perhaps<T: ToString>(name: &'static str, value: Option<&T>) -> Field {
    (name, value.map(ToString::to_string))
}

fn place(name: &'static str, device: &str, residence: Residence) -> Vec<Field> {
    vec![told(name, device), told("residence", residence.as_str())]
}

fn request(slot: u32, task: u64) -> Vec<Field> {
    vec![told("slot", &slot), told("task", &task)]
}

fn detail(detail: &str) -> Vec<Field> {
    vec![told("detail", detail)]
}

impl Words {
    pub(crate) fn of(evidence: &Evidence) -> Self {
        let (kind, fields) = in_words(evidence);
        Self {
            kind,
            fields: fields.into_iter().filter_map(|(name, value)| Some((name, value?))).collect(),
        }
    }

    /// The fact on one line: `banner offloaded=19 total=19`.
    pub(crate) fn line(&self) -> String {
        self.fields
            .iter()
            .fold(self.kind.to_owned(), |line, (name, value)| format!("{line} {name}={value}"))
    }
}

#[expect(clippy::too_many_lines, reason = "one arm for each fact there is")]
fn in_words(evidence: &Evidence) -> (&'static str, Vec<Field>) {
    match evidence {
        Evidence::Build { build } => ("build", vec![told("build", build)]),
        Evidence::Verbosity { level } => ("verbosity", vec![told("level", level)]),
        Evidence::LoadBegins { role, model } => {
            ("load_begins", vec![told("role", role.as_str()), perhaps("model", model.as_ref())])
        }
        Evidence::BlockBegins => ("block_begins", vec![]),
        Evidence::BlockEnds => ("block_ends", vec![]),
        Evidence::Banner { offloaded, total } => {
            ("banner", vec![told("offloaded", offloaded), told("total", total)])
        }
        Evidence::Buffer { kind, device, residence, bytes } => {
            let what = vec![told("kind", kind.as_str()), told("bytes", bytes)];
            ("buffer", [what, place("device", device, *residence)].concat())
        }
        Evidence::Estimate { device, residence, bytes } => {
            ("estimate", [vec![told("bytes", bytes)], place("device", device, *residence)].concat())
        }
        Evidence::Layer { index, device, residence } => {
            ("layer", [vec![told("index", index)], place("device", device, *residence)].concat())
        }
        Evidence::LayerRange { first, last, device, residence } => {
            let which = vec![told("first", first), told("last", last)];
            ("layer_range", [which, place("device", device, *residence)].concat())
        }
        Evidence::Platform { device, residence } => {
            ("platform", place("device", device, *residence))
        }
        Evidence::Overflow { layers } => ("overflow", vec![told("layers", layers)]),
        Evidence::HostOverride { detail: words } => ("host_override", detail(words)),
        Evidence::DeviceSeen { device, residence } => {
            ("device_seen", place("device", device, *residence))
        }
        Evidence::DeviceChosen { device, residence } => {
            ("device_chosen", place("device", device, *residence))
        }
        Evidence::BackendLoaded { backend, residence } => {
            ("backend_loaded", place("backend", backend, *residence))
        }
        Evidence::Allotted { kind, device, residence, bytes } => {
            let what = vec![told("kind", kind.as_str()), told("bytes", bytes)];
            ("allotted", [what, place("device", device, *residence)].concat())
        }
        Evidence::Planned(plan) => (
            "plan",
            vec![
                perhaps("requested", plan.requested.as_ref()),
                perhaps("offloaded", plan.offloaded.as_ref()),
                perhaps("total", plan.total.as_ref()),
                perhaps("required", plan.required.as_ref()),
                perhaps("available", plan.available.as_ref()),
            ],
        ),
        Evidence::NoDeviceFound => ("no_device_found", vec![]),
        Evidence::RunnerBegins { model } => {
            ("runner_begins", vec![perhaps("model", model.as_ref())])
        }
        Evidence::RunnerEnded { detail: words } => ("runner_ended", detail(words)),
        Evidence::ProcessBegins => ("process_begins", vec![]),
        Evidence::LayersAsked { layers } => {
            ("layers_asked", vec![perhaps("layers", layers.as_ref())])
        }
        Evidence::Metadata { key, value } => {
            let key = match key {
                MetadataKey::Vocabulary => "vocabulary",
                MetadataKey::Embedding => "embedding",
                MetadataKey::Layers => "layers",
                MetadataKey::WeightBytes => "weight_bytes",
            };
            ("metadata", vec![told("key", key), told("value", value)])
        }
        Evidence::Fault { cause, decides, detail: words } => (
            "fault",
            [vec![told("cause", cause), told("decides", decides)], detail(words)].concat(),
        ),
        Evidence::LoadFailed { cause, detail: words } => {
            ("load_failed", [vec![perhaps("cause", cause.as_ref())], detail(words)].concat())
        }
        Evidence::Settled => ("settled", vec![]),
        Evidence::Listening => ("listening", vec![]),
        Evidence::Routes => ("routes", vec![]),
        Evidence::ChildBegins { model, port } => {
            ("child_begins", vec![told("model", model), told("port", port)])
        }
        Evidence::ChildEnds { model, status } => {
            ("child_ends", vec![told("model", model), told("status", status)])
        }
        Evidence::Exiting => ("exiting", vec![]),
        Evidence::DebugBuild { detail: words } => ("debug_build", detail(words)),
        Evidence::Decode { tokens, milliseconds, rate, slot, task } => {
            ("decode", timing(*tokens, *milliseconds, *rate, *slot, *task))
        }
        Evidence::Prefill { tokens, milliseconds, rate, slot, task } => {
            ("prefill", timing(*tokens, *milliseconds, *rate, *slot, *task))
        }
        Evidence::Interval { rate, running, rank } => {
            let which = vec![perhaps("rank", rank.as_ref())];
            ("interval", [vec![told("rate", rate), told("running", running)], which].concat())
        }
        Evidence::DecodeProgress { slot, task, tokens, rate } => {
            let far = vec![told("tokens", tokens), perhaps("rate", rate.as_ref())];
            ("decode_progress", [request(*slot, *task), far].concat())
        }
        Evidence::PrefillProgress { slot, task, share } => {
            ("prefill_progress", [request(*slot, *task), vec![told("share", share)]].concat())
        }
        Evidence::TaskLaunched { slot, task } => ("task_launched", request(*slot, *task)),
        Evidence::TaskReleased { slot, task } => ("task_released", request(*slot, *task)),
        Evidence::ContextShift { slot, task } => ("context_shift", request(*slot, *task)),
        other => panic!("evidence without words: {other:?}"),
    }
}

fn timing(
    tokens: u64,
    milliseconds: Option<f64>,
    rate: Option<f64>,
    slot: Option<u32>,
    task: Option<u64>,
) -> Vec<Field> {
    vec![
        told("tokens", &tokens),
        perhaps("milliseconds", milliseconds.as_ref()),
        perhaps("rate", rate.as_ref()),
        perhaps("slot", slot.as_ref()),
        perhaps("task", task.as_ref()),
    ]
}
