//! The judgement: one load's account against the plan.

use crate::evidence::{BufferKind, Cause, Residence};

use super::account::{Account, Backends, Devices, ProcessFacts, Shared, StatedFault};
use super::{Basis, Placement, PlacementPolicy, PlacementVerdict, Plan, advice};

/// Where the weights are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Weights {
    NoneOnAccelerator,
    Some,
    All,
    NotTold,
}

/// Judges a load by all that is known of it now.
pub(crate) fn judge(
    account: &Account,
    process: &ProcessFacts,
    plan: Plan,
    policy: PlacementPolicy,
) -> Placement {
    let (weights, basis) = weigh(account, process, policy);
    let share = share(account, weights);
    let verdict = match (weights, plan) {
        (Weights::NotTold, _) => PlacementVerdict::Unreported,
        (Weights::All, _) => PlacementVerdict::Gpu,
        (Weights::Some, _) => PlacementVerdict::Partial,
        (Weights::NoneOnAccelerator, Plan::Gpu { .. }) => PlacementVerdict::CpuFallback,
        (Weights::NoneOnAccelerator, Plan::Unknown) if wishes_for_gpu(account, process) => {
            PlacementVerdict::CpuFallback
        }
        (Weights::NoneOnAccelerator, Plan::Cpu | Plan::Unknown) => PlacementVerdict::Cpu,
    };
    let violates = match verdict {
        PlacementVerdict::CpuFallback => true,
        PlacementVerdict::Partial => {
            plan.minimum_share().is_some_and(|minimum| share.is_none_or(|it| it < minimum))
        }
        PlacementVerdict::Unreported => matches!(plan, Plan::Gpu { .. }),
        PlacementVerdict::Gpu | PlacementVerdict::Cpu => false,
    };
    let causes = causes(account, process, verdict);
    let cause_detail = causes.first().and_then(|first| {
        faults(account, process)
            .find(|fault| fault.cause == *first)
            .map(|fault| fault.detail.clone())
    });
    let told = account.weights();
    let has_buffers = !told.is_empty();
    Placement {
        verdict,
        basis,
        contradicted: contradicted(account, weights, basis),
        layers: account.banner,
        bytes_accelerator: has_buffers.then_some(told.accelerator),
        bytes_host: has_buffers.then_some(told.host),
        share,
        advice: advice::advise(verdict, violates, causes.first().copied(), account, process),
        causes,
        cause_detail,
        violates,
    }
}

/// Weighs by the strongest evidence there is.
fn weigh(account: &Account, process: &ProcessFacts, policy: PlacementPolicy) -> (Weights, Basis) {
    let told = account.weights();
    if !told.is_empty() {
        let weights = match (told.accelerator, told.unknown) {
            (0, 0) => Weights::NoneOnAccelerator,
            (0, _) => Weights::NotTold,
            _ if is_split(account, policy) => Weights::Some,
            _ => Weights::All,
        };
        return (weights, if weights == Weights::NotTold { Basis::None } else { Basis::Buffers });
    }
    if let Some((accelerator, host)) = account.layers_by_residence() {
        return (of_counts(accelerator, accelerator + host), Basis::Layers);
    }
    if let Some(shared) = account.read_back {
        return (of_memory(shared), Basis::Readback);
    }
    match &process.platform {
        Some((_, Residence::Accelerator)) => return (Weights::All, Basis::Platform),
        Some((_, Residence::Host)) => return (Weights::NoneOnAccelerator, Basis::Platform),
        Some((_, Residence::Unknown)) | None => {}
    }
    let estimated = account.estimated();
    if estimated.accelerator == 0 && estimated.host > 0 && estimated.unknown == 0 {
        return (Weights::NoneOnAccelerator, Basis::Banner);
    }
    if let Some((offloaded, total)) = account.weight_layers() {
        return (of_counts(offloaded, total), Basis::Banner);
    }
    if let Some((offloaded, total)) = planned_layers(account) {
        return (of_counts(offloaded, total), Basis::Banner);
    }
    if estimated.accelerator > 0 {
        // The host's share of an estimate holds the embedding and more: whether it is all cannot be told from it.
        return (Weights::Some, Basis::Banner);
    }
    if faults(account, process).any(|fault| fault.decides) {
        return (Weights::NoneOnAccelerator, Basis::Fault);
    }
    (Weights::NotTold, Basis::None)
}

/// Layers that a scheduler meant to offload, and all. None at all says enough without their total.
fn planned_layers(account: &Account) -> Option<(u32, u32)> {
    match (account.plan.offloaded?, account.plan.total) {
        (0, total) => Some((0, total.unwrap_or(0))),
        (offloaded, total) => Some((offloaded, total?)),
    }
}

