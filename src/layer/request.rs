//! One request in flight: a `tracing` span that names its lane.
//!
//! It is kept in the span's extensions. Whatever touches OpenTelemetry takes the `Arc` out first, so that no span
//! extension is locked meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

use opentelemetry::trace::{SpanRef, Status, TraceContextExt};
use opentelemetry::{Context, Key, KeyValue};
use tracing::span::Id;

use crate::lane::{Facts, Recorded, RequestId};
use crate::layer::entry::{Answer, LaneEntry};
use crate::layer::hub::Hub;
use crate::layer::{enter, now};
use crate::telemetry::instruments::{GenAi, Instruments, known_operation, labels};
use crate::telemetry::{names, span_events};
use crate::throughput::{RateVerdict, Timings};

/// A request on a lane.
#[derive(Debug)]
pub(crate) struct Request {
    lane: Arc<LaneEntry>,
    span: Id,
    id: RequestId,
    operation: &'static str,
    started: Instant,
    /// The lane's attributes when it started: what is added under them is taken away under them.
    labels: Vec<KeyValue>,
    /// The instruments on which it counts as in flight.
    counted: Mutex<Option<Arc<Instruments>>>,
    context: OnceLock<Context>,
    /// The attributes that its OpenTelemetry span has, by what was said of it so far.
    attributes: Mutex<Vec<Key>>,
    is_linked: AtomicBool,
    is_finished: AtomicBool,
}

impl Request {
    /// A request starts. Called inside callbacks.
    pub(super) fn start(
        hub: &Hub,
        lane: &Arc<LaneEntry>,
        span: Id,
        operation: Option<&str>,
    ) -> Arc<Self> {
        let started = now();
        let (id, labels) = hub.act(lane, |observer, out| {
            observer.with_lane(out, |state, _| (state.request_started(started), labels(state)))
        });
        let request = Arc::new(Self {
            lane: lane.clone(),
            span,
            id,
            operation: known_operation(operation),
            started,
            labels,
            counted: Mutex::default(),
            context: OnceLock::new(),
            attributes: Mutex::default(),
            is_linked: AtomicBool::new(false),
            is_finished: AtomicBool::new(false),
        });
        enter(&lane.requests).insert(id, Arc::downgrade(&request));
        if let Some(instruments) = hub.meters.get() {
            request.count_on(&instruments);
        }
        request
    }

    /// The request is over: its span closed. Called inside callbacks.
    pub(super) fn end(&self, hub: &Hub) {
        hub.act(&self.lane, |observer, out| {
            let at = now();
            observer.with_lane(out, |state, findings| state.request_ended(self.id, at, findings));
            // What a request raised after its lane was closed has nobody to end it.
            if self.lane.is_closed.load(Ordering::Relaxed) {
                observer.close(at, out);
            }
        });
        enter(&self.lane.requests).remove(&self.id);
        if let Some(instruments) = enter(&self.counted).take() {
            instruments.in_flight(&self.labels, -1);
        }
    }

    /// Counts it as in flight on these instruments, once.
    pub(super) fn count_on(&self, instruments: &Arc<Instruments>) {
        let mut counted = enter(&self.counted);
        if !counted.as_ref().is_some_and(|on| Arc::ptr_eq(on, instruments)) {
            instruments.in_flight(&self.labels, 1);
            *counted = Some(instruments.clone());
        }
    }

    /// Its span, open as long as the lane knows the request.
    pub(super) fn span(&self) -> &Id {
        &self.span
    }

    /// Its lane.
    pub(super) fn lane(&self) -> &Arc<LaneEntry> {
        &self.lane
    }

    /// Its OpenTelemetry context, once known.
    pub(crate) fn context(&self) -> Option<&Context> {
        self.context.get()
    }

    /// Its OpenTelemetry context is this.
    pub(crate) fn set_context(&self, context: Context) {
        self.context.get_or_init(|| context);
    }

    /// Fields of its `tracing` span were given values: they are attributes.
    pub(super) fn has_fields(&self, fields: Vec<&'static str>) {
        enter(&self.attributes).extend(fields.into_iter().map(Key::from_static_str));
    }

