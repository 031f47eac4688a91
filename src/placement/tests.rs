//! The judgement's table: what an account holds, and what is made of it under each plan.

use super::account::{Account, Backends, Devices, ProcessFacts, StatedFault, Weights};
use super::*;
use crate::evidence::{BufferKind, MetadataKey, Residence};
use Residence::{Accelerator, Host, Unknown};

const MIB: u64 = 1 << 20;

type Tell = fn(&mut Account, &mut ProcessFacts);

fn judged(plan: Plan, tell: Tell) -> Placement {
    let (mut account, mut process) = (Account::default(), ProcessFacts::default());
    tell(&mut account, &mut process);
    judge(&account, &process, plan, PlacementPolicy::default())
}

fn weights(account: &mut Account, device: &str, residence: Residence, mib: u64) {
    account.add_buffer(BufferKind::Model, device.to_owned(), residence, mib * MIB);
}

fn read_back(account: &mut Account, accelerator_mib: u64, all_mib: u64) {
    account.read_back = Shared::new(accelerator_mib * MIB, all_mib * MIB);
}

fn fault(cause: Cause, decides: bool) -> StatedFault {
    StatedFault { cause, decides, detail: cause.to_string() }
}

#[test]
#[expect(clippy::too_many_lines, reason = "one table")]
fn weights_are_found_by_the_strongest_evidence() {
    use PlacementVerdict::{CpuFallback, Gpu, Partial, Unreported};
    let rows: &[(&str, Tell, PlacementVerdict, Basis, Option<&str>)] = &[
        ("nothing told", |_, _| {}, Unreported, Basis::None, None),
        (
            "a full offload with its embedding on the host",
            |a, _| {
                weights(a, "CUDA0", Accelerator, 4171);
                weights(a, "CPU", Host, 283);
                a.banner = Some((33, 33));
            },
            Gpu,
            Basis::Buffers,
            None,
        ),
        (
            "a mapped span as large as the file is no weight",
            |a, _| {
                weights(a, "CUDA0", Accelerator, 4171);
                weights(a, "CPU_Mapped", Host, 4171);
            },
            Gpu,
            Basis::Buffers,
            None,
        ),
        (
            "the banner lies",
            |a, _| {
                weights(a, "CPU_Mapped", Host, 235);
                a.banner = Some((19, 19));
            },
            CpuFallback,
            Basis::Buffers,
            Some("banner 19/19"),
        ),
        (
            "all of it in device memory, by the engine's answer",
            |a, _| read_back(a, 5086, 5086),
            Gpu,
            Basis::Readback,
            None,
        ),
        (
            "some of it, and the answer outranks platform and banner",
            |a, p| {
                read_back(a, 3000, 5086);
                a.banner = Some((33, 33));
                p.platform = Some(("cuda".to_owned(), Accelerator));
            },
            Partial,
            Basis::Readback,
            Some("banner 33/33"),
        ),
        (
            "none of it, whatever the scheduler meant",
            |a, _| {
                read_back(a, 0, 5086);
                a.plan.offloaded = Some(33);
                a.plan.total = Some(33);
            },
            CpuFallback,
            Basis::Readback,
            Some("plan 33/33"),
        ),
        (
            "an answer that a lying banner made, refuted by buffers",
            |a, _| {
                weights(a, "CPU_Mapped", Host, 4685);
                a.banner = Some((33, 33));
                read_back(a, 5086, 5086);
            },
            CpuFallback,
            Basis::Buffers,
            Some("readback 5333057536/5333057536"),
        ),
        (
            "an answer that agrees with the buffers, and a banner that does not",
            |a, _| {
                weights(a, "CPU_Mapped", Host, 4685);
                a.banner = Some((33, 33));
                read_back(a, 0, 5086);
            },
            CpuFallback,
            Basis::Buffers,
            Some("banner 33/33"),
        ),
        (
            "an embedding on the host that the answer counts",
            |a, _| {
                weights(a, "CUDA0", Accelerator, 4171);
                weights(a, "CPU", Host, 283);
                read_back(a, 4900, 5086);
            },
            Gpu,
            Basis::Buffers,
            None,
        ),
        (
            "layers outrank the answer",
            |a, _| {
                a.add_layer(0, Host);
                a.add_layer(1, Host);
                read_back(a, 5086, 5086);
            },
            CpuFallback,
            Basis::Layers,
            Some("readback 5333057536/5333057536"),
        ),
        (
            "the banner is modest",
            |a, _| {
                weights(a, "ROCm0", Accelerator, 4171);
                a.banner = Some((0, 33));
            },
            Gpu,
            Basis::Buffers,
            Some("banner 0/33"),
        ),
        (
            "the banner splits",
            |a, _| {
                weights(a, "CUDA0", Accelerator, 513);
                weights(a, "CPU_Mapped", Host, 3581);
                a.banner = Some((5, 37));
            },
            Partial,
            Basis::Buffers,
            None,
        ),
        (
            "a third of the bytes under a full banner",
            |a, _| {
                weights(a, "CUDA0", Accelerator, 43960);
                weights(a, "CPU", Host, 20608);
                a.banner = Some((37, 37));
            },
            Partial,
            Basis::Buffers,
            Some("banner 37/37"),
        ),
        (
            "pinned host memory is host memory",
            |a, _| {
                weights(a, "CUDA0", Accelerator, 10000);
                weights(a, "CUDA_Host", Host, 7110);
            },
            Partial,
            Basis::Buffers,
            None,
        ),
        (
            "metadata allows a large embedding",
            |a, _| {
                weights(a, "Metal", Accelerator, 1600);
                weights(a, "CPU", Host, 1000);
                a.add_metadata(MetadataKey::Vocabulary, 262_144);
                a.add_metadata(MetadataKey::Embedding, 2048);
            },
            Gpu,
            Basis::Buffers,
            None,
        ),
        (
            "metadata allows no more than the embedding",
            |a, _| {
                weights(a, "Metal", Accelerator, 16000);
                weights(a, "CPU", Host, 1100);
                a.add_metadata(MetadataKey::Vocabulary, 262_144);
                a.add_metadata(MetadataKey::Embedding, 2048);
            },
            Partial,
            Basis::Buffers,
            None,
        ),
        (
            "a small model is mostly embedding",
            |a, _| {
                weights(a, "CUDA0", Accelerator, 235);
                weights(a, "CPU", Host, 170);
            },
            Gpu,
            Basis::Buffers,
            None,
        ),
        (
            "a repacked copy is computed with",
            |a, _| {
                weights(a, "CUDA0", Accelerator, 235);
                weights(a, "CPU_REPACK", Host, 12);
                a.banner = Some((19, 19));
            },
            Partial,
            Basis::Buffers,
            Some("banner 19/19"),
        ),
        (
            "an override",
            |a, _| {
                weights(a, "CUDA0", Accelerator, 235);
                a.host_override = Some("tensor overrides".to_owned());
            },
            Partial,
            Basis::Buffers,
            None,
        ),
        (
            "layers that overflow",
            |a, _| {
                weights(a, "CUDA0", Accelerator, 235);
                a.overflow = Some(3);
            },
            Partial,
            Basis::Buffers,
            None,
        ),
        (
            "buffers of unknown names only",
            |a, _| {
                weights(a, "NPU7", Unknown, 235);
                a.banner = Some((19, 19));
            },
            Unreported,
            Basis::None,
            None,
        ),
        (
            "an unknown buffer beside the host's",
            |a, _| {
                weights(a, "NPU7", Unknown, 235);
                weights(a, "CPU_Mapped", Host, 170);
            },
            Unreported,
            Basis::None,
            None,
        ),
        (
            "a cache on the accelerator is no weight",
            |a, _| {
                weights(a, "CPU", Host, 7810);
                a.add_buffer(BufferKind::Kv, "CUDA0".to_owned(), Accelerator, 512 * MIB);
                a.add_buffer(BufferKind::Compute, "CUDA0".to_owned(), Accelerator, 913 * MIB);
                a.banner = Some((0, 41));
            },
            CpuFallback,
            Basis::Buffers,
            None,
        ),
        (
            "layer lines",
            |a, _| {
                (0..19).for_each(|layer| a.add_layer(layer, Accelerator));
            },
            Gpu,
            Basis::Layers,
            None,
        ),
        (
            "layer lines of a split",
            |a, _| {
                a.add_layer(0, Host);
                a.add_layer(1, Accelerator);
                a.banner = Some((2, 2));
            },
            Partial,
            Basis::Layers,
            Some("banner 2/2"),
        ),
        ("layer lines on the host", |a, _| a.add_layer(0, Host), CpuFallback, Basis::Layers, None),
        ("a banner alone", |a, _| a.banner = Some((33, 33)), Gpu, Basis::Banner, None),
        ("a banner of none", |a, _| a.banner = Some((0, 33)), CpuFallback, Basis::Banner, None),
        (
            "an estimate without a device refutes a banner",
            |a, _| {
                a.add_estimate("Host".to_owned(), Host, 222 * MIB);
                a.banner = Some((19, 19));
            },
            CpuFallback,
            Basis::Banner,
            Some("banner 19/19"),
        ),
        (
            "caches counted as layers",
            |a, _| {
                a.banner = Some((33, 35));
                a.add_metadata(MetadataKey::Layers, 32);
            },
            Gpu,
            Basis::Banner,
            None,
        ),
        (
            "a fault that decides",
            |_, p| p.faults.push(fault(Cause::NoDevice, true)),
            CpuFallback,
            Basis::Fault,
            None,
        ),
        (
            "a fault that explains",
            |_, p| p.faults.push(fault(Cause::NoDevice, false)),
            Unreported,
            Basis::None,
            None,
        ),
    ];
    for (case, tell, verdict, basis, contradicted) in rows {
        let placement = judged(Plan::GPU, *tell);
        assert_eq!(placement.verdict, *verdict, "{case}");
        assert_eq!(placement.basis, *basis, "{case}");
        assert_eq!(placement.contradicted.as_deref(), *contradicted, "{case}");
    }
}

