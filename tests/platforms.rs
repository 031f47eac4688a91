//! Engines that tell of devices and intervals instead of layers: each log is judged by the rules, whatever wraps it.
#![allow(clippy::expect_used, reason = "a test says what must be")]

use std::time::Instant;

use serving_sentinel::engines::Matcher;
use serving_sentinel::evidence::Cause;
use serving_sentinel::lane::{Finding, LaneConfig, Policy};
use serving_sentinel::observer::Observer;
use serving_sentinel::placement::{Basis, PlacementVerdict, Plan};
use serving_sentinel::throughput::TokensPerSecond;

/// What became of a log.
#[derive(Debug, PartialEq)]
struct Judged {
    engine: String,
    loads: usize,
    /// The last load's; `None` where it failed.
    verdict: Option<(PlacementVerdict, Basis)>,
    causes: Vec<Cause>,
    rates: Vec<f64>,
}

#[expect(clippy::disallowed_methods, reason = "the log is read at some time")]
fn read(lines: impl Iterator<Item = String>, plan: Plan) -> Judged {
    let now = Instant::now();
    let config = LaneConfig::new("lane").with_plan(plan);
    let mut observer = Observer::new(config, Policy::default(), Matcher::builtin());
    let mut out = Vec::new();
    for line in lines {
        observer.line(line.as_bytes(), now, &mut out);
    }
    observer.conclude(now, &mut out);
    let (mut loads, mut causes, mut rates) = (0, Vec::new(), Vec::new());
    for (_, finding) in &out {
        match finding {
            Finding::LoadStarted { .. } => loads += 1,
            Finding::Judged { facts, .. } | Finding::LoadFailed { facts, .. } => {
                causes.clone_from(&facts.causes);
            }
            Finding::IntervalRate { rate, .. } => rates.push(rate.get()),
            Finding::LoggedRate { timings, .. } => {
                rates.extend(timings.decode_rate.map(TokensPerSecond::get));
            }
            _ => {}
        }
    }
    let lane = observer.lane();
    Judged {
        engine: lane.engine().map(ToString::to_string).unwrap_or_default(),
        loads,
        verdict: lane.placement().map(|placement| (placement.verdict, placement.basis)),
        causes,
        rates,
    }
}

/// A log and what it is worth.
struct Row {
    case: &'static str,
    log: &'static [&'static str],
    plan: Plan,
    engine: &'static str,
    verdict: Option<(PlacementVerdict, Basis)>,
    causes: &'static [Cause],
    rates: &'static [f64],
}

const ON_GPU: Option<(PlacementVerdict, Basis)> = Some((PlacementVerdict::Gpu, Basis::Platform));
const FALLEN: Option<(PlacementVerdict, Basis)> =
    Some((PlacementVerdict::CpuFallback, Basis::Platform));

