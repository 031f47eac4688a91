//! The gateway example keeps its promises: it passes everything through as it comes, tells what is true of each lane,
//! and ends as it was asked to.
//!
//! The tests run the built example. Most give it a child that does nothing and play the engine themselves, on the port
//! that the child's arguments name: so they see what reaches an engine, and decide when it answers.

#![cfg(all(unix, feature = "otlp", feature = "output"))]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::collections::HashMap;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
use collector::{Collector, Wire, attribute};
use futures_util::StreamExt as _;
use harness::{Gateway, PATIENCE, chat, gateway, run, send};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::process::Command;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::timeout;

#[allow(unreachable_pub, reason = "a harness that tests share")]
#[path = "support/otlp.rs"]
mod collector;
#[path = "support/gateway.rs"]
mod harness;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CALLER_SPAN: &str = "00f067aa0ba902b7";

// === what is found ===

#[tokio::test]
async fn four_recorded_engines_are_seen_through() {
    let output = run(&[]).await;
    let said = String::from_utf8(output.stdout).unwrap();
    let logged = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{said}\n{logged}");

    let lanes = summaries(&said);
    expect(
        &lanes,
        "healthy",
        &["on the GPU (gpu, by buffers)", "83.8 tokens/s of 85 expected (0.99)"],
    );
    expect(
        &lanes,
        "lying-banner",
        &["on the CPU (cpu_fallback, by buffers)", "banner 19/19", "no_device", "  do      "],
    );
    expect(
        &lanes,
        "silent",
        &["the engine did not say (unreported, by none)", "LLAMA_ARG_LOG_VERBOSITY=4"],
    );
    expect(
        &lanes,
        "collapsing",
        &[
            "on the GPU (gpu, by buffers)",
            "degraded in request 4: 4.9 tokens/s of 85 expected (0.06)",
            "recovered in request 5: 84.",
        ],
    );
    for alarm in [
        "the model is on the CPU although it was to be on a GPU",
        "the engine is ready and did not say where the model is",
        "tokens are decoded far slower than expected",
        "tokens are decoded at the expected rate again",
    ] {
        assert!(logged.contains(alarm), "no log line says that {alarm}:\n{logged}");
    }
    assert!(
        !logged.contains("the sentinel cannot see"),
        "an engine that was told to end is no blindness:\n{logged}"
    );
    assert!(said.contains("cargo run --example gateway -- llama-server -m model.gguf"), "{said}");
}

#[tokio::test]
async fn a_real_engine_is_served_until_it_is_told_to_end() {
    let own = gateway();
    let arguments =
        ["--expect", "85", "--", own.to_str().unwrap(), "__replay", "on-device-healthy"];
    let mut gateway = Gateway::start(&arguments).await;
    gateway.expect_line("The engine is ready.").await;
    gateway
        .expect_line("engine: plan gpu, placement gpu (by buffers), decode - of 85, alarms none")
        .await;

    let whole = json::<Value>(send(chat(&gateway.address, false)).await.unwrap()).await;
    assert_eq!(whole["usage"]["completion_tokens"], 48);
    gateway.expect_line("decode 85.7 of 85 (1.01), alarms none").await;

    let engine = gateway.engine_address().to_owned();
    gateway.terminate();
    assert_eq!(gateway.code().await, Some(143));
    assert!(send(ask(&format!("{engine}/health"))).await.is_err(), "the engine lives on");
}

#[tokio::test]
async fn the_health_of_an_engine_is_what_it_says_itself() {
    let own = gateway();
    let mut gateway =
        Gateway::start(&["--", own.to_str().unwrap(), "__replay", "on-device-healthy"]).await;
    let health = format!("{}/health", gateway.address);
    let mut seen = Vec::new();
    // Until the child listens the gateway itself answers, 502.
    while seen.last() != Some(&StatusCode::OK) {
        let status = send(ask(&health)).await.unwrap().status();
        if seen.last() != Some(&status) {
            seen.push(status);
        }
    }
    seen.retain(|status| *status != StatusCode::BAD_GATEWAY);
    assert_eq!(seen, [StatusCode::SERVICE_UNAVAILABLE, StatusCode::OK]);
    gateway.expect_line("The engine is ready.").await;
}

