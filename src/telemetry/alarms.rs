//! Says alarms as `tracing` events: one each time one is raised, renewed, cleared or left to expire.
//!
//! Never called from inside a layer's callback: an event said there is lost, or reaches the wrong layers.

use tracing::{Level, event};

use crate::alarm::Transition;
use crate::evidence::Cause;
use crate::lane::{AlarmKind, BlindCause, Facts};
use crate::placement::{Basis, PlacementVerdict, Plan};
use crate::telemetry::names;
use crate::telemetry::span_events::joined;
use crate::throughput::TimingSource;

/// One alarm event: its metadata name is the event name of the contract, and a field that is not known is left out.
macro_rules! alarm {
    ($name:expr, $level:expr, $told:ident, $message:expr) => {
        event!(
            name: $name,
            target: names::TARGET,
            $level,
            {
                { names::ALARM_STATE } = $told.transition.as_str(),
                { names::LANE_NAME } = $told.lane,
                { names::ENGINE_NAME } = $told.facts.engine.as_deref(),
                { names::REQUEST_MODEL } = $told.facts.model.as_deref(),
                { names::PLAN } = $told.facts.plan.map(Plan::as_str),
                { names::MINIMUM_SHARE } = $told.facts.plan.and_then(Plan::minimum_share),
                { names::VERDICT } = $told.facts.verdict.map(PlacementVerdict::as_str),
                { names::BASIS } = $told.facts.basis.map(Basis::as_str),
                { names::CONTRADICTED } = $told.facts.contradicted.as_deref(),
                { names::LAYERS_OFFLOADED } = $told.facts.layers.map(|(offloaded, _)| offloaded),
                { names::LAYERS_TOTAL } = $told.facts.layers.map(|(_, total)| total),
                { names::BYTES_ACCELERATOR } = $told.facts.bytes_accelerator,
                { names::BYTES_HOST } = $told.facts.bytes_host,
                { names::CAUSE } = $told.facts.causes.first().copied().map(Cause::as_str),
                { names::CAUSES } = $told.causes().as_deref(),
                { names::CAUSE_DETAIL } = $told.facts.cause_detail.as_deref(),
                { names::DECODE_RATE } = $told.facts.decode_rate,
                { names::EXPECTED_RATE } = $told.facts.expected_rate,
                { names::DECODE_RATIO } = $told.facts.ratio,
                { names::DECODE_TOKENS } = $told.facts.tokens,
                { names::EXPECTATION_SOURCE } = $told.facts.expectation_source.as_deref(),
                { names::IN_FLIGHT } = $told.facts.in_flight,
                { names::TIMING_SOURCE } = $told.facts.timing_source.map(TimingSource::as_str),
                { names::SUSPECTS } = $told.suspects().as_deref(),
                { names::BLIND_CAUSE } = $told.facts.blind.map(BlindCause::as_str),
                { names::SLOT } = $told.facts.slot,
                { names::ADVICE } = $told.facts.advice.as_deref(),
            },
            $message
        )
    };
}

/// What happened to one alarm.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Told<'a> {
    /// Which.
    pub(crate) kind: AlarmKind,
    /// What happened to it.
    pub(crate) transition: Transition,
    /// The lane; `None` for what concerns no single one.
    pub(crate) lane: Option<&'a str>,
    /// What is known.
    pub(crate) facts: &'a Facts,
}

impl Told<'_> {
    fn causes(&self) -> Option<String> {
        joined(self.facts.causes.iter().map(|cause| cause.as_str()))
    }

    fn suspects(&self) -> Option<String> {
        joined(self.facts.suspects.iter().copied())
    }
}

/// Says it under the current subscriber: at the alarm's own level while it stands, at INFO when it ends.
pub(crate) fn say(told: Told<'_>) {
    match told.transition {
        Transition::Raised | Transition::Renewed => say_standing(told),
        Transition::Cleared => say_cleared(told),
        Transition::Expired => say_ended(
            told,
            "the alarm ends without a recovery: its fault was not seen again, or its lane ended",
        ),
        Transition::Replaced => say_ended(told, "another fault takes the place of this one"),
    }
}

fn say_standing(told: Told<'_>) {
    match told.kind {
        AlarmKind::CpuFallback => {
            alarm!(
                names::CPU_FALLBACK,
                Level::ERROR,
                told,
                "the model is on the CPU although it was to be on a GPU"
            );
        }
        AlarmKind::Partial => {
            alarm!(
                names::PARTIAL,
                Level::WARN,
                told,
                "a smaller share of the model is on the GPU than was planned"
            );
        }
        AlarmKind::Unreported => {
            alarm!(
                names::UNREPORTED,
                Level::WARN,
                told,
                "the engine is ready and did not say where the model is"
            );
        }
        AlarmKind::Degraded => {
            alarm!(
                names::DEGRADED,
                Level::WARN,
                told,
                "tokens are decoded far slower than expected"
            );
        }
        AlarmKind::Wedged => {
            alarm!(names::WEDGED, Level::ERROR, told, "the engine has stopped making progress");
        }
        AlarmKind::LoadFailed => {
            alarm!(names::LOAD_FAILED, Level::ERROR, told, "the engine did not load the model");
        }
        AlarmKind::DebugBuild => {
            alarm!(
                names::DEBUG_BUILD,
                Level::WARN,
                told,
                "the engine is a debug build: its rates mean nothing"
            );
        }
        AlarmKind::Blind => {
            alarm!(names::BLIND, Level::WARN, told, "the sentinel cannot see");
        }
    }
}

