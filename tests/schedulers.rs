//! Programs that run engines for many models (Ollama, llama-swap, Jan, `LocalAI`, LM Studio): each load is judged by its
//! own account, and the lane goes by the program's name.
#![allow(clippy::expect_used, reason = "a test says what must be")]

use std::time::{Duration, Instant};

use serving_sentinel::engines::Matcher;
use serving_sentinel::lane::{Finding, LaneConfig, Policy};
use serving_sentinel::observer::Observer;
use serving_sentinel::placement::Plan;

/// What became of each load, in order: `gpu buffers`, `failed out_of_memory`.
#[expect(clippy::disallowed_methods, reason = "the log is read at some time")]
fn judged(log: &str, plan: Plan) -> (Vec<String>, Option<String>) {
    let now = Instant::now();
    let config = LaneConfig::new("lane").with_plan(plan);
    let mut observer = Observer::new(config, Policy::default(), Matcher::builtin());
    let mut out = Vec::new();
    for line in log.lines() {
        // Indented here for the eye; what a line itself begins with stands behind a bar.
        let line = line.trim_start();
        let line = line.strip_prefix('|').unwrap_or(line);
        observer.line(line.as_bytes(), now, &mut out);
    }
    observer.conclude(now, &mut out);
    let told = out.iter().filter_map(|(_, finding)| match finding {
        Finding::Judged { facts, .. } => {
            let mut words = vec![facts.verdict?.as_str(), facts.basis?.as_str()];
            words.extend(facts.causes.iter().map(|cause| cause.as_str()));
            Some(words.join(" "))
        }
        Finding::LoadFailed { facts, .. } => {
            let causes = facts.causes.iter().map(|cause| cause.as_str());
            Some(["failed"].into_iter().chain(causes).collect::<Vec<_>>().join(" "))
        }
        _ => None,
    });
    (told.collect(), observer.lane().engine().map(ToString::to_string))
}

fn loads(log: &str) -> Vec<String> {
    judged(log, Plan::GPU).0
}

/// A structured line with what does not matter filled in.
macro_rules! go {
    ($($rest:literal),+) => {
        concat!("time=2025-10-02T10:00:00.000Z level=INFO source=server.go:1 ", $($rest),+, "\n")
    };
}

macro_rules! warn {
    ($($rest:literal),+) => {
        concat!("time=2025-10-02T10:00:00.000Z level=WARN source=server.go:1 ", $($rest),+, "\n")
    };
}

macro_rules! request {
    ($operation:literal, $layers:literal) => {
        go!(
            "msg=load request=\"{Operation:",
            $operation,
            " LoraPath:[] Parallel:1 BatchSize:512 FlashAttention:true KvSize:8192 KvCacheType: NumThreads:8 GPULayers:",
            $layers,
            " MultiUserCache:false ProjectorPath: MainGPU:0 UseMmap:false}\""
        )
    };
}

const STARTED: &str = go!("msg=\"llama runner started in 3.26 seconds\"");
const START_A: &str = go!(
    "msg=\"starting runner\" cmd=\"/usr/bin/ollama runner --ollama-engine --model /m/a --port 1\""
);
const START_B: &str =
    go!("msg=\"starting runner\" cmd=\"/usr/bin/ollama runner --model /m/b --port 2\"");
const DEVICE: &str = go!(
    "msg=\"inference compute\" id=GPU-1 library=CUDA compute=8.9 name=CUDA0 description=\"Example\" total=\"15.7 GiB\" available=\"14.5 GiB\""
);
const NO_DEVICE: &str = go!(
    "msg=\"inference compute\" id=cpu library=cpu compute=\"\" name=cpu description=cpu libdirs=ollama driver=\"\" pci_id=\"\" type=\"\" total=\"31.2 GiB\" available=\"28.0 GiB\""
);
const OWN_ON_GPU: &str = concat!(
    request!("commit", "25[ID:GPU-1 Layers:25(0..24)]"),
    go!("msg=\"model weights\" device=CUDA0 size=\"11.8 GiB\""),
    go!("msg=\"offloaded 25/25 layers to GPU\""),
    go!("msg=\"model weights\" device=CPU size=\"1.1 GiB\"")
);
const OWN_ON_HOST: &str = concat!(
    request!("commit", "[]"),
    go!("msg=\"offloaded 0/25 layers to GPU\""),
    go!("msg=\"model weights\" device=CPU size=\"12.9 GiB\"")
);
const RAW_ON_GPU: &str =
    "load_tensors: loading model tensors, this can take a while... (mmap = true)
