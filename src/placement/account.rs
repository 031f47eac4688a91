//! One load's account: all that the engine said of where it put this model.

use std::collections::BTreeMap;

use crate::evidence::{BufferKind, Cause, LoadPlan, MetadataKey, Residence};

/// A reason as an engine stated it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StatedFault {
    pub(crate) cause: Cause,
    pub(crate) decides: bool,
    pub(crate) detail: String,
}

/// The devices that the process says it sees, as far as it says so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Devices {
    /// Nothing was said.
    #[default]
    NotListed,
    /// A list without any accelerator.
    HostOnly,
    /// A search for accelerators found none.
    NoneFound,
    /// An accelerator is among them.
    Accelerator,
}

/// The backend libraries that the process says it loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Backends {
    /// Nothing was said.
    #[default]
    NotListed,
    /// The CPU's alone.
    HostOnly,
    /// The one for remote devices too. It comes with every release and wishes for nothing.
    Remote,
    /// One for devices of this machine.
    Local,
}

/// What the process said of itself, true for every load of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProcessFacts {
    /// The device type that it loads on: its name, and where that is.
    pub(crate) platform: Option<(String, Residence)>,
    pub(crate) verbosity: Option<u32>,
    pub(crate) faults: Vec<StatedFault>,
    pub(crate) devices: Devices,
    pub(crate) backends: Backends,
    /// Layers on accelerators were asked for.
    pub(crate) layers_asked: bool,
}

impl ProcessFacts {
    /// The process says that it sees a device.
    pub(crate) fn see_device(&mut self, residence: Residence) {
        self.devices = self.devices.max(match residence {
            Residence::Accelerator => Devices::Accelerator,
            Residence::Host => Devices::HostOnly,
            Residence::Unknown => Devices::NotListed,
        });
    }

    /// The process searched for accelerators and found none.
    pub(crate) fn find_no_device(&mut self) {
        self.devices = self.devices.max(Devices::NoneFound);
    }

    /// The process says that it loaded a backend library.
    pub(crate) fn see_backend(&mut self, backend: &str, residence: Residence) {
        self.backends = self.backends.max(match residence {
            Residence::Accelerator if backend == "RPC" => Backends::Remote,
            Residence::Accelerator => Backends::Local,
            Residence::Host | Residence::Unknown => Backends::HostOnly,
        });
    }

    /// Keeps what is true of the whole process: causes that no later load of it can change.
    pub(crate) const fn concerns(cause: Cause) -> bool {
        matches!(
            cause,
            Cause::CpuOnlyBuild
                | Cause::DriverInitFailed
                | Cause::BackendLoadFailed
                | Cause::NoDevice
                | Cause::DeviceDisabled
        )
    }
}

/// What is known of one buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) residence: Residence,
    pub(crate) bytes: u64,
}

/// How a model's memory is shared between accelerators and the host, weights, cache and scratch space together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shared {
    accelerator: u64,
    all: u64,
}

impl Shared {
    /// `None` unless there is memory, and no more of it on accelerators than there is.
    pub(crate) fn new(accelerator: u64, all: u64) -> Option<Self> {
        (all > 0 && accelerator <= all).then_some(Self { accelerator, all })
    }

    pub(crate) const fn accelerator(self) -> u64 {
        self.accelerator
    }

    pub(crate) const fn all(self) -> u64 {
        self.all
    }
}

/// One load's account.
#[derive(Clone, Debug, Default)]
pub(crate) struct Account {
    buffers: BTreeMap<(BufferKind, String), Held>,
    /// What a scheduler sums up; it counts where no loader tells.
    allotted: BTreeMap<(BufferKind, String), Held>,
    pub(crate) plan: LoadPlan,
    layers: BTreeMap<u32, Residence>,
    estimates: BTreeMap<String, Held>,
    /// What the engine answered when it was asked.
    pub(crate) read_back: Option<Shared>,
    pub(crate) banner: Option<(u32, u32)>,
    pub(crate) overflow: Option<u32>,
    pub(crate) host_override: Option<String>,
    pub(crate) device_chosen: bool,
    pub(crate) faults: Vec<StatedFault>,
    vocabulary: Option<u64>,
    embedding: Option<u64>,
    repeating_layers: Option<u64>,
    weight_bytes: Option<u64>,
}

/// Bytes of model weights by residence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Weights {
    pub(crate) accelerator: u64,
    pub(crate) host: u64,
    pub(crate) unknown: u64,
}

impl Weights {
    fn add(&mut self, held: Held) {
        let sum = match held.residence {
            Residence::Accelerator => &mut self.accelerator,
            Residence::Host => &mut self.host,
            Residence::Unknown => &mut self.unknown,
        };
        *sum = sum.saturating_add(held.bytes);
    }

