//! What does a request cost that gives its timings, with all its metrics, beside one record of one histogram?

use std::hint::black_box;
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::metrics::MeterProvider as _;
use opentelemetry_sdk::metrics::{InMemoryMetricExporter, SdkMeterProvider};
use opentelemetry_sdk::trace::SdkTracerProvider;
use serving_sentinel::lane::LaneConfig;
use serving_sentinel::layer::{Lane, SentinelLayer};
use serving_sentinel::placement::Plan;
use serving_sentinel::span_ext::SpanExt as _;
use serving_sentinel::throughput::Timings;
use tracing::dispatcher::with_default;
use tracing::{Dispatch, Span};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry;

mod support;

const ANSWER: &[u8] = br#"{"id":"chatcmpl-1","model":"gemma-3-270m","choices":[{"finish_reason":"length"}],
"usage":{"completion_tokens":48,"prompt_tokens":30,"total_tokens":78,"prompt_tokens_details":{"cached_tokens":25}},
"timings":{"cache_n":25,"prompt_n":5,"prompt_ms":31.497,"prompt_per_second":158.745,"predicted_n":48,
"predicted_ms":561.165,"predicted_per_second":83.754}}"#;

fn lane(dispatch: &Dispatch) -> Result<Lane, Box<dyn std::error::Error>> {
    let config = LaneConfig::new("chat-0")
        .with_engine("llama.cpp")
        .with_model("gemma-3-270m")
        .with_plan(Plan::GPU)
        .with_expected_rate(85.0, "a bench")?;
    Ok(with_default(dispatch, || {
        let lane = Lane::open(config);
        for line in
            include_str!("../tests/fixtures/recordings/llama-server-remote-gpu-19-of-19.stderr.log")
                .lines()
        {
            lane.observe_line(line.as_bytes());
        }
        lane
    }))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut criterion = support::criterion();
    let timings = Timings::from_response(ANSWER)?;
    let meters = || {
        SdkMeterProvider::builder()
            .with_periodic_exporter(InMemoryMetricExporter::default())
            .build()
    };

    let (one, of_layer, of_spans) = (meters(), meters(), meters());
    let histogram = one.meter("bench").f64_histogram("serving.decode.rate").build();
    let attributes = [
        KeyValue::new("serving.lane.name", "chat-0"),
        KeyValue::new("serving.engine.name", "llama.cpp"),
        KeyValue::new("gen_ai.request.model", "gemma-3-270m"),
        KeyValue::new("serving.timing.source", "engine_response"),
    ];
    let sentinel = || SentinelLayer::builder();
    let alone = Dispatch::new(registry().with(sentinel().meter_provider(of_layer.clone()).build()));
    let tracer = opentelemetry::trace::TracerProvider::tracer(
        &SdkTracerProvider::builder().build(),
        "bench",
    );
    let with_spans = Dispatch::new(
        registry()
            .with(tracing_opentelemetry::layer().with_tracer(tracer))
            .with(sentinel().meter_provider(of_spans.clone()).build()),
    );
    let (lane_alone, lane_spans) = (lane(&alone)?, lane(&with_spans)?);

    // A program's metrics are collected every now and then.
    for (lane, meters) in [(&lane_alone, &of_layer), (&lane_spans, &of_spans)] {
        told(lane);
        meters.force_flush()?;
    }

    support::Question::new("record_timings")
        .contender("one_histogram_record", || {
            histogram.record(black_box(83.754), black_box(&attributes));
        })
        // What the caller waits for: most records are made by the sentinel's own thread, or by the next collection.
        .batched("caller", false, || request(&alone, &lane_alone), |span| record(span, &timings), || told(&lane_alone))
        // The same, until the last record is made, by whatever thread.
        .batched("until_told", true, || request(&alone, &lane_alone), |span| record(span, &timings), || told(&lane_alone))
        .batched(
            "caller_with_span_attributes",
            false,
            || request(&with_spans, &lane_spans),
            |span| record(span, &timings),
            || told(&lane_spans),
        )
        .ask(&mut criterion);
    criterion.final_summary();
    Ok(())
}

fn request(dispatch: &Dispatch, lane: &Lane) -> Span {
    with_default(dispatch, || lane.request_span("chat"))
}

fn record(span: &Span, timings: &Timings) {
    black_box(span.record_timings(black_box(timings)));
}

fn told(lane: &Lane) {
    assert!(lane.flush(Duration::from_secs(10)), "all is told");
}
