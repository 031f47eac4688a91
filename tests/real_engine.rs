//! The gateway on a real llama-server: seven loads, each judged as it truly is, and a real stream whose rate is the
//! engine's own.
//!
//! Needs `SENTINEL_ENGINE_HOME`, the folder that `.ci/engine` prints: llama-server with the RPC backend and without any
//! GPU backend, a `ggml-rpc-server` (a real remote device on loopback) and a small model.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a test says what must be"
)]
#![expect(clippy::disallowed_methods, reason = "a client reads its clock")]

use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::http::Request;
use engine_home::{MODEL, home};
use futures_util::StreamExt as _;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use opentelemetry_proto::tonic::trace::v1::Span;
use otlp::{Collector, Item, Wire, attribute};
use serving_sentinel::throughput::{TimingSource, Timings};
use serving_sentinel::timings::StreamTimings;

#[path = "support/engine_home.rs"]
mod engine_home;
#[path = "support/otlp.rs"]
mod otlp;

const LANE: &str = "real";

/// A child that is gone when the test is.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A remote device on loopback.
fn device() -> (Running, String) {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let child = Command::new(home().join("with-rpc/ggml-rpc-server"))
        .args(["-H", "127.0.0.1", "-p", &port.to_string()])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("ggml-rpc-server starts");
    let address = format!("127.0.0.1:{port}");
    let until = Instant::now() + Duration::from_secs(20);
    while std::net::TcpStream::connect(&address).is_err() {
        assert!(Instant::now() < until, "ggml-rpc-server does not listen on {address}");
        std::thread::yield_now();
    }
    (Running(child), address)
}

/// The gateway example in front of a real engine, with a collector behind it.
struct Gateway {
    child: Running,
    collector: Collector,
    address: String,
    log: tempfile::TempDir,
}

impl Gateway {
    /// Starts it, and waits until the engine answers.
    fn start(build: &str, env: &[(&str, &str)], options: &[&str], engine: &[&str]) -> Self {
        let collector = Collector::start(Wire::Grpc);
        let log = tempfile::tempdir().unwrap();
        let tests = std::env::current_exe().unwrap();
        let gateway = tests.parent().and_then(Path::parent).unwrap().join("examples/gateway");
        assert!(
            gateway.exists(),
            "{} is missing: `cargo build --example gateway` makes it",
            gateway.display()
        );
        let mut child = Command::new(gateway)
            .args(["--lane", LANE, "--plan", "gpu", "--engine-log"])
            .arg(log.path().join("engine.log"))
            .args(options)
            .arg("--")
            .arg(home().join(build).join("llama-server"))
            .arg("-m")
            .arg(home().join(MODEL))
            .args(["-c", "2048"])
            .args(engine)
            .env_remove("LLAMA_ARG_LOG_VERBOSITY")
            .env("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint())
            .env("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
            .env("OTEL_METRIC_EXPORT_INTERVAL", "500")
            .env("OTEL_BSP_SCHEDULE_DELAY", "200")
            .env("OTEL_BLRP_SCHEDULE_DELAY", "200")
            .envs(env.iter().copied())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let stdout = child.stdout.take().unwrap();
        let mut address = None;
        for line in BufReader::new(stdout).lines() {
            let line = line.unwrap();
            println!("    {line}");
            if let Some(rest) = line.strip_prefix("Serving on http://") {
                address = rest.split(';').next().map(str::to_owned);
            }
            if line.starts_with("The engine is ready") {
                let address = address.expect("it says where it serves before the engine is ready");
                return Self { child: Running(child), collector, address, log };
            }
        }
        panic!("the gateway ended before its engine was ready: {:?}", child.wait());
    }

    /// Ctrl-C, and its end.
    fn stop(mut self) {
        let pid = rustix::process::Pid::from_child(&self.child.0);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        assert_eq!(self.child.0.wait().unwrap().code(), Some(130), "128 + SIGINT");
    }

    /// The load's span, exported while the engine still runs.
    fn load(&self) -> Item<Span> {
        self.collector.wait_for_span("serving.load")
    }

    /// The span of the newest request.
    fn request(&self) -> Item<Span> {
        self.collector.wait_for("the request's span", |received| {
            received.spans.iter().rev().find(|span| span.data.name.starts_with("chat ")).cloned()
        })
    }

    /// Sends a streamed chat request, and reads the answer by the client's own clock.
    async fn chat(&self, tokens: u32) -> (Timings, f64) {
        let body = serde_json::json!({
            "messages": [{"role": "user", "content": "Write a long story about a lighthouse."}],
            "max_tokens": tokens, "stream": true, "stream_options": {"include_usage": true},
            "temperature": 0, "ignore_eos": true,
        });
        let request = Request::post(format!("http://{}/v1/chat/completions", self.address))
            .header("content-type", "application/json")
            .body(Body::from(body.to_string()))
            .unwrap();
        let client: Client<_, Body> = Client::builder(TokioExecutor::new()).build_http();
        let mut stream = StreamTimings::begin(Instant::now());
        let answer = client.request(request).await.unwrap();
        assert!(answer.status().is_success(), "{}", answer.status());
        let mut pieces = Body::new(answer.into_body()).into_data_stream();
        while let Some(piece) = pieces.next().await {
            let piece: Bytes = piece.unwrap();
            stream.push(&piece, Instant::now());
        }
        let clock = stream.client_clock_rate().expect("a rate by the client's clock").get();
        (stream.finish(Instant::now()).unwrap(), clock)
    }

    /// The decode rate of the engine's last request, as its own log prints it.
    fn logged_rate(&self) -> String {
        let log = std::fs::read_to_string(self.log.path().join("engine.log")).unwrap();
        let line = log
            .lines()
            .rev()
            .find(|line| line.contains("|        eval time ="))
            .expect("a timing line in the log");
        let rate = line.rsplit_once(", ").unwrap().1;
        rate.trim().trim_end_matches(" tokens per second)").to_owned()
    }
}

fn of<'a>(
    span: &'a Span,
    event: &str,
) -> Option<&'a [opentelemetry_proto::tonic::common::v1::KeyValue]> {
    span.events.iter().find(|it| it.name == event).map(|it| it.attributes.as_slice())
}

