//! Whole recordings of a real llama-server, line by line.

use std::fs;
use std::path::Path;

use serde_json::Value;
use serving_sentinel::engines::StreamState;

use crate::facts;

fn recording(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/recordings").join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn facts_of(name: &str) -> Vec<String> {
    facts(&recording(name), &mut StreamState::default())
}

/// The facts whose kind is one of `kinds`.
fn only(facts: &[String], kinds: &[&str]) -> Vec<String> {
    let kind = |fact: &String| kinds.contains(&fact.split(' ').next().unwrap_or_default());
    facts.iter().filter(|fact| kind(fact)).cloned().collect()
}

const PLACEMENT: &[&str] =
    &["load_begins", "block_begins", "block_ends", "banner", "buffer", "settled", "fault"];

#[test]
fn a_full_offload_states_every_step() {
    assert_eq!(
        facts_of("llama-server-remote-gpu-19-of-19.stderr.log"),
        [
            "backend_loaded backend=RPC residence=accelerator",
            "backend_loaded backend=CPU residence=host",
            "backend_loaded backend=RPC residence=accelerator",
            "backend_loaded backend=CPU residence=host",
            "build build=1 (0c1e570)",
            "verbosity level=4",
            "device_seen device=CPU residence=host",
            "device_seen device=RPC0 residence=accelerator",
            "load_begins model=/models/gemma-3-270m-q4_k_m.gguf role=main",
            "estimate bytes=246415360 device=RPC0 residence=accelerator",
            "estimate bytes=178257920 device=Host residence=host",
            "metadata key=weight_bytes value=246583132",
            "device_chosen device=RPC0 residence=accelerator",
            "metadata key=embedding value=640",
            "metadata key=layers value=18",
            "metadata key=vocabulary value=262144",
            "block_begins",
            "banner offloaded=19 total=19",
            "buffer bytes=178257920 device=CPU_Mapped kind=model residence=host",
            "buffer bytes=246583132 device=RPC0[127.0.0.1:50052] kind=model residence=accelerator",
            "block_ends",
            "buffer bytes=6291456 device=RPC0[127.0.0.1:50052] kind=kv residence=accelerator",
            "buffer bytes=31457280 device=RPC0[127.0.0.1:50052] kind=kv residence=accelerator",
            "buffer bytes=21516780 device=RPC0[127.0.0.1:50052] kind=compute residence=accelerator",
            "buffer bytes=6836716 device=CPU kind=compute residence=host",
            "settled",
            "listening",
            "task_launched slot=3 task=0",
            "prefill milliseconds=96.51 rate=269.41 slot=3 task=0 tokens=26",
            "decode milliseconds=356.59 rate=86.93 slot=3 task=0 tokens=32",
            "task_released slot=3 task=0",
            "exiting",
            "estimate bytes=246415360 device=RPC0 residence=accelerator",
            "estimate bytes=178257920 device=Host residence=host",
        ]
    );
}

#[test]
fn the_default_verbosity_states_no_placement() {
    assert_eq!(
        facts_of("llama-server-default-verbosity.stderr.log"),
        [
            "verbosity level=3",
            "load_begins model=/models/gemma-3-270m-q4_k_m.gguf role=main",
            "settled",
            "listening",
            "task_launched slot=3 task=0",
            "prefill milliseconds=79.85 rate=325.61 slot=3 task=0 tokens=26",
            "decode milliseconds=312.08 rate=99.33 slot=3 task=0 tokens=32",
            "task_released slot=3 task=0",
            "exiting",
        ]
    );
}

const ON_THE_CPU: [&str; 8] = [
    "block_begins",
    "buffer bytes=246583132 device=CPU_Mapped kind=model residence=host",
    "buffer bytes=13274972 device=CPU_REPACK kind=model residence=host",
    "block_ends",
    "buffer bytes=6291456 device=CPU kind=kv residence=host",
    "buffer bytes=31457280 device=CPU kind=kv residence=host",
    "buffer bytes=22827500 device=CPU kind=compute residence=host",
    "settled",
];

#[test]
fn a_lying_banner_stands_beside_host_buffers() {
    let facts = only(&facts_of("llama-server-no-gpu-banner-lies.stderr.log"), PLACEMENT);
    let load = "load_begins model=/models/gemma-3-270m-q4_k_m.gguf role=main";
    let mut expected = vec![load];
    expected.extend(ON_THE_CPU);
    expected.insert(2, "banner offloaded=19 total=19");
    assert_eq!(facts, expected);
}

