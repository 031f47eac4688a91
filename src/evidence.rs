//! The facts an engine can state about itself, one per recognised line or answered question.
//!
//! Recognisers (`engines`) and readers of answers make these, and a lane weighs them. Nothing here judges: a banner is what the banner
//! said, true or not.

mod reading;

use std::fmt;

pub use reading::{Counters, Decoded, EngineProperties, LoadedModel, SlotReading, SlotWork};

/// Where bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Residence {
    /// On a GPU or another accelerator, a remote one among them.
    Accelerator,
    /// In host memory, pinned host memory (`CUDA_Host`) among it.
    Host,
    /// In a buffer of a name that no engine known to us prints.
    Unknown,
}

impl Residence {
    /// The value of `serving.placement.residence`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Accelerator => "accelerator",
            Self::Host => "host",
            Self::Unknown => "unknown",
        }
    }
}

/// What a buffer holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BufferKind {
    /// Model weights: the only kind that decides a placement.
    Model,
    /// The key-value cache.
    Kv,
    /// Scratch space of the compute graph: on the accelerator even where no layer is.
    Compute,
}

impl BufferKind {
    /// The value of `serving.buffer`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::Kv => "kv",
            Self::Compute => "compute",
        }
    }
}

/// Which of the models of one process a load is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Role {
    /// The model that answers.
    #[default]
    Main,
    /// The small model of speculative decoding.
    Draft,
    /// The vision or audio encoder (mmproj).
    Projector,
    /// Any other helper, such as a voice detector.
    Auxiliary,
}

impl Role {
    /// The role's name, as in a scan's output.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Main => "main",
            Self::Draft => "draft",
            Self::Projector => "projector",
            Self::Auxiliary => "auxiliary",
        }
    }
}

/// Why a placement or a rate is what it is: the closed vocabulary of `serving.cause`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// The program was built without any GPU backend.
    CpuOnlyBuild,
    /// A driver is there and refused to start.
    DriverInitFailed,
    /// A backend library is missing or cannot be loaded.
    BackendLoadFailed,
    /// A backend is there and sees no device.
    NoDevice,
    /// The device's memory is too small or too full.
    OutOfMemory,
    /// A device is there, and fewer layers were asked for than the model has.
    LayersLimited,
    /// A device is there, and the engine was told not to use it.
    DeviceDisabled,
    /// The key-value cache is in host memory.
    KvCacheOnHost,
    /// Other requests share the engine.
    Contention,
    /// The context is full and is shifted over and over.
    ContextShift,
    /// The engine calls itself a debug build.
    DebugBuild,
    /// A fault is stated and none of the above names it.
    Unknown,
}

