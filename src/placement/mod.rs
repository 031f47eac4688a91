//! Where a model's weights really are: the plan, one load's account, and the verdict.
//!
//! A verdict rests on the strongest evidence there is, says which, and says what weaker claim it refutes.

mod account;
mod advice;
mod judge;
#[cfg(test)]
mod tests;

use crate::evidence::Cause;

pub(crate) use account::{Account, ProcessFacts, Shared, StatedFault};
pub(crate) use judge::judge;

/// What the operator intended for a lane.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum Plan {
    /// On accelerators.
    Gpu {
        /// The least share of the weights (bytes where known, else layers) that must be there, 1.0 for all; `None`
        /// when a split is by design and any share keeps the plan.
        minimum_share: Option<f64>,
    },
    /// On the CPU.
    Cpu,
    /// Nobody said.
    #[default]
    Unknown,
}

impl Plan {
    /// On accelerators, in whatever share.
    pub const GPU: Self = Self::Gpu { minimum_share: None };
    /// On accelerators, all of it.
    pub const ALL_ON_GPU: Self = Self::Gpu { minimum_share: Some(1.0) };

    /// On accelerators, at least `minimum_share` of it.
    ///
    /// # Errors
    ///
    /// [`PlanError`] unless the share is above 0 and at most 1.
    pub fn gpu_at_least(minimum_share: f64) -> Result<Self, PlanError> {
        if minimum_share > 0.0 && minimum_share <= 1.0 {
            Ok(Self::Gpu { minimum_share: Some(minimum_share) })
        } else {
            Err(PlanError { given: minimum_share })
        }
    }

    /// The value of `serving.placement.plan`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Gpu { .. } => "gpu",
            Self::Cpu => "cpu",
            Self::Unknown => "unknown",
        }
    }

    /// The value of `serving.placement.minimum_share`; `None` when the plan states none.
    pub const fn minimum_share(self) -> Option<f64> {
        match self {
            Self::Gpu { minimum_share } => minimum_share,
            Self::Cpu | Self::Unknown => None,
        }
    }
}

/// A share that is none.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("minimum share {given} is not a share of the weights; give a number above 0 and at most 1")]
pub struct PlanError {
    /// What was given.
    pub given: f64,
}

/// The judgement of one load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PlacementVerdict {
    /// All layers on accelerators.
    Gpu,
    /// Some on accelerators, some on the host.
    Partial,
    /// On the CPU, and nothing says it should be elsewhere.
    Cpu,
    /// A GPU was planned, and no weights are on one.
    CpuFallback,
    /// The engine did not say. Never healthy.
    Unreported,
}

impl PlacementVerdict {
    /// Every verdict: the state metric has one series for each.
    pub const ALL: [Self; 5] =
        [Self::Gpu, Self::Partial, Self::Cpu, Self::CpuFallback, Self::Unreported];

    /// The value of `serving.placement.verdict`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Gpu => "gpu",
            Self::Partial => "partial",
            Self::Cpu => "cpu",
            Self::CpuFallback => "cpu_fallback",
            Self::Unreported => "unreported",
        }
    }
}

/// The strongest evidence a verdict rests on, strongest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Basis {
    /// Bytes of weights per device.
    Buffers,
    /// Per-layer device assignment.
    Layers,
    /// The operating system's account of the process's GPU memory.
    Witness,
    /// The engine's own answer to a question.
    Readback,
    /// The device type that the process loaded on.
    Platform,
    /// A claim, or an estimate.
    Banner,
    /// A line that says why there is no GPU.
    Fault,
    /// Nothing.
    None,
}

impl Basis {
    /// The value of `serving.placement.basis`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Buffers => "buffers",
            Self::Layers => "layers",
            Self::Witness => "witness",
            Self::Readback => "readback",
            Self::Platform => "platform",
            Self::Banner => "banner",
            Self::Fault => "fault",
            Self::None => "none",
        }
    }
}

/// A load's verdict with all that it rests on.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Placement {
    /// The verdict against the plan.
    pub verdict: PlacementVerdict,
    /// What it rests on.
    pub basis: Basis,
    /// The weaker claim that the evidence refutes (`banner 19/19`).
    pub contradicted: Option<String>,
    /// The banner's numbers, true or not: offloaded and total. `None` when the engine printed no banner.
    pub layers: Option<(u32, u32)>,
    /// Model weights on accelerators, in bytes. `None` when no buffer was told.
    pub bytes_accelerator: Option<u64>,
    /// Model weights in host memory as printed, in bytes. `None` when no buffer was told.
    pub bytes_host: Option<u64>,
    /// The share of the weights on accelerators, as far as it can be told.
    pub share: Option<f64>,
    /// Why, most likely first; empty when the log does not say or nothing is wrong.
    pub causes: Vec<Cause>,
    /// The engine's own words for the first cause, from a fault line.
    pub cause_detail: Option<String>,
    /// What to do about it, one sentence. `None` when nothing is wrong.
    pub advice: Option<String>,
    /// Whether the plan is broken: an alarm stands.
    pub violates: bool,
}

/// When host weights make a full offload partial.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlacementPolicy {
    host_share: f64,
}

impl Default for PlacementPolicy {
    fn default() -> Self {
        Self { host_share: Self::DEFAULT_HOST_SHARE }
    }
}

impl PlacementPolicy {
    /// A full offload leaves the input embedding on the host: in small models with large vocabularies up to this
    /// share of all weights.
    pub const DEFAULT_HOST_SHARE: f64 = 0.25;
    /// Under 1 GiB the embedding can be most of a model, so a share tells nothing.
    pub(crate) const SMALL_MODEL_BYTES: u64 = 1 << 30;

    /// Sets the share of the weights that plain host memory may hold on a full offload, where the model's metadata
    /// does not give the size of its embedding.
    ///
    /// By default, this is [`DEFAULT_HOST_SHARE`](Self::DEFAULT_HOST_SHARE). Models under 1 GiB are exempt.
    ///
    /// # Errors
    ///
    /// [`HostShareError`] unless the share is at least 0 and under 1.
    pub fn with_host_share(self, host_share: f64) -> Result<Self, HostShareError> {
        if (0.0..1.0).contains(&host_share) {
            Ok(Self { host_share })
        } else {
            Err(HostShareError { given: host_share })
        }
    }
}

/// A host share that is none.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("host share {given} is not a share of the weights; give a number from 0 to under 1")]
pub struct HostShareError {
    /// What was given.
    pub given: f64,
}
