//! A real llama-server, asked by its own endpoints: what it is, how fast it decodes for others, and that it hangs.
//!
//! Needs `SENTINEL_ENGINE_HOME`, the folder that `.ci/engine` prints.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a test says what must be"
)]
#![expect(clippy::disallowed_methods, reason = "a client reads its clock")]

#[path = "support/engine_home.rs"]
mod engine_home;
#[path = "support/otlp.rs"]
mod otlp;
mod support;
#[path = "support/wire.rs"]
mod wire;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serving_sentinel::lane::{BlindCause, LaneConfig, Policy};
use serving_sentinel::layer::Lane;
use serving_sentinel::placement::{Basis, PlacementVerdict, Plan};
use serving_sentinel::readback::{ReadBack, ReadBackSummary};
use serving_sentinel::throughput::Timings;
use serving_sentinel::wedge::WedgePolicy;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tracing::dispatcher;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry;

use engine_home::{MODEL, home};
use support::memory::{Heard, SOON, listener};
use wire::{Exports, Series};

const FAST: Duration = Duration::from_millis(200);
const BLIND: &str = "serving.sentinel.blind";

/// A llama-server that answers, and is gone when the test is.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(arguments: &[&str]) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let child = Command::new(home().join("without-gpu/llama-server"))
            .arg("-m")
            .arg(home().join(MODEL))
            .args(["-c", "4096", "-t", "1", "--port", &port.to_string()])
            .args(arguments)
            .env_remove("LLAMA_ARG_LOG_VERBOSITY")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("llama-server starts");
        let server = Self { child, address: format!("127.0.0.1:{port}") };
        let until = Instant::now() + Duration::from_secs(60);
        while !server.get("/health").is_ok_and(|answer| answer.starts_with("HTTP/1.1 200")) {
            assert!(Instant::now() < until, "llama-server does not answer on {}", server.address);
            thread::sleep(Duration::from_millis(100));
        }
        server
    }

    fn get(&self, path: &str) -> std::io::Result<String> {
        exchange(&self.address, &format!("GET {path} HTTP/1.0\r\n\r\n"))
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn exchange(address: &str, request: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// A request that is none of the lane's: what the engine then says of it.
fn complete(address: &str, tokens: u32) -> Timings {
    let body = format!(r#"{{"prompt":"The sea","n_predict":{tokens},"ignore_eos":true}}"#);
    let length = body.len();
    let request = format!("POST /completion HTTP/1.0\r\ncontent-length: {length}\r\n\r\n{body}");
    let answer = exchange(address, &request).unwrap();
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    Timings::from_response(body.as_bytes()).unwrap()
}

/// A sentinel that exports, and where to run what asks.
struct Bench {
    exports: Exports,
    heard: Heard,
    runtime: Runtime,
}

fn bench(policy: Policy, body: impl FnOnce(&Bench)) {
    let (listener, heard) = listener();
    let exports = Exports::new();
    let sentinel = exports.sentinel().policy(policy).build();
    let stack = registry().with(exports.otlp.layer()).with(sentinel).with(listener);
    let bench = Bench { exports, heard, runtime: Runtime::new().unwrap() };
    dispatcher::with_default(&stack.into(), || body(&bench));
}

impl Bench {
    fn ask(&self, lane: &Lane, settings: ReadBack) -> JoinHandle<ReadBackSummary> {
        self.runtime.spawn(lane.read_back(settings.with_interval(FAST)))
    }

    fn ended(&self, reading: JoinHandle<ReadBackSummary>) -> ReadBackSummary {
        let summary = self.runtime.block_on(async { timeout(SOON, reading).await });
        summary.expect("it ends with its lane").unwrap()
    }

    /// Waits for a blindness of that cause.
    #[track_caller]
    fn expect_blind(&self, state: &str) -> String {
        loop {
            let mut told = self.heard.expect(BLIND);
            if told["serving.blind.cause"] == "readback_failed" {
                assert_eq!(told["serving.alarm.state"], state, "{told:?}");
                return told.remove("serving.advice").unwrap_or_default();
            }
        }
    }
}

fn settings(server: &Server) -> ReadBack {
    ReadBack::new(&format!("http://{}", server.address)).unwrap()
}

/// Looks until it is so.
#[track_caller]
fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let until = Instant::now() + SOON;
    while !is_so() {
        assert!(Instant::now() < until, "{what}: not within {SOON:?}");
        thread::sleep(Duration::from_millis(50));
    }
}

fn facts(lane: &Lane) -> Option<serving_sentinel::lane::ReadBackFacts> {
    lane.snapshot().unwrap().read_back
}

#[test]
fn it_says_what_it_is_and_how_fast_it_decodes_for_others() {
    let server = Server::start(&["--metrics", "-np", "2"]);
    bench(Policy::default(), |bench| {
        let config = LaneConfig::new("real").with_model("gemma").with_plan(Plan::GPU);
        let lane = Lane::open(config.with_expected_rate(0.1, "any machine").unwrap());
        let reading = bench.ask(&lane, settings(&server));
        lane.ready();
        wait_until("counters are read", || facts(&lane).is_some_and(|it| it.running == Some(0)));
        let now = lane.snapshot().unwrap();
        assert_eq!(now.engine.as_deref(), Some("llama.cpp"), "by its answers alone");
        let told = now.read_back.unwrap();
        println!("    {told:?}");
        assert!(told.build.unwrap().starts_with('b'));
        assert!(told.model.unwrap().ends_with(MODEL));
        assert_eq!((told.slots, told.context_tokens), (Some(2), Some(2048)));

        let timings = complete(&server.address, 64);
        wait_until("a rate", || lane.snapshot().unwrap().decode_rate.is_some());
        let series = bench.exports.series();
        let rate = series.of("serving.decode.rate")["real interval"];
        let stated = timings.decode_rate.unwrap().get();
        println!("    counters {rate:.2} tokens/s, its answer {stated:.2} tokens/s");
        // The counters divide n tokens by the time of n - 1 steps.
        assert!((rate / stated - 64.0 / 63.0).abs() < 0.01, "{rate} and {stated}");

        let placement = lane.snapshot().unwrap().placement.unwrap();
        let expected = (PlacementVerdict::Unreported, Basis::None);
        assert_eq!((placement.verdict, placement.basis), expected, "no endpoint tells placement");
        drop(lane);
        let summary = bench.ended(reading);
        assert_eq!(summary.asked - summary.answered, 1, "/api/ps is not there: {summary:?}");
    });
}

#[test]
fn it_hangs_in_the_middle_of_a_request_and_goes_on() {
    let server = Server::start(&["-np", "1"]);
    let mut policy = Policy::default();
    policy.wedge = WedgePolicy::default().with_bulk_budget(Duration::from_secs(3));
    bench(policy, |bench| {
        let lane = Lane::open(LaneConfig::new("real").with_engine("llama.cpp"));
        let _reading = bench.ask(&lane, settings(&server).with_timeout(Duration::from_millis(500)));
        lane.ready();
        let address = server.address.clone();
        let request = thread::spawn(move || complete(&address, 700));
        wait_until("it works", || server.get("/slots").unwrap().contains("\"is_processing\":true"));
        thread::sleep(3 * FAST); // so that it is seen at work
        server.signal(Signal::STOP);
        let advice = bench.expect_blind("raised");
        assert!(advice.contains("`/slots`: no answer within 0.5 s"), "{advice}");
        let wedged = bench.heard.expect("serving.engine.wedged");
        assert_eq!(wedged["serving.slot"], "0", "{wedged:?}");
        assert!(lane.snapshot().unwrap().blind.contains(&BlindCause::ReadbackFailed));

        server.signal(Signal::CONT);
        wait_until("all is well", || {
            let now = lane.snapshot().unwrap();
            now.alarms.is_empty() && !now.blind.contains(&BlindCause::ReadbackFailed)
        });
        request.join().unwrap();
        let alarms = Series::last(&bench.exports.take()).of("serving.alarms.active");
        assert_eq!(alarms["real serving.engine.wedged"].to_bits(), 0.0_f64.to_bits());
    });
}

#[test]
fn what_it_was_not_started_with_is_no_blindness_and_a_key_is() {
    let server = Server::start(&["--no-slots", "--api-key", "hush"]);
    bench(Policy::default(), |bench| {
        let config = || LaneConfig::new("real").with_engine("llama.cpp");
        let lane = Lane::open(config());
        let reading = bench.ask(&lane, settings(&server));
        lane.ready();
        let advice = bench.expect_blind("raised");
        assert!(advice.contains("it answers 401"), "{advice}");
        drop(lane);
        assert_eq!(bench.ended(reading).answered, 0);

        let lane = Lane::open(config());
        let reading = bench.ask(&lane, settings(&server).with_api_key("hush").unwrap());
        lane.ready();
        wait_until("properties are read", || facts(&lane).is_some());
        thread::sleep(5 * FAST);
        let blind = lane.snapshot().unwrap().blind;
        assert!(!blind.contains(&BlindCause::ReadbackFailed), "{blind:?}");
        drop(lane);
        let summary = bench.ended(reading);
        assert_eq!((summary.asked, summary.answered), (3, 1), "once each: {summary:?}");
        assert!(summary.last_error.unwrap().ends_with("it answers 501"));
    });
}

#[test]
fn one_that_may_sleep_is_left_asleep() {
    let server = Server::start(&["--metrics", "--sleep-idle-seconds", "2"]);
    bench(Policy::default(), |bench| {
        let lane = Lane::open(LaneConfig::new("real").with_engine("llama.cpp"));
        let reading = bench.ask(&lane, settings(&server).without_slots());
        lane.ready();
        wait_until("it sleeps", || server.get("/props").unwrap().contains("\"is_sleeping\":true"));
        thread::sleep(5 * FAST);
        assert!(server.get("/props").unwrap().contains("\"is_sleeping\":true"), "it was woken");
        drop(lane);
        let summary = bench.ended(reading);
        assert!(summary.asked > 5 && summary.asked == summary.answered, "{summary:?}");
    });
}

#[test]
fn the_gateway_asks_it() {
    let tests = std::env::current_exe().unwrap();
    let gateway = tests.parent().unwrap().parent().unwrap().join("examples/gateway");
    assert!(
        gateway.exists(),
        "{} is missing: `cargo build --features readback --example gateway` makes it",
        gateway.display()
    );
    let mut child = Command::new(gateway)
        .args(["--read-back", "--"])
        .arg(home().join("without-gpu/llama-server"))
        .arg("-m")
        .arg(home().join(MODEL))
        .args(["-c", "2048", "-np", "1"])
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let told = lines.inspect(|line| println!("    {line}")).find(|line| line.contains("of itself"));
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130), "128 + SIGINT");
    let told = told.expect("it ends before it has asked");
    assert!(told.starts_with("The engine says of itself: build b"), "{told}");
    assert!(told.ends_with(", 1 slot, 2048 tokens of context."), "{told}");
}
