//! Who is speaking: the resource that all telemetry of this process carries.

use opentelemetry::trace::TraceId;
use opentelemetry::{KeyValue, Value};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::resource::TelemetryResourceDetector;
use opentelemetry_sdk::trace::{IdGenerator, RandomIdGenerator};

use super::settings::Settings;
use crate::telemetry::names;

/// The service's name where nobody gives one.
const DEFAULT_SERVICE_NAME: &str = "serving-sentinel";

/// What we know, what the program adds, and what the variables say, in this order: the later wins.
pub(super) fn resource(settings: &Settings, program: &[KeyValue]) -> Resource {
    let text = |(key, value): &(String, String)| KeyValue::new(key.clone(), value.clone());
    Resource::builder_empty()
        .with_detector(Box::new(TelemetryResourceDetector))
        .with_schema_url(ours(), names::SCHEMA_URL)
        .with_attributes(program.iter().cloned())
        .with_attributes(settings.resource_attributes.0.iter().map(text))
        .with_attributes(
            settings.service_name.clone().map(|name| KeyValue::new("service.name", name)),
        )
        .build()
}

fn ours() -> Vec<KeyValue> {
    let mut attributes = vec![
        KeyValue::new("service.name", DEFAULT_SERVICE_NAME),
        // Random, so that the series of two processes never merge.
        KeyValue::new("service.instance.id", uuid(RandomIdGenerator::default().new_trace_id())),
        KeyValue::new("process.pid", i64::from(std::process::id())),
    ];
    attributes.extend(host_name().map(|name| KeyValue::new("host.name", Value::from(name))));
    attributes
}

/// The random id in the form of a version 4 UUID, as the semantic conventions recommend.
fn uuid(id: TraceId) -> String {
    let mut bytes = id.to_bytes();
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex = format!("{:032x}", u128::from_be_bytes(bytes));
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

/// The kernel's word on Linux, else what the shell or Windows puts into the environment; `None`
/// where neither does.
fn host_name() -> Option<String> {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let name = kernel
        .or_else(|| std::env::var("HOSTNAME").or_else(|_| std::env::var("COMPUTERNAME")).ok())?;
    Some(name.trim().to_owned()).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_id_is_a_uuid() {
        let id = uuid(TraceId::from_bytes([0xff; 16]));
        assert_eq!(id, "ffffffff-ffff-4fff-bfff-ffffffffffff");
    }
}
