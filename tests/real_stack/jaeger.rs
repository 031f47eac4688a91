//! A real Jaeger, and what its search finds.

use std::path::Path;

use serde_json::{Value, json};

use crate::program::{Program, config, free_port};
use crate::web::{get, get_json, metric};

/// Jaeger with `collector-config/jaeger.yaml`.
pub(crate) struct Jaeger {
    _program: Program,
    api: String,
    own_metrics: u16,
    /// Where it takes OTLP over gRPC.
    pub(crate) otlp: String,
}

/// A span as the search gives it.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    pub(crate) trace: String,
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) attributes: Vec<(String, String)>,
    /// The events by name, with their attributes.
    pub(crate) events: Vec<(String, Vec<(String, String)>)>,
    /// What the resource says of the program.
    pub(crate) process: Vec<(String, String)>,
}

impl Span {
    pub(crate) fn event(&self, name: &str) -> Option<&[(String, String)]> {
        self.events.iter().find(|(event, _)| event == name).map(|(_, told)| told.as_slice())
    }
}

/// The value of this key.
pub(crate) fn value<'a>(told: &'a [(String, String)], key: &str) -> Option<&'a str> {
    told.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
}

impl Jaeger {
    pub(crate) async fn start(folder: &Path) -> Self {
        let [otlp, otlp_http, http, grpc, health, metrics] = std::array::from_fn(|_| free_port());
        let variables = vec![
            ("JAEGER_OTLP_GRPC_PORT", otlp.to_string()),
            ("JAEGER_OTLP_HTTP_PORT", otlp_http.to_string()),
            ("JAEGER_HTTP_PORT", http.to_string()),
            ("JAEGER_GRPC_PORT", grpc.to_string()),
            ("JAEGER_HEALTH_ENDPOINT", format!("127.0.0.1:{health}")),
            ("JAEGER_METRICS_PORT", metrics.to_string()),
        ];
        let arguments = vec!["--config".to_owned(), config("jaeger.yaml").display().to_string()];
        let health = format!("http://127.0.0.1:{health}/status");
        let program = Program::start("jaeger", folder, arguments, variables, health).await;
        Self {
            _program: program,
            api: format!("http://127.0.0.1:{http}/api"),
            own_metrics: metrics,
            otlp: format!("127.0.0.1:{otlp}"),
        }
    }

    /// How many spans it has taken, each as often as it came.
    pub(crate) async fn accepted_spans(&self) -> Result<usize, String> {
        let own = get(&format!("http://127.0.0.1:{}/metrics", self.own_metrics), &[]).await?;
        Ok(metric(&own, "otelcol_receiver_accepted_spans"))
    }

    /// The spans of all traces that the search finds: what the search page does with its field Tags filled in.
    pub(crate) async fn search(&self, tags: &[(&str, &str)]) -> Result<Vec<Span>, String> {
        let tags: Value =
            tags.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect();
        let query =
            [("service", "serving-sentinel"), ("limit", "20000"), ("tags", &tags.to_string())];
        let found = get_json(&format!("{}/traces", self.api), &query).await?;
        let traces = found["data"].as_array().ok_or_else(|| found.to_string())?;
        Ok(traces.iter().flat_map(spans).collect())
    }
}

fn spans(trace: &Value) -> Vec<Span> {
    let spans = trace["spans"].as_array().unwrap();
    let span = |span: &Value| Span {
        trace: text(&span["traceID"]),
        id: text(&span["spanID"]),
        name: text(&span["operationName"]),
        attributes: pairs(&span["tags"]),
        events: span["logs"]
            .as_array()
            .unwrap()
            .iter()
            .map(|log| {
                let told = pairs(&log["fields"]);
                (value(&told, "event").unwrap_or_default().to_owned(), told)
            })
            .collect(),
        process: pairs(&trace["processes"][span["processID"].as_str().unwrap()]["tags"]),
    };
    spans.iter().map(span).collect()
}

fn pairs(list: &Value) -> Vec<(String, String)> {
    let list = list.as_array().unwrap();
    list.iter().map(|pair| (text(&pair["key"]), text(&pair["value"]))).collect()
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
