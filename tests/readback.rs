//! What an engine's own endpoints answer counts for what it is worth, costs the engine next to nothing, and is told as
//! blindness when it cannot be had.

#![cfg(all(feature = "readback", feature = "otlp"))]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::float_cmp,
    reason = "tests: what is exported is exact, and its absence is a failure"
)]

#[path = "support/engine.rs"]
mod engine;
#[path = "support/otlp.rs"]
mod otlp;
mod support;
#[path = "support/wire.rs"]
mod wire;

use std::num::NonZeroU32;
use std::time::Duration;

use opentelemetry_proto::tonic::logs::v1::LogRecord;
use opentelemetry_proto::tonic::trace::v1::Span;
use serving_sentinel::lane::{BlindCause, LaneConfig, Policy};
use serving_sentinel::layer::Lane;
use serving_sentinel::placement::{Basis, PlacementVerdict, Plan};
use serving_sentinel::readback::{ReadBack, ReadBackSummary};
use serving_sentinel::wedge::WedgePolicy;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tracing::dispatcher;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry;

use engine::{Engine, Reply};
use otlp::{Received, attribute};
use support::memory::{Heard, SOON, listener};
use wire::{Exports, Series, events, records, rows, spans};

const MODEL: &str = "gemma3:4b";
const BLIND: &str = "serving.sentinel.blind";
const CPU_FALLBACK: &str = "serving.placement.cpu_fallback";
const RECOVERED: &str = "serving.placement.recovered";
const FAST: Duration = Duration::from_millis(100);

/// A lane of an engine that is asked, and all that comes of it.
struct Bench {
    exports: Exports,
    heard: Heard,
    engine: Engine,
    runtime: Runtime,
}

impl Bench {
    /// Runs `body` under a sentinel that exports.
    fn run(policy: Policy, body: impl FnOnce(&Self)) {
        let (listener, heard) = listener();
        let exports = Exports::new();
        let sentinel = exports.sentinel().policy(policy).build();
        let stack = registry().with(exports.otlp.layer()).with(sentinel).with(listener);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let bench = Self { exports, heard, engine: Engine::start(), runtime };
        dispatcher::with_default(&stack.into(), || body(&bench));
    }

    fn settings(&self) -> ReadBack {
        ReadBack::new(&self.engine.address())
            .unwrap()
            .with_interval(FAST)
            .with_timeout(Duration::from_millis(500))
    }

    fn ask(&self, lane: &Lane) -> JoinHandle<ReadBackSummary> {
        self.ask_with(lane, self.settings())
    }

    fn ask_with(&self, lane: &Lane, settings: ReadBack) -> JoinHandle<ReadBackSummary> {
        self.runtime.spawn(lane.read_back(settings))
    }

    /// Lets so many intervals pass, in which something must not happen.
    fn pause(&self, intervals: u32) {
        self.runtime.block_on(async { sleep(intervals * FAST).await });
    }

    #[track_caller]
    fn ended(&self, reading: JoinHandle<ReadBackSummary>) -> ReadBackSummary {
        let summary = self.runtime.block_on(async { timeout(SOON, reading).await });
        summary.expect("it ends with its lane").unwrap()
    }

    #[track_caller]
    fn expect_blind(&self, cause: &str) -> std::collections::BTreeMap<String, String> {
        loop {
            let told = self.heard.expect(BLIND);
            if told["serving.blind.cause"] == cause {
                return told;
            }
        }
    }
}

fn bench(body: impl FnOnce(&Bench)) {
    Bench::run(Policy::default(), body);
}

fn config() -> LaneConfig {
    LaneConfig::new("chat-0").with_engine("ollama").with_model(MODEL).with_plan(Plan::ALL_ON_GPU)
}

fn llama() -> LaneConfig {
    LaneConfig::new("chat-0").with_engine("llama.cpp").with_model("gemma")
}