#[tokio::test]
async fn a_build_that_hides_placement_is_started_so_that_it_tells() {
    for (version, expected) in [("9181 (0123456)", "4"), ("6448 (24a6734d)", "unset")] {
        let folder = tempfile::tempdir().unwrap();
        let engine = folder.path().join("llama-server");
        let script = format!(
            "#!/bin/sh\n\
             if [ \"$1\" = --version ]; then echo 'version: {version}'; exit; fi\n\
             echo ${{LLAMA_ARG_LOG_VERBOSITY:-unset}} > \"$(dirname \"$0\")/verbosity\"; exit 7\n",
        );
        // Written by another process: a file that this one holds open for writing while it forks cannot be run.
        let write = r#"printf %s "$1" > "$0" && chmod 755 "$0""#;
        let written =
            Command::new("sh").args(["-c", write]).arg(&engine).arg(script).status().await.unwrap();
        assert!(written.success());
        let output = run(&["--", engine.to_str().unwrap(), "-ngl", "99"]).await;
        assert_eq!(output.status.code(), Some(7));
        let verbosity = std::fs::read_to_string(folder.path().join("verbosity")).unwrap();
        assert_eq!(verbosity.trim(), expected, "version {version}");
    }
}

// === what goes through ===

#[tokio::test]
async fn a_stream_is_passed_on_as_it_comes() {
    let go_on = Arc::new(Notify::new());
    let engine =
        serve(Router::new().route("/health", get(healthy)).route("/v1/chat/completions", {
            let go_on = Arc::clone(&go_on);
            post(move || async move {
                let pieces = futures_util::stream::unfold(0, move |piece| {
                    let go_on = Arc::clone(&go_on);
                    async move {
                        match piece {
                            0 => {}
                            1 => go_on.notified().await,
                            _ => return None,
                        }
                        Some((
                            Ok::<_, std::io::Error>(format!("data: {{\"piece\":{piece}}}\n\n")),
                            piece + 1,
                        ))
                    }
                });
                ([("content-type", "text/event-stream")], Body::from_stream(pieces))
            })
        }))
        .await;
    let gateway = Gateway::before(engine).await;
    let mut pieces =
        send(chat(&gateway.address, true)).await.unwrap().into_body().into_data_stream();
    let first = timeout(PATIENCE, pieces.next())
        .await
        .expect("the first piece waits for the second")
        .unwrap()
        .unwrap();
    assert_eq!(first, "data: {\"piece\":0}\n\n");
    go_on.notify_one();
    assert_eq!(pieces.next().await.unwrap().unwrap(), "data: {\"piece\":1}\n\n");
    assert!(pieces.next().await.is_none());
}

#[tokio::test]
async fn a_request_is_streamed_to_the_engine_too() {
    let (first_piece, arrived) = oneshot::channel();
    let first_piece = Arc::new(std::sync::Mutex::new(Some(first_piece)));
    let engine = serve(Router::new().route("/health", get(healthy)).route("/upload", {
        post(move |request: Request| async move {
            let mut pieces = request.into_body().into_data_stream();
            let first = pieces.next().await.unwrap().unwrap();
            first_piece.lock().unwrap().take().unwrap().send(first).unwrap();
            pieces
                .map(|piece| piece.unwrap().len())
                .collect::<Vec<_>>()
                .await
                .iter()
                .sum::<usize>()
                .to_string()
        })
    }))
    .await;
    let gateway = Gateway::before(engine).await;
    let (sender, pieces) = mpsc::channel::<Result<&str, std::io::Error>>(1);
    let body = Body::from_stream(futures_util::stream::unfold(pieces, |mut pieces| async {
        pieces.recv().await.map(|piece| (piece, pieces))
    }));
    let answer = tokio::spawn(send(
        Request::post(format!("{}/upload", gateway.address)).body(body).unwrap(),
    ));
    sender.send(Ok("first")).await.unwrap();
    assert_eq!(
        timeout(PATIENCE, arrived).await.expect("the first piece waits for the rest").unwrap(),
        "first"
    );
    sender.send(Ok("second")).await.unwrap();
    drop(sender);
    assert_eq!(text(answer.await.unwrap().unwrap()).await, "6");
}