    /// It was linked to its lane's load when its span was made.
    pub(super) fn set_linked(&self) {
        self.is_linked.store(true, Ordering::Relaxed);
    }

    /// A piece of the answer came.
    pub(crate) fn progress(&self, hub: &Hub) {
        hub.act(&self.lane, |observer, out| {
            observer.with_lane(out, |state, _| state.request_progress(self.id, now()));
        });
    }

    /// The answer is there: judges its rate, and tells it on the span, in metrics, by alarms.
    pub(crate) fn record(&self, hub: &Arc<Hub>, timings: Option<&Timings>) -> RateVerdict {
        let at = now();
        let recorded = hub.act(&self.lane, |observer, out| {
            observer.with_lane(out, |state, findings| {
                state.record(Some(self.id), timings, at, findings)
            })
        });
        let told = recorded.timings.as_ref().or(timings);
        let duration = (!self.is_finished.swap(true, Ordering::Relaxed)).then(|| {
            told.and_then(|it| it.duration)
                .unwrap_or_else(|| at.saturating_duration_since(self.started))
        });
        let answer = Answer {
            operation: self.operation,
            judgement: recorded.judgement,
            timings: told.map(Timings::numbers),
            duration,
        };
        if !hub.meters.is_settled() {
            hub.instruments();
        }
        if let Some(answer) = self.lane.answers.keep(answer) {
            // Before the lane is locked: whoever collects has locked the instruments, and waits for the lane.
            let instruments = hub.instruments();
            let observer = enter(&self.lane.observer);
            answer.tell(&instruments, &labels(observer.lane()), observer.lane());
        }
        if let Some(context) = self.context() {
            self.describe(context, &recorded, told);
        }
        recorded.judgement.verdict
    }

    /// It failed.
    pub(crate) fn fail(&self, hub: &Arc<Hub>, error_type: &str) {
        if let Some(context) = self.context() {
            let span = context.span();
            self.set(&span, vec![KeyValue::new(names::ERROR_TYPE, error_type.to_owned())]);
            span.set_status(Status::error(error_type.to_owned()));
        }
        if self.is_finished.swap(true, Ordering::Relaxed) {
            return;
        }
        let gen_ai = hub.act(&self.lane, |observer, _| GenAi::new(observer.lane(), self.operation));
        let duration = now().saturating_duration_since(self.started);
        hub.instruments().finished(&gen_ai, duration, Some(error_type));
    }

    fn describe(&self, context: &Context, recorded: &Recorded, timings: Option<&Timings>) {
        let span = context.span();
        let facts = &recorded.facts;
        // What a trace search asks for. The rest of the lane's facts is on its load span.
        let own = Facts {
            engine: facts.engine.clone(),
            model: facts.model.clone(),
            verdict: facts.verdict,
            decode_rate: facts.decode_rate,
            expected_rate: facts.expected_rate,
            ratio: facts.ratio,
            tokens: facts.tokens,
            in_flight: facts.in_flight,
            timing_source: facts.timing_source,
            ..Facts::default()
        };
        let mut attributes = span_events::attributes(&self.lane.name, &own);
        let provider = facts.engine.as_deref().map(span_events::provider);
        attributes.extend(provider.map(|provider| KeyValue::new(names::PROVIDER, provider)));
        attributes.extend(timings.into_iter().flat_map(span_events::response_attributes));
        self.set(&span, attributes);
        if let Some(load) = self.lane.load_link()
            && !self.is_linked.swap(true, Ordering::Relaxed)
        {
            span.add_link(load, Vec::new());
        }
        for (event, facts) in &recorded.events {
            span_events::add(context, *event, &self.lane.name, facts);
        }
    }

    /// Sets the attributes that the span does not have yet. The SDK would keep, and export, a key as often as it is
    /// set.
    fn set(&self, span: &SpanRef<'_>, mut attributes: Vec<KeyValue>) {
        let mut known = enter(&self.attributes);
        attributes.retain(|attribute| !known.contains(&attribute.key));
        known.extend(attributes.iter().map(|attribute| attribute.key.clone()));
        drop(known);
        span.set_attributes(attributes);
    }
}
