//! With no arguments: four recorded engines side by side, a few requests to each, and what was found.

use std::process::{ExitCode, Stdio};

use anyhow::{Context as _, ensure};
use axum::body::{Body, to_bytes};
use axum::http::uri::PathAndQuery;
use axum::http::{Request, header};
use futures_util::future::{join_all, try_join_all};
use serde_json::json;
use serving_sentinel::lane::{AlarmKind, LaneConfig};
use serving_sentinel::layer::{Lane, LaneSnapshot};
use serving_sentinel::output::OutputReader;
use serving_sentinel::placement::{Placement, PlacementVerdict, Plan};
use tokio::process::Command;

use crate::cli::Cli;
use crate::engine::{Engine, free_port};
use crate::http::{self, Client, Origin};
use crate::proxy::{self, Gateway, Route};
use crate::screen::Screen;
use crate::{serve, signals};

/// A lane of the demonstration.
struct Scene {
    lane: &'static str,
    run: &'static str,
    /// Which of the recorded requests are played. Of the three slow ones, of nearly seven seconds each, one is enough.
    requests: &'static [u8],
}

const SCENES: [Scene; 4] = [
    Scene { lane: "healthy", run: "on-device-healthy", requests: &[0, 1, 2] },
    Scene { lane: "lying-banner", run: "no-gpu-banner-lies", requests: &[0, 1, 2] },
    Scene { lane: "silent", run: "default-verbosity-silent", requests: &[0, 1, 2] },
    Scene { lane: "collapsing", run: "decode-collapses", requests: &[0, 1, 2, 3, 6] },
];

const MODEL: &str = "gemma-3-270m-q4_k_m";

/// What the model does where it was recorded, on its device.
const EXPECTED_RATE: f64 = 85.0;
const EXPECTATION_SOURCE: &str = "measured on this recording's machine";

const BEGIN: &str = "\
Four engines, each a real llama-server's recorded run played in real time. All four answer /health with 200.
Each was meant to run on the GPU. What is true?
";

const NEXT: &str = "\
Next:
  Serve your own engine:    cargo run --example gateway -- llama-server -m model.gguf
  Send it to a collector:   OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318 cargo run --example gateway
  Put it into your program: add `.with(SentinelLayer::default())` to its subscriber, open a `Lane` for each engine,
                            and give it the engine's output with `lane.watch(stdout, stderr)`";

pub(crate) async fn run(cli: &Cli, screen: &Screen) -> anyhow::Result<ExitCode> {
    let listener = serve::listen(cli).await?;
    let own: Origin = listener.local_addr()?.to_string().parse()?;
    let client = http::client();
    let engines = SCENES.iter().map(start).collect::<anyhow::Result<Vec<_>>>()?;
    let route = |engine: &Engine| Route {
        lane: engine.lane.clone(),
        model: Some(MODEL.into()),
        origin: engine.origin.clone(),
    };
    let app =
        proxy::app(Gateway { routes: engines.iter().map(route).collect(), client: client.clone() });
    screen.say(BEGIN);

    let lanes: Vec<Lane> = engines.iter().map(|engine| engine.lane.clone()).collect();
    let scenes =
        SCENES.iter().zip(&engines).map(|(scene, engine)| scene.play(engine, &client, &own));
    let outcome = tokio::select! {
        histories = try_join_all(scenes) => histories.map(Ok),
        error = http::serve(listener, app) => Err(error),
        signal = signals::terminated() => Ok(Err(ExitCode::from(128 + signal))),
        never = screen.follow(&lanes) => match never {},
    };
    screen.finish(&lanes);
    join_all(engines.into_iter().map(Engine::stop)).await;
    let histories = match outcome? {
        Ok(histories) => histories,
        Err(interrupted) => return Ok(interrupted),
    };
    for (scene, history) in SCENES.iter().zip(histories) {
        screen.say(&format!("\n{}", summary(scene.lane, &history)));
    }
    screen.say(&format!("\n{NEXT}"));
    Ok(ExitCode::SUCCESS)
}

/// Starts this program again, as the engine of one scene.
fn start(scene: &Scene) -> anyhow::Result<Engine> {
    let lane = LaneConfig::new(scene.lane)
        .with_model(MODEL)
        .with_plan(Plan::ALL_ON_GPU)
        .with_expected_rate(EXPECTED_RATE, EXPECTATION_SOURCE)?;
    let port = free_port()?;
    let requests: Vec<String> = scene.requests.iter().map(u8::to_string).collect();
    let mut command =
        Command::new(std::env::current_exe().context("this program does not find itself")?);
    command
        .args(["__replay", scene.run, "--end-with-stdin", "--port", &port.to_string()])
        .args(["--requests", &requests.join(",")])
        .stdin(Stdio::piped());
    let lane = Lane::open(lane);
    Engine::start(OutputReader::new(&lane), lane, format!("127.0.0.1:{port}").parse()?, command)
}

