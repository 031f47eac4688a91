//! Text that looks like an engine's line and is none: it comes from metadata, prompts, file names, templates.

use serving_sentinel::engines::{Matcher, StreamState};

use crate::{child, container, facts, jsonl, passed_on, recognise};

const BANNER: &str = "load_tensors: offloaded 0/19 layers to GPU";
const BUFFER: &str = "load_tensors:          CPU model buffer size =   235.16 MiB";

/// A stream in which the engine's logger has spoken with its own prefix.
fn framed() -> StreamState {
    let mut stream = StreamState::default();
    let said =
        recognise(b"0.00.007.924 I srv    load_model: loading model '/models/a.gguf'", &mut stream);
    assert_eq!(said.1.len(), 1);
    stream
}

#[test]
fn text_within_a_line_does_not_count() {
    for line in [
        format!("llama_model_loader: - kv   2:                               general.name str              = {BANNER}"),
        format!("0.00.708.458 I print_info: general.name          = {BANNER}"),
        format!("print_info: EOG token             = 1 '{BANNER}'"),
        format!("srv          init: init: chat template, example_format: '{BANNER}"),
        format!("user said: {BANNER}"),
        format!(" {BANNER}"),
        format!("{BANNER}."),
        format!("0.00.001.000 I {BANNER} 0.00.001.001 I"),
        format!("[not a port] {BANNER}"),
        format!(r#"{{"role":"user","content":"{BANNER}"}}"#),
        format!(r#"{{"type":"text","msg":"{BANNER}"}}"#),
        format!(r#"{{"type":"log","level":"info","message":"{BANNER}"}}"#),
        format!(r#"{{"type":"log","time":1,"level":"info","msg":"template:\n{BANNER}\n"}}"#),
        format!("0.00.001.000 I {}", jsonl(BANNER)),
        format!("{{\"log\":\"text\\n{BANNER}\\n\"}}"),
        "slot process_toke: id  3 | task 0 | n_gen = 1, next token: 1 'eval time = 1.00 ms / 2 tokens'".to_owned(),
        "slot print_timing: id  3 | task 0 | prompt eval time = eval time = 1.00 ms / 2 tokens".to_owned(),
    ] {
        let found = facts(&line, &mut StreamState::default());
        assert!(found.is_empty(), "{line:?} gave {found:?}");
    }
}

#[test]
fn a_file_name_is_a_name() {
    let line = format!("srv    load_model: loading model '/models/{BANNER}'");
    let found = facts(&line, &mut StreamState::default());
    assert_eq!(found, [format!("load_begins model=/models/{BANNER} role=main")]);
}

#[test]
fn a_template_line_at_the_start_does_not_count_beside_prefixed_lines() {
    for line in [
        BANNER,
        BUFFER,
        "\rload_tensors: offloaded 0/19 layers to GPU",
        "I load_tensors: offloaded 0/19 layers to GPU",
    ] {
        let mut stream = framed();
        assert!(facts(line, &mut stream).is_empty(), "{line:?}");
    }
    let logged = format!("0.00.725.240 I {BANNER}");
    assert_eq!(facts(&logged, &mut framed()), ["banner offloaded=0 total=19"]);
}

#[test]
fn a_template_line_does_not_count_beside_json_lines() {
    let mut stream = StreamState::default();
    assert_eq!(facts(&jsonl("srv  llama_server: model loaded"), &mut stream), ["settled"]);
    for line in [BANNER.to_owned(), passed_on(BANNER)] {
        assert!(facts(&line, &mut stream).is_empty(), "{line:?}");
    }
    assert_eq!(facts(&jsonl(BANNER), &mut stream), ["banner offloaded=0 total=19"]);
}

#[test]
fn text_cannot_wrap_itself_into_another_service() {
    for line in [
        format!("evil  | {BANNER}"),
        format!("Jun 18 08:57:40 host1 evil[1351]: {BANNER}"),
        format!("2026-05-31T16:41:57Z {BANNER}"),
        format!("[evil] 2026-05-31T16:41:57Z {BANNER}"),
        container(BANNER),
        container(&format!("0.00.725.240 I {BANNER}")),
    ] {
        let (recognised, words) = recognise(line.as_bytes(), &mut framed());
        assert!(words.is_empty() && recognised.service.is_none(), "{line:?} gave {words:?}");
    }
}

#[test]
fn each_service_has_its_own_logger() {
    let mut stream = framed();
    // A router's child that prints without a prefix is believed, until it has printed with one.
    let (recognised, words) = recognise(format!("[42977] {BANNER}").as_bytes(), &mut stream);
    assert_eq!((recognised.service, words.len()), (Some(child()), 1));
    assert_eq!(
        facts("[42977] 0.00.333.005 I srv  llama_server: model loaded", &mut stream),
        ["settled"]
    );
    assert!(facts(&format!("[42977] {BANNER}"), &mut stream).is_empty());
    assert_eq!(facts(&format!("[42978] {BANNER}"), &mut stream).len(), 1);

    let mut compose = StreamState::default();
    assert_eq!(
        facts("a-1  | 0.00.333.005 I srv  llama_server: model loaded", &mut compose),
        ["settled"]
    );
    assert!(facts(&format!("a-1  | {BANNER}"), &mut compose).is_empty());
    assert_eq!(facts(&format!("b-1  | {BANNER}"), &mut compose).len(), 1);
}

#[test]
fn what_the_engine_prints_past_its_logger_counts_without_a_prefix() {
    for line in [
        "warning: no usable GPU found, --gpu-layers option will be ignored",
        "CUDA error: out of memory",
        "ggml_cuda_init: found 1 CUDA devices:",
        "  Device 0: NVIDIA GeForce RTX 4070, compute capability 8.9, VMM: yes",
    ] {
        assert_eq!(facts(line, &mut framed()).len(), 1, "{line:?}");
    }
}

const HEAD: &str = "slot print_timing: id  2 | task 970 | ";
const DECODE: &str = "       eval time =   16131.90 ms /   192 tokens (   84.02 ms per token,    11.90 tokens per second)";

#[test]
fn a_timing_line_counts_once_and_only_behind_its_head() {
    assert!(facts(DECODE, &mut StreamState::default()).is_empty(), "without its head");

    let mut stream = StreamState::default();
    let decode = ["decode milliseconds=16131.9 rate=11.9 slot=2 task=970 tokens=192"];
    assert_eq!(facts(&format!("{HEAD}\n{DECODE}\n{DECODE}"), &mut stream), decode, "twice");

    let far = format!("{HEAD}\n{}{DECODE}", "chatter\n".repeat(20));
    assert!(facts(&far, &mut StreamState::default()).is_empty(), "far behind it");

    let other = format!("a-1  | {HEAD}\nb-1  | {DECODE}\na-1  | {DECODE}");
    assert_eq!(facts(&other, &mut StreamState::default()), decode, "of another service");
}

#[test]
fn a_loader_line_opens_no_load_beside_the_servers_own() {
    let loader = "llama_model_loader: loaded meta data with 33 key-value pairs and 236 tensors from /models/a.gguf";
    let server = "srv    load_model: loading model '/models/a.gguf'";
    let mut stream = StreamState::default();
    assert_eq!(facts(loader, &mut stream).len(), 1, "the only opening line there is");
    assert_eq!(facts(server, &mut stream).len(), 1);
    assert!(facts(loader, &mut stream).is_empty(), "a dry run, a draft model, the same load");
}

#[test]
fn a_software_device_is_the_cpu_whatever_its_name() {
    let described =
        "ggml_vulkan: 0 = llvmpipe (LLVM 19.1.7, 256 bits) (llvmpipe) | uma: 1 | fp16: 1";
    let buffer = "load_tensors:      Vulkan0 model buffer size =   235.16 MiB";
    let mut stream = StreamState::default();
    assert_eq!(facts(described, &mut stream), ["device_seen device=Vulkan0 residence=host"]);
    let of = |residence| {
        format!("buffer bytes=246583132 device=Vulkan0 kind=model residence={residence}")
    };
    assert_eq!(facts(buffer, &mut stream), [of("host")]);
    assert_eq!(
        facts(buffer, &mut StreamState::default()),
        [of("accelerator")],
        "in another stream"
    );
}

#[test]
fn moves_between_host_buffers_override_nothing() {
    let moved = |from, to| {
        format!(
            "done_getting_tensors: tensor 'token_embd.weight' (q5_K) (and 0 others) cannot be used with \
             preferred buffer type {from}, using {to} instead"
        )
    };
    for (from, to, overrides) in [
        ("CUDA_Host", "CPU", 0),
        ("CPU_REPACK", "CPU", 0),
        ("AMX", "CPU", 0),
        ("CUDA0", "CUDA1", 0),
        ("CUDA0", "CUDA_Host", 1),
    ] {
        let found = facts(&moved(from, to), &mut StreamState::default());
        assert_eq!(found.len(), overrides, "{from} to {to}");
    }
    let recognised =
        Matcher::builtin().recognise(moved("AMX", "CPU").as_bytes(), &mut StreamState::default());
    assert_eq!(
        recognised.engine.as_deref(),
        Some("llama.cpp"),
        "the line is the engine's all the same"
    );
}

#[test]
fn nothing_asked_for_is_no_wish() {
    for (value, expected) in
        [("0", vec![]), ("99", vec!["layers_asked layers=99"]), ("-1", vec!["layers_asked"])]
    {
        let text = format!(
            "srv          load:   --n-gpu-layers\nsrv          load:   {value}\nsrv          load:   8192"
        );
        assert_eq!(facts(&text, &mut StreamState::default()), expected, "{value}");
    }
}