    pub(crate) const fn is_empty(self) -> bool {
        self.accelerator == 0 && self.host == 0 && self.unknown == 0
    }
}

impl Account {
    /// The loader starts over: what it told of tensors before was a dry run or an attempt taken back. A scheduler's
    /// sums stay: it is another process, whose lines can come before those that it follows.
    pub(crate) fn reset_block(&mut self) {
        self.buffers.clear();
        self.layers.clear();
        self.banner = None;
        self.host_override = None;
    }

    /// A scheduler tries again: what it summed up before is void, as is all that a loader told.
    pub(crate) fn reset_attempt(&mut self) {
        self.reset_block();
        self.allotted.clear();
    }

    /// Buffers of one name add up: an engine prints one line for each piece.
    pub(crate) fn add_buffer(
        &mut self,
        kind: BufferKind,
        device: String,
        residence: Residence,
        bytes: u64,
    ) {
        if bytes == 0 {
            return; // a dry run of the memory fit
        }
        let held = self.buffers.entry((kind, device)).or_insert(Held { residence, bytes: 0 });
        held.bytes = held.bytes.saturating_add(bytes);
    }

    /// A scheduler's sum for one device. It sums up weights first, then the rest: weights after the rest begin a new
    /// layout, and the last one counts.
    pub(crate) fn allot(
        &mut self,
        kind: BufferKind,
        device: String,
        residence: Residence,
        bytes: u64,
    ) {
        if bytes == 0 {
            return;
        }
        let holds_rest = self.allotted.keys().any(|(known, _)| *known != BufferKind::Model);
        if kind == BufferKind::Model && holds_rest {
            self.allotted.clear();
        }
        self.allotted.insert((kind, device), Held { residence, bytes });
    }

    /// Lines of one plan complete each other, and a later one corrects an earlier one. One that states what was asked
    /// for is the scheduler's, which begins again: its sums of an earlier attempt are void.
    pub(crate) fn add_plan(&mut self, plan: LoadPlan) {
        if plan.requested.is_some() {
            self.allotted.clear();
        }
        let known = &mut self.plan;
        known.requested = plan.requested.or(known.requested);
        known.offloaded = plan.offloaded.or(known.offloaded);
        known.total = plan.total.or(known.total);
        known.required = plan.required.or(known.required);
        known.available = plan.available.or(known.available);
    }

    /// Estimates are printed again and again while an engine fits a model: the largest counts.
    pub(crate) fn add_estimate(&mut self, device: String, residence: Residence, bytes: u64) {
        let held = self.estimates.entry(device).or_insert(Held { residence, bytes: 0 });
        held.bytes = held.bytes.max(bytes);
    }

    pub(crate) fn add_layer(&mut self, index: u32, residence: Residence) {
        self.layers.insert(index, residence);
    }

    /// Layers that one line gave to one device. A line that claims more layers than a model can have is text.
    pub(crate) fn add_layers(&mut self, first: u32, last: u32, residence: Residence) {
        const MOST_LAYERS: u32 = 4096;
        if last < MOST_LAYERS {
            self.layers.extend((first..=last).map(|index| (index, residence)));
        }
    }

    pub(crate) fn add_fault(faults: &mut Vec<StatedFault>, fault: StatedFault) {
        // An engine retries and repeats itself; a decision is worth more than the same words before it.
        match faults.iter_mut().find(|known| known.cause == fault.cause) {
            Some(known) => known.decides |= fault.decides,
            None => faults.push(fault),
        }
    }

    pub(crate) fn add_metadata(&mut self, key: MetadataKey, value: u64) {
        let field = match key {
            MetadataKey::Vocabulary => &mut self.vocabulary,
            MetadataKey::Embedding => &mut self.embedding,
            MetadataKey::Layers => &mut self.repeating_layers,
            MetadataKey::WeightBytes => &mut self.weight_bytes,
        };
        *field = Some(value);
    }

    /// Whether anything was told from which a placement can be judged.
    pub(crate) fn tells_placement(&self) -> bool {
        !self.weights().is_empty()
            || !self.layers.is_empty()
            || self.banner.is_some()
            || self.estimates.values().any(|held| held.bytes > 0)
    }

    /// Whether a loader has told of weights, layers or a banner.
    pub(crate) fn is_told_by_loader(&self) -> bool {
        self.has_loader_weights() || !self.layers.is_empty() || self.banner.is_some()
    }

    fn has_loader_weights(&self) -> bool {
        self.buffers.keys().any(|(kind, _)| *kind == BufferKind::Model)
    }