/// One load, and what is true of it.
struct Row {
    name: &'static str,
    build: &'static str,
    env: &'static [(&'static str, &'static str)],
    engine: &'static [&'static str],
    needs_device: bool,
    verdict: &'static str,
    event: Option<&'static str>,
    contradicted: Option<&'static str>,
    cause: Option<&'static str>,
}

const QUIET: &[(&str, &str)] = &[("LLAMA_ARG_LOG_VERBOSITY", "3")];
const CPU_FALLBACK: Option<&str> = Some("serving.placement.cpu_fallback");

const LOADS: &[Row] = &[
    Row {
        name: "default verbosity",
        build: "with-rpc",
        env: QUIET,
        engine: &[],
        needs_device: false,
        verdict: "unreported",
        event: Some("serving.placement.unreported"),
        contradicted: None,
        cause: None,
    },
    Row {
        name: "verbosity 4 without any device",
        build: "with-rpc",
        env: &[],
        engine: &[],
        needs_device: false,
        verdict: "cpu_fallback",
        event: CPU_FALLBACK,
        contradicted: Some("banner 19/19"),
        cause: Some("no_device"),
    },
    Row {
        name: "RPC device with all layers",
        build: "with-rpc",
        env: &[],
        engine: &[],
        needs_device: true,
        verdict: "gpu",
        event: None,
        contradicted: None,
        cause: None,
    },
    Row {
        name: "-ngl 5",
        build: "with-rpc",
        env: &[],
        engine: &["-ngl", "5"],
        needs_device: true,
        verdict: "partial",
        event: None,
        contradicted: None,
        cause: None,
    },
    Row {
        name: "-ngl 0",
        build: "with-rpc",
        env: &[],
        engine: &["-ngl", "0"],
        needs_device: true,
        verdict: "cpu_fallback",
        event: CPU_FALLBACK,
        contradicted: None,
        cause: Some("layers_limited"),
    },
    Row {
        name: "--device none",
        build: "with-rpc",
        env: &[],
        engine: &["--device", "none"],
        needs_device: true,
        verdict: "cpu_fallback",
        event: CPU_FALLBACK,
        contradicted: Some("banner 19/19"),
        cause: Some("device_disabled"),
    },
    Row {
        name: "a build without any GPU backend",
        build: "without-gpu",
        env: &[],
        engine: &[],
        needs_device: false,
        verdict: "cpu_fallback",
        event: CPU_FALLBACK,
        contradicted: None,
        cause: Some("cpu_only_build"),
    },
];