#[tokio::test]
async fn a_client_that_goes_away_takes_its_request_to_the_engine_along() {
    /// Tells when it is dropped.
    struct Gone(mpsc::UnboundedSender<()>);
    impl Drop for Gone {
        fn drop(&mut self) {
            let _ = self.0.send(());
        }
    }
    let (gone, mut all_gone) = mpsc::unbounded_channel();
    let engine =
        serve(Router::new().route("/health", get(healthy)).route("/v1/chat/completions", {
            post(move || async move {
                let pieces =
                    futures_util::stream::unfold((0, Gone(gone)), |(piece, gone)| async move {
                        if piece > 0 {
                            std::future::pending::<()>().await;
                        }
                        Some((Ok::<_, std::io::Error>("data: {}\n\n"), (piece + 1, gone)))
                    });
                ([("content-type", "text/event-stream")], Body::from_stream(pieces))
            })
        }))
        .await;
    let gateway = Gateway::before(engine).await;
    let mut pieces =
        send(chat(&gateway.address, true)).await.unwrap().into_body().into_data_stream();
    pieces.next().await.unwrap().unwrap();
    drop(pieces);
    timeout(PATIENCE, all_gone.recv())
        .await
        .expect("the engine still works for a client that is gone");
}

#[tokio::test]
async fn everything_else_is_left_as_it_is() {
    let engine = serve(Router::new().route("/health", get(healthy)).fallback(any(echo))).await;
    let gateway = Gateway::before(engine).await;
    let request = Request::put(format!("{}/slots/0%2F?action=save%20now&x=", gateway.address))
        .header("authorization", "Bearer key")
        .header("x-of-one-connection", "secret")
        .header("connection", "x-of-one-connection")
        .body(Body::from("as it is"));
    let answer = send(request.unwrap()).await.unwrap();
    assert_eq!(answer.status(), StatusCode::IM_A_TEAPOT);
    assert_eq!(answer.headers()["x-engine"], "yes");
    let echo = json::<Echo>(answer).await;
    assert_eq!(
        (echo.method.as_str(), echo.path.as_str()),
        ("PUT", "/slots/0%2F?action=save%20now&x=")
    );
    assert_eq!(echo.body, "as it is");
    assert_eq!(echo.headers.get("authorization").map(String::as_str), Some("Bearer key"));
    assert_eq!(echo.headers.get("x-of-one-connection"), None);
}

