//! Evidence in words, as the files of recognisers write it: the kind, and each field's text.

use std::collections::BTreeMap;

use serving_sentinel::evidence::{Evidence, MetadataKey};

/// A fact's kind, as in `yields`, and its fields, those that are not told left out.
#[derive(Debug, PartialEq)]
pub struct Words {
    pub kind: &'static str,
    pub fields: BTreeMap<&'static str, String>,
}

impl Words {
    pub fn of(evidence: &Evidence) -> Self {
        let mut fields = BTreeMap::new();
        let mut say = |name, value: &dyn ToString| {
            fields.insert(name, value.to_string());
        };
        let kind = match evidence {
            Evidence::Build { build } => {
                say("build", build);
                "build"
            }
            Evidence::Verbosity { level } => {
                say("level", level);
                "verbosity"
            }
            Evidence::LoadBegins { role, model } => {
                say("role", &role.as_str());
                model.iter().for_each(|model| say("model", model));
                "load_begins"
            }
            Evidence::BlockBegins => "block_begins",
            Evidence::BlockEnds => "block_ends",
            Evidence::Banner { offloaded, total } => {
                say("offloaded", offloaded);
                say("total", total);
                "banner"
            }
            Evidence::Buffer { kind, device, residence, bytes } => {
                say("kind", &kind.as_str());
                say("device", device);
                say("residence", &residence.as_str());
                say("bytes", bytes);
                "buffer"
            }
            Evidence::Estimate { device, residence, bytes } => {
                say("device", device);
                say("residence", &residence.as_str());
                say("bytes", bytes);
                "estimate"
            }
            Evidence::Layer { index, device, residence } => {
                say("index", index);
                say("device", device);
                say("residence", &residence.as_str());
                "layer"
            }
            Evidence::Overflow { layers } => {
                say("layers", layers);
                "overflow"
            }
            Evidence::HostOverride { detail } => {
                say("detail", detail);
                "host_override"
            }
            Evidence::DeviceSeen { device, residence } => {
                say("device", device);
                say("residence", &residence.as_str());
                "device_seen"
            }
            Evidence::DeviceChosen { device, residence } => {
                say("device", device);
                say("residence", &residence.as_str());
                "device_chosen"
            }
            Evidence::BackendLoaded { backend, residence } => {
                say("backend", backend);
                say("residence", &residence.as_str());
                "backend_loaded"
            }
            Evidence::LayersAsked { layers } => {
                layers.iter().for_each(|layers| say("layers", layers));
                "layers_asked"
            }
            Evidence::Metadata { key, value } => {
                let key = match key {
                    MetadataKey::Vocabulary => "vocabulary",
                    MetadataKey::Embedding => "embedding",
                    MetadataKey::Layers => "layers",
                    MetadataKey::WeightBytes => "weight_bytes",
                };
                say("key", &key);
                say("value", value);
                "metadata"
            }
            Evidence::Fault { cause, decides, detail } => {
                say("cause", cause);
                say("decides", decides);
                say("detail", detail);
                "fault"
            }
            Evidence::LoadFailed { detail } => {
                say("detail", detail);
                "load_failed"
            }
            Evidence::Settled => "settled",
            Evidence::Listening => "listening",
            Evidence::Exiting => "exiting",
            Evidence::DebugBuild { detail } => {
                say("detail", detail);
                "debug_build"
            }
            Evidence::Decode { tokens, milliseconds, rate, slot, task } => {
                say("tokens", tokens);
                milliseconds.iter().for_each(|milliseconds| say("milliseconds", milliseconds));
                rate.iter().for_each(|rate| say("rate", rate));
                slot.iter().for_each(|slot| say("slot", slot));
                task.iter().for_each(|task| say("task", task));
                "decode"
            }
            Evidence::Prefill { tokens, milliseconds, rate, slot, task } => {
                say("tokens", tokens);
                milliseconds.iter().for_each(|milliseconds| say("milliseconds", milliseconds));
                rate.iter().for_each(|rate| say("rate", rate));
                slot.iter().for_each(|slot| say("slot", slot));
                task.iter().for_each(|task| say("task", task));
                "prefill"
            }
            Evidence::DecodeProgress { slot, task, tokens, rate } => {
                say("slot", slot);
                say("task", task);
                say("tokens", tokens);
                rate.iter().for_each(|rate| say("rate", rate));
                "decode_progress"
            }
            Evidence::PrefillProgress { slot, task, share } => {
                say("slot", slot);
                say("task", task);
                say("share", share);
                "prefill_progress"
            }
            Evidence::TaskLaunched { slot, task } => {
                say("slot", slot);
                say("task", task);
                "task_launched"
            }
            Evidence::TaskReleased { slot, task } => {
                say("slot", slot);
                say("task", task);
                "task_released"
            }
            Evidence::ContextShift { slot, task } => {
                say("slot", slot);
                say("task", task);
                "context_shift"
            }
            other => panic!("evidence without words: {other:?}"),
        };
        Self { kind, fields }
    }

    /// The fact on one line: `banner offloaded=19 total=19`.
    pub fn line(&self) -> String {
        self.fields
            .iter()
            .fold(self.kind.to_owned(), |line, (name, value)| format!("{line} {name}={value}"))
    }
}