/// `/api/ps` with these models: name, bytes in device memory, all bytes.
fn loaded(models: &[(&str, u64, u64)]) -> String {
    let models = models.iter().map(|(name, accelerator, all)| {
        format!(
            r#"{{"name":"{name}","model":"{name}","size":{all},"digest":"d","details":{{}},"expires_at":"2026-03-01T12:00:00Z","size_vram":{accelerator},"context_length":4096}}"#
        )
    });
    format!(r#"{{"models":[{}]}}"#, models.collect::<Vec<_>>().join(","))
}

fn verdict(lane: &Lane) -> Option<(PlacementVerdict, Basis)> {
    lane.snapshot()?.placement.map(|placement| (placement.verdict, placement.basis))
}

fn told(span: &Span, key: &str) -> Option<String> {
    attribute(&span.attributes, key)
}

fn states(records: &[&LogRecord]) -> Vec<(String, String)> {
    let state = |record: &&LogRecord| {
        let state = attribute(&record.attributes, "serving.alarm.state").unwrap_or_default();
        (record.event_name.clone(), state)
    };
    records.iter().map(state).collect()
}

fn loads(received: &Received) -> Vec<&Span> {
    spans(received, "chat-0", "serving.load")
}

// === placement ===

#[test]
fn a_silent_ollama_is_judged_by_what_it_answers() {
    let rows: [(u64, _, Option<&str>, _); 3] = [
        (5_333_539_264, "gpu", None, 1.0),
        (2_000_000_000, "partial", Some("serving.placement.partial"), 0.0),
        (0, "cpu_fallback", Some(CPU_FALLBACK), 0.0),
    ];
    for (in_device, expected, event, on_gpu) in rows {
        bench(|bench| {
            bench.engine.body("/api/ps", loaded(&[(MODEL, in_device, 5_333_539_264)]));
            let lane = Lane::open(config());
            let _reading = bench.ask(&lane);
            lane.ready();
            bench.engine.wait_for_more(2);

            let received = bench.exports.take();
            let [load] = loads(&received)[..] else { panic!("{expected}: one load, judged once") };
            assert_eq!(told(load, "serving.placement.verdict").as_deref(), Some(expected));
            assert_eq!(told(load, "serving.placement.basis").as_deref(), Some("readback"));
            assert_eq!(told(load, "serving.engine.name").as_deref(), Some("ollama"));
            assert_eq!(told(load, "serving.placement.bytes.accelerator"), None, "not of weights");
            assert_eq!(events(load), Vec::from_iter(event), "{expected}");
            let alarms = states(&records(&received, "chat-0"));
            let raised = event.map(|event| (event.to_owned(), "raised".to_owned()));
            assert_eq!(alarms, Vec::from_iter(raised), "and no blindness: it can be seen");
            let state = Series::last(&received).of("serving.placement.state");
            assert_eq!(state[&format!("chat-0 {expected}")], 1.0);
            assert_eq!(state["chat-0 gpu"], on_gpu);
        });
    }
}

#[test]
fn an_engine_that_nobody_named_is_found_by_its_answers() {
    bench(|bench| {
        bench.engine.body("/api/ps", loaded(&[("other:1b", 0, 7), (MODEL, 9, 9)]));
        let lane = Lane::open(LaneConfig::new("chat-0").with_model(MODEL).with_plan(Plan::GPU));
        let _reading = bench.ask(&lane);
        lane.ready();
        bench.engine.wait_for_more(3);
        assert_eq!(bench.engine.paths(), ["/api/ps"; 3]);
        let now = lane.snapshot().unwrap();
        assert_eq!(now.engine.as_deref(), Some("ollama"));
        assert_eq!(verdict(&lane), Some((PlacementVerdict::Gpu, Basis::Readback)));
        let facts = now.read_back.unwrap();
        assert_eq!(facts.loaded, ["other:1b", MODEL]);
        assert_eq!((facts.bytes, facts.context_tokens), (Some(9), Some(4096)));
        assert_eq!(facts.expires.as_deref(), Some("2026-03-01T12:00:00Z"));
    });
}

#[test]
fn each_lane_of_one_ollama_has_the_evidence_of_its_own_model() {
    bench(|bench| {
        bench.engine.body("/api/ps", loaded(&[("a:latest", 0, 7), ("b:3b", 9, 9)]));
        let rows = [
            ("a", (PlacementVerdict::CpuFallback, Basis::Readback)),
            ("b:3b", (PlacementVerdict::Gpu, Basis::Readback)),
            ("c", (PlacementVerdict::Unreported, Basis::None)),
        ];
        let lanes = rows.map(|(model, _)| {
            let config = LaneConfig::new(model).with_engine("ollama").with_model(model);
            Lane::open(config.with_plan(Plan::GPU))
        });
        for lane in &lanes {
            bench.ask(lane);
            lane.ready();
        }
        bench.engine.wait_for_more(9);
        for (lane, (model, expected)) in lanes.iter().zip(rows) {
            assert_eq!(verdict(lane), Some(expected), "{model}");
        }
        // A model that the engine knows by another name.
        let alias = LaneConfig::new("alias").with_engine("ollama").with_model("chat");
        let alias = Lane::open(alias.with_plan(Plan::GPU));
        bench.ask_with(&alias, bench.settings().with_model("b:3b"));
        alias.ready();
        bench.engine.wait_for_more(8);
        assert_eq!(verdict(&alias), Some((PlacementVerdict::Gpu, Basis::Readback)));
    });
}

/// Ollama 0.30 and later: a raw llama-server's lines, whose banner lies, and an answer that was made from it.
const LYING: &[&str] = &[
    "time=2026-07-02T10:00:00.000Z level=INFO source=server.go:1 msg=\"starting llama-server\" cmd=\"/usr/bin/llama-server --model /m/a --port 1\"",
    "load_tensors: loading model tensors, this can take a while... (mmap = true)",
    "load_tensors: offloaded 33/33 layers to GPU",
    "load_tensors:   CPU_Mapped model buffer size =  4685.31 MiB",
    "llama_context: constructing llama_context",
    "time=2026-07-02T10:00:02.000Z level=INFO source=server.go:2 msg=\"llama-server started in 3.25 seconds\"",
];

fn say(lane: &Lane, lines: &[&str]) {
    for line in lines {
        lane.observe_line(line.as_bytes());
    }
}

#[test]
fn buffers_in_the_log_win_over_any_answer() {
    bench(|bench| {
        bench.engine.body("/api/ps", loaded(&[(MODEL, 5_333_539_264, 5_333_539_264)]));
        let lane = Lane::open(config());
        let _reading = bench.ask(&lane);
        say(&lane, LYING);
        bench.engine.wait_for_more(15); // a verdict that differs would be due by then
        let received = bench.exports.take();
        let [load] = loads(&received)[..] else { panic!("one load, judged once") };
        assert_eq!(told(load, "serving.placement.verdict").as_deref(), Some("cpu_fallback"));
        assert_eq!(told(load, "serving.placement.basis").as_deref(), Some("buffers"));
        assert_eq!(verdict(&lane), Some((PlacementVerdict::CpuFallback, Basis::Buffers)));
    });
}

#[test]
fn a_lying_banner_is_refuted_by_the_answer() {
    bench(|bench| {
        bench.engine.body("/api/ps", loaded(&[(MODEL, 0, 5_333_539_264)]));
        let lane = Lane::open(config());
        let _reading = bench.ask(&lane);
        let no_buffers: Vec<_> =
            LYING.iter().copied().filter(|line| !line.contains("buffer size")).collect();
        say(&lane, &no_buffers);
        let alarm = bench.heard.expect(CPU_FALLBACK);
        assert_eq!(alarm["serving.placement.basis"], "readback");
        assert_eq!(alarm["serving.placement.contradicted"], "banner 33/33");
        let received = bench.exports.take();
        assert_eq!(loads(&received).len(), 1, "no verdict by the banner came before");
    });
}

#[test]
fn a_model_that_loads_later_is_a_recovery_and_a_silent_reload_onto_the_cpu_is_told() {
    bench(|bench| {
        bench.engine.body("/api/ps", loaded(&[]));
        let lane = Lane::open(config());
        let _reading = bench.ask(&lane);
        lane.ready();
        bench.heard.expect("serving.placement.unreported");
        bench.engine.body("/api/ps", loaded(&[(MODEL, 7, 7)]));
        bench.heard.expect(RECOVERED);
        // Unloaded, and loaded again with less room.
        bench.engine.body("/api/ps", loaded(&[]));
        bench.engine.wait_for_more(2);
        bench.engine.body("/api/ps", loaded(&[(MODEL, 0, 7)]));
        bench.heard.expect(CPU_FALLBACK);
        let received = bench.exports.take();
        let verdicts: Vec<_> = loads(&received)
            .iter()
            .map(|load| told(load, "serving.placement.verdict").unwrap())
            .collect();
        assert_eq!(verdicts, ["unreported", "gpu", "cpu_fallback"]);
    });
}

// === manners ===

#[test]
fn an_engine_is_asked_once_it_is_ready_one_question_at_a_time() {
    bench(|bench| {
        bench.engine.body("/props", r#"{"total_slots":4,"build_info":"b1-0c1e570"}"#);
        bench.engine.body("/slots", r#"[{"id":0,"is_processing":false}]"#);
        bench.engine.body("/metrics", "llamacpp:requests_processing 2\n");
        let lane = Lane::open(llama());
        let reading = bench.ask(&lane);
        say(&lane, &["load_tensors: offloaded 19/19 layers to GPU"]);
        bench.pause(10);
        assert_eq!(bench.engine.paths(), [""; 0], "it loads");

        lane.ready();
        bench.engine.wait_for_more(7);
        let asked = bench.engine.asked();
        let paths: Vec<_> = asked.iter().map(|asked| asked.path.as_str()).collect();
        let turns = ["/props", "/slots", "/metrics", "/slots", "/metrics", "/slots", "/metrics"];
        assert_eq!(paths[..7], turns);
        assert!(asked.iter().all(|asked| asked.open == 1), "{asked:#?}");
        assert!(asked.iter().all(|asked| asked.connection == 1), "kept: {asked:#?}");
        let gaps: Vec<_> = asked.windows(2).map(|pair| pair[1].at - pair[0].at).collect();
        // A clock of a busy machine may be late for one question, and so early for the next.
        let whole = gaps.iter().sum::<Duration>();
        assert!(whole >= FAST * 11 / 2, "{gaps:?}");
        assert!(asked[0].head.contains("user-agent: serving-sentinel/"), "{}", asked[0].head);

        let facts = lane.snapshot().unwrap().read_back.unwrap();
        assert_eq!(facts.build.as_deref(), Some("b1-0c1e570"));
        assert_eq!((facts.slots, facts.running), (Some(4), Some(2)));

        // The next load: nothing is asked meanwhile, and everything anew after it.
        say(&lane, &["srv    load_model: loading model '/m/b.gguf'"]);
        bench.pause(10);
        let before = bench.engine.paths().len();
        bench.pause(10);
        assert_eq!(bench.engine.paths().len(), before, "it loads again");
        lane.ready();
        bench.engine.wait_for_more(1);
        assert_eq!(bench.engine.paths()[before], "/props");

        drop(lane);
        let summary = bench.ended(reading);
        assert_eq!(summary.asked, summary.answered);
        assert_eq!(summary.last_error, None);
        let before = bench.engine.paths().len();
        bench.pause(5);
        assert_eq!(bench.engine.paths().len(), before, "nobody holds the lane");
    });
}

#[test]
fn what_is_not_there_is_asked_for_once_a_load() {
    bench(|bench| {
        bench.engine.body("/props", r#"{"total_slots":4}"#);
        bench.engine.answer("/slots", Reply::Status(501));
        bench.engine.answer("/metrics", Reply::Status(404));
        let lane = Lane::open(llama());
        let _reading = bench.ask(&lane);
        lane.ready();
        bench.engine.wait_for_more(3);
        bench.pause(8);
        assert_eq!(bench.engine.paths(), ["/props", "/slots", "/metrics"]);
        let blind = lane.snapshot().unwrap().blind;
        assert!(!blind.contains(&BlindCause::ReadbackFailed), "{blind:?}");

        lane.ended("exit status: 0");
        lane.ready();
        bench.engine.wait_for_more(3);
        assert_eq!(bench.engine.paths()[3..], ["/props", "/slots", "/metrics"]);
    });
}

#[test]
fn a_reading_that_is_dropped_leaves_nothing_behind() {
    bench(|bench| {
        bench.engine.answer("/api/ps", Reply::Status(401));
        let lane = Lane::open(config());
        let reading = bench.ask(&lane);
        lane.ready();
        assert_eq!(bench.expect_blind("readback_failed")["serving.alarm.state"], "raised");
        reading.abort();
        assert_eq!(bench.expect_blind("readback_failed")["serving.alarm.state"], "cleared");
    });
}

#[test]
fn without_a_layer_nobody_is_asked() {
    let runtime = Runtime::new().unwrap();
    let engine = Engine::start();
    let lane = dispatcher::with_default(&registry().into(), || Lane::open(config()));
    let reading = lane.read_back(ReadBack::new(&engine.address()).unwrap());
    let summary = runtime.block_on(async { timeout(SOON, reading).await }).unwrap();
    assert_eq!(summary, ReadBackSummary::default());
    assert_eq!(engine.paths(), [""; 0]);
}

// === blindness ===

#[test]
fn an_engine_that_cannot_be_read_is_blindness_until_it_can() {
    let rows = [
        (Reply::Hang, "`/api/ps`: no answer within 0.5 s"),
        (Reply::Reset, "`/api/ps`: the connection broke: "),
        (Reply::Cut, "`/api/ps`: the connection broke: "),
        (Reply::Endless, "`/api/ps`: the answer is larger than 4096 bytes"),
        (Reply::Slow(loaded(&[(MODEL, 1, 1)])), "`/api/ps`: no answer within 0.5 s"),
        (Reply::Body("<!doctype html>".into()), "`/api/ps`: the answer is not JSON"),
        (Reply::Body(r#"{"models":7}"#.into()), "`/api/ps`: the answer has no `models`"),
        (Reply::Status(500), "`/api/ps`: it answers 500"),
        (Reply::Redirect("/elsewhere"), "`/api/ps`: it answers 302"),
    ];
    for (reply, expected) in rows {
        bench(|bench| {
            bench.engine.answer("/api/ps", reply.clone());
            bench.engine.body("/elsewhere", loaded(&[(MODEL, 1, 1)]));
            let lane = Lane::open(config());
            let settings = bench.settings().with_max_body_bytes(NonZeroU32::new(4096).unwrap());
            let reading = bench.ask_with(&lane, settings);
            lane.ready();
            let raised = bench.expect_blind("readback_failed");
            assert!(raised["serving.advice"].contains(expected), "{expected}: {raised:?}");
            assert_eq!(raised["serving.alarm.state"], "raised");
            assert_eq!(bench.engine.paths(), ["/api/ps"; 3], "{expected}: three in a row");
            assert_eq!(
                verdict(&lane),
                Some((PlacementVerdict::Unreported, Basis::None)),
                "{expected}: unreported is not healthy"
            );

            bench.engine.body("/api/ps", loaded(&[(MODEL, 1, 1)]));
            let cleared = bench.expect_blind("readback_failed");
            assert_eq!(cleared["serving.alarm.state"], "cleared", "{expected}");
            bench.heard.expect(RECOVERED);
            assert_eq!(verdict(&lane), Some((PlacementVerdict::Gpu, Basis::Readback)));
            drop(lane);
            let summary = bench.ended(reading);
            assert_eq!(summary.asked - summary.answered, 3, "{summary:?}");
            assert!(summary.last_error.unwrap().starts_with(expected));
        });
    }
}

#[test]
fn what_is_certain_is_said_at_once() {
    let unset = || LaneConfig::new("chat-0").with_engine("ollama").with_plan(Plan::GPU);
    let two = loaded(&[("a", 1, 1), ("b", 1, 1)]);
    let rows = [
        (config(), "/api/ps", Reply::Status(401), "`/api/ps`: it answers 401", 1),
        (config(), "/api/ps", Reply::Status(404), "`/api/ps`: it answers 404", 1),
        (unset(), "/api/ps", Reply::Body(two), "the lane names none", 1),
        (llama(), "/", Reply::Status(404), "`/props`: it answers 404, `/slots`: it answers 404", 3),
        (
            LaneConfig::new("chat-0").with_engine("koboldcpp"),
            "/props",
            Reply::Body("{}".into()),
            "`/props`: the answer has no `total_slots`",
            3,
        ),
        (
            LaneConfig::new("chat-0").with_model("m"),
            "/",
            Reply::Status(404),
            "`/api/ps`: it answers 404, `/props`",
            4,
        ),
    ];
    for (config, path, reply, expected, questions) in rows {
        bench(|bench| {
            bench.engine.answer(path, reply.clone());
            let lane = Lane::open(config.clone());
            let _reading = bench.ask(&lane);
            lane.ready();
            let raised = bench.expect_blind("readback_failed");
            assert!(raised["serving.advice"].contains(expected), "{expected}: {raised:?}");
            assert_eq!(bench.engine.paths().len(), questions, "{expected}");
            let received = bench.exports.take();
            let records = records(&received, "chat-0");
            let blind = records.iter().filter(|record| record.event_name == BLIND);
            let causes: Vec<_> = blind
                .map(|record| attribute(&record.attributes, "serving.blind.cause").unwrap())
                .collect();
            assert!(causes.contains(&"readback_failed".to_owned()), "{causes:?}");
        });
    }
}

#[test]
fn an_address_where_nobody_listens_and_a_router_are_blindness() {
    bench(|bench| {
        let lane = Lane::open(config());
        let nobody = ReadBack::new("http://127.0.0.1:9").unwrap().with_interval(FAST);
        let _reading = bench.ask_with(&lane, nobody);
        lane.ready();
        let raised = bench.expect_blind("readback_failed");
        let advice = &raised["serving.advice"];
        assert!(advice.contains("cannot connect to http://127.0.0.1:9: "), "{advice}");

        let router = Lane::open(LaneConfig::new("router"));
        let _reading = bench.ask(&router);
        say(&router, &["srv  llama_server: starting server in router mode. models will be loaded"]);
        let raised = bench.expect_blind("readback_failed");
        assert!(raised["serving.advice"].contains("a router serves no model itself"), "{raised:?}");
        assert_eq!(bench.engine.paths(), [""; 0]);
    });
}

#[test]
fn a_key_is_sent_and_an_answer_under_a_path_is_found() {
    bench(|bench| {
        bench.engine.body("/engines/0/api/ps", loaded(&[(MODEL, 1, 1)]));
        let lane = Lane::open(config());
        let address = format!("{}/engines/0/", bench.engine.address());
        let settings = ReadBack::new(&address).unwrap().with_interval(FAST);
        let _reading = bench.ask_with(&lane, settings.with_api_key("hush").unwrap());
        lane.ready();
        bench.engine.wait_for_more(2);
        assert!(bench.engine.asked()[0].head.contains("authorization: Bearer hush"));
        assert_eq!(verdict(&lane), Some((PlacementVerdict::Gpu, Basis::Readback)));
    });
}

// === progress and rates ===

fn slots(decoded: u64) -> String {
    format!(
        r#"[{{"id":0,"is_processing":false}},{{"id":1,"is_processing":true,"id_task":7,"n_prompt_tokens_processed":9,"next_token":[{{"n_decoded":{decoded}}}]}}]"#
    )
}

#[test]
fn a_slot_that_decodes_no_further_is_told_as_a_wedge() {
    let mut policy = Policy::default();
    policy.wedge = WedgePolicy::default().with_drip_budget(Duration::from_secs(1));
    Bench::run(policy, |bench| {
        bench.engine.body("/slots", slots(40));
        let lane = Lane::open(llama());
        let _reading = bench.ask(&lane);
        lane.ready();
        let alarm = bench.heard.expect("serving.engine.wedged");
        assert_eq!(
            (alarm["serving.alarm.state"].as_str(), alarm["serving.slot"].as_str()),
            ("raised", "1")
        );
        bench.engine.body("/slots", slots(41));
        assert_eq!(bench.heard.expect("serving.engine.wedged")["serving.alarm.state"], "cleared");
        let received = bench.exports.take();
        let told = states(&records(&received, "chat-0"));
        for state in ["raised", "cleared"] {
            let expected = ("serving.engine.wedged".to_owned(), state.to_owned());
            assert!(told.contains(&expected), "{told:?}");
        }
    });
}

#[test]
fn an_engine_that_hangs_in_the_middle_of_its_work_is_a_wedge_past_the_large_budget() {
    let mut policy = Policy::default();
    policy.wedge = WedgePolicy::default().with_bulk_budget(Duration::from_secs(2));
    Bench::run(policy, |bench| {
        bench.engine.body("/slots", slots(40));
        let lane = Lane::open(llama());
        let _reading = bench.ask(&lane);
        lane.ready();
        bench.engine.wait_for_more(4);
        bench.engine.answer("/slots", Reply::Hang);
        bench.expect_blind("readback_failed");
        bench.heard.expect("serving.engine.wedged");
    });
}

fn counters(tokens: f64, seconds: f64) -> String {
    format!(
        "llamacpp:tokens_predicted_total {tokens}\nllamacpp:tokens_predicted_seconds_total {seconds}\n\
         llamacpp:predicted_tokens_seconds 1\nllamacpp:requests_processing 0\n"
    )
}

#[test]
fn the_counters_of_llama_server_tell_the_rate_of_requests_that_others_sent() {
    bench(|bench| {
        bench.engine.body("/metrics", counters(1000.0, 100.0));
        let config = llama().with_expected_rate(100.0, "a test").unwrap();
        let lane = Lane::open(config);
        let _reading = bench.ask(&lane);
        lane.ready();
        bench.engine.wait_for_more(5);
        bench.engine.body("/metrics", counters(1200.0, 102.5));
        bench.engine.wait_for_more(3);
        let series = bench.exports.series();
        assert_eq!(series.of("serving.decode.rate"), rows([("chat-0 interval", 80.0)]));
        assert_eq!(series.counts("serving.decode.rate"), rows([("chat-0 interval", 1)]));
        assert_eq!(series.of("serving.decode.ratio"), rows([("chat-0", 0.8)]));
        assert_eq!(series.of("serving.throughput.judged"), rows([]), "it is no request");
        assert_eq!(lane.snapshot().unwrap().decode_rate, Some(80.0));
        // And nothing of placement.
        assert_eq!(verdict(&lane), Some((PlacementVerdict::Unreported, Basis::None)));
    });
}

#[test]
fn the_counters_of_vllm_tell_the_rate_of_all_that_runs() {
    let counters = |tokens: u32| {
        format!(
            "vllm:num_requests_running{{engine=\"0\",model_name=\"m\"}} 2.0\n\
             vllm:generation_tokens_total{{engine=\"0\",model_name=\"m\"}} {tokens}.0\n"
        )
    };
    bench(|bench| {
        bench.engine.body("/metrics", counters(1000));
        let lane = Lane::open(LaneConfig::new("chat-0").with_engine("vllm"));
        let _reading = bench.ask(&lane);
        say(&lane, &["INFO:     Application startup complete."]);
        bench.engine.wait_for_more(2);
        bench.engine.body("/metrics", counters(1500));
        bench.engine.wait_for_more(2);
        let series = bench.exports.series();
        let rate = series.of("serving.decode.rate")["chat-0 interval"];
        // 500 tokens in about 100 ms.
        assert!((1000.0..=6000.0).contains(&rate), "{rate}");
        let running = lane.snapshot().unwrap().read_back.unwrap().running;
        assert_eq!(running, Some(2));
    });
}
