//! Blindness that is of no single lane: a filter that hides engine events, metrics that nobody reads, too many lanes.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use tracing::callsite::{Callsite, Identifier};
use tracing::field::FieldSet;
use tracing::metadata::Kind;
use tracing::subscriber::Interest;
use tracing::{Dispatch, Level, Metadata, dispatcher};

use crate::alarm::Transition;
use crate::lane::{AlarmKind, BlindCause, Facts};
use crate::layer::enter;
use crate::layer::hub::Hub;
use crate::telemetry::alarms::{Told, say};
use crate::telemetry::names;

/// A filter seldom changes while a program runs.
const PROBE_EVERY: Duration = Duration::from_secs(30);

/// What the teller remembers from one look to the next.
#[derive(Debug, Default)]
pub(super) struct Watch {
    probed: Option<Instant>,
}

impl Watch {
    /// Looks for what keeps us from seeing, and says what has changed.
    pub(super) fn look(&mut self, hub: &Arc<Hub>, at: Instant) {
        hub.follow_provider();
        observe(hub, BlindCause::NoMeterProvider, hub.meters.is_unread(at), None, at);
        #[cfg(feature = "otlp")]
        {
            let unreachable = crate::otlp::collector_unreachable().is_some();
            observe(hub, BlindCause::CollectorUnreachable, unreachable, None, at);
        }
        observe(
            hub,
            BlindCause::TooManyLanes,
            hub.shown_lanes().len() > hub.settings.max_lanes,
            None,
            at,
        );
        if self.probed.is_none_or(|probed| at.saturating_duration_since(probed) >= PROBE_EVERY) {
            self.probed = Some(at);
            let Some(dispatch) = hub.dispatch() else { return };
            let hidden = hidden_target(hub, &dispatch);
            observe(hub, BlindCause::EventsFiltered, hidden.is_some(), hidden.as_deref(), at);
        }
    }
}

fn observe(hub: &Hub, cause: BlindCause, standing: bool, which: Option<&str>, at: Instant) {
    let transition = enter(&hub.blind).entry(cause).or_default().observe(
        standing,
        at,
        hub.settings.policy.alarm,
    );
    // A program may do without metrics on purpose: that is said once.
    if cause == BlindCause::NoMeterProvider && transition == Some(Transition::Renewed) {
        return;
    }
    let (Some(transition), Some(dispatch)) = (transition, hub.dispatch()) else { return };
    dispatcher::with_default(&dispatch, || say_blind(None, cause, which, transition));
}

/// Says a blindness under the current subscriber.
pub(super) fn say_blind(
    lane: Option<&str>,
    cause: BlindCause,
    which: Option<&str>,
    transition: Transition,
) {
    let hidden = which.map(|which| format!("hidden: `{which}`"));
    let advice = cause.advice_on(hidden.as_deref());
    let facts = Facts { blind: Some(cause), advice: Some(advice), ..Facts::default() };
    say(Told { kind: AlarmKind::Blind, transition, lane, facts: &facts });
}

/// The first of the targets named by the caller whose events a global filter keeps from every layer.
///
/// The target of our own reader is not asked for: its lines reach the lane by another way.
fn hidden_target(hub: &Hub, dispatch: &Dispatch) -> Option<String> {
    let asked = hub
        .settings
        .targets
        .iter()
        .zip(&hub.heard)
        .filter(|(target, _)| *target != names::ENGINE_TARGET);
    let levels: Vec<_> =
        asked.map(|(target, heard)| (target, enter(heard).unwrap_or(Level::INFO))).collect();
    if levels.is_empty() {
        return None;
    }
    // Per-layer filters leave marks on the thread that asks, which the next event on it would run into. This thread
    // has none.
    thread::scope(|scope| {
        let probe = || levels.iter().find(|(target, level)| !passes(dispatch, target, *level));
        scope.spawn(probe).join().ok().flatten().map(|(target, _)| (*target).clone())
    })
}

fn passes(dispatch: &Dispatch, target: &str, level: Level) -> bool {
    let fields = FieldSet::new(&[names::LINE_FIELD], Identifier(&Probe));
    let metadata =
        Metadata::new(names::LINES, target, level, None, None, None, fields, Kind::EVENT);
    dispatch.enabled(&metadata)
}

/// Stands for the callsites of a target, which are not known.
struct Probe;

static PROBE: Metadata<'static> = Metadata::new(
    names::LINES,
    names::TARGET,
    Level::INFO,
    None,
    None,
    None,
    FieldSet::new(&[names::LINE_FIELD], Identifier(&Probe)),
    Kind::EVENT,
);

impl Callsite for Probe {
    fn set_interest(&self, _: Interest) {}

    fn metadata(&self) -> &Metadata<'_> {
        &PROBE
    }
}