#[test]
fn a_verdict_is_judged_against_the_plan() {
    use PlacementVerdict::{Cpu, CpuFallback, Gpu, Partial, Unreported};
    let host: Tell = |a, _| weights(a, "CPU", Host, 4000);
    let wished: Tell = |a, p| {
        weights(a, "CPU", Host, 4000);
        p.backends = Backends::Local;
    };
    let remote_library: Tell = |a, p| {
        weights(a, "CPU", Host, 4000);
        p.backends = Backends::Remote;
    };
    let half: Tell = |a, _| {
        weights(a, "CUDA0", Accelerator, 2000);
        weights(a, "CUDA_Host", Host, 2000);
    };
    let all: Tell = |a, _| weights(a, "CUDA0", Accelerator, 4000);
    let overridden: Tell = |a, _| {
        weights(a, "CUDA0", Accelerator, 2000);
        weights(a, "CPU_Mapped", Host, 4000);
        a.banner = Some((33, 33));
        a.host_override = Some("tensor overrides to CPU".to_owned());
    };
    let overflowing: Tell = |a, _| {
        weights(a, "CUDA0", Accelerator, 2000);
        weights(a, "CPU_Mapped", Host, 4000);
        a.banner = Some((33, 33));
        a.overflow = Some(12);
    };
    let nothing: Tell = |_, _| {};
    let at_least = |share| Plan::gpu_at_least(share).unwrap();
    let rows: &[(&str, Plan, Tell, PlacementVerdict, bool)] = &[
        ("none, gpu", Plan::GPU, host, CpuFallback, true),
        ("none, cpu", Plan::Cpu, host, Cpu, false),
        ("none, unknown", Plan::Unknown, host, Cpu, false),
        ("none, unknown, a GPU backend loaded", Plan::Unknown, wished, CpuFallback, true),
        (
            "none, unknown, the library that every release has",
            Plan::Unknown,
            remote_library,
            Cpu,
            false,
        ),
        ("none, cpu, a GPU backend loaded", Plan::Cpu, wished, Cpu, false),
        ("half, gpu", Plan::GPU, half, Partial, false),
        ("half, at least half", at_least(0.5), half, Partial, false),
        ("half, at least more", at_least(0.51), half, Partial, true),
        ("half, all", Plan::ALL_ON_GPU, half, Partial, true),
        ("half, cpu", Plan::Cpu, half, Partial, false),
        ("half, unknown", Plan::Unknown, half, Partial, false),
        ("overrides under a banner of all, all", Plan::ALL_ON_GPU, overridden, Partial, true),
        ("overrides under a banner of all, gpu", Plan::GPU, overridden, Partial, false),
        ("overflow under a banner of all, all", Plan::ALL_ON_GPU, overflowing, Partial, true),
        ("overflow of 12 in 33, at least 0.6", at_least(0.6), overflowing, Partial, false),
        ("all, all", Plan::ALL_ON_GPU, all, Gpu, false),
        ("all, cpu", Plan::Cpu, all, Gpu, false),
        ("nothing, gpu", Plan::GPU, nothing, Unreported, true),
        ("nothing, cpu", Plan::Cpu, nothing, Unreported, false),
        ("nothing, unknown", Plan::Unknown, nothing, Unreported, false),
    ];
    for (case, plan, tell, verdict, violates) in rows {
        let placement = judged(*plan, *tell);
        assert_eq!((placement.verdict, placement.violates), (*verdict, *violates), "{case}");
        assert!(
            !placement.violates || placement.advice.is_some(),
            "{case}: whoever is alarmed is told what to do"
        );
    }
}