const ROWS: &[Row] = &[
    Row {
        case: "vLLM: a parent warns before its worker uses the device",
        log: &[
            "/opt/venv/lib/python3.12/site-packages/torch/cuda/__init__.py:129: UserWarning: CUDA initialization: Unexpected error from cudaGetDeviceCount().",
            "INFO 10-06 11:20:01 [__init__.py:220] No platform detected, vLLM is running on UnspecifiedPlatform",
            "INFO 10-06 11:20:09 [__init__.py:216] Automatically detected platform cuda.",
            "\u{1b}[1;36m(EngineCore_DP0 pid=123)\u{1b}[0;0m INFO 10-06 11:20:10 [core.py:77] Initializing a V1 LLM engine (v0.11.0) with config: model='a', kv_cache_dtype=auto, device_config=cuda, seed=0",
            "(EngineCore_DP0 pid=123) INFO 10-06 11:20:15 [gpu_model_runner.py:2602] Starting to load model /models/a...",
            "(EngineCore_DP0 pid=123) INFO 10-06 11:20:55 [kv_cache_utils.py:1087] GPU KV cache size: 66,384 tokens",
            "(EngineCore_DP0 pid=123) INFO 10-06 11:21:15 [core.py:210] init engine (profile, create kv cache, warmup model) took 58.60 seconds",
            "(APIServer pid=1) INFO:     Application startup complete.",
            "(APIServer pid=1) INFO 10-06 11:23:31 [loggers.py:127] Engine 000: Avg prompt throughput: 474.7 tokens/s, Avg generation throughput: 9.8 tokens/s, Running: 0 reqs, Waiting: 0 reqs, GPU KV cache usage: 0.0%, Prefix cache hit rate: 0.0%",
            "(APIServer pid=1) INFO 10-06 11:23:31 [metrics.py:101] SpecDecoding metrics: Mean acceptance length: 2.20, Accepted throughput: 15.60 tokens/s, Drafted throughput: 38.99 tokens/s, Accepted: 78 tokens",
        ],
        plan: Plan::GPU,
        engine: "vllm",
        verdict: ON_GPU,
        causes: &[],
        rates: &[9.8],
    },
    Row {
        case: "vLLM: the words GPU KV cache on a CPU",
        log: &[
            "INFO 08-02 09:45:57 [__init__.py:244] Automatically detected platform cpu.",
            "INFO 08-02 09:46:46 [llm_engine.py:230] Initializing a V0 LLM engine (v0.9.3.dev0+ga5dd03c) with config: model='a', kv_cache_dtype=auto,  device_config=cpu, seed=0",
            "INFO 08-02 09:47:46 [kv_cache_utils.py:715] GPU KV cache size: 66,384 tokens",
            "INFO:     Application startup complete.",
        ],
        plan: Plan::GPU,
        engine: "vllm",
        verdict: FALLEN,
        causes: &[],
        rates: &[],
    },
    Row {
        case: "vLLM: no device, no start",
        log: &[
            "INFO 10-06 11:20:01 [__init__.py:220] No platform detected, vLLM is running on UnspecifiedPlatform",
            "Traceback (most recent call last):",
            "RuntimeError: Failed to infer device type, please set the environment variable `VLLM_LOGGING_LEVEL=DEBUG`",
        ],
        plan: Plan::GPU,
        engine: "vllm",
        verdict: None,
        causes: &[Cause::NoDevice],
        rates: &[],
    },
    Row {
        case: "vLLM: no memory",
        log: &[
            "INFO 10-06 11:20:09 [__init__.py:216] Automatically detected platform cuda.",
            "(EngineCore_DP0 pid=123) INFO 10-06 11:20:15 [gpu_model_runner.py:2602] Starting to load model /models/a...",
            "(EngineCore_DP0 pid=123) ERROR 10-06 11:20:16 [core.py:708] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.64 GiB",
            "(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}",
        ],
        plan: Plan::GPU,
        engine: "vllm",
        verdict: None,
        causes: &[Cause::OutOfMemory],
        rates: &[],
    },
    Row {
        case: "SGLang on the device",
        log: &[
            "[2026-04-05 20:00:01] server_args=ServerArgs(model_path='/models/a', device='cuda', tp_size=1)",
            "[2026-04-05 20:00:11 TP0] Load weight begin. avail mem=78.50 GB",
            "[2026-04-05 20:00:21 TP0] Load weight end. elapsed=5.12 s, type=LlamaForCausalLM, avail mem=63.40 GB, mem usage=15.02 GB.",
            "[2026-04-05 20:00:31 TP0] max_total_num_tokens=834615, chunked_prefill_size=8192, context_len=8192, available_gpu_mem=8.12 GB",
            "[2026-04-05 20:00:32] INFO:     Application startup complete.",
            "[2026-04-05 20:00:35] The server is fired up and ready to roll!",
            "[2026-04-05 20:02:50 TP0] Prefill batch, #new-seq: 1, #new-token: 64, #cached-token: 0, token usage: 0.00, #running-req: 0, #queue-req: 0, cuda graph: False, input throughput (token/s): 56.23",
            "[2026-04-05 20:02:51 TP0] Decode batch, #running-req: 1, #token: 192, token usage: 0.00, cuda graph: True, gen throughput (token/s): 3.21, #queue-req: 0",
            "[2026-04-05 20:02:52 TP0] Decode batch, #running-req: 1, #token: 232, token usage: 0.00, cuda graph: True, gen throughput (token/s): 54.21, #queue-req: 0",
        ],
        plan: Plan::GPU,
        engine: "sglang",
        verdict: ON_GPU,
        causes: &[],
        rates: &[3.21, 54.21],
    },
    Row {
        case: "SGLang on the CPU",
        log: &[
            "[2026-04-05 20:00:01] server_args=ServerArgs(model_path='/models/a', device='cpu', tp_size=1)",
            "[2026-04-05 20:00:02] Intel AMX is detected, using CPU with Intel AMX support.",
            "[2026-04-05 20:00:11 TP0] Load weight begin. avail mem=78.50 GB",
            "[2026-04-05 20:00:35] The server is fired up and ready to roll!",
        ],
        plan: Plan::Unknown,
        engine: "sglang",
        verdict: Some((PlacementVerdict::Cpu, Basis::Platform)),
        causes: &[],
        rates: &[],
    },
    Row {
        case: "TGI sees no device and says so in one word",
        log: &[
            "2025-05-01T01:30:51.842858Z  INFO shard-manager: text_generation_launcher: Starting shard rank=0",
            "\u{1b}[2m2025-05-01T01:30:55.978980Z\u{1b}[0m \u{1b}[32m INFO\u{1b}[0m \u{1b}[2mtext_generation_launcher\u{1b}[0m\u{1b}[2m:\u{1b}[0m Detected system cpu",
            "2025-05-01T01:30:56.005450Z  WARN text_generation_launcher: Could not import Flash Attention enabled models: System cpu doesn't support flash/paged attention",
            "2025-05-01T01:31:02.842858Z  INFO text_generation_router::server: router/src/server.rs:2266: Connected",
            "2025-05-01T01:31:09.842858Z  INFO chat_completions{total_time=\"1.203s\" inference_time=\"1.201s\" time_per_token=\"31.2ms\" seed=\"None\"}: text_generation_router::server: router/src/server.rs:424: Success",
        ],
        plan: Plan::GPU,
        engine: "tgi",
        verdict: FALLEN,
        causes: &[],
        rates: &[],
    },
    Row {
        case: "TGI in JSON",
        log: &[
            r#"{"timestamp":"2025-05-01T01:30:51.842858Z","level":"INFO","fields":{"message":"Detected system cuda"},"target":"text_generation_launcher"}"#,
            r#"{"timestamp":"2025-05-01T01:31:02.842858Z","level":"INFO","message":"Connected","target":"text_generation_router::server"}"#,
        ],
        plan: Plan::GPU,
        engine: "tgi",
        verdict: ON_GPU,
        causes: &[],
        rates: &[],
    },
    Row {
        case: "mistral.rs: ranges of layers, some on the host",
        log: &[
            "2026-08-22T10:38:12.123456Z  INFO mistralrs_core::device_map: Loading model according to the following repeating layer mappings:",
            "2026-08-22T10:38:12.123456Z  INFO mistralrs_core::device_map: Layers 0-15: cuda[0] (24 GB)",
            "2026-08-22T10:38:12.123456Z  INFO mistralrs_core::device_map: Layers 16-31: cpu (64 GB)",
            "2026-08-22T10:38:13.123456Z  INFO mistralrs_server: Model loaded.",
            "2026-08-22T10:38:18.123456Z  INFO mistralrs_core::engine::logger: Throughput (T/s) 87.10, Prefix cache hitrate 50.00%, 1 running, 0 waiting",
            "2026-08-22T10:38:19.123456Z  INFO mistralrs_server_core::access_log: request completed: request_id=1 status=200 prompt_tokens=29 completion_tokens=40 prefill_tok_s=512.30 decode_tok_s=105.30",
        ],
        plan: Plan::GPU,
        engine: "mistral.rs",
        verdict: Some((PlacementVerdict::Partial, Basis::Layers)),
        causes: &[],
        rates: &[105.3],
    },
    Row {
        case: "mistral.rs: a build without a device",
        log: &[
            "2024-05-19T10:38:12.123456Z  INFO mistralrs_core::pipeline::normal: Loading model `a` on Cpu...",
            "2024-05-19T10:38:13.123456Z  INFO mistralrs_server: Model loaded.",
        ],
        plan: Plan::GPU,
        engine: "mistral.rs",
        verdict: FALLEN,
        causes: &[],
        rates: &[],
    },
    Row {
        case: "MLX-LM tells no placement",
        log: &[
            "2026-08-22 10:38:13,123 - INFO - Starting httpd at 127.0.0.1 on port 8080...",
            "Prompt: 29 tokens, 512.300 tokens-per-sec",
            "Generation: 100 tokens, 52.123 tokens-per-sec",
        ],
        plan: Plan::GPU,
        engine: "mlx-lm",
        verdict: Some((PlacementVerdict::Unreported, Basis::None)),
        causes: &[],
        rates: &[52.123],
    },
    Row {
        case: "whisper.cpp: the voice detector masks nothing",
        log: &[
            "load_backend: loaded Vulkan backend from /opt/whisper/libggml-vulkan.so",
            "whisper_init_from_file_with_params_no_state: loading model from '/models/ggml-medium.en.bin'",
            "whisper_init_with_params_no_state: use gpu    = 1",
            "whisper_model_load:      Vulkan0 total size =  1533.14 MB",
            "whisper_backend_init_gpu: using Vulkan0 backend",
            "whisper_init_state: compute buffer (decode) =   97.28 MB",
            "whisper_vad_init_from_file_with_params: loading VAD model from '/models/ggml-silero-v5.1.2.bin'",
            "whisper_backend_init_gpu: no GPU found",
            "whisper_print_timings:   decode time =   210.33 ms /    50 runs (     4.21 ms per run)",
        ],
        plan: Plan::GPU,
        engine: "whisper.cpp",
        verdict: Some((PlacementVerdict::Gpu, Basis::Buffers)),
        causes: &[],
        rates: &[],
    },
    Row {
        case: "whisper.cpp finds no GPU",
        log: &[
            "whisper_init_from_file_with_params_no_state: loading model from '/models/ggml-small.bin'",
            "whisper_init_with_params_no_state: use gpu    = 1",
            "whisper_model_load:          CPU total size =   487.01 MB",
            "whisper_backend_init_gpu: no GPU found",
        ],
        plan: Plan::GPU,
        engine: "whisper.cpp",
        verdict: Some((PlacementVerdict::CpuFallback, Basis::Buffers)),
        causes: &[Cause::NoDevice],
        rates: &[],
    },
    Row {
        case: "whisper.cpp: who switches the GPU off wishes for the CPU",
        log: &[
            "whisper_init_with_params_no_state: use gpu    = 0",
            "whisper_model_load:          CPU total size =   487.01 MB",
        ],
        plan: Plan::Unknown,
        engine: "whisper.cpp",
        verdict: Some((PlacementVerdict::Cpu, Basis::Buffers)),
        causes: &[],
        rates: &[],
    },
    Row {
        case: "stable-diffusion.cpp: a text encoder in RAM is a usual plan",
        log: &[
            "[INFO ] total params memory size = 2048.00MB (VRAM 1990.00MB, RAM 58.00MB): text_encoders 58.00MB(RAM), diffusion_model 1660.00MB(VRAM), vae 330.00MB(VRAM), controlnet 0.00MB(VRAM), extensions 0.00MB(VRAM)",
        ],
        plan: Plan::ALL_ON_GPU,
        engine: "stable-diffusion.cpp",
        verdict: Some((PlacementVerdict::Gpu, Basis::Buffers)),
        causes: &[],
        rates: &[],
    },
    Row {
        case: "TabbyAPI",
        log: &[
            "INFO:     Loading with autosplit",
            "INFO:     Model successfully loaded.",
            "INFO:     Metrics (ID: 3f2a): 256 tokens generated in 5.1 seconds (Queue: 0.0 s, Process: 0 cached tokens and 30 new tokens at 512.3 T/s, Generate: 52.1 T/s, Context: 30 tokens)",
        ],
        plan: Plan::GPU,
        engine: "tabbyapi",
        verdict: ON_GPU,
        causes: &[],
        rates: &[52.1],
    },
    Row {
        case: "ONNX Runtime falls back in silence but for its log",
        log: &[
            "\u{1b}[1;31m2023-10-05 21:29:53.926793500 [E:onnxruntime:Default, provider_bridge_ort.cc:1480 TryGetProviderInfo_CUDA] /onnxruntime_src/onnxruntime/core/session/provider_bridge_ort.cc:1193 onnxruntime::Provider& onnxruntime::ProviderLibrary::Get() [ONNXRuntimeError] : 1 : FAIL : Failed to load library libonnxruntime_providers_cuda.so with error: libcublasLt.so.11: cannot open shared object file: No such file or directory\u{1b}[m",
            "\u{1b}[0;93m2023-10-05 21:29:53.926827876 [W:onnxruntime:Default, onnxruntime_pybind_state.cc:743 CreateExecutionProviderInstance] Failed to create CUDAExecutionProvider. Please reference the documentation.\u{1b}[m",
        ],
        plan: Plan::Unknown,
        engine: "onnxruntime",
        verdict: Some((PlacementVerdict::CpuFallback, Basis::Fault)),
        causes: &[Cause::BackendLoadFailed],
        rates: &[],
    },
    Row {
        case: "ONNX Runtime: a provider that failed and one that works",
        log: &[
            "2023-10-05 21:29:53.926827876 [W:onnxruntime:Default, onnxruntime_pybind_state.cc:743 CreateExecutionProviderInstance] Failed to create TensorrtExecutionProvider. Please reference the documentation.",
            "Applied providers: ['CUDAExecutionProvider', 'CPUExecutionProvider'], with options: {'CUDAExecutionProvider': {}}",
        ],
        plan: Plan::GPU,
        engine: "onnxruntime",
        verdict: ON_GPU,
        causes: &[],
        rates: &[],
    },
];