load_tensors: offloaded 33/33 layers to GPU
load_tensors:   CPU_Mapped model buffer size =   281.81 MiB
load_tensors:        CUDA0 model buffer size =  4403.50 MiB
llama_context: constructing llama_context
llama_kv_cache:      CUDA0 KV buffer size =   512.00 MiB
";
const RAW_ON_HOST: &str =
    "load_tensors: loading model tensors, this can take a while... (mmap = true)
load_tensors: offloaded 33/33 layers to GPU
load_tensors:   CPU_Mapped model buffer size =  4685.31 MiB
llama_context: constructing llama_context
";

#[test]
fn each_load_has_its_own_verdict() {
    let log = [DEVICE, START_A, OWN_ON_GPU, STARTED, START_B, RAW_ON_HOST, STARTED];
    let log = [&log[..], &[START_A, OWN_ON_HOST, STARTED, START_B, RAW_ON_GPU, STARTED]].concat();
    let expected = [
        "gpu buffers",
        "cpu_fallback buffers device_disabled",
        "cpu_fallback buffers layers_limited",
        "gpu buffers",
    ];
    let (told, engine) = judged(&log.concat(), Plan::GPU);
    assert_eq!(told, expected);
    assert_eq!(engine.as_deref(), Some("ollama"));
}

#[test]
fn loads_are_told_apart_without_the_lines_that_begin_them() {
    for (first, second) in
        [(OWN_ON_GPU, OWN_ON_HOST), (RAW_ON_GPU, OWN_ON_HOST), (OWN_ON_GPU, RAW_ON_HOST)]
    {
        let told = loads(&[first, STARTED, second, STARTED].concat());
        assert_eq!(told, ["gpu buffers", "cpu_fallback buffers"], "{second}");
    }
}

#[test]
fn a_load_that_never_said_it_was_ready_ends_with_the_next_models() {
    assert_eq!(loads(&[START_A, OWN_ON_GPU, START_B, RAW_ON_HOST].concat()).len(), 2);
}

#[test]
fn only_the_commit_counts() {
    let attempts = [
        START_A,
        go!("msg=\"loading model\" \"model layers\"=25 requested=-1"),
        request!("fit", "25[ID:GPU-1 Layers:25(0..24)]"),
        request!("alloc", "25[ID:GPU-1 Layers:25(0..24)]"),
        go!("msg=\"model weights\" device=CUDA0 size=\"11.8 GiB\""),
        request!("close", "[]"),
        go!("msg=\"loading model\" \"model layers\"=25 requested=-1"),
        OWN_ON_HOST,
        STARTED,
    ];
    assert_eq!(loads(&attempts.concat()), ["cpu_fallback buffers out_of_memory"]);
}

#[test]
fn a_schedulers_sums_never_add_to_what_a_loader_tells() {
    let sums = concat!(
        go!("msg=\"model weights\" device=CUDA0 size=\"4.3 GiB\""),
        go!("msg=\"kv cache\" device=CUDA0 size=\"512.0 MiB\"")
    );
    for log in [[START_B, sums, RAW_ON_HOST, STARTED], [START_B, RAW_ON_HOST, sums, STARTED]] {
        let told = loads(&log.concat());
        assert_eq!(told, ["cpu_fallback buffers"]);
    }
}

#[test]
fn its_own_banner_is_counted_and_knows_what_is_on_the_host_by_design() {
    // A small model with a large vocabulary: the embedding is most of it.
    let log = [
        go!("msg=\"offloaded 27/27 layers to GPU\""),
        go!("msg=\"model weights\" device=CUDA0 size=\"762.5 MiB\""),
        go!("msg=\"model weights\" device=CPU size=\"606.0 MiB\""),
    ];
    assert_eq!(loads(&log.concat()), ["gpu buffers"]);
    // Releases that leave integrated devices out of the count.
    let log = [
        go!("msg=\"offloaded 0/27 layers to GPU\""),
        go!("msg=\"model weights\" device=ROCm0 size=\"2.4 GiB\""),
        go!("msg=\"model weights\" device=CPU size=\"250.0 MiB\""),
    ];
    assert_eq!(loads(&log.concat()), ["gpu buffers"]);
}

macro_rules! plan {
    ($requested:literal, $offload:literal, $available:literal, $full:literal) => {
        go!(
            "msg=offload library=cuda layers.requested=",
            $requested,
            " layers.model=33 layers.offload=",
            $offload,
            " layers.split=\"\" memory.available=\"[",
            $available,
            "]\" memory.gpu_overhead=\"0 B\" memory.required.full=\"",
            $full,
            "\" memory.required.partial=\"1.0 GiB\""
        )
    };
}

