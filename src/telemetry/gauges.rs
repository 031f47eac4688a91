//! Observable gauges: read from the lanes' present state when a reader collects, so that what is gone disappears.

use std::sync::Weak;

use opentelemetry::KeyValue;
use opentelemetry::metrics::{AsyncInstrument, Meter};

use crate::evidence::Residence;
use crate::lane::{AlarmKind, LaneState};
use crate::placement::{Placement, PlacementVerdict};
use crate::telemetry::instruments::{ALARM, BYTES, LAYER, ONE, TOKENS_PER_SECOND, labels, with};
use crate::telemetry::names;

/// The lanes as observable gauges see them.
pub(crate) trait Lanes: Send + Sync {
    /// Shows every open lane, and says whether its engine lives.
    fn each(&self, visit: &mut dyn FnMut(&LaneState, bool));
    /// Whether a blindness stands that is of no single lane.
    fn is_blind(&self) -> bool;
    /// A reader collected: our metrics have somewhere to go.
    fn collected(&self);
}

/// Makes them, reading `lanes` as long as those live.
pub(super) fn observe(meter: &Meter, lanes: &Weak<dyn Lanes>) {
    let read = |each: fn(&LaneState, &dyn AsyncInstrument<u64>)| {
        let lanes = lanes.clone();
        move |gauge: &dyn AsyncInstrument<u64>| {
            let Some(lanes) = lanes.upgrade() else { return };
            lanes.each(&mut |lane, lives| {
                if lives {
                    each(lane, gauge);
                }
            });
        }
    };
    meter
        .u64_observable_gauge(names::LAYERS)
        .with_unit(LAYER)
        .with_description("Layers by where they are.")
        .with_callback(read(observe_layers))
        .build();
    meter
        .u64_observable_gauge(names::BYTES)
        .with_unit(BYTES)
        .with_description("Memory by device and by what it holds.")
        .with_callback(read(observe_bytes))
        .build();
    meter
        .u64_observable_gauge(names::STATE)
        .with_unit(ONE)
        .with_description("1 for the present placement verdict, 0 for the others.")
        .with_callback(read(observe_state))
        .build();
    let expected = lanes.clone();
    meter
        .f64_observable_gauge(names::EXPECTED_RATE)
        .with_unit(TOKENS_PER_SECOND)
        .with_description("The decode rate a lane should reach.")
        .with_callback(move |gauge| {
            let Some(lanes) = expected.upgrade() else { return };
            lanes.each(&mut |lane, lives| {
                if lives {
                    observe_expectation(lane, gauge);
                }
            });
        })
        .build();
    let alarms = lanes.clone();
    meter
        .u64_observable_gauge(names::ALARMS_ACTIVE)
        .with_unit(ALARM)
        .with_description("1 for each alarm that stands, 0 for the others.")
        .with_callback(move |gauge| {
            let Some(lanes) = alarms.upgrade() else { return };
            lanes.collected();
            gauge.observe(lanes.is_blind().into(), &[KeyValue::new(names::ALARM, names::BLIND)]);
            lanes.each(&mut |lane, lives| observe_alarms(lane, lives, gauge));
        })
        .build();
}

fn observe_layers(lane: &LaneState, gauge: &dyn AsyncInstrument<u64>) {
    let Some((accelerator, host)) = lane.placement().and_then(layers) else { return };
    let lane = labels(lane);
    for (residence, layers) in [(Residence::Accelerator, accelerator), (Residence::Host, host)] {
        gauge.observe(
            layers.into(),
            &with(&lane, [KeyValue::new(names::RESIDENCE, residence.as_str())]),
        );
    }
}

/// Layers on accelerators and on the host. A banner that stronger evidence refutes is not repeated as a number:
/// `None` unless the verdict itself says where every layer is.
pub(super) fn layers(placement: &Placement) -> Option<(u32, u32)> {
    let (offloaded, total) = placement.layers?;
    match (placement.verdict, &placement.contradicted) {
        (PlacementVerdict::Cpu | PlacementVerdict::CpuFallback, _) => Some((0, total)),
        (_, None) => Some((offloaded, total.saturating_sub(offloaded))),
        (_, Some(_)) => None,
    }
}

fn observe_bytes(lane: &LaneState, gauge: &dyn AsyncInstrument<u64>) {
    let labels = labels(lane);
    for (device, residence, kind, bytes) in lane.buffers() {
        let buffer = [
            KeyValue::new(names::DEVICE, device.to_owned()),
            KeyValue::new(names::RESIDENCE, residence.as_str()),
            KeyValue::new(names::BUFFER, kind.as_str()),
        ];
        gauge.observe(bytes, &with(&labels, buffer));
    }
}

fn observe_state(lane: &LaneState, gauge: &dyn AsyncInstrument<u64>) {
    let present = lane.placement().map(|placement| placement.verdict);
    let lane = labels(lane);
    for verdict in PlacementVerdict::ALL {
        let is_present = Some(verdict) == present;
        gauge.observe(
            is_present.into(),
            &with(&lane, [KeyValue::new(names::VERDICT, verdict.as_str())]),
        );
    }
}

fn observe_expectation(lane: &LaneState, gauge: &dyn AsyncInstrument<f64>) {
    let Some(expectation) = lane.expectation() else { return };
    let source = KeyValue::new(names::EXPECTATION_SOURCE, expectation.source().clone());
    gauge.observe(expectation.rate().get(), &with(&labels(lane), [source]));
}

/// Of an engine that is gone, what is left to see is why: a load that failed.
fn observe_alarms(lane: &LaneState, lives: bool, gauge: &dyn AsyncInstrument<u64>) {
    let labels = labels(lane);
    for kind in AlarmKind::ALL {
        let stands = match kind {
            AlarmKind::Blind => lane.blind_causes().next().is_some(),
            kind => lane.alarms().any(|standing| standing == kind),
        };
        if !stands && !lives {
            continue;
        }
        gauge.observe(
            stands.into(),
            &with(&labels, [KeyValue::new(names::ALARM, names::alarm(kind))]),
        );
    }
}
