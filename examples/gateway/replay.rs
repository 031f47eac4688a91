//! The embedded engine: this program running itself again as a child that plays a recorded llama-server.
//!
//! Every line and every piece of a response leaves in its recorded form and after its recorded time. Requests are
//! answered one after the other, each with the next recorded one, whatever they ask; after the last it starts over.

use std::convert::Infallible;
use std::net::IpAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use clap::Parser;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::time::{Instant, sleep_until};

use crate::http;
use crate::recording::{Output, Recording, Run, Section};
use crate::signals;

/// Plays a recorded run of llama-server, as an engine to try things on.
#[derive(Debug, Parser)]
#[command(name = "gateway __replay")]
pub(crate) struct ReplayArgs {
    /// Which run to play
    #[arg(value_enum)]
    run: Run,
    /// The port to listen on
    #[arg(long, value_name = "N")]
    port: u16,
    /// The address to listen on
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    host: IpAddr,
    /// Which of the recorded requests to play, in that order, over and over; each plays in real time [default: all]
    #[arg(long, value_name = "N,N,...", value_delimiter = ',')]
    requests: Vec<usize>,
    /// End when stdin is closed, so that this engine never outlives the program that holds the other end
    #[arg(long)]
    end_with_stdin: bool,
}

struct Engine {
    recording: Recording,
    /// The numbers of the recorded requests that are still to be played in this round, last first. The lock is held
    /// while one plays: the recorded engine was asked one thing at a time.
    turn: Mutex<Vec<usize>>,
    order: Vec<usize>,
    loaded: AtomicBool,
}

pub(crate) async fn run(args: ReplayArgs) -> anyhow::Result<ExitCode> {
    let engine = Arc::new(Engine::new(args.run, args.requests)?);
    let loaded_after =
        engine.recording.loaded_after().context("the recording holds no `model loaded`")?;
    let Ok(listener) = TcpListener::bind((args.host, args.port)).await else {
        // In llama-server's own words, and with its exit code.
        say(&format!(
            "0.00.001.000 E srv         start: couldn't bind HTTP server socket, hostname: {}, port: {}",
            args.host, args.port
        ));
        say("0.00.001.100 E srv  llama_server: exiting due to HTTP server error");
        return Ok(ExitCode::FAILURE);
    };
    tokio::spawn({
        let engine = Arc::clone(&engine);
        async move { tokio::join!(play(&engine.recording.load, None), engine.load(loaded_after)) }
    });
    let app = Router::new()
        .route("/health", get(health))
        .route("/v1/models", get(models))
        .route("/v1/chat/completions", post(chat))
        .with_state(Arc::clone(&engine));
    tokio::select! {
        error = http::serve(listener, app) => return Err(error),
        _ = signals::terminated() => {}
        () = stdin_closed(), if args.end_with_stdin => {}
    }
    play(&engine.recording.exit, None).await;
    Ok(ExitCode::SUCCESS)
}

impl Engine {
    fn new(run: Run, order: Vec<usize>) -> anyhow::Result<Self> {
        let recording = Recording::of(run)?;
        let count = recording.requests.len();
        let order = if order.is_empty() { (0..count).collect() } else { order };
        ensure!(
            order.iter().all(|&request| request < count),
            "--requests: the recording has requests 0 to {}",
            count - 1
        );
        Ok(Self { recording, turn: Mutex::default(), order, loaded: AtomicBool::new(false) })
    }

    async fn load(&self, after: Duration) {
        sleep_until(Instant::now() + after).await;
        self.loaded.store(true, Ordering::Release);
    }

    fn is_loaded(&self) -> bool {
        self.loaded.load(Ordering::Acquire)
    }

    /// Plays the next recorded request into `pieces`; ends early when nobody listens any more.
    async fn answer(&self, pieces: mpsc::Sender<String>) {
        let mut turn = self.turn.lock().await;
        if turn.is_empty() {
            turn.extend(self.order.iter().rev());
        }
        let Some(request) = turn.pop().and_then(|number| self.recording.requests.get(number))
        else {
            return;
        };
        play(request, Some(pieces)).await;
    }
}

