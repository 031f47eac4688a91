//! The facts that an engine's own endpoints tell when they are asked (readback), one type for each kind of answer.
//!
//! As with lines, nothing here judges: a size is what the engine said, an estimate or not.

/// One model that a process which serves many has loaded: an entry of Ollama's `/api/ps`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadedModel {
    /// Its name, with its tag (`llama3.2:latest`).
    pub name: String,
    /// What it takes of all memory, in bytes: weights, cache and scratch space. `None` when the answer states no size.
    pub bytes: Option<u64>,
    /// What of that is in device memory, in bytes. `None` when the answer does not say.
    pub accelerator_bytes: Option<u64>,
    /// Its context, in tokens. `None` before Ollama 0.11, which does not say.
    pub context_tokens: Option<u64>,
    /// When it is unloaded if nobody asks it anything, as the engine writes it. `None` when the answer does not say.
    pub expires: Option<String>,
}

/// What an engine says of itself: llama-server's `/props`. Never where the model is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EngineProperties {
    /// The build in the engine's words (`b1-0c1e570`). `None` in builds before 2025.
    pub build: Option<String>,
    /// The path of the model's file. `None` when the answer does not say.
    pub model: Option<String>,
    /// How many requests it serves at a time. `None` when the answer does not say.
    pub slots: Option<u32>,
    /// The context of one slot, in tokens. `None` when the answer does not say.
    pub context_tokens: Option<u64>,
}

/// One slot of llama-server's `/slots`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotReading {
    /// Its number.
    pub slot: u32,
    /// What it works on; `None` when it is idle.
    pub work: Option<SlotWork>,
}

/// How far a slot has come with its task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotWork {
    /// The task.
    pub task: u64,
    /// Prompt tokens processed so far; 0 when the answer does not say.
    pub prefilled: u64,
    /// Tokens decoded so far.
    pub decoded: u64,
}

/// The counters of `/metrics`: llama-server's and vLLM's.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counters {
    /// Requests that run now. `None` when it is not among them.
    pub running: Option<u32>,
    /// Requests that wait for their turn. `None` when it is not among them.
    pub waiting: Option<u32>,
    /// What was decoded since the engine's start. `None` when it is not among them.
    pub decoded: Option<Decoded>,
}

/// What was decoded since the engine's start, in the way that the engine counts it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Decoded {
    /// Tokens, as they are decoded (vLLM's `vllm:generation_tokens_total`).
    Running {
        /// Tokens of all requests so far.
        tokens: f64,
    },
    /// Tokens and the time that their decode took, counted when a request ends (llama-server's
    /// `llamacpp:tokens_predicted_total` and `llamacpp:tokens_predicted_seconds_total`). Times of requests that run side
    /// by side add up, so that the quotient is one request's rate.
    Ended {
        /// Tokens of all requests that have ended.
        tokens: f64,
        /// Seconds of decode of all of them.
        seconds: f64,
    },
}
