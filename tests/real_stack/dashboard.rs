//! Grafana's dashboard and the rules: each query is asked of a real Prometheus that holds what the gateway's recorded
//! lanes told.

use std::process::Stdio;

use serde_json::Value;

use crate::gateway;
use crate::program::config;
use crate::stack::Stack;
use crate::web::eventually;

/// The queries of the panels, each with its panel's title, and with Grafana's variables as the page opens.
fn queries(dashboard: &Value) -> Vec<(String, String)> {
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let of_panels = panels.flat_map(|panel| {
        let title = panel["title"].as_str().unwrap();
        let targets = panel["targets"].as_array().into_iter().flatten();
        targets.map(move |target| (title, target["expr"].as_str().unwrap()))
    });
    let annotations = dashboard["annotations"]["list"].as_array().unwrap().iter();
    let of_annotations =
        annotations.map(|it| (it["name"].as_str().unwrap(), it["expr"].as_str().unwrap()));
    of_panels
        .chain(of_annotations)
        .map(|(title, query)| {
            let query = ["$job", "$lane", "$model"]
                .iter()
                .fold(query.replace("$__rate_interval", "1m"), |query, variable| {
                    query.replace(variable, ".*")
                });
            (title.to_owned(), query)
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_query_of_the_dashboard_finds_series_and_every_rule_can_be_judged() {
    let text = std::fs::read_to_string(config("grafana/dashboards/serving-sentinel.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let stack = Stack::start().await;
    let status = gateway::command(&[])
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", &stack.collector.otlp)
        .env("OTEL_METRIC_EXPORT_INTERVAL", "500")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .await
        .unwrap();
    assert!(status.success(), "{status}");

    let queries = queries(&dashboard);
    assert!(queries.len() > 30, "the queries were found: {}", queries.len());
    for (title, query) in queries {
        eventually(&format!("{title}: {query}"), || stack.prometheus.some(&query)).await;
    }
    let variables = dashboard["templating"]["list"].as_array().unwrap().iter();
    let of_series: Vec<&str> = variables
        .filter(|it| it["type"] == "query")
        .map(|it| it["definition"].as_str().unwrap())
        .collect();
    assert_eq!(of_series.len(), 3);
    for definition in of_series {
        let (selector, label) = definition
            .strip_prefix("label_values(")
            .and_then(|rest| rest.strip_suffix(')'))
            .and_then(|rest| rest.rsplit_once(", "))
            .unwrap_or_else(|| panic!("{definition}"));
        let series = stack.prometheus.some(&selector.replace("$job", ".*")).await.unwrap();
        assert!(series.iter().all(|series| !series.label(label).is_empty()), "{definition}");
    }

    let broken = stack.prometheus.broken_rules().await.unwrap();
    assert!(broken.is_empty(), "{broken:#?}");
}