impl Scene {
    /// Waits for the engine and sends the requests one after the other; gives how the lane was after each.
    async fn play(
        &self,
        engine: &Engine,
        client: &Client,
        own: &Origin,
    ) -> anyhow::Result<Vec<LaneSnapshot>> {
        ensure!(
            engine.ready(client).await,
            "the engine of lane {} ended before it was ready",
            self.lane
        );
        let mut history = Vec::new();
        for _ in self.requests {
            let question = json!({
                "model": self.lane,
                "messages": [{"role": "user", "content": "Is this thing on?"}],
                "stream": true,
            });
            let request = Request::post(own.uri(PathAndQuery::from_static("/v1/chat/completions")))
                .header(header::CONTENT_TYPE, "application/json")
                .body(Body::from(question.to_string()))?;
            let answer = client.request(request).await?;
            let status = answer.status();
            let text = to_bytes(Body::new(answer.into_body()), usize::MAX)
                .await
                .with_context(|| format!("lane {}: the answer broke off", self.lane))?;
            ensure!(
                status.is_success(),
                "lane {} answered {status}: {}",
                self.lane,
                String::from_utf8_lossy(&text)
            );
            history.extend(engine.lane.snapshot());
        }
        Ok(history)
    }
}

/// What was found on one lane, in plain words.
fn summary(lane: &str, history: &[LaneSnapshot]) -> String {
    let Some(last) = history.last() else {
        return format!("{lane}\n  nothing is known: no sentinel is installed");
    };
    let mut lines = vec![lane.to_owned(), "  meant   all of the model on the GPU".to_owned()];
    match &last.placement {
        Some(placement) => lines.extend(placement_words(placement)),
        None => lines.push("  true    not known: the engine's load was never judged".to_owned()),
    }
    lines.extend(decode_words(history));
    lines.join("\n")
}

fn placement_words(placement: &Placement) -> Vec<String> {
    let truth = match placement.verdict {
        PlacementVerdict::Gpu => "it is on the GPU",
        PlacementVerdict::Partial => "only a part of it is on the GPU",
        PlacementVerdict::Cpu | PlacementVerdict::CpuFallback => "it is on the CPU",
        PlacementVerdict::Unreported => "nobody knows: the engine did not say",
    };
    let mut lines = vec![format!(
        "  true    {truth} ({}, by {})",
        placement.verdict.as_str(),
        placement.basis.as_str()
    )];
    if let Some(claim) = &placement.contradicted {
        lines.push(format!("          its own log claims otherwise ({claim}), and says in other lines where the weights really are"));
    }
    let causes: Vec<&str> = placement.causes.iter().map(|cause| cause.as_str()).collect();
    if !causes.is_empty() {
        lines.push(format!("  why     {}", causes.join(", ")));
    }
    lines.extend(placement.advice.as_ref().map(|advice| format!("  do      {advice}")));
    lines
}

/// Tells of a collapse and of a recovery after it, else of the last rate.
fn decode_words(history: &[LaneSnapshot]) -> Vec<String> {
    let degraded = |lane: &LaneSnapshot| lane.alarms.contains(&AlarmKind::Degraded);
    let rate = |lane: &LaneSnapshot| match (lane.decode_rate, lane.expected_rate) {
        (Some(rate), Some(expected)) => {
            format!("{rate:.1} tokens/s of {expected:.0} expected ({:.2})", rate / expected)
        }
        _ => "at a rate nobody told".to_owned(),
    };
    let mut lines = Vec::new();
    if let Some(collapse) = history.iter().position(degraded) {
        lines.push(format!(
            "  decode  degraded in request {}: {}",
            collapse + 1,
            rate(&history[collapse])
        ));
        match history.iter().skip(collapse).position(|lane| !degraded(lane)) {
            Some(later) => {
                let recovery = collapse + later;
                lines.push(format!(
                    "          recovered in request {}: {}",
                    recovery + 1,
                    rate(&history[recovery])
                ));
            }
            None => lines.push("          and it did not recover".to_owned()),
        }
        lines.push("  do      look for what took the engine's machine meanwhile: it was given a sixteenth of its time here".to_owned());
    } else {
        lines.extend(history.last().map(|last| format!("  decode  {}", rate(last))));
    }
    lines
}
