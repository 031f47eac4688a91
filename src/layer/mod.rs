//! The `tracing` layer: hears engine lines and requests, hands them to the lanes, and has findings told.
//!
//! `registry().with(SentinelLayer::default())` works without further set-up, at any place among other layers.

mod blind;
mod builder;
mod entry;
pub(crate) mod filter;
mod handle;
mod hub;
mod load_span;
mod meters;
mod queue;
mod request;
mod teller;
mod visitors;

use std::any::TypeId;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Dispatch, Event, Metadata, Subscriber};
use tracing_opentelemetry::get_otel_context;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{Filtered, LevelFilter};
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use crate::layer::filter::SentinelFilter;
use crate::layer::visitors::{Heard, LineVisitor, RequestVisitor};
use crate::telemetry::names;

pub use crate::telemetry::instruments::DroppedKind;
pub use builder::SentinelLayerBuilder;
#[cfg(feature = "readback")]
pub(crate) use handle::WeakLane;
pub use handle::{Lane, LaneSnapshot, flush};
pub(crate) use hub::Hub;
pub(crate) use request::Request;

/// A `tracing` layer that watches inference engines: their lines, and the requests sent to them.
///
/// ```
/// use serving_sentinel::layer::SentinelLayer;
/// use tracing_subscriber::layer::SubscriberExt;
///
/// let subscriber = tracing_subscriber::registry().with(SentinelLayer::default());
/// # drop(subscriber);
/// ```
///
/// It hears its engine targets ([`SentinelLayerBuilder::engine_target`]) and spans that have a field
/// `serving.lane.name`, by a per-layer filter of its own. So it wakes no event that nobody else wants, and takes none
/// from its neighbours, wherever it stands among them. Two wrappers hide it: inside a `reload::Layer` no lane finds it,
/// and a *global* filter decides for all layers; both are told as `serving.sentinel.blind`.
///
/// Spans of its own (`serving.load`, the requests of [`Lane::request_span`]) have the level ERROR, so that a log filter
/// such as `warn` does not remove them. A span's level says nothing of its outcome.
pub struct SentinelLayer<S> {
    inner: Filtered<Watcher, SentinelFilter, S>,
}

impl<S> SentinelLayer<S>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
{
    fn new(hub: Arc<Hub>) -> Self {
        let filter = SentinelFilter::new(hub.settings.targets.clone());
        let watcher = Watcher { hub, find: find::<S> };
        Self { inner: Filtered::new(watcher, filter) }
    }
}

impl SentinelLayer<()> {
    /// Sets up a layer other than [`SentinelLayer::default`].
    pub fn builder() -> SentinelLayerBuilder {
        SentinelLayerBuilder::default()
    }
}

impl<S> Default for SentinelLayer<S>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
{
    fn default() -> Self {
        SentinelLayerBuilder::default().build()
    }
}

impl<S> fmt::Debug for SentinelLayer<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SentinelLayer").field("filter", self.inner.filter()).finish_non_exhaustive()
    }
}

// === The wrapper: every method goes to the filtered layer ===

impl<S> Layer<S> for SentinelLayer<S>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
{
    fn on_register_dispatch(&self, subscriber: &Dispatch) {
        self.inner.on_register_dispatch(subscriber);
    }

