//! The sentinel among other layers: wherever it stands, it sees what it must, and everyone else still sees what they
//! saw without it.

#![allow(
    clippy::unwrap_used,
    clippy::float_cmp,
    reason = "tests: what is exported is exact, and its absence is a failure"
)]

mod support;

use std::fmt::{Debug, Write as _};
use std::sync::{Arc, Mutex};

use serving_sentinel::lane::LaneConfig;
use serving_sentinel::layer::{Lane, SentinelLayer};
use serving_sentinel::placement::Plan;
use serving_sentinel::span_ext::SpanExt as _;
use serving_sentinel::throughput::{TimingSource, Timings, TokensPerSecond};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing::{Dispatch, Event, Metadata, Subscriber, debug, info, info_span, warn};
use tracing_subscriber::filter::{EnvFilter, LevelFilter, filter_fn};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::{Registry, fmt, registry};

use support::memory::{Providers, SOON, attributes};
use support::{feed, load_of};

// === A neighbour that notes all it sees ===

#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Vec<String>>>);

impl Notes {
    fn note(&self, what: String) {
        self.0.lock().unwrap().push(what);
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = write!(self.0, " {field}={value:?}");
    }
}

impl<S: Subscriber> Layer<S> for Notes {
    fn on_new_span(&self, attrs: &Attributes<'_>, _: &Id, _: Context<'_, S>) {
        let mut text =
            Text(format!("span {} {}", attrs.metadata().target(), attrs.metadata().name()));
        attrs.record(&mut text);
        self.note(text.0);
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut text =
            Text(format!("event {} {}", event.metadata().level(), event.metadata().target()));
        event.record(&mut text);
        self.note(text.0);
    }
}

// === Arrangements ===

fn is_span(metadata: &Metadata<'_>) -> bool {
    metadata.is_span()
}

/// How layers stand. Each is built with and without the sentinel.
type Arrange = fn(&Providers, &Notes, Option<SentinelLayer<Registry>>) -> Dispatch;

/// A sentinel that stands on other layers than the bare registry has their type in its own, so each arrangement makes
/// its own one, when the first of them is there at all.
macro_rules! arrange {
    ($($layer:expr),* $(,)?) => {
        registry()$(.with($layer))*.into()
    };
}

const ARRANGEMENTS: &[(&str, Arrange)] = &[
    ("innermost", |providers, notes, sentinel| {
        arrange![sentinel, providers.otel(), providers.bridge(), notes.clone()]
    }),
    ("outermost", |providers, notes, sentinel| {
        let sentinel = sentinel.map(|_| providers.sentinel());
        arrange![notes.clone(), providers.bridge(), providers.otel(), sentinel]
    }),
    ("in between", |providers, notes, sentinel| {
        let sentinel = sentinel.map(|_| providers.sentinel());
        arrange![notes.clone(), providers.otel(), sentinel, providers.bridge()]
    }),
    ("the span layer sees only warnings", |providers, notes, sentinel| {
        let sentinel = sentinel.map(|_| providers.sentinel());
        arrange![
            notes.clone(),
            providers.otel().with_filter(LevelFilter::WARN),
            sentinel,
            providers.bridge()
        ]
    }),
    ("all neighbours have filters", |providers, notes, sentinel| {
        let sentinel = sentinel.map(|_| providers.sentinel());
        let otel = providers.otel().with_filter(filter_fn(is_span));
        arrange![
            notes.clone().with_filter(LevelFilter::INFO),
            otel,
            sentinel,
            providers.bridge().with_filter(EnvFilter::new("warn")),
        ]
    }),
    ("a global filter lets warnings pass", |providers, notes, sentinel| {
        arrange![
            sentinel,
            providers.otel(),
            providers.bridge(),
            notes.clone(),
            EnvFilter::new("warn")
        ]
    }),
    ("a global filter below", |providers, notes, sentinel| {
        let sentinel = sentinel.map(|_| providers.sentinel());
        arrange![
            EnvFilter::new("warn"),
            providers.otel(),
            providers.bridge(),
            notes.clone(),
            sentinel
        ]
    }),
    ("behind a filter of the user's", |providers, notes, sentinel| {
        let sentinel = sentinel.map(|sentinel| sentinel.with_filter(EnvFilter::new("info")));
        arrange![sentinel, providers.otel(), providers.bridge(), notes.clone()]
    }),
    ("boxed", |providers, notes, sentinel| {
        let sentinel = sentinel
            .map(|sentinel| -> Box<dyn Layer<Registry> + Send + Sync> { Box::new(sentinel) });
        arrange![sentinel, providers.otel(), providers.bridge(), notes.clone()]
    }),
    ("in a list", |providers, notes, sentinel| {
        let mut layers: Vec<Box<dyn Layer<Registry> + Send + Sync>> =
            vec![Box::new(notes.clone()), Box::new(providers.otel()), Box::new(providers.bridge())];
        layers.extend(
            sentinel
                .map(|sentinel| -> Box<dyn Layer<Registry> + Send + Sync> { Box::new(sentinel) }),
        );
        arrange![layers]
    }),
    ("beside a formatter", |providers, notes, sentinel| {
        let log = fmt::layer().with_writer(std::io::sink).with_filter(LevelFilter::INFO);
        let sentinel = sentinel.map(|_| providers.sentinel());
        arrange![log, notes.clone(), providers.otel(), providers.bridge(), sentinel]
    }),
    ("twice", |providers, notes, sentinel| {
        let second = sentinel.as_ref().map(|_| providers.sentinel());
        arrange![sentinel, providers.otel(), providers.bridge(), notes.clone(), second]
    }),
];

// === What goes on in every arrangement ===