#[test]
fn causes_are_told_as_far_as_the_log_shows_them() {
    let rows: &[(&str, Tell, &[Cause])] = &[
        ("nothing stated", |_, _| {}, &[]),
        ("layer lines and no device list", |a, _| a.add_layer(0, Host), &[]),
        (
            "a banner and a list without a device",
            |a, p| {
                a.banner = Some((19, 19));
                (p.backends, p.devices) = (Backends::Remote, Devices::HostOnly);
            },
            &[Cause::NoDevice],
        ),
        (
            "a device that was not chosen",
            |a, p| {
                a.banner = Some((19, 19));
                p.devices = Devices::Accelerator;
            },
            &[Cause::DeviceDisabled],
        ),
        (
            "a device and no layers",
            |a, p| {
                a.banner = Some((0, 19));
                (p.devices, a.device_chosen) = (Devices::Accelerator, true);
            },
            &[Cause::LayersLimited],
        ),
        (
            "all tensors overridden",
            |a, p| {
                a.banner = Some((19, 19));
                a.host_override = Some("overrides".to_owned());
                (p.devices, a.device_chosen) = (Devices::Accelerator, true);
            },
            &[Cause::LayersLimited],
        ),
        (
            "the CPU's backend alone and no banner",
            |_, p| p.backends = Backends::HostOnly,
            &[Cause::CpuOnlyBuild],
        ),
        (
            "no usable GPU, no banner",
            |_, p| p.faults.push(fault(Cause::CpuOnlyBuild, false)),
            &[Cause::CpuOnlyBuild],
        ),
        (
            "no usable GPU behind a GPU backend without a device",
            |_, p| {
                p.backends = Backends::Local;
                p.faults = vec![fault(Cause::CpuOnlyBuild, false), fault(Cause::NoDevice, false)];
            },
            &[Cause::NoDevice],
        ),
        (
            "two reasons",
            |_, p| {
                p.faults =
                    vec![fault(Cause::BackendLoadFailed, false), fault(Cause::NoDevice, true)];
            },
            &[Cause::NoDevice, Cause::BackendLoadFailed],
        ),
    ];
    for (case, tell, causes) in rows {
        let (mut account, mut process) = (Account::default(), ProcessFacts::default());
        tell(&mut account, &mut process);
        weights(&mut account, "CPU", Host, 4000);
        let placement = judge(&account, &process, Plan::GPU, PlacementPolicy::default());
        assert_eq!(placement.verdict, PlacementVerdict::CpuFallback, "{case}");
        assert_eq!(placement.causes, *causes, "{case}");
        let detail = causes
            .first()
            .filter(|first| process.faults.iter().any(|fault| fault.cause == **first));
        assert_eq!(placement.cause_detail, detail.map(ToString::to_string), "{case}");
    }
}