    fn on_layer(&mut self, subscriber: &mut S) {
        self.inner.on_layer(subscriber);
    }

    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        self.inner.register_callsite(metadata)
    }

    fn enabled(&self, metadata: &Metadata<'_>, ctx: Context<'_, S>) -> bool {
        self.inner.enabled(metadata, ctx)
    }

    fn event_enabled(&self, event: &Event<'_>, ctx: Context<'_, S>) -> bool {
        self.inner.event_enabled(event, ctx)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        self.inner.max_level_hint()
    }

    fn on_new_span(&self, attrs: &Attributes<'_>, id: &Id, ctx: Context<'_, S>) {
        self.inner.on_new_span(attrs, id, ctx);
    }

    fn on_record(&self, span: &Id, values: &Record<'_>, ctx: Context<'_, S>) {
        self.inner.on_record(span, values, ctx);
    }

    fn on_follows_from(&self, span: &Id, follows: &Id, ctx: Context<'_, S>) {
        self.inner.on_follows_from(span, follows, ctx);
    }

    fn on_event(&self, event: &Event<'_>, ctx: Context<'_, S>) {
        self.inner.on_event(event, ctx);
    }

    fn on_enter(&self, id: &Id, ctx: Context<'_, S>) {
        self.inner.on_enter(id, ctx);
    }

    fn on_exit(&self, id: &Id, ctx: Context<'_, S>) {
        self.inner.on_exit(id, ctx);
    }

    fn on_close(&self, id: Id, ctx: Context<'_, S>) {
        self.inner.on_close(id, ctx);
    }

    fn on_id_change(&self, old: &Id, new: &Id, ctx: Context<'_, S>) {
        self.inner.on_id_change(old, new, ctx);
    }

    #[expect(unsafe_code, reason = "`tracing` finds a layer, and its filter, by this method alone")]
    unsafe fn downcast_raw(&self, id: TypeId) -> Option<*const ()> {
        if id == TypeId::of::<Self>() {
            return Some(std::ptr::from_ref(self).cast());
        }
        // SAFETY: `inner` gives a pointer to what it holds and to the type asked for; `inner` is part of `self`, and
        // so lives as long as the caller's borrow of `self`, which is what the method requires.
        unsafe { self.inner.downcast_raw(id) }
    }
}

// === The layer behind the filter ===

/// What callbacks come to. It knows nothing of the subscriber's type, so that any `Dispatch` can be asked for it.
pub(crate) struct Watcher {
    hub: Arc<Hub>,
    find: FindRequest,
}

