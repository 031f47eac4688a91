//! One collector with what stands behind it, as `collector.yaml` has it.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::jaeger::Jaeger;
use crate::program::{Program, free_port};
use crate::prometheus::Prometheus;

/// A running collector, Jaeger and Prometheus.
pub(crate) struct Stack {
    pub(crate) collector: Collector,
    pub(crate) jaeger: Jaeger,
    pub(crate) prometheus: Prometheus,
    _folder: tempfile::TempDir,
}

impl Stack {
    pub(crate) async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let jaeger = Jaeger::start(&folder.path().join("jaeger")).await;
        let collector = Collector::start(&folder.path().join("collector"), &jaeger).await;
        let prometheus = Prometheus::start(
            &folder.path().join("prometheus"),
            collector.metrics,
            collector.own_metrics,
        )
        .await;
        Self { collector, jaeger, prometheus, _folder: folder }
    }
}

/// A collector with `collector.yaml`.
pub(crate) struct Collector {
    pub(crate) program: Program,
    /// Where programs send to, over HTTP.
    pub(crate) otlp: String,
    metrics: u16,
    own_metrics: u16,
    alarms: PathBuf,
}

impl Collector {
    async fn start(folder: &Path, jaeger: &Jaeger) -> Self {
        let [grpc, http, metrics, own_metrics] = std::array::from_fn(|_| free_port());
        let alarms = folder.join("alarms.jsonl");
        let variables = vec![
            ("OTLP_GRPC_PORT", grpc.to_string()),
            ("OTLP_HTTP_PORT", http.to_string()),
            ("PROMETHEUS_PORT", metrics.to_string()),
            ("SELF_METRICS_PORT", own_metrics.to_string()),
            ("JAEGER_OTLP_ENDPOINT", jaeger.otlp.clone()),
            ("ALARMS_FILE", alarms.display().to_string()),
        ];
        let program = Program::collector("collector.yaml", folder, variables).await;
        Self { program, otlp: format!("http://127.0.0.1:{http}"), metrics, own_metrics, alarms }
    }

    /// The alarms in its file: (name, state, lane).
    pub(crate) fn alarms(&self) -> Vec<(String, String, String)> {
        alarms(&self.alarms)
    }
}

/// The alarms in a file of the collector's file exporter: (name, state, lane).
pub(crate) fn alarms(file: &Path) -> Vec<(String, String, String)> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let mut alarms = Vec::new();
    // The last line may be half written.
    for line in text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        for record in records(&line) {
            let told = |key: &str| {
                let attributes = record["attributes"].as_array().unwrap();
                let found = attributes.iter().find(|pair| pair["key"] == key);
                found.map(|pair| text_of(&pair["value"]["stringValue"])).unwrap_or_default()
            };
            alarms.push((
                text_of(&record["eventName"]),
                told("serving.alarm.state"),
                told("serving.lane.name"),
            ));
        }
    }
    alarms
}

fn records(line: &Value) -> impl Iterator<Item = &Value> {
    line["resourceLogs"]
        .as_array()
        .into_iter()
        .flatten()
        .flat_map(|resource| resource["scopeLogs"].as_array().into_iter().flatten())
        .flat_map(|scope| scope["logRecords"].as_array().into_iter().flatten())
}

fn text_of(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
