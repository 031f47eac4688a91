//! An agent and two gateways (`agent.yaml`, `gateway.yaml`) between a program and the places where people look: what is
//! lost, and what comes twice, when a gateway ends, is killed, and comes back in the middle of it.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use opentelemetry::trace::TraceContextExt as _;
use serving_sentinel::throughput::{TimingSource, Timings, TokensPerSecond};
use serving_sentinel::{Lane, LaneConfig, Otlp, Plan, SentinelLayer, SpanExt as _};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;
use tracing_subscriber::prelude::*;

use crate::jaeger::{Jaeger, Span, value};
use crate::program::{Program, free_port};
use crate::prometheus::Prometheus;
use crate::stack::alarms;
use crate::web::{eventually, get, metric};

const LANES: usize = 30;
const REQUESTS_OF_A_LANE: usize = 10;
const REQUESTS: usize = LANES * REQUESTS_OF_A_LANE;
/// Between two requests: the whole takes some fifteen seconds.
const PACE: Duration = Duration::from_millis(50);
/// How long a gateway of these tests holds a trace before it decides on it.
const DECISION_WAIT: Duration = Duration::from_secs(3);

/// A running fleet.
struct Fleet {
    agent: Program,
    /// Where the program sends to.
    otlp: String,
    gateways: [Gateway; 2],
    jaeger: Jaeger,
    prometheus: Prometheus,
    _folder: tempfile::TempDir,
}

struct Gateway {
    program: Program,
    otlp: String,
    own_metrics: u16,
    alarms: PathBuf,
}

impl Fleet {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let jaeger = Jaeger::start(&at("jaeger")).await;
        let own_metrics = [free_port(), free_port()];
        let prometheus = Prometheus::start(&at("prometheus"), own_metrics[0], own_metrics[1]).await;
        let gateways = [
            Gateway::start(&at("gateway-0"), own_metrics[0], &jaeger, &prometheus).await,
            Gateway::start(&at("gateway-1"), own_metrics[1], &jaeger, &prometheus).await,
        ];
        let [grpc, http, own] = std::array::from_fn(|_| free_port());
        let variables = vec![
            ("OTLP_GRPC_PORT", grpc.to_string()),
            ("OTLP_HTTP_PORT", http.to_string()),
            ("SELF_METRICS_PORT", own.to_string()),
            ("GATEWAYS", format!("[{},{}]", gateways[0].otlp, gateways[1].otlp)),
            ("QUEUE_FOLDER", at("agent/queue").display().to_string()),
        ];
        let agent = Program::collector("agent.yaml", &at("agent"), variables).await;
        Self {
            agent,
            otlp: format!("http://127.0.0.1:{http}"),
            gateways,
            jaeger,
            prometheus,
            _folder: folder,
        }
    }

    /// Waits until nothing is under way any more, and says what has come to the storages.
    async fn settle(&self, sent: &Sent, may_be_lost: bool) -> Arrived {
        // Alarms and metrics are never lost: they are waited for, to the last.
        eventually("every alarm in the gateways' files", || async {
            let told = self.raised();
            let missing: Vec<_> =
                sent.lanes.iter().filter(|lane| !told.contains_key(*lane)).collect();
            if missing.is_empty() { Ok(()) } else { Err(format!("missing: {missing:?}")) }
        })
        .await;
        eventually("every request in Prometheus", || async {
            let counted =
                self.prometheus.some("sum(max by (serving_lane_name, serving_throughput_verdict, instance) (serving_throughput_judged_total))").await?;
            #[expect(clippy::cast_precision_loss, reason = "a few hundred")]
            let all = REQUESTS as f64;
            if (counted[0].value - all).abs() < 0.5 { Ok(()) } else { Err(format!("{counted:?} of {all}")) }
        })
        .await;
        // What must be kept of the traces: all of it, or after a kill what does not come for longer than anything waits.
        let last = Cell::new((usize::MAX, Instant::now()));
        let missing = eventually("the traces that must be kept", || async {
            let found = self.found().await?;
            let missing = sent.to_keep.difference(&found).count();
            if missing != last.get().0 {
                last.set((missing, Instant::now()));
            }
            let is_settled = may_be_lost && last.get().1.elapsed() > 3 * DECISION_WAIT;
            if missing == 0 || is_settled { Ok(missing) } else { Err(format!("{missing} missing")) }
        })
        .await;
        let spans = self.jaeger.search(&[]).await.unwrap();
        let distinct: BTreeSet<_> = spans.iter().map(|span| (&span.trace, &span.id)).collect();
        let doubled_alarms = self.raised().values().map(|times| times - 1).sum();
        Arrived {
            lost_traces: missing,
            stored_spans: distinct.len(),
            doubled_spans: self.jaeger.accepted_spans().await.unwrap() - distinct.len(),
            doubled_alarms,
        }
    }

    /// The traces in Jaeger; of a load, its name.
    async fn found(&self) -> Result<BTreeSet<String>, String> {
        let spans = self.jaeger.search(&[]).await?;
        let name = |span: Span| match value(&span.attributes, "serving.lane.name") {
            Some(lane) if span.name == "serving.load" => load(lane),
            _ => span.trace,
        };
        Ok(spans.into_iter().map(name).collect())
    }

    /// How often the alarm that each lane raises stands in the gateways' files.
    fn raised(&self) -> BTreeMap<String, usize> {
        let mut raised = BTreeMap::new();
        for gateway in &self.gateways {
            for (_, state, lane) in alarms(&gateway.alarms) {
                if state == "raised" {
                    *raised.entry(lane).or_default() += 1;
                }
            }
        }
        raised
    }
}