#[test]
fn each_log_is_judged_by_the_table() {
    for row in ROWS {
        let judged = read(row.log.iter().map(ToString::to_string), row.plan);
        let expected = Judged {
            engine: row.engine.to_owned(),
            loads: 1,
            verdict: row.verdict,
            causes: row.causes.to_vec(),
            rates: row.rates.to_vec(),
        };
        assert_eq!(judged, expected, "{}", row.case);
    }
}

#[test]
fn a_wrapped_log_is_judged_as_the_bare_one() {
    let wraps: [fn(&str) -> String; 4] = [
        |line| format!("engine-1  | {line}"),
        |line| format!("Jun 18 08:57:40 host1 python[1351]: {line}"),
        |line| format!("engine-1  | 2026-05-31T16:41:57.826321631Z {line}"),
        |line| format!("{line}\r"),
    ];
    for row in ROWS {
        let bare = read(row.log.iter().map(ToString::to_string), row.plan);
        for (index, wrap) in wraps.iter().enumerate() {
            let wrapped = read(row.log.iter().map(|line| wrap(line)), row.plan);
            assert_eq!(wrapped, bare, "{}, wrapping {index}", row.case);
        }
    }
}

#[test]
fn lines_of_no_interest_change_nothing() {
    const NOISE: [&str; 4] = [
        "[logger.py:43] Received request a: prompt: 'Automatically detected platform cpu.', params: SamplingParams(n=1)",
        "INFO:     127.0.0.1:53030 - \"POST /v1/chat/completions HTTP/1.1\" 200 OK",
        "2026-08-22 10:38:13,123 - INFO - flashinfer.jit: Prebuilt kernels not found, using JIT backend",
        "(EngineCore_DP0 pid=123) Loading safetensors checkpoint shards:  50% Completed | 1/2",
    ];
    for row in ROWS {
        let bare = read(row.log.iter().map(ToString::to_string), row.plan);
        let noisy = row.log.iter().flat_map(|line| NOISE.into_iter().chain([*line]));
        assert_eq!(read(noisy.map(str::to_owned), row.plan), bare, "{}", row.case);
    }
}