fn say_cleared(told: Told<'_>) {
    match told.kind {
        AlarmKind::CpuFallback | AlarmKind::Partial | AlarmKind::Unreported => {
            alarm!(
                names::PLACEMENT_RECOVERED,
                Level::INFO,
                told,
                "the model is where it was planned to be"
            );
        }
        AlarmKind::Degraded => {
            alarm!(
                names::THROUGHPUT_RECOVERED,
                Level::INFO,
                told,
                "tokens are decoded at the expected rate again"
            );
        }
        AlarmKind::Wedged => {
            alarm!(names::WEDGED, Level::INFO, told, "the engine makes progress again");
        }
        AlarmKind::LoadFailed => {
            alarm!(names::LOAD_FAILED, Level::INFO, told, "the engine loads the model again");
        }
        AlarmKind::DebugBuild => {
            alarm!(names::DEBUG_BUILD, Level::INFO, told, "the engine is no debug build anymore");
        }
        AlarmKind::Blind => alarm!(names::BLIND, Level::INFO, told, "the sentinel can see again"),
    }
}

/// An end that is no recovery keeps the alarm's own name.
fn say_ended(told: Told<'_>, how: &'static str) {
    match told.kind {
        AlarmKind::CpuFallback => alarm!(names::CPU_FALLBACK, Level::INFO, told, "{how}"),
        AlarmKind::Partial => alarm!(names::PARTIAL, Level::INFO, told, "{how}"),
        AlarmKind::Unreported => alarm!(names::UNREPORTED, Level::INFO, told, "{how}"),
        AlarmKind::Degraded => alarm!(names::DEGRADED, Level::INFO, told, "{how}"),
        AlarmKind::Wedged => alarm!(names::WEDGED, Level::INFO, told, "{how}"),
        AlarmKind::LoadFailed => alarm!(names::LOAD_FAILED, Level::INFO, told, "{how}"),
        AlarmKind::DebugBuild => alarm!(names::DEBUG_BUILD, Level::INFO, told, "{how}"),
        AlarmKind::Blind => alarm!(names::BLIND, Level::INFO, told, "{how}"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tracing::{Event, Subscriber, subscriber};
    use tracing_subscriber::Layer;
    use tracing_subscriber::layer::{Context, SubscriberExt as _};

    use super::*;

    /// The name, level and target of each event said.
    #[derive(Clone, Default)]
    struct Said(Arc<Mutex<Vec<Heard>>>);

    type Heard = (&'static str, Level, &'static str);

    impl<S: Subscriber> Layer<S> for Said {
        fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
            let metadata = event.metadata();
            self.0.lock().unwrap().push((metadata.name(), *metadata.level(), metadata.target()));
        }
    }

    #[test]
    fn an_alarm_has_its_name_and_level_by_what_happened_to_it() {
        const PLACED: (&str, Level) = ("serving.placement.recovered", Level::INFO);
        let rows = [
            (AlarmKind::CpuFallback, ("serving.placement.cpu_fallback", Level::ERROR), PLACED),
            (AlarmKind::Partial, ("serving.placement.partial", Level::WARN), PLACED),
            (AlarmKind::Unreported, ("serving.placement.unreported", Level::WARN), PLACED),
            (
                AlarmKind::Degraded,
                ("serving.throughput.degraded", Level::WARN),
                ("serving.throughput.recovered", Level::INFO),
            ),
            (
                AlarmKind::Wedged,
                ("serving.engine.wedged", Level::ERROR),
                ("serving.engine.wedged", Level::INFO),
            ),
            (
                AlarmKind::LoadFailed,
                ("serving.engine.load_failed", Level::ERROR),
                ("serving.engine.load_failed", Level::INFO),
            ),
            (
                AlarmKind::DebugBuild,
                ("serving.engine.debug_build", Level::WARN),
                ("serving.engine.debug_build", Level::INFO),
            ),
            (
                AlarmKind::Blind,
                ("serving.sentinel.blind", Level::WARN),
                ("serving.sentinel.blind", Level::INFO),
            ),
        ];
        assert_eq!(rows.map(|(kind, ..)| kind), AlarmKind::ALL);

        let said = Said::default();
        let _default = subscriber::set_default(tracing_subscriber::registry().with(said.clone()));
        for (kind, standing, cleared) in rows {
            let ended = (standing.0, Level::INFO);
            for (transition, (name, level)) in [
                (Transition::Raised, standing),
                (Transition::Renewed, standing),
                (Transition::Cleared, cleared),
                (Transition::Expired, ended),
                (Transition::Replaced, ended),
            ] {
                say(Told { kind, transition, lane: Some("chat-0"), facts: &Facts::default() });
                let told = std::mem::take(&mut *said.0.lock().unwrap());
                assert_eq!(told, [(name, level, names::TARGET)], "{kind:?} {transition:?}");
            }
        }
    }
}
