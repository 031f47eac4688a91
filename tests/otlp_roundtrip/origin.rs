//! Who speaks: the same scope and resource on everything.

use std::collections::BTreeSet;

use opentelemetry_proto::tonic::resource::v1::Resource;
use serde_json::{Value, json};

use crate::otlp::Item;
use crate::run::RUN;
use crate::wire::attributes;

#[test]
fn all_of_it_says_who_speaks() {
    let received = &RUN.received;
    let origins = origins(&received.spans)
        .chain(origins(&received.metrics))
        .chain(origins(&received.logs))
        .collect::<BTreeSet<_>>();
    let scope = format!("serving-sentinel {}", env!("CARGO_PKG_VERSION"));
    let schema = "https://opentelemetry.io/schemas/1.41.0";
    assert_eq!(origins, [(scope, schema.to_owned(), schema.to_owned())].into());

    let resources: Vec<&Resource> = (received.spans.iter().map(|it| &it.resource))
        .chain(received.metrics.iter().map(|it| &it.resource))
        .chain(received.logs.iter().map(|it| &it.resource))
        .collect();
    for resource in &resources {
        assert_eq!(*resource, resources[0], "one process, one resource");
    }
    let mut resource = attributes(&resources[0].attributes);
    let instance = resource.remove("service.instance.id").unwrap();
    assert_eq!(instance.as_str().unwrap().len(), "ffffffff-ffff-4fff-bfff-ffffffffffff".len());
    assert!(
        resource.remove("host.name").is_some_and(|host| host.is_string())
            || !cfg!(target_os = "linux")
    );
    assert!(resource.remove("telemetry.sdk.version").is_some());
    let rest = json!({
        "service.name": "serving-sentinel",
        "process.pid": RUN.process,
        "telemetry.sdk.name": "opentelemetry",
        "telemetry.sdk.language": "rust",
    });
    assert_eq!(Value::Object(resource), rest);
}

fn origins<T>(items: &[Item<T>]) -> impl Iterator<Item = (String, String, String)> {
    items.iter().map(|item| {
        let scope = format!("{} {}", item.scope.name, item.scope.version);
        (scope, item.scope_schema.clone(), item.resource_schema.clone())
    })
}