/// Why a scheduler meant to offload less than all; `None` when it did not, or does not say.
fn planned_shortage(account: &Account, process: &ProcessFacts) -> Option<Cause> {
    let plan = account.plan;
    let (offloaded, total) = (plan.offloaded?, plan.total?);
    if offloaded >= total || process.devices == Devices::NoneFound {
        return None;
    }
    if plan.requested.is_some_and(|asked| (0..=i64::from(offloaded)).contains(&asked)) {
        return Some(Cause::LayersLimited);
    }
    // Whoever fits layers into memory by itself and leaves some out had no room for them, unless its numbers say so.
    let had_room = plan.required.zip(plan.available).is_some_and(|(needs, has)| needs <= has);
    let is_told = plan.requested.is_some() && plan.available != Some(0);
    is_told.then_some(if had_room { Cause::LayersLimited } else { Cause::OutOfMemory })
}

fn of_counts(on_accelerator: u32, all: u32) -> Weights {
    if on_accelerator == 0 {
        Weights::NoneOnAccelerator
    } else if on_accelerator < all {
        Weights::Some
    } else {
        Weights::All
    }
}

fn of_memory(shared: Shared) -> Weights {
    match shared.accelerator() {
        0 => Weights::NoneOnAccelerator,
        accelerator if accelerator < shared.all() => Weights::Some,
        _ => Weights::All,
    }
}

/// Whether weights of layers are on the host although some are on an accelerator.
fn is_split(account: &Account, policy: PlacementPolicy) -> bool {
    let banner_splits = account
        .weight_layers()
        .is_some_and(|(offloaded, total)| 0 < offloaded && offloaded < total);
    let banner_is_counted =
        account.is_summed_up() && account.banner.is_some_and(|(offloaded, _)| offloaded > 0);
    let layers_split = account.layers_by_residence().is_some_and(|(_, host)| host > 0);
    banner_splits
        || layers_split
        || account.overflow.is_some()
        || account.host_override.is_some()
        || account.relocates()
        || !banner_is_counted && account.held_on_host() > host_allowance(account, policy)
}

/// Host weights that a full offload may leave: the input embedding's size where it is known, else a share.
fn host_allowance(account: &Account, policy: PlacementPolicy) -> u64 {
    if let Some(embedding) = account.embedding_bytes() {
        return embedding;
    }
    let all = account.weights().accelerator.saturating_add(account.held_on_host());
    if all < PlacementPolicy::SMALL_MODEL_BYTES {
        return u64::MAX;
    }
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of a size, to the nearest byte or so"
    )]
    let allowance = (all as f64 * policy.host_share) as u64;
    allowance
}

/// The share of the weights on accelerators: by bytes where the whole is known, else by layers.
fn share(account: &Account, weights: Weights) -> Option<f64> {
    match weights {
        Weights::NotTold => return None,
        Weights::NoneOnAccelerator => return Some(0.0),
        Weights::All => return Some(1.0),
        Weights::Some => {}
    }
    let told = account.weights();
    // A part that is the whole is refuted by the verdict: the banner of a load with overrides, embeddings held twice.
    #[expect(clippy::cast_precision_loss, reason = "a ratio of sizes and of layer counts")]
    let ratio = |part: u64, whole: u64| (part < whole).then(|| part as f64 / whole as f64);
    let by_bytes = (told.accelerator > 0)
        .then(|| {
            // A mapped span is no size, so it takes the model's own size to know the whole.
            let held = told.accelerator.saturating_add(account.held_on_host());
            match account.weight_bytes() {
                Some(all) => ratio(told.accelerator, all.max(held)),
                None if account.held_on_host() > 0 => ratio(told.accelerator, held),
                None => None,
            }
        })
        .flatten();
    let by_layer_lines = account.layers_by_residence().and_then(|(accelerator, host)| {
        ratio(accelerator.into(), u64::from(accelerator) + u64::from(host))
    });
    // Cache and scratch space are in these numbers: better than a claim, and no bytes of weights.
    let by_answer = account.read_back.and_then(|shared| ratio(shared.accelerator(), shared.all()));
    // Layers that overflow are counted as offloaded, and their big tensors are on the host.
    let by_banner = account.weight_layers().and_then(|(offloaded, total)| {
        ratio(offloaded.saturating_sub(account.overflow.unwrap_or(0)).into(), total.into())
    });
    by_bytes.or(by_layer_lines).or(by_answer).or(by_banner)
}

/// The strongest claim that stronger evidence refutes: what the engine answered, else its banner or plan.
fn contradicted(account: &Account, weights: Weights, basis: Basis) -> Option<String> {
    let refuted_answer = account
        .read_back
        .filter(|shared| basis < Basis::Readback && is_refuted(of_memory(*shared), weights));
    match refuted_answer {
        Some(shared) => Some(format!("readback {}/{}", shared.accelerator(), shared.all())),
        None => contradicted_layers(account, weights, basis),
    }
}

/// Whether a claim cannot be true where the weights are.
fn is_refuted(claimed: Weights, weights: Weights) -> bool {
    match (claimed, weights) {
        // A full offload leaves an embedding on the host, which an engine may count.
        (Weights::Some, Weights::All) | (Weights::NotTold, _) | (_, Weights::NotTold) => false,
        (claimed, weights) => claimed != weights,
    }
}