#[test]
fn seven_loads_are_judged_as_they_are() {
    let (_device, address) = device();
    for row in LOADS {
        println!("{}", row.name);
        let mut engine = row.engine.to_vec();
        if row.needs_device {
            engine.extend(["--rpc", &address]);
        }
        let gateway = Gateway::start(row.build, row.env, &[], &engine);
        let load = gateway.load().data;
        let told = |key| attribute(&load.attributes, key);
        assert_eq!(told("serving.lane.name").as_deref(), Some(LANE), "{}", row.name);
        assert_eq!(told("serving.placement.verdict").as_deref(), Some(row.verdict), "{}", row.name);
        assert_eq!(
            told("serving.placement.contradicted").as_deref(),
            row.contradicted,
            "{}",
            row.name
        );
        assert_eq!(told("serving.cause").as_deref(), row.cause, "{}", row.name);
        let events: Vec<&str> = load.events.iter().map(|event| event.name.as_str()).collect();
        assert_eq!(events, Vec::from_iter(row.event), "{}", row.name);
        if let Some(event) = row.event {
            let attributes = of(&load, event).unwrap();
            assert_eq!(
                attribute(attributes, "serving.placement.verdict").as_deref(),
                Some(row.verdict)
            );
            let advice = attribute(attributes, "serving.advice").expect("advice");
            assert_eq!(
                row.verdict == "unreported",
                advice.contains("LLAMA_ARG_LOG_VERBOSITY=4"),
                "{advice}"
            );
            let alarm = gateway.collector.wait_for_log(event).data;
            assert_eq!(
                attribute(&alarm.attributes, "serving.alarm.state").as_deref(),
                Some("raised")
            );
            assert_eq!(
                alarm.trace_id, load.trace_id,
                "the alarm's record leads to the load's trace"
            );
        } else {
            gateway.collector.wait_for_metric("serving.placement.state");
            let logs = gateway.collector.received().logs;
            assert!(logs.is_empty(), "{}: an alarm without a broken plan: {logs:?}", row.name);
        }
        gateway.stop();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_streams_rate_is_the_engines_own_and_ten_times_the_expectation_is_a_collapse() {
    let (_device, address) = device();
    // An expectation that no machine misses: nothing is degraded.
    let gateway = Gateway::start("with-rpc", &[], &["--expect", "0.1"], &["--rpc", &address]);
    let (timings, clock) = gateway.chat(96).await;
    let request = gateway.request().data;
    let told = |key| attribute(&request.attributes, key).unwrap_or_default();
    let rate: f64 = told("serving.decode.rate").parse().expect("a rate on the request's span");
    assert_eq!(timings.source, TimingSource::EngineResponse);
    assert_eq!(
        format!("{rate:.2}"),
        gateway.logged_rate(),
        "the engine's own log line, to its printed precision"
    );
    assert_eq!(told("gen_ai.usage.output_tokens"), "96");
    let off = (clock - rate).abs() / rate;
    println!(
        "engine {rate:.2} tokens/s, client's clock {clock:.2} tokens/s, {:.1} % apart",
        off * 100.0
    );
    assert!(off < 0.1, "the client's clock gives {clock:.2} tokens/s, the engine {rate:.2}");
    assert!(of(&request, "serving.throughput.degraded").is_none());
    gateway.stop();

    let ten_times = format!("{:.1}", rate * 10.0);
    let gateway = Gateway::start("with-rpc", &[], &["--expect", &ten_times], &["--rpc", &address]);
    gateway.chat(96).await;
    let request = gateway.request().data;
    let degraded =
        of(&request, "serving.throughput.degraded").expect("the event on the request's span");
    assert_eq!(
        attribute(degraded, "serving.decode.expected_rate").unwrap().parse::<f64>().ok(),
        ten_times.parse().ok()
    );
    let alarm = gateway.collector.wait_for_log("serving.throughput.degraded").data;
    assert_eq!(alarm.trace_id, request.trace_id);
    gateway.stop();
}