#[test]
fn a_cache_on_the_host_is_told_beside_a_healthy_placement() {
    let placement = judged(Plan::ALL_ON_GPU, |a, _| {
        weights(a, "CUDA0", Accelerator, 8702);
        a.add_buffer(BufferKind::Kv, "CUDA_Host".to_owned(), Host, 4900 * MIB);
    });
    assert_eq!(placement.verdict, PlacementVerdict::Gpu);
    assert_eq!(placement.causes, [Cause::KvCacheOnHost]);
    assert!(placement.advice.is_some_and(|advice| advice.contains("-nkvo")) && !placement.violates);
}

#[test]
fn a_block_told_again_replaces_what_it_told() {
    let mut account = Account::default();
    weights(&mut account, "CPU", Host, 0);
    account.add_layer(0, Host);
    account.banner = Some((19, 19));
    account.reset_block();
    assert!(!account.tells_placement());
    weights(&mut account, "CUDA0", Accelerator, 100);
    weights(&mut account, "CUDA0", Accelerator, 20);
    assert_eq!(account.weights().accelerator, 120 * MIB, "pieces of one buffer add up");
}

#[test]
fn a_schedulers_sums_are_those_of_its_last_layout_whatever_comes_between() {
    let mut account = Account::default();
    let sum = |account: &mut Account, kind, device: &str, residence, mib: u64| {
        account.allot(kind, device.to_owned(), residence, mib * MIB);
    };
    sum(&mut account, BufferKind::Model, "CUDA0", Accelerator, 300);
    sum(&mut account, BufferKind::Model, "CPU", Host, 100);
    sum(&mut account, BufferKind::Kv, "CUDA0", Accelerator, 50);
    // The runner's line that it begins can come after the sums of what it was given.
    account.reset_block();
    assert_eq!(account.weights(), Weights { accelerator: 300 * MIB, host: 100 * MIB, unknown: 0 });
    // Nothing fitted: the device is gone from the next layout.
    sum(&mut account, BufferKind::Model, "CPU", Host, 400);
    assert_eq!(account.weights(), Weights { accelerator: 0, host: 400 * MIB, unknown: 0 });
    account.reset_attempt();
    assert!(!account.tells_placement(), "another runner is tried");
}