#[test]
fn a_plan_is_an_estimate_and_names_the_cause() {
    const PARTLY: &str = "load_tensors: offloaded 12/33 layers to GPU
load_tensors:   CPU_Mapped model buffer size =  3000.00 MiB
load_tensors:        CUDA0 model buffer size =  1700.00 MiB
";
    let rows: &[(&str, &[&str], &str)] = &[
        (
            "too little room",
            &[plan!("-1", "12", "2.8 GiB", "6.5 GiB"), PARTLY],
            "partial buffers out_of_memory",
        ),
        (
            "two devices, too little",
            &[plan!("-1", "12", "2.8 GiB 1.0 GiB", "6.5 GiB"), PARTLY],
            "partial buffers out_of_memory",
        ),
        (
            "room enough",
            &[plan!("-1", "12", "14.0 GiB", "6.5 GiB"), PARTLY],
            "partial buffers layers_limited",
        ),
        (
            "so asked for",
            &[plan!("12", "12", "2.8 GiB", "6.5 GiB"), PARTLY],
            "partial buffers layers_limited",
        ),
        (
            "all planned, none there",
            &[plan!("-1", "33", "14.0 GiB", "6.5 GiB"), RAW_ON_HOST],
            "cpu_fallback buffers",
        ),
        ("nothing else is told", &[plan!("-1", "33", "14.0 GiB", "6.5 GiB")], "gpu banner"),
        (
            "none planned, nothing else",
            &[plan!("-1", "0", "0.2 GiB", "6.5 GiB")],
            "cpu_fallback banner out_of_memory",
        ),
        (
            "the runner of the CPU follows",
            &[
                plan!("-1", "33", "14.0 GiB", "6.5 GiB"),
                go!(
                    "msg=\"starting llama server\" cmd=\"/usr/lib/ollama/runners/cpu_avx2/ollama_llama_server --model /m/a --n-gpu-layers 33 --port 1\""
                ),
            ],
            "cpu_fallback banner",
        ),
    ];
    for (case, lines, expected) in rows {
        assert_eq!(loads(&[&lines.concat(), STARTED].concat()), [*expected], "{case}");
    }
}

#[test]
fn what_discovery_found_explains_a_fallback() {
    const RAW: &str = "load_tensors:   CPU_Mapped model buffer size =  4685.31 MiB\n";
    let rows: &[(&str, &[&str], &str)] = &[
        ("nothing is said of devices", &[RAW], "cpu_fallback buffers"),
        ("none found", &[NO_DEVICE, RAW], "cpu_fallback buffers no_device"),
        (
            "none found, and why",
            &[
                warn!(
                    "msg=\"NVIDIA driver too old\" device=\"Example\" compute=8.9 driver=11.4 required_driver=\"570 or newer\""
                ),
                NO_DEVICE,
                RAW,
            ],
            "cpu_fallback buffers driver_init_failed",
        ),
        (
            "a library for another machine is no fault",
            &[
                go!(
                    "msg=\"unable to load cuda driver library\" library=/usr/lib/i386-linux-gnu/libcuda.so.550 error=\"wrong ELF class: ELFCLASS32\""
                ),
                RAW,
            ],
            "cpu_fallback buffers",
        ),
        (
            "a fault of an earlier start is over",
            &[
                go!("msg=\"no compatible GPUs were discovered\""),
                go!("msg=\"Listening on 127.0.0.1:11434 (version 0.12.0)\""),
                DEVICE,
                RAW,
            ],
            "cpu_fallback buffers",
        ),
    ];
    for (case, lines, expected) in rows {
        assert_eq!(loads(&[&lines.concat(), STARTED].concat()), [*expected], "{case}");
    }
    let told = judged(&[NO_DEVICE, RAW, STARTED].concat(), Plan::Unknown).0;
    assert_eq!(told, ["cpu buffers"], "a machine without a device wishes for none");
}

