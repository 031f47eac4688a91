//! What to do about a placement: one sentence each, with the flag to set.

use crate::evidence::Cause;

use super::PlacementVerdict;
use super::account::{Account, ProcessFacts};

/// llama.cpp since 2026-05 tells placement from this verbosity on (`llama.cpp.md`, 0).
const TELLING_VERBOSITY: u32 = 4;

pub(super) fn advise(
    verdict: PlacementVerdict,
    violates: bool,
    cause: Option<Cause>,
    account: &Account,
    process: &ProcessFacts,
) -> Option<String> {
    match verdict {
        PlacementVerdict::Gpu if cause.is_none() => None,
        PlacementVerdict::Cpu => None,
        PlacementVerdict::Partial if !violates && cause.is_none() => None,
        PlacementVerdict::Unreported => Some(speak_up(account, process)),
        PlacementVerdict::Gpu | PlacementVerdict::Partial | PlacementVerdict::CpuFallback => {
            Some(for_cause(verdict, cause, account))
        }
    }
}

/// How to make an engine say where the model is.
fn speak_up(account: &Account, process: &ProcessFacts) -> String {
    if let Some(buffer) = account.unknown_buffer() {
        return format!(
            "buffer `{buffer}` is of no name known here; add its name to a recogniser file, as an accelerator's or as \
             the host's"
        );
    }
    match process.verbosity {
        Some(level) if level >= TELLING_VERBOSITY => {
            "the engine was asked to tell and told nothing of placement; give the sentinel all of its stderr and \
             stdout from its start on"
        }
        Some(_) | None => {
            "set LLAMA_ARG_LOG_VERBOSITY=4 in the engine's environment (llama-server since 2026-05; other engines: \
             their verbose flag), so that it says where the model is"
        }
    }
    .to_owned()
}

fn for_cause(verdict: PlacementVerdict, cause: Option<Cause>, account: &Account) -> String {
    match cause {
        Some(Cause::CpuOnlyBuild) => {
            "install a build of the engine with a GPU backend (CUDA, ROCm, Vulkan, Metal): this one has none"
        }
        Some(Cause::DriverInitFailed) => {
            "mend the GPU driver (`nvidia-smi` or `rocminfo` must work as the engine's user, in its container), then \
             restart the engine"
        }
        Some(Cause::BackendLoadFailed) => {
            "install the libraries that the engine's GPU backend needs, so that it can be loaded, then restart the \
             engine"
        }
        Some(Cause::NoDevice) => {
            "make the device visible to the engine's process (container runtime flags such as `--gpus all`, device \
             permissions, CUDA_VISIBLE_DEVICES, `--rpc`); `--list-devices` shows what it sees"
        }
        Some(Cause::OutOfMemory) => {
            "free device memory, or use a smaller context (`-c`), a smaller quantisation or fewer parallel slots"
        }
        None | Some(Cause::LayersLimited) if account.host_override.is_some() => {
            "remove the tensor overrides (`-ot`, `--cpu-moe`) that keep the weights on the host"
        }
        Some(Cause::LayersLimited) => "ask for all layers (`-ngl all`, or a number above the model's layers)",
        Some(Cause::DeviceDisabled) => "let the engine use its device: remove `--device none` or name the device",
        Some(Cause::KvCacheOnHost) => "keep the KV cache on the device: remove `-nkvo`, or use a smaller context",
        Some(Cause::Contention | Cause::ContextShift | Cause::DebugBuild | Cause::Unknown) | None => match verdict {
            PlacementVerdict::Partial => "ask for more layers (`-ngl all`), or free device memory",
            PlacementVerdict::Gpu
            | PlacementVerdict::Cpu
            | PlacementVerdict::CpuFallback
            | PlacementVerdict::Unreported => {
                "see the engine's first lines for the reason: driver, backend library, visible devices, `-ngl`"
            }
        },
    }
    .to_owned()
}