fn contradicted_layers(account: &Account, weights: Weights, basis: Basis) -> Option<String> {
    let (claim, (offloaded, total)) = match (account.banner, planned_layers(account)) {
        (Some(layers), _) => ("banner", layers),
        (None, Some(layers)) => ("plan", layers),
        (None, None) => return None,
    };
    let (claimed_offloaded, claimed_total) = account.weight_layers().unwrap_or((offloaded, total));
    let refuted = match weights {
        Weights::NotTold => false,
        Weights::NoneOnAccelerator => claimed_offloaded > 0,
        Weights::Some => claimed_offloaded == 0 || claimed_offloaded >= claimed_total,
        Weights::All => claimed_offloaded < claimed_total,
    };
    let weaker = basis < Basis::Banner || !account.estimated().is_empty();
    (refuted && weaker).then(|| format!("{claim} {offloaded}/{total}"))
}

fn faults<'a>(
    account: &'a Account,
    process: &'a ProcessFacts,
) -> impl Iterator<Item = &'a StatedFault> {
    account.faults.iter().chain(&process.faults)
}

/// Whether the log itself shows that someone wanted the GPU.
fn wishes_for_gpu(account: &Account, process: &ProcessFacts) -> bool {
    process.layers_asked
        || account.device_chosen
        || process.backends == Backends::Local
        || account.banner.is_some_and(|(offloaded, _)| offloaded > 0)
        || account.plan.requested.is_some_and(|layers| layers > 0)
        || account.plan.offloaded.is_some_and(|layers| layers > 0)
        // Who switched the device off wishes for the CPU.
        || faults(account, process).any(|fault| fault.cause != Cause::DeviceDisabled)
}

/// Why, most likely first.
fn causes(account: &Account, process: &ProcessFacts, verdict: PlacementVerdict) -> Vec<Cause> {
    match verdict {
        PlacementVerdict::Gpu => cache_on_host(account).into_iter().collect(),
        // The cache follows the layers: on a split some of it is on the host by design.
        PlacementVerdict::Partial => {
            let memory = faults(account, process).any(|fault| fault.cause == Cause::OutOfMemory);
            (memory || account.overflow.is_some())
                .then_some(Cause::OutOfMemory)
                .or_else(|| planned_shortage(account, process))
                .into_iter()
                .collect()
        }
        PlacementVerdict::CpuFallback => fallback_causes(account, process),
        // As planned, or nothing known: a fault that only explains proves nothing alone.
        PlacementVerdict::Cpu | PlacementVerdict::Unreported => Vec::new(),
    }
}

fn cache_on_host(account: &Account) -> Option<Cause> {
    let cache = account.bytes_of(BufferKind::Kv);
    let is_stated = account.faults.iter().any(|fault| fault.cause == Cause::KvCacheOnHost);
    (cache.host > cache.accelerator || is_stated || account.banner_leaves_cache())
        .then_some(Cause::KvCacheOnHost)
}

fn fallback_causes(account: &Account, process: &ProcessFacts) -> Vec<Cause> {
    /// The more a line knows of the device, the likelier its reason. "No usable GPU" is also printed for builds that
    /// have a GPU backend, so it comes last, and only where nothing shows such a backend.
    const BY_LIKELIHOOD: [Cause; 7] = [
        Cause::DriverInitFailed,
        Cause::NoDevice,
        Cause::BackendLoadFailed,
        Cause::OutOfMemory,
        Cause::DeviceDisabled,
        Cause::LayersLimited,
        Cause::Unknown,
    ];
    let stated: Vec<Cause> = BY_LIKELIHOOD
        .into_iter()
        .filter(|cause| faults(account, process).any(|fault| fault.cause == *cause))
        .collect();
    if !stated.is_empty() {
        return stated;
    }
    let has_device = process.devices == Devices::Accelerator || account.device_chosen;
    let no_device = process.devices == Devices::HostOnly && !has_device;
    let no_gpu_in_build = faults(account, process).any(|fault| fault.cause == Cause::CpuOnlyBuild);
    let lists_no_gpu = no_device || process.backends == Backends::HostOnly;
    if let Some(shortage) = planned_shortage(account, process) {
        return vec![shortage];
    }
    let derived = match account.banner {
        _ if process.devices == Devices::NoneFound && !has_device => Some(Cause::NoDevice),
        _ if account.host_override.is_some() => Some(Cause::LayersLimited),
        Some((0, _)) if has_device || process.backends == Backends::Local => {
            Some(Cause::LayersLimited)
        }
        Some((0, _)) => None,
        Some(_) if has_device && !account.device_chosen => Some(Cause::DeviceDisabled),
        Some(_) if no_device => Some(Cause::NoDevice),
        None if no_device && process.backends == Backends::Local => Some(Cause::NoDevice),
        None if has_device || process.backends > Backends::HostOnly => None,
        None if no_gpu_in_build => Some(Cause::CpuOnlyBuild),
        // Builds without any GPU backend print no banner, whatever was asked for.
        None if lists_no_gpu && !account.weights().is_empty() => Some(Cause::CpuOnlyBuild),
        Some(_) | None => None,
    };
    derived.into_iter().collect()
}