#[test]
fn a_runner_that_ends_before_it_is_ready_has_failed_unless_it_is_tried_again() {
    const TERMINATED: &str = "time=2025-10-02T10:00:00.000Z level=ERROR source=server.go:1 msg=\"llama runner terminated\" error=\"exit status 2\"\n";
    const NO_MEMORY: &str = "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 9000.00 MiB on device 0: cudaMalloc failed: out of memory\n";
    let failed = [START_B, RAW_ON_GPU, NO_MEMORY, TERMINATED].concat();
    assert_eq!(loads(&failed), ["failed out_of_memory"]);
    let again = [&failed, START_B, RAW_ON_HOST, STARTED].concat();
    assert_eq!(loads(&again), ["cpu_fallback buffers out_of_memory"]);
    let crash = [START_B, RAW_ON_GPU, STARTED, TERMINATED].concat();
    assert_eq!(loads(&crash), ["gpu buffers"], "a crash after readiness is no failed load");
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a moment to count from")]
fn a_failed_runner_is_told_soon_and_without_further_lines() {
    let now = Instant::now();
    let mut observer =
        Observer::new(LaneConfig::new("lane"), Policy::default(), Matcher::builtin());
    let mut out = Vec::new();
    for line in [
        START_A.trim_end(),
        "time=t level=ERROR source=s.go:1 msg=\"error loading llama server\" error=\"timed out\"",
    ] {
        observer.line(line.as_bytes(), now, &mut out);
    }
    let failed = |out: &[(std::sync::Arc<str>, Finding)]| {
        out.iter().any(|(_, finding)| matches!(finding, Finding::LoadFailed { .. }))
    };
    assert!(!failed(&out), "it may be tried again");
    observer.tick(now + Duration::from_secs(5), &mut out);
    assert!(failed(&out));
}

#[test]
fn a_childs_lines_count_with_and_without_its_prefix() {
    let log = "0.00.006.542 E load_backend: failed to load /opt/libggml-cuda.so: libcuda.so.1: cannot open shared object file: No such file or directory\n";
    let begins = go!("msg=\"loading model via llama-server\" model=/m/a");
    let told = loads(&[log, begins, RAW_ON_HOST, STARTED].concat());
    assert_eq!(told, ["cpu_fallback buffers backend_load_failed"]);
}

#[test]
fn models_that_are_swapped_are_loads_of_their_own() {
    const A: &str = "[INFO] <a> Executing start command: llama-server -m a.gguf -ngl 99\nsrv    load_model: loading model 'a.gguf'\n";
    const B: &str = "[INFO] <b> Executing start command: llama-server -m b.gguf -ngl 99\nsrv    load_model: loading model 'b.gguf'\n";
    const READY: &str = "main: server is listening on http://127.0.0.1:9999 - starting the main loop\n[INFO] <a> Health check passed on http://127.0.0.1:9999/health\n";
    let log = [A, RAW_ON_GPU, READY, B, RAW_ON_HOST, READY, A, RAW_ON_GPU, READY].concat();
    let (told, engine) = judged(&log, Plan::GPU);
    assert_eq!(told, ["gpu buffers", "cpu_fallback buffers", "gpu buffers"]);
    assert_eq!(engine.as_deref(), Some("llama-swap"));
}

#[test]
fn a_program_that_wraps_its_engines_lines_gives_the_lane_its_name() {
    let lines = |before: &str, after: &str| {
        RAW_ON_HOST.lines().fold(String::new(), |log, line| log + before + line + after + "\n")
    };
    let wrap = |prefix| lines(prefix, "");
    let structured = lines("Dec 17 09:38:20 DEBUG GRPC stderr id=\"m-127.0.0.1:4\" line=\"", "\"");
    let rows = [
        ("jan", wrap("[2025-09-27][09:18:10][tauri_plugin_llamacpp::commands][INFO] [llamacpp] ")),
        ("jan", format!("2024-03-22T09:56:00.550Z [NITRO]::Error: {RAW_ON_HOST}")),
        ("lmstudio", wrap("[2026-03-01 12:00:00][DEBUG] ")),
        ("lmstudio", format!("2026-01-07 17:36:54 [DEBUG]\n| {RAW_ON_HOST}")),
        ("localai", wrap("8:36PM DBG GRPC(m.gguf-127.0.0.1:33657): stderr ")),
        ("localai", structured),
        (
            "koboldcpp",
            format!(
                "Welcome to KoboldCpp - Version 1.83.1\n{RAW_ON_HOST}Load Text Model OK: True\n"
            ),
        ),
        (
            "llama-box",
            wrap("[2025-05-15 16:41:00.460010] I ")
                + "[2025-05-15 16:41:00.460010] I version    : v0.0.117 (315b735)\n",
        ),
        ("llama.cpp", RAW_ON_HOST.to_owned()),
    ];
    for (engine, log) in rows {
        let (told, named) = judged(&log, Plan::GPU);
        assert_eq!(told, ["cpu_fallback buffers"], "{log}");
        assert_eq!(named.as_deref(), Some(engine), "{log}");
    }
}

#[test]
fn access_lines_and_text_in_structured_lines_say_nothing() {
    for line in [
        "[GIN] 2025/11/07 - 19:47:56 | 200 | 14.241432401s |       127.0.0.1 | POST     \"/api/generate\"",
        "time=t level=INFO source=a.go:1 msg=chat text=\"load_tensors: offloaded 0/33 layers to GPU\"",
        "time=t level=INFO source=a.go:1 msg=\"he said: offloaded 0/33 layers to GPU\"",
        "time=t level=INFO source=a.go:1 msg=\"hello\\nload_tensors: offloaded 0/33 layers to GPU\"",
        "time=t level=DEBUG source=a.go:1 msg=\"model weights\" device=CPU size=\"12.8 GiB\"",
    ] {
        assert_eq!(loads(line), Vec::<String>::new(), "{line}");
    }
}
