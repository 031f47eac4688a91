//! Text that a model, a prompt or a path brings into the log changes no verdict, whatever it says.
#![allow(clippy::expect_used, reason = "a test says what must be")]

use std::time::Instant;

use serving_sentinel::engines::Matcher;
use serving_sentinel::lane::{LaneConfig, Policy};
use serving_sentinel::observer::Observer;
use serving_sentinel::placement::{Placement, Plan};

/// What someone would write into a model's metadata to look healthy, or to look broken.
const CLAIMS: &[&str] = &[
    "load_tensors: offloaded 19/19 layers to GPU",
    "load_tensors: offloaded 0/19 layers to GPU",
    "load_tensors:        CUDA0 model buffer size = 99999.00 MiB",
    "load_tensors:          CPU model buffer size = 99999.00 MiB",
    "load_tensors: layer   0 assigned to device CUDA0, is_swa = 0",
    "load_tensors: loading model tensors, this can take a while... (mmap = true)",
    "srv    load_model: loading model '/models/other.gguf'",
    "srv  llama_server: model loaded",
    "llama_model_load: error loading model: unable to allocate CUDA0 buffer",
    "ggml_cuda_init: failed to initialize CUDA: unknown error",
];

/// Where foreign text stands in one line.
const PLACES: &[fn(&str) -> String] = &[
    |claim| {
        format!(
            "llama_model_loader: - kv   2:                               general.name str              = {claim}"
        )
    },
    |claim| format!("print_info: general.name          = {claim}"),
    |claim| {
        format!(
            "llama_model_loader: loaded meta data with 33 key-value pairs and 236 tensors from /models/{claim}.gguf (version GGUF V3 (latest))"
        )
    },
    |claim| format!("srv    load_model: local path '/models/{claim}'"),
    |claim| format!("srv  log_server_r: request: POST /v1/chat/completions {claim}"),
    |claim| format!("print_info: EOG token             = 1 '{claim}'"),
];

#[expect(clippy::disallowed_methods, reason = "the log is read at some time")]
fn judged(lines: impl IntoIterator<Item = impl AsRef<str>>) -> (usize, Placement) {
    let now = Instant::now();
    let config = LaneConfig::new("lane").with_plan(Plan::GPU);
    let mut observer = Observer::new(config, Policy::default(), Matcher::builtin());
    let mut out = Vec::new();
    for line in lines {
        observer.line(line.as_ref().as_bytes(), now, &mut out);
    }
    observer.conclude(now, &mut out);
    let loads = out
        .iter()
        .filter(|(_, finding)| {
            matches!(finding, serving_sentinel::lane::Finding::LoadStarted { .. })
        })
        .count();
    (loads, observer.lane().placement().expect("a verdict").clone())
}

const RUNS: [(&str, &str); 3] = [
    (
        "the banner lies",
        include_str!("fixtures/recordings/llama-server-no-gpu-banner-lies.stderr.log"),
    ),
    (
        "on the device",
        include_str!("fixtures/recordings/llama-server-remote-gpu-19-of-19.stderr.log"),
    ),
    ("silent", include_str!("fixtures/recordings/llama-server-default-verbosity.stderr.log")),
];

/// The run as builds until 2026-05 print it: without timestamp and level.
fn unprefixed(line: &str) -> &str {
    let is_stamped = line.as_bytes().first().is_some_and(u8::is_ascii_digit);
    if is_stamped {
        line.split_once(' ').and_then(|(_, rest)| rest.get(2..)).unwrap_or(line)
    } else {
        line
    }
}

#[test]
fn text_within_a_line_counts_nowhere() {
    for (run, log) in RUNS {
        let lines: Vec<&str> = log.lines().collect();
        let bare: Vec<&str> = lines.iter().map(|line| unprefixed(line)).collect();
        let truth = judged(&lines);
        assert_eq!(judged(&bare), truth, "{run}: a prefix changes nothing");
        for claim in CLAIMS {
            for place in PLACES {
                let text = place(claim);
                let stamped = format!("0.00.400.000 I {text}");
                // Before, within and after the load, and at its very end.
                for at in [0, lines.len() / 4, lines.len() / 2, lines.len() * 3 / 4, lines.len()] {
                    for (lines, text) in [(&lines, &stamped), (&bare, &text)] {
                        let mut spoofed = lines.clone();
                        spoofed.insert(at, text);
                        assert_eq!(judged(&spoofed), truth, "{run}: {text} at line {at}");
                    }
                }
            }
        }
    }
}

/// The same in a build without timestamps, with two lines of the template that follow each other.
fn unprefixed_template(lines: &[&str], at: usize, claim: &str) -> Placement {
    let mut bare: Vec<&str> = lines.iter().map(|line| unprefixed(line)).collect();
    if at == lines.len() {
        return judged(&bare).1; // after the load nothing tells such a text from a reload
    }
    bare.insert(at, claim);
    bare.insert(at, "load_tensors: loading model tensors, this can take a while... (mmap = true)");
    judged(&bare).1
}

/// A chat template is printed with its line ends, so that any of its lines stands at the very start of a line.
#[test]
fn lines_of_a_chat_template_count_nowhere() {
    for (run, log) in RUNS {
        let lines: Vec<&str> = log.lines().collect();
        let truth = judged(&lines);
        let template = lines.iter().position(|line| line.contains("chat template, example_format"));
        let places = template
            .map_or(vec![lines.len() / 2, lines.len()], |at| vec![at + 1, at + 3, lines.len()]);
        for claim in CLAIMS {
            for at in &places {
                let mut spoofed = lines.clone();
                spoofed.insert(*at, claim);
                let (loads, placement) = judged(&spoofed);
                // A silent engine prints no template either.
                if template.is_some() {
                    let bare = unprefixed_template(&lines, *at, claim);
                    assert_eq!(
                        bare.verdict, truth.1.verdict,
                        "{run}: {claim} at line {at}, without timestamps"
                    );
                }
                assert_eq!(placement.verdict, truth.1.verdict, "{run}: {claim} at line {at}");
                assert_eq!(placement.layers, truth.1.layers, "{run}: {claim} at line {at}");
                assert_eq!(loads, truth.0, "{run}: {claim} at line {at}");
            }
        }
    }
}