impl Gateway {
    async fn start(
        folder: &Path,
        own_metrics: u16,
        jaeger: &Jaeger,
        prometheus: &Prometheus,
    ) -> Self {
        let grpc = free_port();
        let alarms = folder.join("alarms.jsonl");
        let variables = vec![
            ("OTLP_GRPC_PORT", grpc.to_string()),
            ("SELF_METRICS_PORT", own_metrics.to_string()),
            ("JAEGER_OTLP_ENDPOINT", jaeger.otlp.clone()),
            ("PROMETHEUS_OTLP_ENDPOINT", prometheus.otlp.clone()),
            ("QUEUE_FOLDER", folder.join("queue").display().to_string()),
            ("ALARMS_FILE", alarms.display().to_string()),
            ("SAMPLING_DECISION_WAIT", format!("{}s", DECISION_WAIT.as_secs())),
        ];
        let program = Program::collector("gateway.yaml", folder, variables).await;
        Self { program, otlp: format!("127.0.0.1:{grpc}"), own_metrics, alarms }
    }

    /// The traces that it has decided on, or holds.
    async fn traces(&self) -> Result<usize, String> {
        let own = get(&format!("http://127.0.0.1:{}/metrics", self.own_metrics), &[]).await?;
        Ok(metric(&own, "otelcol_processor_tail_sampling_new_trace_id_received"))
    }
}

/// What the program has sent.
#[derive(Default)]
struct Sent {
    /// Each of them raises one alarm.
    lanes: Vec<String>,
    /// The traces that the gateways must keep: loads, requests with an event, failed requests.
    to_keep: BTreeSet<String>,
}

struct Arrived {
    lost_traces: usize,
    stored_spans: usize,
    doubled_spans: usize,
    doubled_alarms: usize,
}

/// A program with lanes, one after the other. Every second one falls back to the CPU, which marks all of its requests; of
/// the others one request collapses and one fails, and the rest is nothing but well. Counts what it has sent.
fn program(otlp: &str, progress: &AtomicUsize) -> Sent {
    let otlp = Otlp::builder()
        .variable("OTEL_EXPORTER_OTLP_ENDPOINT", otlp)
        .variable("OTEL_METRIC_EXPORT_INTERVAL", "500")
        .variable("OTEL_BSP_SCHEDULE_DELAY", "200")
        .variable("OTEL_BLRP_SCHEDULE_DELAY", "200")
        .without_globals()
        .build()
        .unwrap();
    let sentinel = SentinelLayer::builder().meter_provider(otlp.meter_provider()).build();
    let subscriber = tracing_subscriber::registry().with(otlp.layer()).with(sentinel);
    let mut sent = Sent::default();
    tracing::subscriber::with_default(subscriber, || {
        let mut lanes = Vec::new();
        for number in 0..LANES {
            let falls_back = number % 2 == 0;
            let lane = open(number, falls_back);
            sent.to_keep.insert(load(lane.name()));
            for request in 0..REQUESTS_OF_A_LANE {
                let span = lane.request_span("chat");
                let (is_slow, fails) = (!falls_back && request == 1, !falls_back && request == 9);
                span.record_timings(&timings(if is_slow { 5.0 } else { 100.0 }));
                if fails {
                    span.record_error("engine_error");
                }
                if falls_back || is_slow || fails {
                    let context = span.context();
                    sent.to_keep.insert(context.span().span_context().trace_id().to_string());
                }
                drop(span);
                progress.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(PACE);
            }
            sent.lanes.push(lane.name().to_owned());
            lanes.push(lane);
        }
    });
    drop(otlp); // sends what is left
    sent
}

