//! One collector, as `collector.yaml` has it, between the gateway example and the places where people look.

use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::engine_home::{MODEL, home};
use crate::gateway::{self, Gateway, chat, send};
use crate::jaeger::{Span, value};
use crate::stack::Stack;
use crate::web::{eventually, within};

/// What each event of a placement carries, with the values that are true of the recorded lying lane
/// (`recordings/no-gpu-banner-lies.jsonl`).
const LYING: &[(&str, &str)] = &[
    ("serving.lane.name", "lying-banner"),
    ("serving.engine.name", "llama.cpp"),
    ("gen_ai.request.model", "gemma-3-270m-q4_k_m"),
    ("serving.placement.plan", "gpu"),
    ("serving.placement.minimum_share", "1"),
    ("serving.placement.verdict", "cpu_fallback"),
    ("serving.placement.basis", "buffers"),
    ("serving.placement.contradicted", "banner 19/19"),
    ("serving.placement.layers.offloaded", "19"),
    ("serving.placement.layers.total", "19"),
    ("serving.placement.bytes.accelerator", "0"),
    ("serving.placement.bytes.host", "259858104"),
    ("serving.cause", "no_device"),
];

fn expect_all(told: &[(String, String)], expected: &[(&str, &str)]) {
    for (key, expected) in expected {
        assert_eq!(value(told, key), Some(*expected), "{key} in {told:#?}");
    }
}

