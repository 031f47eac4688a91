//! The series that users see stay right: which are exported, and which are gone, after a reload, a failed load, a
//! lane's end and a device that is no longer used.

#![cfg(feature = "otlp")]
#![allow(
    clippy::unwrap_used,
    clippy::float_cmp,
    reason = "tests: what is exported is exact, and its absence is a failure"
)]

#[path = "support/otlp.rs"]
mod otlp;
mod support;
#[path = "support/wire.rs"]
mod wire;

use std::collections::BTreeMap;

use opentelemetry::global;
use serving_sentinel::lane::LaneConfig;
use serving_sentinel::layer::{Lane, SentinelLayer};
use serving_sentinel::placement::Plan;
use serving_sentinel::span_ext::SpanExt as _;
use serving_sentinel::throughput::{TimingSource, Timings, TokensPerSecond};
use tracing::dispatcher;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry;

use otlp::{Collector, Wire};
use support::{feed, load_of};
use wire::{Exports, Series, exporting, rows, to};

const ON_GPU: &str = "llama-server-remote-gpu-19-of-19.stderr.log";
const ON_HOST: &str = "llama-server-no-gpu-banner-lies.stderr.log";
const WITH_DRAFT: &str = "llama-server-draft-on-host.stderr.log";

const VERDICTS: [&str; 5] = ["gpu", "partial", "cpu", "cpu_fallback", "unreported"];
const GAUGES: [&str; 4] = [
    "serving.placement.state",
    "serving.placement.layers",
    "serving.placement.bytes",
    "serving.decode.expected_rate",
];

fn config(name: &str) -> LaneConfig {
    let config = LaneConfig::new(name)
        .with_engine("llama.cpp")
        .with_model("gemma-3-270m")
        .with_plan(Plan::ALL_ON_GPU);
    config.with_expected_rate(100.0, "a test").unwrap()
}

fn loaded(name: &str, recorded: &str) -> Lane {
    let lane = Lane::open(config(name));
    feed(&lane, &load_of(recorded));
    lane
}

/// A real engine's last lines, with the prefix that the recorded loads have.
fn failed_load() -> Vec<Vec<u8>> {
    let prefixed = |line: Vec<u8>| [b"0.00.700.000 E ", &line[..]].concat();
    case("010-cuda-oom-load-failed.log").into_iter().map(prefixed).collect()
}