    /// Whether sizes are a scheduler's, whose own engine counts a layer as offloaded only when it is.
    pub(crate) fn is_summed_up(&self) -> bool {
        !self.allotted.is_empty() && !self.has_loader_weights()
    }

    pub(crate) fn buffers(&self) -> impl Iterator<Item = (&str, BufferKind, Held)> {
        let told = if self.is_summed_up() { &self.allotted } else { &self.buffers };
        told.iter().map(|((kind, device), held)| (device.as_str(), *kind, *held))
    }

    fn held(&self, wanted: BufferKind) -> impl Iterator<Item = (&str, Held)> {
        self.buffers()
            .filter(move |(_, kind, _)| *kind == wanted)
            .map(|(device, _, held)| (device, held))
    }

    /// Bytes of one kind by residence, as printed.
    pub(crate) fn bytes_of(&self, kind: BufferKind) -> Weights {
        let mut sum = Weights::default();
        self.held(kind).for_each(|(_, held)| sum.add(held));
        sum
    }

    /// Model weights by residence, as printed.
    pub(crate) fn weights(&self) -> Weights {
        self.bytes_of(BufferKind::Model)
    }

    /// Estimated model weights by residence.
    pub(crate) fn estimated(&self) -> Weights {
        let mut sum = Weights::default();
        self.estimates.values().for_each(|held| sum.add(*held));
        sum
    }

    /// A buffer of weights whose name tells no residence.
    pub(crate) fn unknown_buffer(&self) -> Option<&str> {
        self.held(BufferKind::Model)
            .find(|(_, held)| held.residence == Residence::Unknown)
            .map(|(device, _)| device)
    }

    /// Host weights that really are held there: the span of a memory-mapped file proves nothing, and a relocated copy
    /// is counted by [`relocates`](Self::relocates).
    pub(crate) fn held_on_host(&self) -> u64 {
        self.held(BufferKind::Model)
            .filter(|(device, held)| {
                held.residence == Residence::Host
                    && !device.ends_with("_Mapped")
                    && !is_relocation(device)
            })
            .map(|(_, held)| held.bytes)
            .sum()
    }

    /// Whether weights were copied into a layout that only the CPU computes with.
    pub(crate) fn relocates(&self) -> bool {
        self.held(BufferKind::Model)
            .any(|(device, held)| held.residence == Residence::Host && is_relocation(device))
    }

    /// Layers by residence: on accelerators, and on the host. `None` when no layer line was printed.
    pub(crate) fn layers_by_residence(&self) -> Option<(u32, u32)> {
        let of = |wanted| {
            self.layers.values().filter(|residence| **residence == wanted).map(|_| 1_u32).sum()
        };
        let (accelerator, host): (u32, u32) = (of(Residence::Accelerator), of(Residence::Host));
        (accelerator + host > 0).then_some((accelerator, host))
    }

    /// The banner with the cache entries of 2023 taken out: `llama.cpp` of June to December 2023 counts the key and
    /// the value cache as two more layers, so its total is three above the repeating ones.
    pub(crate) fn weight_layers(&self) -> Option<(u32, u32)> {
        let (offloaded, total) = self.banner?;
        match self.repeating_layers {
            Some(layers) if u64::from(total) == layers + 3 => {
                Some((offloaded.min(total - 2), total - 2))
            }
            _ => Some((offloaded, total)),
        }
    }

    /// Whether the banner of 2023 says that all weights are offloaded and the cache is not.
    pub(crate) fn banner_leaves_cache(&self) -> bool {
        matches!((self.banner, self.weight_layers()),
            (Some((offloaded, total)), Some((weights, all))) if all < total && weights == all && offloaded < total)
    }

    /// The size of the input embedding, which a full offload leaves on the host: the largest usual weight is two
    /// bytes wide.
    pub(crate) fn embedding_bytes(&self) -> Option<u64> {
        const LARGEST_USUAL_WEIGHT_BYTES: u64 = 2;
        self.vocabulary?.checked_mul(self.embedding?)?.checked_mul(LARGEST_USUAL_WEIGHT_BYTES)
    }

    /// The size of all weights, as the model's own metadata states it.
    pub(crate) const fn weight_bytes(&self) -> Option<u64> {
        self.weight_bytes
    }
}

/// CPU buffers that hold a second copy in a layout of their own (`llama.cpp.md`, 3.4).
fn is_relocation(device: &str) -> bool {
    const LAYOUTS: [&str; 5] =
        ["CPU_REPACK", "CPU_AARCH64", "CPU_KLEIDIAI", "CPU_RISCV64_SPACEMIT", "AMX"];
    LAYOUTS.contains(&device)
}