#[test]
fn a_build_without_a_gpu_prints_no_banner() {
    let facts = only(&facts_of("llama-server-cpu-only-build.stderr.log"), PLACEMENT);
    let no_gpu = "fault cause=cpu_only_build decides=false \
        detail=warning: no usable GPU found, --gpu-layers option will be ignored";
    let load = "load_begins model=/models/gemma-3-270m-q4_k_m.gguf role=main";
    let mut expected = vec![no_gpu, load];
    expected.extend(ON_THE_CPU);
    assert_eq!(facts, expected);
}

#[test]
fn a_draft_model_opens_a_load_of_its_own() {
    let facts = facts_of("llama-server-draft-on-host.stderr.log");
    assert_eq!(
        only(&facts, &["load_begins", "banner", "settled"]),
        [
            "load_begins model=/models/gemma-3-270m-q4_k_m.gguf role=main",
            "banner offloaded=19 total=19",
            "load_begins model=/models/gemma-3-270m-q4_k_m.gguf role=draft",
            "banner offloaded=0 total=19",
            "settled",
        ]
    );
}

#[test]
fn a_dry_run_is_a_block_before_the_real_one() {
    let facts = facts_of("llama-server-debug-dry-run.stderr.log");
    let dry = [
        "block_begins",
        "banner offloaded=19 total=19",
        "buffer bytes=0 device=CPU kind=model residence=host",
        "buffer bytes=0 device=RPC0[127.0.0.1:50052] kind=model residence=accelerator",
        "block_ends",
        "buffer bytes=0 device=RPC0[127.0.0.1:50052] kind=kv residence=accelerator",
        "buffer bytes=0 device=RPC0[127.0.0.1:50052] kind=kv residence=accelerator",
        "buffer bytes=21516780 device=RPC0[127.0.0.1:50052] kind=compute residence=accelerator",
        "buffer bytes=6836716 device=CPU kind=compute residence=host",
    ];
    let placement = only(&facts, PLACEMENT);
    assert_eq!(placement[1..10], dry);
    assert_eq!(placement[10..13], facts_of("llama-server-remote-gpu-19-of-19.stderr.log")[16..19]);
    assert_eq!(placement.len(), 1 + 2 * dry.len() + 1, "one load, two blocks, settled");
    let layers = only(&facts, &["layer"]);
    assert_eq!(layers.len(), 2 * 19);
    assert!(
        layers.iter().all(|layer| layer.contains("device=RPC0 ") && layer.contains("accelerator"))
    );
}

#[test]
fn json_lines_state_the_same_as_text() {
    let facts = facts_of("llama-server-jsonl.stdout.log");
    let of_text = facts_of("llama-server-remote-gpu-19-of-19.stderr.log");
    assert_eq!(only(&facts, PLACEMENT), only(&of_text, PLACEMENT));
    // The memory table is told twice: as text, and as a typed record.
    let table = only(&of_text, &["estimate"]);
    assert_eq!(
        only(&facts, &["estimate"]),
        [&table[..2], &table[..2], &table[2..], &table[2..]].concat()
    );
    assert_eq!(
        only(&facts, &["decode", "prefill"]),
        [
            "prefill milliseconds=24 rate=83.33 slot=3 task=0 tokens=2",
            "decode milliseconds=387.49 rate=49.03 slot=3 task=0 tokens=20",
        ]
    );
}

/// The decode rates in the error output of a timed run.
fn rates(name: &str) -> Vec<f64> {
    let mut text = String::new();
    for line in recording(name).lines() {
        let object: Value = serde_json::from_str(line).unwrap();
        if object["kind"] == "stderr" {
            text.push_str(object["data"].as_str().unwrap());
            text.push('\n');
        }
    }
    let facts = facts(&text, &mut StreamState::default());
    let rate =
        |fact: &String| fact.split(' ').find_map(|word| word.strip_prefix("rate=")?.parse().ok());
    only(&facts, &["decode"]).iter().map(|fact| rate(fact).expect("a rate")).collect()
}

#[test]
fn timed_runs_state_one_rate_a_request() {
    let near = |rate: f64, expected: f64| (rate - expected).abs() < 0.2 * expected;
    for (name, expected) in [
        ("on-device-healthy.jsonl", vec![85.0; 3]),
        ("no-gpu-banner-lies.jsonl", vec![95.0; 3]),
        ("default-verbosity-silent.jsonl", vec![95.0; 3]),
        ("decode-collapses.jsonl", vec![85.0, 85.0, 85.0, 4.9, 4.9, 4.9, 84.0]),
    ] {
        let rates = rates(name);
        assert_eq!(rates.len(), expected.len(), "{name}: {rates:?}");
        let agree = rates.iter().zip(&expected).all(|(&rate, &expected)| near(rate, expected));
        assert!(agree, "{name}: {rates:?} for {expected:?}");
    }
}