/// The traces that have a span event of this name, by the tag that `collector.yaml` makes of it.
async fn with_event(stack: &Stack, lane: &str, event: &str, least: usize) -> Vec<Span> {
    eventually(&format!("{least} spans of {lane} with {event} in Jaeger"), || async {
        let found =
            stack.jaeger.search(&[("serving.lane.name", lane), ("event.name", event)]).await?;
        if found.len() >= least { Ok(found) } else { Err(format!("{found:#?}")) }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_recorded_lanes_are_found_in_jaeger_and_prometheus_as_they_are() {
    let stack = Stack::start().await;
    let mut demo = gateway::command(&[]);
    let demo = demo
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", &stack.collector.otlp)
        .env("OTEL_METRIC_EXPORT_INTERVAL", "500")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();

    // While the lanes live: what stands on a dashboard, and who is told.
    let firing = |alert: &'static str, lane: &'static str| {
        let query = format!(
            "ALERTS{{alertname=\"{alert}\",alertstate=\"firing\",serving_lane_name=\"{lane}\"}}"
        );
        let prometheus = &stack.prometheus;
        async move { eventually(&format!("{alert} fires for {lane}"), || prometheus.some(&query)).await }
    };
    firing("ServingPlacementCpuFallback", "lying-banner").await;
    firing("ServingPlacementUnreported", "silent").await;
    let prometheus = &stack.prometheus;
    for (lane, verdict) in
        [("healthy", "gpu"), ("lying-banner", "cpu_fallback"), ("silent", "unreported")]
    {
        let query = format!("serving_placement_state_ratio{{serving_lane_name=\"{lane}\"}} == 1");
        let state = eventually(&query, || prometheus.some(&query)).await;
        assert_eq!(state.len(), 1, "{state:#?}");
        assert_eq!(state[0].label("serving_placement_verdict"), verdict, "{lane}");
        assert_eq!(state[0].label("job"), "serving-sentinel");
        assert_eq!(state[0].label("gen_ai_request_model"), "gemma-3-270m-q4_k_m");
    }
    let output = demo.wait_with_output().await.unwrap();
    assert_eq!(output.status.code(), Some(0), "the recorded engines behaved as recorded");

    // What its last collection told.
    let judged = "sum by (serving_lane_name) (serving_throughput_judged_total)";
    let judged = eventually("all requests in Prometheus", || async {
        let judged = prometheus.some(judged).await?;
        let requests: f64 = judged.iter().map(|lane| lane.value).sum();
        if (requests - 14.0).abs() < f64::EPSILON {
            Ok(judged)
        } else {
            Err(format!("{judged:#?}"))
        }
    })
    .await;
    assert_eq!(judged.len(), 4, "{judged:#?}");
    let violations = "serving_throughput_violations_total{serving_lane_name=\"collapsing\"}";
    assert!((prometheus.some(violations).await.unwrap()[0].value - 1.0).abs() < f64::EPSILON);
    let mean = "sum(serving_decode_rate_per_second_sum{serving_lane_name=\"healthy\"}) \
                / sum(serving_decode_rate_per_second_count{serving_lane_name=\"healthy\"})";
    let mean = prometheus.some(mean).await.unwrap()[0].value;
    assert!((60.0..100.0).contains(&mean), "{mean} tokens/s, of some 85");
    let expected = prometheus.some("serving_decode_expected_rate_per_second").await.unwrap();
    assert!(expected.iter().all(|lane| (lane.value - 85.0).abs() < f64::EPSILON), "{expected:#?}");

    expect_traces(&stack).await;
    expect_alarms(&stack).await;
}

/// The traces, by lane and by event.
async fn expect_traces(stack: &Stack) {
    let spans = with_event(stack, "lying-banner", "serving.placement.cpu_fallback", 4).await;
    let load = spans.iter().find(|span| span.name == "serving.load").expect("the load's span");
    expect_all(&load.attributes, LYING);
    expect_all(load.event("serving.placement.cpu_fallback").unwrap(), LYING);
    let advice = value(load.event("serving.placement.cpu_fallback").unwrap(), "serving.advice");
    assert!(advice.expect("advice").contains("make the device visible"));
    assert!(value(&load.process, "service.instance.id").is_some(), "{:#?}", load.process);
    assert!(value(&load.process, "host.name").is_some(), "{:#?}", load.process);
    let requests: Vec<_> = spans.iter().filter(|span| span.name.starts_with("chat ")).collect();
    assert_eq!(requests.len(), 3, "each request that it served: {spans:#?}");
    for request in requests {
        expect_all(request.event("serving.placement.cpu_fallback").unwrap(), LYING);
    }

    let spans = with_event(stack, "collapsing", "serving.throughput.degraded", 1).await;
    let [request] = spans.as_slice() else { panic!("one collapsed request: {spans:#?}") };
    assert_eq!(request.name, "chat gemma-3-270m-q4_k_m");
    let degraded = request.event("serving.throughput.degraded").unwrap();
    expect_all(
        degraded,
        &[
            ("serving.lane.name", "collapsing"),
            ("serving.engine.name", "llama.cpp"),
            ("serving.placement.verdict", "gpu"),
            ("serving.decode.expected_rate", "85"),
            ("serving.decode.tokens", "32"),
            ("serving.expectation.source", "measured on this recording's machine"),
            ("serving.requests.in_flight", "1"),
            ("serving.timing.source", "engine_response"),
        ],
    );
    let number = |key| value(degraded, key).unwrap().parse::<f64>().unwrap();
    assert!(number("serving.decode.rate") < 0.25 * 85.0);
    assert!((number("serving.decode.ratio") - number("serving.decode.rate") / 85.0).abs() < 1e-6);
    let recovered = with_event(stack, "collapsing", "serving.throughput.recovered", 1).await;
    assert_eq!(recovered.len(), 1, "{recovered:#?}");

    // What is in order has no event.
    let healthy = stack.jaeger.search(&[("serving.lane.name", "healthy")]).await.unwrap();
    assert!(!healthy.is_empty());
    assert!(healthy.iter().all(|span| span.events.is_empty()), "{healthy:#?}");
}

/// The alarms, in the collector's file.
async fn expect_alarms(stack: &Stack) {
    eventually("the alarms in the collector's file", || async {
        let alarms = stack.collector.alarms();
        let all = [
            ("serving.placement.cpu_fallback", "raised", "lying-banner"),
            ("serving.placement.unreported", "raised", "silent"),
            ("serving.throughput.degraded", "raised", "collapsing"),
            ("serving.throughput.recovered", "cleared", "collapsing"),
        ]
        .into_iter()
        .all(|(name, state, lane)| {
            alarms.contains(&(name.to_owned(), state.to_owned(), lane.to_owned()))
        });
        if all { Ok(()) } else { Err(format!("{alarms:#?}")) }
    })
    .await;
}

/// A gateway in front of a real llama-server that has no device, with the sentinel's telemetry on its way to `otlp`.
async fn lying_llama_server(otlp: &str) -> (Gateway, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("engine.log").display().to_string();
    let engine = home().join("with-rpc/llama-server").display().to_string();
    let model = home().join(MODEL).display().to_string();
    let options = ["--lane", "real", "--expect", "100000", "--engine-log", &log, "--"];
    let arguments = [&options[..], &[&engine, "-m", &model, "-c", "2048"]].concat();
    let gateway =
        Gateway::start_with(&arguments, &[("OTEL_EXPORTER_OTLP_ENDPOINT", otlp.to_owned())]).await;
    (gateway, folder)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_real_engines_fallback_is_found_in_jaeger_within_seconds_of_its_banner() {
    let stack = Stack::start().await;
    let (mut gateway, folder) = lying_llama_server(&stack.collector.otlp).await;
    let log = folder.path().join("engine.log");
    let printed = async {
        eventually("the engine's banner", || async {
            let text = std::fs::read_to_string(&log).unwrap_or_default();
            if text.contains("layers to GPU") { Ok(Instant::now()) } else { Err(text) }
        })
        .await
    };
    let found = async {
        let spans = with_event(&stack, "real", "serving.placement.cpu_fallback", 1).await;
        (Instant::now(), spans)
    };
    let (printed, (found, spans)) = tokio::join!(printed, found);
    println!(
        "from the banner to the load's span in Jaeger: {:.1} s (the export's own delays: 5 s of the SDK, 1 s of the collector)",
        (found - printed).as_secs_f64()
    );
    let load = spans.iter().find(|span| span.name == "serving.load").expect("the load's span");
    expect_all(
        load.event("serving.placement.cpu_fallback").unwrap(),
        &[
            ("serving.placement.verdict", "cpu_fallback"),
            ("serving.placement.basis", "buffers"),
            ("serving.placement.contradicted", "banner 19/19"),
            ("serving.cause", "no_device"),
        ],
    );

    gateway.expect_line("The engine is ready").await;
    let address = format!("http://{}", gateway.address.trim_start_matches("http://"));
    let answer = send(chat(&address, false)).await.unwrap();
    assert!(answer.status().is_success(), "{}", answer.status());
    let body = axum::body::to_bytes(answer.into_body(), usize::MAX).await.unwrap();
    let body: Value = serde_json::from_slice(&body).unwrap();
    let engines = body["timings"]["predicted_per_second"].as_f64().expect("the engine's rate");
    let spans = with_event(&stack, "real", "serving.throughput.degraded", 1).await;
    let told = spans[0].event("serving.throughput.degraded").unwrap();
    let rate: f64 = value(told, "serving.decode.rate").unwrap().parse().unwrap();
    assert!((rate - engines).abs() < 0.01, "{rate} in Jaeger, {engines} by the engine");
    assert!(
        spans[0].event("serving.placement.cpu_fallback").is_some(),
        "why it is slow: {told:#?}"
    );
    gateway.terminate();
    assert_eq!(gateway.code().await, Some(143));
    drop(folder);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_goes_away_and_comes_back_is_told_as_blindness() {
    let mut stack = Stack::start().await;
    let variables = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", stack.collector.otlp.clone()),
        ("OTEL_METRIC_EXPORT_INTERVAL", "500".to_owned()),
        ("OTEL_BSP_SCHEDULE_DELAY", "200".to_owned()),
        ("OTEL_BLRP_SCHEDULE_DELAY", "200".to_owned()),
    ];
    let speaks = "echo 'load_tensors: offloaded 19/19 layers to GPU'; \
                  echo 'main: server is listening on http://127.0.0.1:1'; exec sleep 600";
    let arguments = ["--lane", "lonely", "--", "sh", "-c", speaks];
    let mut gateway = Gateway::start_with(&arguments, &variables).await;
    let lines = "serving_sentinel_unseen_seconds_total";
    let prometheus = &stack.prometheus;
    let alarm = "serving_alarms_active{serving_alarm=\"serving.sentinel.blind\"}";
    eventually("the gateway's metrics", || prometheus.some(alarm)).await;

    stack.collector.program.terminate().await;
    // The outage must be seen by the exporter: its next collection fails.
    tokio::time::sleep(Duration::from_secs(2)).await;
    stack.collector.program.restart().await;
    let prometheus = &stack.prometheus;
    let unseen = within(Duration::from_secs(60), "the time that nobody saw", || async {
        let series = prometheus
            .some(&format!("{lines}{{serving_blind_cause=\"collector_unreachable\"}}"))
            .await;
        match series {
            Ok(series) if series[0].value > 0.0 => Ok(series[0].value),
            Ok(series) => Err(format!("{series:#?}")),
            Err(error) => Err(format!("{error}; all: {:#?}", prometheus.query(lines).await)),
        }
    })
    .await;
    println!("the collector was away; the sentinel says that it did not see for {unseen} s");
    eventually("the alarm that was raised meanwhile, and its end", || async {
        let alarms = stack.collector.alarms();
        let states: Vec<&str> = alarms
            .iter()
            .filter(|(name, ..)| name == "serving.sentinel.blind")
            .map(|(_, state, _)| state.as_str())
            .collect();
        if states.contains(&"cleared") { Ok(()) } else { Err(format!("{alarms:#?}")) }
    })
    .await;
    gateway.terminate();
    assert_eq!(gateway.code().await, Some(143));
}