/// The fields of a span that has not named its lane yet.
#[derive(Debug, Default)]
struct EarlyFields(Vec<&'static str>);

/// Finds the request that a span is of: itself or one of its parents, with that span's id.
type FindRequest = fn(&Dispatch, &Id) -> Option<(Id, Arc<Request>)>;

impl Watcher {
    /// The lanes' side.
    pub(crate) fn hub(&self) -> &Arc<Hub> {
        &self.hub
    }

    /// The request that the span `id` is of, itself or one of its parents, and that span's id.
    pub(crate) fn request(&self, dispatch: &Dispatch, id: &Id) -> Option<(Id, Arc<Request>)> {
        (self.find)(dispatch, id)
    }

    /// A span names its lane, at its start or later: it is a request.
    fn adopt<S>(&self, id: &Id, seen: RequestVisitor, ctx: &Context<'_, S>)
    where
        S: Subscriber + for<'span> LookupSpan<'span>,
    {
        let Some(span) = ctx.span(id) else { return };
        if self.hub.is_shadowed() {
            return;
        }
        let known = span.extensions().get::<Arc<Request>>().cloned();
        if let Some(request) = known {
            return request.has_fields(seen.fields);
        }
        let EarlyFields(mut fields) = span.extensions_mut().remove().unwrap_or_default();
        fields.extend(seen.fields);
        let named = seen.lane.filter(|name| !name.is_empty());
        let Some(lane) = named.and_then(|name| self.hub.lane(&name)) else {
            span.extensions_mut().replace(EarlyFields(fields));
            return;
        };
        let request = Request::start(&self.hub, &lane, id.clone(), seen.operation.as_deref());
        request.has_fields(fields);
        span.extensions_mut().replace(request);
    }

    /// Keeps the span's OpenTelemetry context, for the trace id of what may be told of it. Asking for it starts the
    /// OpenTelemetry span, after which it takes no other parent: so not before the span is in use.
    fn keep_context<S>(
        &self,
        id: &Id,
        ctx: &Context<'_, S>,
        is_time: impl FnOnce(&Metadata<'_>) -> bool,
    ) where
        S: Subscriber + for<'span> LookupSpan<'span>,
    {
        let Some(span) = ctx.span(id) else { return };
        let Some(request) = span.extensions().get::<Arc<Request>>().cloned() else { return };
        if request.context().is_some() || !is_time(span.metadata()) {
            return;
        }
        let Some(dispatch) = self.hub.dispatch() else { return };
        if let Some(context) = get_otel_context(id, &dispatch) {
            request.set_context(context);
        }
    }
}

fn find<S>(dispatch: &Dispatch, id: &Id) -> Option<(Id, Arc<Request>)>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
{
    let span = dispatch.downcast_ref::<S>()?.span(id)?;
    span.scope().find_map(|span| {
        let request = span.extensions().get::<Arc<Request>>()?.clone();
        Some((span.id(), request))
    })
}

impl<S> Layer<S> for Watcher
where
    S: Subscriber + for<'span> LookupSpan<'span>,
{
    fn on_layer(&mut self, subscriber: &mut S) {
        let inner: &dyn Subscriber = subscriber;
        if let Some(other) = inner.downcast_ref::<Self>() {
            other.hub.shadow();
        }
    }

    fn on_register_dispatch(&self, subscriber: &Dispatch) {
        self.hub.know(&subscriber.downgrade());
        // Events of a target that the caller named may be hidden before they ever open a lane: somebody has to look.
        let is_asked_for =
            self.hub.settings.targets.iter().any(|target| target != names::ENGINE_TARGET);
        if is_asked_for && !self.hub.is_shadowed() {
            self.hub.start();
        }
    }

    fn on_new_span(&self, attrs: &Attributes<'_>, id: &Id, ctx: Context<'_, S>) {
        let mut seen = RequestVisitor::default();
        attrs.record(&mut seen);
        self.adopt(id, seen, &ctx);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, ctx: Context<'_, S>) {
        let mut seen = RequestVisitor::default();
        values.record(&mut seen);
        self.adopt(id, seen, &ctx);
    }

    fn on_event(&self, event: &Event<'_>, ctx: Context<'_, S>) {
        if self.hub.is_shadowed() {
            return;
        }
        let mut seen = LineVisitor::default();
        event.record(&mut seen);
        let Heard { text, lane: named, target: logged } = seen.into_heard();
        let metadata = event.metadata();
        let target = match &logged {
            Some(logged) if metadata.target() == names::LOG_TARGET => logged,
            _ => metadata.target(),
        };
        self.hub.heard(target, *metadata.level());
        let Some(text) = text else { return };
        let of_scope = || {
            let mut scope = ctx.event_scope(event)?;
            scope.find_map(|span| {
                span.extensions().get::<Arc<Request>>().map(|request| request.lane().clone())
            })
        };
        let lane = match named {
            Some(name) => self.hub.lane(&name),
            None => of_scope().or_else(|| self.hub.lane(target)),
        };
        if let Some(lane) = lane {
            self.hub.observe(&lane, text.as_bytes());
        }
    }

    fn on_enter(&self, id: &Id, ctx: Context<'_, S>) {
        // A span of ours is given its parent before it is entered: that is documented.
        self.keep_context(id, &ctx, |metadata| metadata.name() == names::REQUEST_SPAN);
    }

    fn on_exit(&self, id: &Id, ctx: Context<'_, S>) {
        // Other spans may be given theirs from the inside.
        self.keep_context(id, &ctx, |_| true);
    }

    fn on_close(&self, id: Id, ctx: Context<'_, S>) {
        let Some(span) = ctx.span(&id) else { return };
        let request = span.extensions_mut().remove::<Arc<Request>>();
        if let Some(request) = request {
            request.end(&self.hub);
        }
    }
}

/// The time. This crate's edges read it here, and hand it to the core.
#[expect(
    clippy::disallowed_methods,
    reason = "the layer is an edge: the core is handed its clock from here"
)]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// When a wait of at most `timeout` is over. One that is longer than the clock can tell is over in a year.
pub(crate) fn deadline(timeout: Duration) -> Instant {
    const FAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);
    let now = now();
    now.checked_add(timeout).unwrap_or_else(|| now + FAR)
}

/// Locks. A lock that a panic has poisoned is entered: what it guards is never left half changed.
pub(crate) fn enter<T: ?Sized>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}