fn case(name: &str) -> Vec<Vec<u8>> {
    let path = format!("{}/tests/fixtures/cases/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(path).unwrap().split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect()
}

fn request(lane: &Lane, rate: f64) {
    let mut timings = Timings::new(TimingSource::EngineResponse);
    (timings.decode_tokens, timings.decode_rate) = (Some(48), TokensPerSecond::new(rate));
    let span = lane.request_span("chat");
    span.in_scope(|| span.record_timings(&timings));
}

// === what is expected ===

/// All verdicts of a lane: 1 for the one that stands, if any, and 0 for the others.
fn state(lane: &str, stands: Option<&str>) -> BTreeMap<String, f64> {
    let value = |verdict| f64::from(u8::from(Some(verdict) == stands));
    VERDICTS.map(|verdict| (format!("{lane} {verdict}"), value(verdict))).into()
}

/// The buffers of the recorded load on a device: bytes of what it prints in MiB.
fn bytes_on_device(lane: &str) -> BTreeMap<String, f64> {
    bytes(
        lane,
        [
            ("model RPC0[127.0.0.1:50052] accelerator", 235.16),
            ("model CPU_Mapped host", 170.0),
            ("kv RPC0[127.0.0.1:50052] accelerator", 36.0),
            ("compute RPC0[127.0.0.1:50052] accelerator", 20.52),
            ("compute CPU host", 6.52),
        ],
    )
}

fn bytes_on_host(lane: &str) -> BTreeMap<String, f64> {
    bytes(
        lane,
        [
            ("model CPU_Mapped host", 235.16),
            ("model CPU_REPACK host", 12.66),
            ("kv CPU host", 36.0),
            ("compute CPU host", 21.77),
        ],
    )
}

fn bytes<const N: usize>(lane: &str, mib: [(&str, f64); N]) -> BTreeMap<String, f64> {
    mib.map(|(buffer, mib)| (format!("{lane} {buffer}"), (mib * 1_048_576.0).round())).into()
}

fn layers(lane: &str, accelerator: f64, host: f64) -> BTreeMap<String, f64> {
    [(format!("{lane} accelerator"), accelerator), (format!("{lane} host"), host)].into()
}

fn both<T: Clone>(one: &BTreeMap<String, T>, other: &BTreeMap<String, T>) -> BTreeMap<String, T> {
    one.iter().chain(other).map(|(name, value)| (name.clone(), value.clone())).collect()
}

#[track_caller]
fn expect_on_device(series: &Series, lane: &str) {
    assert_eq!(series.of("serving.placement.state"), state(lane, Some("gpu")));
    assert_eq!(series.of("serving.placement.bytes"), bytes_on_device(lane));
    assert_eq!(series.of("serving.placement.layers"), layers(lane, 19.0, 0.0));
}

#[track_caller]
fn expect_on_host(series: &Series, lane: &str) {
    assert_eq!(series.of("serving.placement.state"), state(lane, Some("cpu_fallback")));
    assert_eq!(series.of("serving.placement.bytes"), bytes_on_host(lane));
    assert_eq!(series.of("serving.placement.layers"), layers(lane, 0.0, 19.0));
}

/// No gauge shows anything of any lane.
#[track_caller]
fn expect_nobody(series: &Series) {
    for gauge in GAUGES {
        assert_eq!(series.of(gauge), BTreeMap::new(), "{gauge}");
    }
    assert_eq!(series.of("serving.alarms.active"), rows([("serving.sentinel.blind", 0.0)]));
}

/// The alarms of `lane` that stand. Each of all eight is exported, as 1 or 0.
#[track_caller]
fn standing(series: &Series, lane: &str) -> Vec<String> {
    let alarms = series.of("serving.alarms.active");
    let of_lane: Vec<_> = alarms
        .iter()
        .filter_map(|(name, active)| Some((name.strip_prefix(&format!("{lane} "))?, active)))
        .collect();
    assert_eq!(of_lane.len(), 8, "{alarms:#?}");
    of_lane
        .into_iter()
        .filter(|(_, active)| **active == 1.0)
        .map(|(name, _)| name.to_owned())
        .collect()
}

#[expect(clippy::cast_precision_loss, reason = "lines of a recording")]
fn count(lines: &[Vec<u8>]) -> f64 {
    lines.len() as f64
}

/// All lines seen of a lane.
fn lines(series: &Series, lane: &str) -> f64 {
    let lines = series.of("serving.sentinel.lines");
    lines.iter().filter(|(name, _)| name.starts_with(lane)).map(|(_, lines)| lines).sum()
}

// === loads ===

#[test]
fn a_device_that_a_reload_no_longer_uses_is_gone() {
    exporting(|exports| {
        let lane = loaded("chat-0", ON_GPU);
        let series = exports.series();
        expect_on_device(&series, "chat-0");
        assert_eq!(standing(&series, "chat-0"), [""; 0]);
        assert_eq!(series.of("serving.placement.violations"), BTreeMap::new());

        // The same process loads again, onto the host.
        let again = load_of(ON_HOST);
        let (first, rest) = again.split_at(again.len() / 2);
        feed(&lane, first);
        let series = exports.series();
        assert_eq!(series.of("serving.placement.state"), state("chat-0", None), "not judged yet");
        assert_eq!(series.of("serving.placement.bytes"), BTreeMap::new());
        assert_eq!(series.of("serving.decode.expected_rate"), rows([("chat-0", 100.0)]));
        feed(&lane, rest);
        let series = exports.series();
        expect_on_host(&series, "chat-0");
        assert_eq!(standing(&series, "chat-0"), ["serving.placement.cpu_fallback"]);
        let violations = series.of("serving.placement.violations");
        assert_eq!(violations.values().sum::<f64>(), 1.0, "{violations:?}");

        // And back.
        feed(&lane, &load_of(ON_GPU));
        let series = exports.series();
        expect_on_device(&series, "chat-0");
        assert_eq!(standing(&series, "chat-0"), [""; 0]);
        assert_eq!(series.of("serving.placement.violations"), violations, "counted for good");
        assert_eq!(
            lines(&series, "chat-0"),
            2.0 * count(&load_of(ON_GPU)) + count(&load_of(ON_HOST))
        );
    });
}

#[test]
fn a_load_that_failed_is_no_state_and_stays_an_alarm() {
    exporting(|exports| {
        let lane = loaded("chat-0", ON_GPU);
        expect_on_device(&exports.series(), "chat-0");

        feed(&lane, &failed_load());
        let series = exports.series();
        assert_eq!(series.of("serving.placement.state"), state("chat-0", None));
        assert_eq!(series.of("serving.placement.bytes"), BTreeMap::new());
        assert_eq!(series.of("serving.placement.layers"), BTreeMap::new());
        assert_eq!(standing(&series, "chat-0"), ["serving.engine.load_failed"]);

        lane.ended("exit status: 1");
        let series = exports.series();
        for gauge in GAUGES {
            assert_eq!(series.of(gauge), BTreeMap::new(), "{gauge}");
        }
        assert_eq!(
            series.of("serving.alarms.active"),
            rows([("chat-0 serving.engine.load_failed", 1.0), ("serving.sentinel.blind", 0.0)]),
            "of an engine that is gone, why it is"
        );

        feed(&lane, &load_of(ON_GPU));
        let series = exports.series();
        expect_on_device(&series, "chat-0");
        assert_eq!(standing(&series, "chat-0"), [""; 0]);
        drop(lane);
        expect_nobody(&exports.series());
    });
}

#[test]
fn a_draft_model_is_in_no_series_of_the_model_it_helps() {
    exporting(|exports| {
        let lane = loaded("chat-0", WITH_DRAFT);
        expect_on_device(&exports.series(), "chat-0");
        drop(lane);
    });
}

// === lanes ===

#[test]
fn a_lane_that_ended_leaves_its_counters() {
    // Told to have ended, or no longer watched.
    for end in [Some("exit status: 0"), None] {
        exporting(|exports| {
            let lane = loaded("chat-0", ON_HOST);
            request(&lane, 90.0);
            request(&lane, 4.0);
            expect_on_host(&exports.series(), "chat-0");

            let kept = end.map(|how| {
                lane.ended(how);
                lane.clone()
            });
            drop(lane);
            let first = exports.series();
            expect_nobody(&first);
            assert_eq!(lines(&first, "chat-0"), count(&load_of(ON_HOST)), "{end:?}");
            assert_eq!(
                first.of("serving.throughput.judged"),
                rows([("chat-0 on_par", 1.0), ("chat-0 degraded", 1.0)]),
                "{end:?}"
            );
            assert_eq!(first.of("serving.throughput.violations"), rows([("chat-0", 1.0)]));
            assert_eq!(
                first.of("serving.placement.violations"),
                rows([("chat-0 no_device cpu_fallback", 1.0)])
            );
            assert_eq!(first.of("serving.decode.rate"), rows([("chat-0 engine_response", 94.0)]));
            assert_eq!(first.of("serving.requests.in_flight"), rows([("chat-0", 0.0)]));

            // It starts again, by the same handle or as a lane of that name: what was counted goes on.
            let lane = kept.unwrap_or_else(|| Lane::open(config("chat-0")));
            feed(&lane, &load_of(ON_HOST));
            request(&lane, 90.0);
            let then = exports.series();
            expect_on_host(&then, "chat-0");
            assert_eq!(lines(&then, "chat-0"), 2.0 * count(&load_of(ON_HOST)), "{end:?}");
            assert_eq!(
                then.of("serving.throughput.judged"),
                rows([("chat-0 on_par", 2.0), ("chat-0 degraded", 1.0)]),
                "{end:?}"
            );
            assert_eq!(
                then.of("serving.placement.violations"),
                rows([("chat-0 no_device cpu_fallback", 2.0)])
            );
        });
    }
}

#[test]
fn an_engine_that_is_started_again_may_be_another_one() {
    exporting(|exports| {
        let lane = loaded("chat-0", ON_GPU);
        expect_on_device(&exports.series(), "chat-0");
        lane.ended("exit status: 0");

        // A build of 2024: its lines have no prefix.
        feed(&lane, &case("001-cuda-full-offload-2024.log"));
        let series = exports.series();
        assert_eq!(series.of("serving.placement.state"), state("chat-0", Some("gpu")));
        assert_eq!(series.of("serving.placement.layers"), layers("chat-0", 33.0, 0.0));
        let devices = series.values_of("serving.placement.bytes", "serving.device");
        assert_eq!(
            devices.iter().map(String::as_str).collect::<Vec<_>>(),
            ["CPU", "CUDA0", "CUDA_Host"]
        );
    });
}

#[test]
fn lanes_come_and_go_by_themselves() {
    exporting(|exports| {
        let (on_gpu, on_host) = (loaded("chat-0", ON_GPU), loaded("chat-1", ON_HOST));
        let flying = on_gpu.request_span("chat");
        let series = exports.series();
        assert_eq!(
            series.of("serving.placement.state"),
            both(&state("chat-0", Some("gpu")), &state("chat-1", Some("cpu_fallback")))
        );
        assert_eq!(
            series.of("serving.placement.bytes"),
            both(&bytes_on_device("chat-0"), &bytes_on_host("chat-1"))
        );
        assert_eq!(series.of("serving.requests.in_flight"), rows([("chat-0", 1.0)]));

        on_host.ended("signal: 9");
        let series = exports.series();
        expect_on_device(&series, "chat-0");
        assert_eq!(standing(&series, "chat-0"), [""; 0]);
        assert_eq!(series.of("serving.decode.expected_rate"), rows([("chat-0", 100.0)]));

        drop(flying);
        drop(on_gpu);
        feed(&on_host, &load_of(ON_HOST));
        let series = exports.series();
        expect_on_host(&series, "chat-1");
        assert_eq!(series.of("serving.requests.in_flight"), rows([("chat-0", 0.0)]));
    });
}

#[test]
fn a_lane_opened_again_takes_the_place_of_its_namesake() {
    exporting(|exports| {
        let first = loaded("chat-0", ON_HOST);
        expect_on_host(&exports.series(), "chat-0");

        let second = loaded("chat-0", ON_GPU);
        let series = exports.series();
        expect_on_device(&series, "chat-0");
        assert_eq!(standing(&series, "chat-0"), [""; 0]);

        // The first goes on for its holders, and is counted; it is no longer shown.
        request(&first, 90.0);
        request(&second, 90.0);
        feed(&first, &load_of(ON_HOST));
        expect_on_device(&exports.series(), "chat-0");
        drop(first);
        let series = exports.series();
        expect_on_device(&series, "chat-0");
        assert_eq!(series.of("serving.throughput.judged"), rows([("chat-0 on_par", 2.0)]));
        assert_eq!(
            lines(&series, "chat-0"),
            2.0 * count(&load_of(ON_HOST)) + count(&load_of(ON_GPU))
        );
        drop(second);
        expect_nobody(&exports.series());
    });
}

#[test]
fn models_of_a_router_are_lanes_that_go_with_it() {
    let child = |port: u16, recorded: &str| -> Vec<Vec<u8>> {
        let behind = |line: Vec<u8>| [format!("[{port}] ").as_bytes(), &line].concat();
        load_of(recorded).into_iter().map(behind).collect()
    };
    exporting(|exports| {
        let router = Lane::open(config("router"));
        router
            .observe_line(b"0.00.004.000 I srv  llama_server: listening on http://127.0.0.1:8080");
        feed(&router, &child(42977, ON_GPU));
        feed(&router, &child(42978, ON_HOST));
        let series = exports.series();
        let of_models =
            both(&state("router/42977", Some("gpu")), &state("router/42978", Some("cpu_fallback")));
        assert_eq!(
            series.of("serving.placement.state"),
            both(&of_models, &state("router", None)),
            "the router itself has no model"
        );
        assert_eq!(
            series.of("serving.placement.bytes"),
            both(&bytes_on_device("router/42977"), &bytes_on_host("router/42978"))
        );
        let violations = rows([("router/42978 no_device cpu_fallback", 1.0)]);
        assert_eq!(series.of("serving.placement.violations"), violations);

        router.ended("exit status: 0");
        let series = exports.series();
        expect_nobody(&series);
        assert_eq!(series.of("serving.placement.violations"), violations);
    });
}

#[test]
fn an_engine_that_is_known_late_leaves_no_gauge_without_its_name() {
    exporting(|exports| {
        let lane = Lane::open(LaneConfig::new("chat-0").with_plan(Plan::ALL_ON_GPU));
        let early = lane.request_span("chat");
        lane.observe_line(b"a wrapper's own first line");
        let unknown = exports.series();
        assert!(unknown.values_of("serving.placement.state", "serving.engine.name").is_empty());

        feed(&lane, &load_of(ON_GPU));
        request(&lane, 90.0);
        drop(early);
        let series = exports.series();
        expect_on_device(&series, "chat-0");
        for metric in
            ["serving.placement.state", "serving.placement.bytes", "serving.placement.layers"]
        {
            let named = |point: &wire::Point| point.attributes.contains_key("serving.engine.name");
            assert!(series.points(metric).all(named), "{metric}: {series:#?}");
        }
        let in_flight: Vec<_> =
            series.points("serving.requests.in_flight").map(|point| point.value).collect();
        assert_eq!(in_flight, [0.0, 0.0], "taken away where it was added");
        let lines: f64 = series.points("serving.sentinel.lines").map(|point| point.value).sum();
        assert_eq!(lines, count(&load_of(ON_GPU)) + 1.0);
    });
}

// === providers ===

#[test]
fn a_global_provider_set_after_the_layer_gets_all_series() {
    let collector = Collector::start(Wire::Grpc);
    let stack = registry().with(SentinelLayer::default());
    dispatcher::with_default(&stack.into(), || {
        // Nothing is found yet: the program is still setting itself up.
        let lane = Lane::open(config("late"));
        let flying = lane.request_span("chat");

        let otlp = to(&collector).build().unwrap();
        global::set_meter_provider(otlp.meter_provider());
        let exports = Exports { otlp, collector };
        feed(&lane, &load_of(ON_HOST));
        let series = exports.series();
        expect_on_host(&series, "late");
        assert_eq!(
            series.of("serving.placement.violations"),
            rows([("late no_device cpu_fallback", 1.0)])
        );
        assert_eq!(series.of("serving.requests.in_flight"), rows([("late", 1.0)]));
        assert_eq!(lines(&series, "late"), count(&load_of(ON_HOST)));
        drop(flying);
        drop(lane);
        let series = exports.series();
        expect_nobody(&series);
        assert_eq!(series.of("serving.requests.in_flight"), rows([("late", 0.0)]));
    });
}