/// A program of its own: events at all levels, in and out of spans, engine lines among them.
fn users_program() {
    warn!(number = 1, "outside");
    info_span!("work", item = 7).in_scope(|| {
        info!("inside");
        debug!("detail");
        debug!(target: "serving_sentinel::engine", line = "load_tensors: no line of note");
        let inner = info_span!("inner");
        inner.in_scope(|| warn!("deep"));
    });
    info!("at the end");
}

/// An engine that falls back to the CPU and then decodes slowly, and its request.
fn engine() -> Lane {
    let config = LaneConfig::new("chat-0").with_model("gemma").with_plan(Plan::ALL_ON_GPU);
    let lane = Lane::open(config.with_expected_rate(100.0, "a test").unwrap());
    feed(&lane, &load_of("llama-server-no-gpu-banner-lies.stderr.log"));
    assert!(lane.flush(SOON));
    let mut timings = Timings::new(TimingSource::EngineResponse);
    (timings.decode_tokens, timings.decode_rate) = (Some(48), TokensPerSecond::new(4.0));
    let span = lane.request_span("chat");
    span.in_scope(|| {});
    span.record_timings(&timings);
    lane
}

#[test]
fn the_sentinel_tells_the_same_wherever_it_stands() {
    for (case, arrange) in ARRANGEMENTS {
        let providers = Providers::new();
        let out = providers
            .export(arrange(&providers, &Notes::default(), Some(providers.sentinel())), engine);
        let events = |span: &str| {
            let span = out.spans(span);
            let [span] = span[..] else {
                panic!("{case}: {} spans among {:#?}", span.len(), out.spans)
            };
            let names = span.events.iter().map(|event| event.name.to_string()).collect::<Vec<_>>();
            (names, attributes(&span.attributes))
        };
        let (load, described) = events("serving.load");
        assert_eq!(load, ["serving.placement.cpu_fallback"], "{case}");
        assert_eq!(described["serving.placement.contradicted"], "banner 19/19", "{case}");
        let (request, described) = events("chat gemma");
        assert_eq!(
            request,
            ["serving.placement.cpu_fallback", "serving.throughput.degraded"],
            "{case}"
        );
        assert_eq!(described["serving.decode.rate"], "4", "{case}");
        for alarm in ["serving.placement.cpu_fallback", "serving.throughput.degraded"] {
            let told = out.records(alarm);
            assert_eq!(told.len(), 1, "{case}: {alarm} among {:#?}", out.records);
            assert!(told[0].trace.is_some(), "{case}: {alarm} leads to no trace");
        }
    }
}

#[test]
fn neighbours_see_what_they_saw_without_the_sentinel() {
    for (case, arrange) in ARRANGEMENTS {
        let [without, with] = [false, true].map(|is_there| {
            let (providers, notes) = (Providers::new(), Notes::default());
            let sentinel = is_there.then(|| providers.sentinel());
            let out = providers.export(arrange(&providers, &notes, sentinel), users_program);
            let spans = out.spans.iter().map(|span| {
                let events =
                    span.events.iter().map(|event| event.name.to_string()).collect::<Vec<_>>();
                format!("{} {events:?}", span.name)
            });
            let records =
                out.records.iter().map(|record| format!("{} {}", record.severity, record.body));
            (notes.take(), spans.collect::<Vec<_>>(), records.collect::<Vec<_>>())
        });
        assert!(!without.0.is_empty(), "{case}: nobody saw anything");
        assert_eq!(with, without, "{case}");
    }
}

#[test]
fn a_neighbour_between_requests_loses_no_event() {
    // Per-layer filters leave marks on a thread: what we do between a program's events must not eat any.
    for (case, arrange) in ARRANGEMENTS {
        let (providers, notes) = (Providers::new(), Notes::default());
        let mut seen = Vec::new();
        providers.export(arrange(&providers, &notes, Some(providers.sentinel())), || {
            let lane = engine();
            for round in 0..3 {
                let request = lane.request_span("chat");
                let _entered = request.enter();
                warn!(round, "of the user");
                lane.observe_line(b"nothing of note");
                request.record_progress();
                warn!(round, "again");
            }
            seen = notes.take();
            lane
        });
        let of_user: Vec<_> = seen.iter().filter(|seen| seen.contains("round=")).collect();
        assert_eq!(of_user.len(), 6, "{case}: {seen:#?}");
    }
}

#[test]
fn two_subscribers_of_one_process_do_not_mix() {
    let told: Vec<_> = ["left", "right"]
        .map(|name| {
            std::thread::spawn(move || {
                let providers = Providers::new();
                let stack = registry().with(providers.otel()).with(providers.sentinel());
                let out = providers.export(stack, || {
                    let lane = Lane::open(LaneConfig::new(name).with_plan(Plan::ALL_ON_GPU));
                    feed(&lane, &load_of("llama-server-no-gpu-banner-lies.stderr.log"));
                    lane
                });
                attributes(&out.span("serving.load").attributes)["serving.lane.name"].clone()
            })
        })
        .map(|thread| thread.join().unwrap())
        .into();
    assert_eq!(told, ["left", "right"]);
}

#[test]
fn a_neighbour_that_panics_silences_nobody() {
    struct Panics;
    impl<S: Subscriber> Layer<S> for Panics {
        fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
            assert!(
                event.metadata().name() != "serving.placement.cpu_fallback",
                "a neighbour's bug"
            );
        }
    }
    let providers = Providers::new();
    let out = providers.export(
        registry()
            .with(providers.otel())
            .with(providers.bridge())
            .with(providers.sentinel())
            .with(Panics),
        engine,
    );
    assert_eq!(out.records("serving.throughput.degraded").len(), 1, "{:#?}", out.records);
    assert_eq!(out.value("serving.sentinel.dropped", &[("serving.dropped.kind", "finding")]), 1.0);
}