impl Cause {
    /// The value of `serving.cause`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::CpuOnlyBuild => "cpu_only_build",
            Self::DriverInitFailed => "driver_init_failed",
            Self::BackendLoadFailed => "backend_load_failed",
            Self::NoDevice => "no_device",
            Self::OutOfMemory => "out_of_memory",
            Self::LayersLimited => "layers_limited",
            Self::DeviceDisabled => "device_disabled",
            Self::KvCacheOnHost => "kv_cache_on_host",
            Self::Contention => "contention",
            Self::ContextShift => "context_shift",
            Self::DebugBuild => "debug_build",
            Self::Unknown => "unknown",
        }
    }

    /// Every cause, for parsers of data files and for docs.
    pub const ALL: [Self; 12] = [
        Self::CpuOnlyBuild,
        Self::DriverInitFailed,
        Self::BackendLoadFailed,
        Self::NoDevice,
        Self::OutOfMemory,
        Self::LayersLimited,
        Self::DeviceDisabled,
        Self::KvCacheOnHost,
        Self::Contention,
        Self::ContextShift,
        Self::DebugBuild,
        Self::Unknown,
    ];

    /// The cause of that name; `None` when the vocabulary has no such word.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|cause| cause.as_str() == name)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One fact parsed out of one engine line or one readback answer.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Evidence {
    /// The engine says which build it is, in its own words (`b9181`, `build 1 (0c1e570)`).
    Build {
        /// The engine's words.
        build: String,
    },
    /// The engine says how much it will tell.
    Verbosity {
        /// Its own scale: for llama.cpp since 2026-05, placement needs 4.
        level: u32,
    },
    /// One model's load begins (`load_model: loading model '..'`).
    LoadBegins {
        /// Which of the process's models.
        role: Role,
        /// The path or name as printed; `None` where the line does not name it.
        model: Option<String>,
    },
    /// The loader starts to place tensors: buffers, layers and banner that follow replace those told before, so a
    /// memory-fitting dry run never adds to the real load.
    BlockBegins,
    /// The loader is done with tensors and builds the context. What looks like placement after that and before the
    /// next block is text from elsewhere, such as a chat template that holds a banner.
    BlockEnds,
    /// `offloaded X/Y layers to GPU`: a claim, and often only the request.
    Banner {
        /// Layers said to be offloaded.
        offloaded: u32,
        /// Layers there are, the output layer included.
        total: u32,
    },
    /// Memory that was taken on one device.
    Buffer {
        /// What it holds.
        kind: BufferKind,
        /// The buffer's name as printed (`CUDA0`, `CPU_Mapped`, `RPC0[192.0.2.7:50052]`).
        device: String,
        /// Where it is.
        residence: Residence,
        /// Its size in bytes; 0 in a dry run.
        bytes: u64,
    },
    /// A size that the engine only estimates: a row of the memory table, video memory said to be used.
    Estimate {
        /// The device's name as printed.
        device: String,
        /// Where it is.
        residence: Residence,
        /// Model weights there, in bytes.
        bytes: u64,
    },
    /// One layer was given to one device.
    Layer {
        /// Its number; the number of the last one is the output layer's.
        index: u32,
        /// The device's name as printed.
        device: String,
        /// Where it is.
        residence: Residence,
    },
    /// Consecutive layers were given to one device.
    LayerRange {
        /// The first one's number.
        first: u32,
        /// The last one's number.
        last: u32,
        /// The device's name as printed.
        device: String,
        /// Where it is.
        residence: Residence,
    },
    /// The serving process names the device type that it loads on (vLLM's `device_config=cuda`, TGI's detected
    /// system). True for the process, and so for every load of it until it says otherwise.
    Platform {
        /// The device type's name as printed.
        device: String,
        /// Where it is.
        residence: Residence,
    },
    /// The memory fit put some of this device's layers into host memory.
    Overflow {
        /// Layers whose big tensors are on the host.
        layers: u32,
    },
    /// Tensors were put on the host by request (`-ot`, `--cpu-moe`) or moved there by the loader.
    HostOverride {
        /// The engine's own words for it.
        detail: String,
    },
    /// The process sees a device (`device_info`, `found 1 CUDA devices`, `Device 0: ..`).
    DeviceSeen {
        /// The device's name as printed.
        device: String,
        /// Whether it is an accelerator.
        residence: Residence,
    },
    /// The engine chose a device for this model (`using device CUDA0`). Not that weights are there.
    DeviceChosen {
        /// The device's name as printed.
        device: String,
        /// Whether it is an accelerator.
        residence: Residence,
    },
    /// A backend library was loaded.
    BackendLoaded {
        /// Its name as printed (`CUDA`, `RPC`, `CPU`).
        backend: String,
        /// Whether its devices are accelerators.
        residence: Residence,
    },
    /// A search for accelerators found none. Unlike a fault it says nothing of why.
    NoDeviceFound,
    /// What a scheduler (Ollama's) means to do with a model before it is loaded: estimates, and the request they
    /// follow. Lines of one plan complete each other.
    Planned(LoadPlan),
    /// A size on one device as a scheduler sums it up. It counts for Ollama's own engine, and is an estimate beside a
    /// loader's own [`Buffer`](Self::Buffer) lines.
    Allotted {
        /// What it holds.
        kind: BufferKind,
        /// The device's name as printed.
        device: String,
        /// Where it is.
        residence: Residence,
        /// Its size in bytes.
        bytes: u64,
    },
    /// A process that manages runners starts one for a model: what an unfinished attempt at the same model told is void.
    RunnerBegins {
        /// The model as printed; `None` where the line does not name it.
        model: Option<String>,
    },
    /// A runner ended. Before it was ready, that is a failed load; afterwards it is none.
    RunnerEnded {
        /// The engine's own words.
        detail: String,
    },
    /// A new process speaks in the same stream, such as a service that was restarted.
    ProcessBegins,
    /// Layers above 0 were asked for on the command line, as the log shows it.
    LayersAsked {
        /// How many; `None` for all or automatic.
        layers: Option<u32>,
    },
    /// A number of the model's own metadata.
    Metadata {
        /// Which.
        key: MetadataKey,
        /// Its value; sizes are in bytes.
        value: u64,
    },
    /// A line that names why there is no GPU, or why the load failed.
    Fault {
        /// Of the closed vocabulary.
        cause: Cause,
        /// Whether the serving process itself states that it will run on the CPU. A fault that only explains gives
        /// no verdict alone.
        decides: bool,
        /// The engine's own words.
        detail: String,
    },
    /// The load failed. Nothing is placed.
    LoadFailed {
        /// Of the closed vocabulary; `None` where the line does not say why, and lines before it may have.
        cause: Option<Cause>,
        /// The engine's own words.
        detail: String,
    },
    /// The load is done: the model can answer (`model loaded`).
    Settled,
    /// The server answers requests. Unlike [`Settled`](Self::Settled) it can come without any model (a router).
    Listening,
    /// The process serves no model itself: it starts a child for each, and passes on what they print.
    Routes,
    /// A router starts the child that serves a model.
    ChildBegins {
        /// The model's name, as the router's operator gave it.
        model: String,
        /// The port that the child's lines come under.
        port: String,
    },
    /// A router's child has ended.
    ChildEnds {
        /// The model's name.
        model: String,
        /// Its exit status, as printed.
        status: String,
    },
    /// The engine is on its way out.
    Exiting,
    /// The engine calls itself a debug build.
    DebugBuild {
        /// The engine's own words.
        detail: String,
    },
    /// A finished request's decode, by the engine's own clock.
    Decode {
        /// Decoded tokens.
        tokens: u64,
        /// Decode time in milliseconds; `None` where the line states none.
        milliseconds: Option<f64>,
        /// The rate as printed, in tokens/s; `None` where the line prints none or no number.
        rate: Option<f64>,
        /// The slot; `None` where the line names none.
        slot: Option<u32>,
        /// The task; `None` where the line names none.
        task: Option<u64>,
    },
    /// A finished request's prefill, by the engine's own clock.
    Prefill {
        /// Prompt tokens processed now (cached ones left out).
        tokens: u64,
        /// Prefill time in milliseconds; `None` where the line states none.
        milliseconds: Option<f64>,
        /// The rate as printed, in tokens/s; `None` where the line prints none or no number.
        rate: Option<f64>,
        /// The slot; `None` where the line names none.
        slot: Option<u32>,
        /// The task; `None` where the line names none.
        task: Option<u64>,
    },
    /// What all running requests decoded together in an interval that ends now. No request's rate.
    Interval {
        /// Tokens/s of all of them; 0 in an interval in which nothing was decoded.
        rate: f64,
        /// Requests that run at the interval's end.
        running: u32,
        /// The data-parallel engine within the process; `None` where the line names none.
        rank: Option<u32>,
    },
    /// A running request's decode so far.
    DecodeProgress {
        /// The slot.
        slot: u32,
        /// The task.
        task: u64,
        /// Tokens decoded so far.
        tokens: u64,
        /// Tokens/s since the start of decode; `None` where no number is printed.
        rate: Option<f64>,
    },
    /// A running request's prefill so far.
    PrefillProgress {
        /// The slot.
        slot: u32,
        /// The task.
        task: u64,
        /// The share done: 1.0 is all, and more than 1.0 is impossible.
        share: f64,
    },
    /// A slot took a task.
    TaskLaunched {
        /// The slot.
        slot: u32,
        /// The task.
        task: u64,
    },
    /// A slot is done with a task.
    TaskReleased {
        /// The slot.
        slot: u32,
        /// The task.
        task: u64,
    },
    /// A slot's context was full and was shifted.
    ContextShift {
        /// The slot.
        slot: u32,
        /// The task.
        task: u64,
    },
}

/// Which number of a model's metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MetadataKey {
    /// Words in the vocabulary (`n_vocab`).
    Vocabulary,
    /// Width of the embedding (`n_embd`).
    Embedding,
    /// Repeating layers (`n_layer`).
    Layers,
    /// The size of all weights, in bytes (`file size`, `model size`).
    WeightBytes,
}

/// What a scheduler said that it will do with a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadPlan {
    /// Layers asked for: below 0 is automatic; `None` where no line says.
    pub requested: Option<i64>,
    /// Layers meant for accelerators; `None` where no line says.
    pub offloaded: Option<u32>,
    /// Layers of the model, the output layer included; `None` where no line says.
    pub total: Option<u32>,
    /// Device memory that all layers would need, in bytes; `None` where no line says.
    pub required: Option<u64>,
    /// Device memory that is free, in bytes, of all devices; `None` where no line says.
    pub available: Option<u64>,
}