/// Sends each line of a section after its time.
async fn play(section: &Section, mut pieces: Option<mpsc::Sender<String>>) {
    let begin = Instant::now();
    // The response ends with its last piece; what is printed after that is not waited for.
    let last = section.iter().rposition(|(_, output)| matches!(output, Output::Sse(_)));
    for (number, (at, output)) in section.iter().enumerate() {
        sleep_until(begin + *at).await;
        match (output, &pieces) {
            (Output::Stderr(line), _) => say(line),
            (Output::Sse(line), Some(listener)) if listener.send(line.clone()).await.is_err() => {
                return;
            }
            (Output::Sse(_), _) => {}
        }
        if last == Some(number) {
            pieces = None;
        }
    }
}

/// Prints one line as the engine did: to stderr, at once.
fn say(line: &str) {
    use std::io::Write as _;
    // Nobody reads any more: the engine would go on all the same.
    drop(writeln!(std::io::stderr().lock(), "{line}"));
}

async fn stdin_closed() {
    let (closed, wait) = oneshot::channel();
    // A thread of its own: tokio waits for a read from stdin that is under way before it lets the process end.
    std::thread::spawn(move || {
        drop(std::io::copy(&mut std::io::stdin(), &mut std::io::sink()));
        closed.send(())
    });
    drop(wait.await);
}

fn loading() -> Response {
    let body =
        json!({"error": {"message": "Loading model", "type": "unavailable_error", "code": 503}});
    (StatusCode::SERVICE_UNAVAILABLE, Json(body)).into_response()
}

async fn health(State(engine): State<Arc<Engine>>) -> Response {
    if engine.is_loaded() { Json(json!({"status": "ok"})).into_response() } else { loading() }
}

async fn models(State(engine): State<Arc<Engine>>) -> Response {
    if !engine.is_loaded() {
        return loading();
    }
    let model = json!({"id": "/models/gemma-3-270m-q4_k_m.gguf", "object": "model", "owned_by": "llamacpp"});
    Json(json!({"object": "list", "data": [model]})).into_response()
}

async fn chat(State(engine): State<Arc<Engine>>, body: Bytes) -> Response {
    if !engine.is_loaded() {
        return loading();
    }
    let Ok(request) = serde_json::from_slice::<Value>(&body) else {
        let body =
            json!({"error": {"message": "not JSON", "type": "invalid_request_error", "code": 400}});
        return (StatusCode::BAD_REQUEST, Json(body)).into_response();
    };
    let (sender, mut pieces) = mpsc::channel(1);
    tokio::spawn(async move { engine.answer(sender).await });
    if request["stream"] == json!(true) {
        let events = futures_util::stream::poll_fn(move |context| {
            pieces
                .poll_recv(context)
                .map(|piece| piece.map(|line| Ok::<_, Infallible>(line + "\n\n")))
        });
        return ([(header::CONTENT_TYPE, "text/event-stream")], Body::from_stream(events))
            .into_response();
    }
    let mut lines = Vec::new();
    while let Some(line) = pieces.recv().await {
        lines.push(line);
    }
    Json(whole(&lines)).into_response()
}

/// The answer that llama-server gives to the same request without `stream`: all pieces in one, `usage` and `timings`
/// of the last.
fn whole(lines: &[String]) -> Value {
    let chunks: Vec<Value> = lines
        .iter()
        .filter_map(|line| serde_json::from_str(line.strip_prefix("data: ")?).ok())
        .collect();
    let deltas = chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str());
    let finish = chunks.iter().find_map(|chunk| chunk["choices"][0]["finish_reason"].as_str());
    let last = chunks.last().cloned().unwrap_or_default();
    let message = json!({"role": "assistant", "content": deltas.collect::<String>()});
    json!({
        "choices": [{"index": 0, "finish_reason": finish, "message": message}],
        "object": "chat.completion",
        "created": last["created"], "id": last["id"], "model": last["model"],
        "system_fingerprint": last["system_fingerprint"], "usage": last["usage"], "timings": last["timings"],
    })
}
