//! A real Prometheus, and what it answers to queries.

use std::path::Path;

use serde_json::Value;

use crate::program::{Program, config, free_port};
use crate::web::get_json;

/// Prometheus with `collector-config/prometheus/`, made quick: it scrapes and judges each second, and an alert fires
/// when its condition has stood for a second.
pub(crate) struct Prometheus {
    _program: Program,
    api: String,
    /// Where it takes metrics by OTLP over HTTP.
    pub(crate) otlp: String,
}

/// One series of an answer.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    labels: Value,
    pub(crate) value: f64,
}

impl Series {
    pub(crate) fn label(&self, name: &str) -> &str {
        self.labels[name].as_str().unwrap_or_default()
    }
}

impl Prometheus {
    /// `metrics` and `own` are the ports where the collector shows the programs' metrics and its own.
    pub(crate) async fn start(folder: &Path, metrics: u16, own: u16) -> Self {
        std::fs::create_dir_all(folder).unwrap();
        let settings = read("prometheus/prometheus.yml").replace(": 15s", ": 1s");
        std::fs::write(folder.join("prometheus.yml"), settings).unwrap();
        let targets = read("prometheus/scrape.yml")
            .replace("127.0.0.1:8889", &format!("127.0.0.1:{metrics}"))
            .replace("127.0.0.1:8888", &format!("127.0.0.1:{own}"));
        std::fs::write(folder.join("scrape.yml"), targets).unwrap();
        std::fs::write(folder.join("alerts.yml"), hasty(&read("prometheus/alerts.yml"))).unwrap();
        let port = free_port();
        let arguments = [
            "--config.file=prometheus.yml",
            "--storage.tsdb.path=data",
            "--web.enable-otlp-receiver",
            &format!("--web.listen-address=127.0.0.1:{port}"),
        ];
        let arguments = arguments.map(str::to_owned).to_vec();
        let at = format!("http://127.0.0.1:{port}");
        let health = format!("{at}/-/ready");
        let program = Program::start("prometheus", folder, arguments, Vec::new(), health).await;
        Self {
            _program: program,
            api: format!("{at}/api/v1"),
            otlp: format!("{at}/api/v1/otlp/v1/metrics"),
        }
    }

    pub(crate) async fn query(&self, query: &str) -> Result<Vec<Series>, String> {
        let answer = get_json(&format!("{}/query", self.api), &[("query", query)]).await?;
        let series = answer["data"]["result"].as_array().ok_or_else(|| answer.to_string())?;
        let one = |series: &Value| Series {
            labels: series["metric"].clone(),
            value: series["value"][1].as_str().unwrap_or_default().parse().unwrap_or(f64::NAN),
        };
        Ok(series.iter().map(one).collect())
    }

    /// The rules that Prometheus could not evaluate, of which there is at least one that it could.
    pub(crate) async fn broken_rules(&self) -> Result<Vec<String>, String> {
        let answer = get_json(&format!("{}/rules", self.api), &[]).await?;
        let groups = answer["data"]["groups"].as_array().ok_or_else(|| answer.to_string())?;
        let rules: Vec<_> = groups
            .iter()
            .flat_map(|group| group["rules"].as_array().into_iter().flatten())
            .collect();
        assert!(!rules.is_empty(), "{answer}");
        Ok(rules.into_iter().filter(|rule| rule["health"] != "ok").map(Value::to_string).collect())
    }

    /// The answer to a query, where an empty one is not there yet.
    pub(crate) async fn some(&self, query: &str) -> Result<Vec<Series>, String> {
        let series = self.query(query).await?;
        if series.is_empty() { Err(format!("no series for {query}")) } else { Ok(series) }
    }
}

fn read(name: &str) -> String {
    std::fs::read_to_string(config(name)).unwrap()
}

/// The rules with every `for:` cut to a second.
fn hasty(rules: &str) -> String {
    let hasty = |line: &str| {
        let indent = line.len() - line.trim_start().len();
        if line.trim_start().starts_with("for: ") {
            format!("{}for: 1s\n", &line[..indent])
        } else {
            format!("{line}\n")
        }
    };
    rules.lines().map(hasty).collect()
}