#[tokio::test]
async fn a_callers_trace_is_continued_to_the_engine_and_to_the_collector() {
    let (seen, mut parents) = mpsc::unbounded_channel();
    let engine = serve(Router::new().route("/health", get(healthy)).route("/v1/chat/completions", {
        post(move |headers: HeaderMap| async move {
            seen.send(headers["traceparent"].to_str().unwrap().to_owned()).unwrap();
            axum::Json(json!({
                "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "yes"}}],
                "usage": {"prompt_tokens": 30, "completion_tokens": 48, "total_tokens": 78},
                "timings": {"predicted_n": 48, "predicted_ms": 480.0, "predicted_per_second": 97.9},
            }))
        })
    }))
    .await;
    let collector = Collector::start(Wire::Http);
    let endpoint = [("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint())];
    let mut gateway = Gateway::before_with(engine, &[], &endpoint).await;
    gateway.expect_line("The engine is ready.").await;
    let mut request = chat(&gateway.address, false);
    request
        .headers_mut()
        .insert("traceparent", format!("00-{TRACE}-{CALLER_SPAN}-01").parse().unwrap());
    assert_eq!(send(request).await.unwrap().status(), StatusCode::OK);
    gateway.terminate();
    assert_eq!(gateway.code().await, Some(143));

    let received = collector.received();
    let span = &received.span("chat").expect("the collector has no span of the request").data;
    assert_eq!(
        (hex(&span.trace_id), hex(&span.parent_span_id)),
        (TRACE.to_owned(), CALLER_SPAN.to_owned())
    );
    let parent = parents.recv().await.unwrap();
    assert_eq!(parent, format!("00-{TRACE}-{}-01", hex(&span.span_id)));
    let has = |key| attribute(&span.attributes, key);
    assert_eq!(has("gen_ai.usage.output_tokens").as_deref(), Some("48"));
    assert_eq!(has("error.type"), None);
}

#[tokio::test]
async fn a_trace_that_its_caller_does_not_sample_is_passed_on_counted_and_not_exported() {
    let (seen, mut parents) = mpsc::unbounded_channel();
    let engine = serve(Router::new().route("/health", get(healthy)).route("/v1/chat/completions", {
        post(move |headers: HeaderMap| async move {
            seen.send(headers["traceparent"].to_str().unwrap().to_owned()).unwrap();
            axum::Json(json!({
                "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "yes"}}],
                "usage": {"prompt_tokens": 30, "completion_tokens": 48, "total_tokens": 78},
                "timings": {"predicted_n": 48, "predicted_ms": 12000.0, "predicted_per_second": 4.0},
            }))
        })
    }))
    .await;
    let collector = Collector::start(Wire::Http);
    let endpoint = [("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint())];
    let mut gateway = Gateway::before_with(engine, &["--expect", "85"], &endpoint).await;
    gateway.expect_line("The engine is ready.").await;
    let mut request = chat(&gateway.address, false);
    let parent = format!("00-{TRACE}-{CALLER_SPAN}-00");
    request.headers_mut().insert("traceparent", parent.parse().unwrap());
    assert_eq!(send(request).await.unwrap().status(), StatusCode::OK);
    gateway.terminate();
    assert_eq!(gateway.code().await, Some(143));

    let parent = parents.recv().await.unwrap();
    assert!(parent.starts_with(&format!("00-{TRACE}-")) && parent.ends_with("-00"), "{parent}");
    let received = collector.received();
    let traces = received.spans.iter().map(|span| hex(&span.data.trace_id)).collect::<Vec<_>>();
    assert!(!traces.contains(&TRACE.to_owned()), "{:#?}", received.spans);
    let alarm = &received.log("serving.throughput.degraded").expect("no alarm").data;
    assert_eq!((hex(&alarm.trace_id).as_str(), alarm.flags), (TRACE, 0), "it is not sampled");
    assert_eq!(attribute(&alarm.attributes, "serving.decode.rate").as_deref(), Some("4"));
    assert_eq!(received.value("serving.throughput.violations"), Some(1.0));
    assert_eq!(received.value("serving.requests.in_flight"), Some(0.0));
}

#[tokio::test]
async fn without_a_collector_the_callers_trace_goes_through() {
    let engine = serve(Router::new().route("/health", get(healthy)).fallback(any(echo))).await;
    let gateway = Gateway::before(engine).await;
    let parent = format!("00-{TRACE}-{CALLER_SPAN}-01");
    let mut request = chat(&gateway.address, false);
    request.headers_mut().insert("traceparent", parent.parse().unwrap());
    let echo = json::<Echo>(send(request).await.unwrap()).await;
    assert_eq!(echo.headers["traceparent"], parent);
}

#[tokio::test]
async fn an_engine_that_does_not_answer_is_named() {
    let gateway = Gateway::before(free_port()).await;
    let answer = send(chat(&gateway.address, false)).await.unwrap();
    assert_eq!(answer.status(), StatusCode::BAD_GATEWAY);
    let error = json::<Value>(answer).await;
    let message = error["error"]["message"].as_str().unwrap();
    assert!(
        message.starts_with("the engine of lane engine does not answer at http://127.0.0.1:"),
        "{message}"
    );
}

// === how it ends ===

#[tokio::test]
async fn wrong_use_is_refused_with_what_to_do() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let rows: [(&[&str], &str); 6] = [
        (&["--listen", &taken, "--", "sh"], "give another with --listen"),
        (&["--", "no-such-engine"], "cannot start `no-such-engine`; check that it is installed"),
        (
            &["--", "llama-server", "-m", "no-such.gguf"],
            "there is no model file `no-such.gguf`; check the path after -m",
        ),
        (&["--plan", "cpu", "--minimum-share", "1", "--", "sh"], "give it with --plan gpu"),
        (&["--expect", "0", "--", "sh"], "give tokens/s"),
        (&["--plan", "tpu"], "possible values: gpu, cpu, unknown"),
    ];
    for (arguments, advice) in rows {
        let output = run(arguments).await;
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(advice), "{arguments:?} say: {said}");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    }
}

#[tokio::test]
async fn an_engine_that_ends_by_itself_ends_the_gateway_with_its_code() {
    for (script, code, how) in [
        ("exit 4", 4, "exit status: 4"),
        ("echo hello; exit 3", 3, "exit status: 3"),
        ("echo hello; exit 0", 1, "exit status: 0"),
        ("echo hello; kill -9 $$", 137, "signal: 9"),
    ] {
        let output = run(&["--", "sh", "-c", script, "sh"]).await;
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(said.contains(&format!("The engine ended: {how}")), "{script}: {said}");
        let logged = String::from_utf8_lossy(&output.stderr);
        assert!(logged.contains("the engine did not load the model"), "{script}: {logged}");
        assert_eq!(output.status.code(), Some(code), "{script}");
    }
}

// === the harness ===

/// Serves as an engine on a port of its own.
async fn serve(app: Router) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(axum::serve(listener, app).into_future());
    port
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

async fn healthy() -> &'static str {
    "ok"
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

/// What reached the engine.
#[derive(serde::Serialize, serde::Deserialize)]
struct Echo {
    method: String,
    path: String,
    headers: HashMap<String, String>,
    body: String,
}

async fn echo(request: Request) -> impl IntoResponse {
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, 1 << 20).await.unwrap();
    let headers = |headers: &HeaderMap| {
        headers
            .iter()
            .map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()))
            .collect()
    };
    let echo = Echo {
        method: parts.method.to_string(),
        path: parts.uri.to_string(),
        headers: headers(&parts.headers),
        body: String::from_utf8(body.to_vec()).unwrap(),
    };
    (StatusCode::IM_A_TEAPOT, [("x-engine", "yes")], axum::Json(echo))
}

fn ask(address: &str) -> Request {
    Request::get(address).body(Body::empty()).unwrap()
}

async fn text(answer: Response) -> String {
    String::from_utf8(to_bytes(answer.into_body(), 1 << 20).await.unwrap().to_vec()).unwrap()
}

async fn json<T: DeserializeOwned>(answer: Response) -> T {
    serde_json::from_str(&text(answer).await).unwrap()
}

/// The summaries that stand below the table, by lane: a lane's name alone on a line, and the indented lines below it.
fn summaries(said: &str) -> HashMap<&str, String> {
    let mut lanes: HashMap<&str, String> = HashMap::new();
    let mut lane = "";
    for line in said.lines() {
        if line.starts_with("  ") {
            lanes.entry(lane).or_default().extend([line, "\n"]);
        } else {
            lane = line;
        }
    }
    lanes
}

#[track_caller]
fn expect(lanes: &HashMap<&str, String>, lane: &str, parts: &[&str]) {
    let summary =
        lanes.get(lane).unwrap_or_else(|| panic!("nothing is said of {lane}: {lanes:#?}"));
    for part in parts {
        assert!(summary.contains(part), "{lane} lacks {part:?}:\n{summary}");
    }
}
