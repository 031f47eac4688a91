//! Every format that the crate knows is proven by its own lines, behind every log prefix, and by whole recordings.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test ends at the first thing that is not as it should be"
)]

mod files;
mod properties;
mod recordings;
mod refusals;
mod spoofs;
mod words;

use serving_sentinel::engines::{Matcher, Recognised, Service, StreamState};
use words::Words;

/// What one line states, in words.
fn recognise(line: &[u8], stream: &mut StreamState) -> (Recognised, Vec<Words>) {
    let recognised = Matcher::builtin().recognise(line, stream);
    let words = recognised.evidence.iter().map(Words::of).collect();
    (recognised, words)
}

/// What a whole text states, one fact a line, in words.
fn facts(text: &str, stream: &mut StreamState) -> Vec<String> {
    text.split('\n')
        .flat_map(|line| recognise(line.as_bytes(), stream).1)
        .map(|words| words.line())
        .collect()
}

/// A log prefix or a JSON envelope: its name, how it wraps a message, the service it names.
struct Wrapping {
    name: &'static str,
    wrap: fn(&str) -> String,
    service: Option<fn() -> Service>,
    /// Whether a message that is itself JSON may stand in it.
    takes_json: bool,
}

fn json_string(text: &str) -> String {
    serde_json::to_string(text).unwrap()
}

fn jsonl(message: &str) -> String {
    format!(
        r#"{{"type":"log","time":638588,"level":"info","msg":{}}}"#,
        json_string(&format!("{message}\n"))
    )
}

fn passed_on(message: &str) -> String {
    format!(
        r#"{{"type":"log","time":1,"level":"none","msg":{}}}"#,
        json_string(&format!("{message}\n"))
    )
}

fn container(message: &str) -> String {
    let time = "2026-05-31T16:41:57.826321631Z";
    format!(
        r#"{{"log":{},"stream":"stderr","time":"{time}"}}"#,
        json_string(&format!("{message}\n"))
    )
}

fn child() -> Service {
    Service::RouterChild("42977".into())
}

fn named(name: &str) -> Service {
    Service::Named(name.into())
}

const OWN: &str = "0.00.638.588 I ";
const COLOURED: &str = "\x1b[0m\x1b[34m0.00.638.588\x1b[0m \x1b[32mI \x1b[0m";

/// Every way in which lines have been seen wrapped.
const WRAPPINGS: &[Wrapping] = &[
    Wrapping { name: "plain", wrap: str::to_owned, service: None, takes_json: true },
    Wrapping { name: "windows", wrap: |m| format!("{m}\r"), service: None, takes_json: true },
    Wrapping { name: "own", wrap: |m| format!("{OWN}{m}"), service: None, takes_json: false },
    Wrapping { name: "level", wrap: |m| format!("I {m}"), service: None, takes_json: false },
    Wrapping {
        name: "coloured",
        wrap: |m| format!("{COLOURED}{m}"),
        service: None,
        takes_json: false,
    },
    Wrapping {
        name: "coloured warning",
        wrap: |m| format!("\x1b[34m1.02.003.004\x1b[0m \x1b[35mW {m}\x1b[0m"),
        service: None,
        takes_json: false,
    },
    Wrapping {
        name: "iso time",
        wrap: |m| format!("2026-05-31T16:41:57.826Z {m}"),
        service: None,
        takes_json: true,
    },
    Wrapping {
        name: "go time",
        wrap: |m| format!("2026/05/31 16:41:57 {m}"),
        service: None,
        takes_json: true,
    },
    Wrapping {
        name: "kubernetes",
        wrap: |m| format!("2026-05-31T16:41:57.826321631Z stderr F {OWN}{m}"),
        service: None,
        takes_json: false,
    },
    Wrapping {
        name: "journald",
        wrap: |m| format!("Jun 18 08:57:40 host1 llama-server[1351]: {m}"),
        service: Some(|| named("llama-server")),
        takes_json: true,
    },
    Wrapping {
        name: "journald, no unit",
        wrap: |m| format!("Jun 18 08:57:40 host1 :[1351]: {OWN}{m}"),
        service: None,
        takes_json: false,
    },
    Wrapping {
        name: "journald, localized",
        wrap: |m| format!("9月 02 14:46:54 host1 python[433748]: {m}"),
        service: Some(|| named("python")),
        takes_json: true,
    },
    Wrapping {
        name: "compose",
        wrap: |m| format!("llama-1  | {m}"),
        service: Some(|| named("llama-1")),
        takes_json: true,
    },
    Wrapping {
        name: "compose, coloured, own",
        wrap: |m| format!("\x1b[36mllama-1  | \x1b[0m{COLOURED}{m}"),
        service: Some(|| named("llama-1")),
        takes_json: false,
    },
    Wrapping {
        name: "tag",
        wrap: |m| format!("[llama-cpp] 2026-05-31T16:41:57.826321631Z {OWN}{m}"),
        service: Some(|| named("llama-cpp")),
        takes_json: false,
    },
    Wrapping {
        name: "router",
        wrap: |m| format!("[42977] {OWN}{m}"),
        service: Some(child),
        takes_json: false,
    },
    Wrapping {
        name: "tag, router",
        wrap: |m| format!("[llama-cpp] 2026-05-31T16:42:06.551102334Z [42977] {m}"),
        service: Some(child),
        takes_json: true,
    },
    Wrapping {
        name: "vllm",
        wrap: |m| format!("INFO 06-13 11:36:10 {m}"),
        service: None,
        takes_json: false,
    },
    Wrapping {
        name: "vllm, process, coloured",
        wrap: |m| {
            format!(
                "\x1b[0;36m(EngineCore_DP0 pid=123)\x1b[0;0m \x1b[33mWARNING\x1b[0m \x1b[90m06-13 11:36:10\x1b[0m {m}"
            )
        },
        service: None,
        takes_json: false,
    },
    Wrapping {
        name: "compose, a process",
        wrap: |m| format!("llama-1  | (APIServer pid=1) {m}"),
        service: Some(|| named("llama-1")),
        takes_json: false,
    },
    Wrapping {
        name: "sglang",
        wrap: |m| format!("[2026-09-17 11:37:01 DP0 TP0] {m}"),
        service: None,
        takes_json: false,
    },
    Wrapping {
        name: "python",
        wrap: |m| format!("2026-08-22 10:38:13,123 - mlx_lm.server - INFO - {m}"),
        service: None,
        takes_json: false,
    },
    Wrapping { name: "container", wrap: container, service: None, takes_json: true },
    Wrapping {
        name: "container, own",
        wrap: |m| container(&format!("{COLOURED}{m}")),
        service: None,
        takes_json: false,
    },
    Wrapping { name: "jsonl", wrap: jsonl, service: None, takes_json: false },
    Wrapping {
        name: "container, jsonl",
        wrap: |m| container(&jsonl(m)),
        service: None,
        takes_json: false,
    },
    Wrapping {
        name: "compose, jsonl",
        wrap: |m| format!("llama-1  | {}", jsonl(m)),
        service: Some(|| named("llama-1")),
        takes_json: false,
    },
    Wrapping {
        name: "router, jsonl twice",
        wrap: |m| passed_on(&format!("[42977] {}", jsonl(m))),
        service: Some(child),
        takes_json: false,
    },
    Wrapping {
        name: "router, jsonl around text",
        wrap: |m| passed_on(&format!("[42977] {OWN}{m}")),
        service: Some(child),
        takes_json: false,
    },
];