#[test]
fn the_share_is_by_bytes_where_the_whole_is_known_and_else_by_layers() {
    let close =
        |share: Option<f64>, wanted: f64| share.is_some_and(|share| (share - wanted).abs() < 1e-9);
    let by_file = judged(Plan::GPU, |a, _| {
        weights(a, "CUDA0", Accelerator, 1000);
        weights(a, "CPU_Mapped", Host, 4000);
        a.banner = Some((5, 19));
        a.add_metadata(MetadataKey::WeightBytes, 4000 * MIB);
    });
    assert!(close(by_file.share, 0.25), "{:?}", by_file.share);
    let by_layers = judged(Plan::GPU, |a, _| {
        weights(a, "CUDA0", Accelerator, 1000);
        weights(a, "CPU_Mapped", Host, 4000);
        a.banner = Some((5, 20));
    });
    assert!(close(by_layers.share, 0.25), "{:?}", by_layers.share);
    let by_buffers = judged(Plan::GPU, |a, _| {
        weights(a, "CUDA0", Accelerator, 3000);
        weights(a, "CUDA_Host", Host, 1000);
        weights(a, "CPU", Host, 1000);
    });
    assert!(close(by_buffers.share, 0.6), "{:?}", by_buffers.share);
}

#[test]
fn shares_that_are_none_are_refused() {
    for share in [0.0, -0.5, 1.01, f64::NAN, f64::INFINITY] {
        assert!(Plan::gpu_at_least(share).is_err(), "{share}");
    }
    for share in [-0.1, 1.0, f64::NAN] {
        assert!(PlacementPolicy::default().with_host_share(share).is_err(), "{share}");
    }
}

#[test]
fn memory_that_cannot_be_shared_so_is_no_evidence() {
    for (accelerator, all) in [(0, 0), (1, 0), (2, 1), (u64::MAX, 1)] {
        assert_eq!(Shared::new(accelerator, all), None, "{accelerator} of {all}");
    }
}

#[test]
fn the_engines_answer_gives_a_share() {
    let placement = judged(Plan::gpu_at_least(0.5).unwrap(), |a, _| read_back(a, 25, 100));
    assert_eq!(placement.share, Some(0.25));
    assert!(placement.violates);
    assert_eq!(placement.bytes_accelerator, None, "its bytes are not of weights alone");
}