fn open(number: usize, falls_back: bool) -> Lane {
    let config = LaneConfig::new(format!("lane-{number}"))
        .with_model("gemma-3-270m")
        .with_plan(Plan::GPU)
        .with_expected_rate(100.0, "a test's own")
        .unwrap();
    let lane = Lane::open(config);
    let (banner, buffer) = if falls_back {
        ("load_tensors: offloaded 0/19 layers to GPU", "CPU_Mapped")
    } else {
        ("load_tensors: offloaded 19/19 layers to GPU", "CUDA0")
    };
    lane.observe_line(banner.as_bytes());
    lane.observe_line(
        format!("load_tensors: {buffer} model buffer size =   247.82 MiB").as_bytes(),
    );
    lane.observe_line(b"main: server is listening on http://127.0.0.1:8080");
    lane
}

/// How a load is named among the traces: by its lane, since the program does not know its trace.
fn load(lane: &str) -> String {
    format!("the load of {lane}")
}

fn timings(rate: f64) -> Timings {
    let mut timings = Timings::new(TimingSource::EngineResponse);
    timings.decode_tokens = Some(64);
    timings.decode_rate = TokensPerSecond::new(rate);
    timings
}

/// What happens to the second gateway in the middle of the traffic.
enum Mishap {
    /// SIGTERM, and a start a second later.
    Ends,
    /// SIGKILL, and a start a second later.
    IsKilled,
}

async fn run(mishap: Mishap) -> (Sent, Arrived, usize) {
    let mut fleet = Fleet::start().await;
    let progress = Arc::new(AtomicUsize::new(0));
    let sending = {
        let (otlp, progress) = (fleet.otlp.clone(), progress.clone());
        tokio::task::spawn_blocking(move || program(&otlp, &progress))
    };
    eventually("a third of the requests", || async {
        let sent = progress.load(Ordering::Relaxed);
        if sent >= REQUESTS / 3 { Ok(()) } else { Err(format!("{sent} of {REQUESTS}")) }
    })
    .await;
    let before = fleet.gateways[1].traces().await.unwrap();
    assert!(before > 0, "both gateways have a share of the traces");
    match mishap {
        Mishap::Ends => {
            let status = fleet.gateways[1].program.terminate().await;
            assert!(status.success(), "a gateway that is asked to end: {status}");
        }
        Mishap::IsKilled => fleet.gateways[1].program.kill(),
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    fleet.gateways[1].program.restart().await;
    assert!(progress.load(Ordering::Relaxed) < REQUESTS, "the program still sends");
    let sent = sending.await.unwrap();
    let arrived = fleet.settle(&sent, matches!(mishap, Mishap::IsKilled)).await;
    (sent, arrived, before)
}

/// What one fleet does with all that the program sends while both gateways are away and the agent is killed.
async fn run_on_the_agent_alone() -> (Sent, Arrived) {
    let mut fleet = Fleet::start().await;
    for gateway in &mut fleet.gateways {
        gateway.program.terminate().await;
    }
    let otlp = fleet.otlp.clone();
    let sent = tokio::task::spawn_blocking(move || program(&otlp, &AtomicUsize::new(0)));
    let sent = sent.await.unwrap();
    fleet.agent.kill();
    fleet.agent.restart().await;
    for gateway in &mut fleet.gateways {
        gateway.program.restart().await;
    }
    let arrived = fleet.settle(&sent, false).await;
    (sent, arrived)
}

fn report(name: &str, sent: &Sent, arrived: &Arrived) {
    println!(
        "{name}: {REQUESTS} requests and {LANES} loads sent, {} of their traces to be kept; lost {} of these; {} spans stored, \
         {} of them came twice; alarms lost 0 of {LANES}, {} came twice; requests lost from the metrics 0",
        sent.to_keep.len(),
        arrived.lost_traces,
        arrived.stored_spans,
        arrived.doubled_spans,
        arrived.doubled_alarms,
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_ends_and_comes_back_loses_nothing() {
    let (sent, arrived, _) = run(Mishap::Ends).await;
    report("SIGTERM", &sent, &arrived);
    assert_eq!(arrived.lost_traces, 0);
    assert!(
        arrived.stored_spans < REQUESTS + LANES,
        "a share of what is nothing but well is left out: {} stored",
        arrived.stored_spans
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_is_killed_loses_the_traces_of_its_decision_wait_alone() {
    let (sent, arrived, _) = run(Mishap::IsKilled).await;
    report("SIGKILL", &sent, &arrived);
    // What comes in within the wait, the second before it (the program's and the agent's own delays) and one more for
    // the pace of a busy machine.
    let held = (DECISION_WAIT + Duration::from_secs(2)).as_millis() / PACE.as_millis();
    assert!(
        arrived.lost_traces as u128 <= held,
        "{} lost, of some {held} that came within the wait",
        arrived.lost_traces
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_is_killed_while_all_gateways_are_away_loses_nothing() {
    let (sent, arrived) = run_on_the_agent_alone().await;
    report("SIGKILL of the agent, without gateways", &sent, &arrived);
    assert_eq!(arrived.lost_traces, 0);
}
