//! What is recorded on, with units and bucket boundaries. Made once per meter provider.
//!
//! Per-request ids stay off metrics, and attributes are those of the contract in one fixed order.

use std::sync::{Arc, Weak};
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::metrics::{Counter, Histogram, Meter, UpDownCounter};

use crate::evidence::Cause;
use crate::lane::{BlindCause, LaneState};
use crate::observer::LineKind;
use crate::placement::PlacementVerdict;
use crate::telemetry::gauges::{self, Lanes};
use crate::telemetry::names;
use crate::telemetry::span_events::provider;
use crate::throughput::{RateJudgement, RateVerdict, TimingSource, Timings, TokensPerSecond};

pub(super) const LAYER: &str = "{layer}";
pub(super) const BYTES: &str = "By";
pub(super) const ONE: &str = "1";
const VIOLATION: &str = "{violation}";
pub(super) const TOKENS_PER_SECOND: &str = "{token}/s";
const REQUEST: &str = "{request}";
pub(super) const ALARM: &str = "{alarm}";
const LINE: &str = "{line}";
const ITEM: &str = "{item}";
const SECONDS: &str = "s";
const TOKEN: &str = "{token}";

/// From a wedged CPU to a small model on a large accelerator.
const RATES: [f64; 18] = [
    0.5, 1.0, 2.0, 4.0, 8.0, 12.0, 16.0, 24.0, 32.0, 48.0, 64.0, 96.0, 128.0, 192.0, 256.0, 384.0,
    512.0, 1024.0,
];
/// Fine around 1 and around the default floor.
const RATIOS: [f64; 11] = [0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0, 1.1, 1.5, 2.0];
/// The conventions' boundaries for the duration of a request.
const REQUEST_DURATIONS: [f64; 14] =
    [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92];
/// The conventions' boundaries for the time to the first token.
const FIRST_TOKENS: [f64; 16] =
    [0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0];
/// The conventions' boundaries for the time per output token.
const OUTPUT_TOKENS: [f64; 13] =
    [0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5];
/// The conventions' boundaries for token counts: powers of 4.
const TOKEN_COUNTS: [f64; 14] = [
    1.0,
    4.0,
    16.0,
    64.0,
    256.0,
    1024.0,
    4096.0,
    16384.0,
    65536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
    67_108_864.0,
];

/// The operations the conventions know. Any other is [`names::OTHER`] in metrics, since a caller may take it from a
/// request's path.
const OPERATIONS: [&str; 8] = [
    "chat",
    "text_completion",
    "embeddings",
    "generate_content",
    "retrieval",
    "execute_tool",
    "create_agent",
    "invoke_agent",
];

/// What a full queue, or a full table, did not take: `serving.dropped.kind`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DroppedKind {
    /// A finding, its span event or its alarm.
    Finding,
    /// A lane that nobody opened, beyond the limit of lanes.
    Lane,
    /// A line of engine output, on its way to the log file. It was observed.
    LogLine,
    /// A line of engine output, on its way to the program's own log. It was observed.
    EngineEvent,
}

impl DroppedKind {
    /// Every kind.
    pub(crate) const ALL: [Self; 4] = [Self::Finding, Self::Lane, Self::LogLine, Self::EngineEvent];

    /// The value of `serving.dropped.kind`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Finding => "finding",
            Self::Lane => "lane",
            Self::LogLine => "log_line",
            Self::EngineEvent => "engine_event",
        }
    }
}

/// The attributes of one lane's metrics: lane, engine, model, those that are known.
pub(crate) fn labels(lane: &LaneState) -> Vec<KeyValue> {
    let config = lane.config();
    labels_of(config.name(), lane.engine(), config.model())
}

/// The attributes of a lane that may have ended since: as a finding of it tells them.
pub(crate) fn labels_of(
    name: &Arc<str>,
    engine: Option<&Arc<str>>,
    model: Option<&Arc<str>>,
) -> Vec<KeyValue> {
    let mut labels = vec![KeyValue::new(names::LANE_NAME, name.clone())];
    labels.extend(engine.map(|engine| KeyValue::new(names::ENGINE_NAME, engine.clone())));
    labels.extend(model.map(|model| KeyValue::new(names::REQUEST_MODEL, model.clone())));
    labels
}

/// An operation as metrics name it.
pub(crate) fn known_operation(operation: Option<&str>) -> &'static str {
    OPERATIONS.into_iter().find(|known| Some(*known) == operation).unwrap_or(names::OTHER)
}

/// The attributes of one request's `gen_ai.*` metrics.
#[derive(Clone, Debug)]
pub(crate) struct GenAi(Vec<KeyValue>);

impl GenAi {
    /// Those of a request on `lane`.
    pub(crate) fn new(lane: &LaneState, operation: &'static str) -> Self {
        let provider =
            lane.engine().map_or_else(|| names::OTHER.to_owned(), |engine| provider(engine));
        let mut attributes = vec![
            KeyValue::new(names::OPERATION, operation),
            KeyValue::new(names::PROVIDER, provider),
        ];
        attributes.extend(
            lane.config().model().map(|model| KeyValue::new(names::REQUEST_MODEL, model.clone())),
        );
        Self(attributes)
    }

    fn with(&self, more: KeyValue) -> Vec<KeyValue> {
        with(&self.0, [more])
    }
}

/// All synchronous instruments. The observable ones live in the meter provider.
#[derive(Debug)]
pub(crate) struct Instruments {
    placement_violations: Counter<u64>,
    decode_rate: Histogram<f64>,
    decode_ratio: Histogram<f64>,
    prefill_rate: Histogram<f64>,
    throughput_violations: Counter<u64>,
    throughput_judged: Counter<u64>,
    in_flight: UpDownCounter<i64>,
    lines: Counter<u64>,
    truncated: Counter<u64>,
    dropped: Counter<u64>,
    unseen: Counter<f64>,
    request_duration: Histogram<f64>,
    time_to_first_token: Histogram<f64>,
    time_per_output_token: Histogram<f64>,
    token_usage: Histogram<u64>,
}

impl Instruments {
    /// Makes them all; the observable ones read `lanes` as long as those live.
    pub(crate) fn new(meter: &Meter, lanes: &Weak<dyn Lanes>) -> Self {
        gauges::observe(meter, lanes);
        let counter = |name, unit, what| {
            meter.u64_counter(name).with_unit(unit).with_description(what).build()
        };
        let histogram = |name, unit, boundaries: &[f64], what| {
            let builder =
                meter.f64_histogram(name).with_unit(unit).with_boundaries(boundaries.to_vec());
            builder.with_description(what).build()
        };
        Self {
            placement_violations: counter(
                names::PLACEMENT_VIOLATIONS,
                VIOLATION,
                "Loads that broke their plan.",
            ),
            decode_rate: histogram(
                names::DECODE_RATE,
                TOKENS_PER_SECOND,
                &RATES,
                "Decode rates of requests; with source `interval`, of all running requests together.",
            ),
            decode_ratio: histogram(
                names::DECODE_RATIO,
                ONE,
                &RATIOS,
                "Decode rates over the expected rate.",
            ),
            prefill_rate: histogram(
                names::PREFILL_RATE,
                TOKENS_PER_SECOND,
                &RATES,
                "Prefill rates of requests.",
            ),
            throughput_violations: counter(
                names::THROUGHPUT_VIOLATIONS,
                VIOLATION,
                "Requests under the floor.",
            ),
            throughput_judged: counter(
                names::THROUGHPUT_JUDGED,
                REQUEST,
                "Requests by the verdict on their rate.",
            ),
            in_flight: meter
                .i64_up_down_counter(names::IN_FLIGHT)
                .with_unit(REQUEST)
                .with_description("Requests on the lane now.")
                .build(),
            lines: counter(names::LINES, LINE, "Engine lines seen."),
            truncated: counter(names::TRUNCATED, LINE, "Engine lines cut for their length."),
            dropped: counter(names::DROPPED, ITEM, "What a full queue or table did not take."),
            unseen: meter
                .f64_counter(names::UNSEEN)
                .with_unit(SECONDS)
                .with_description("Time during which the sentinel could not see.")
                .build(),
            request_duration: histogram(
                names::SERVER_REQUEST_DURATION,
                SECONDS,
                &REQUEST_DURATIONS,
                "Generative AI server request duration such as time-to-last byte or last output token.",
            ),
            time_to_first_token: histogram(
                names::SERVER_TIME_TO_FIRST_TOKEN,
                SECONDS,
                &FIRST_TOKENS,
                "Time to generate first token for successful responses.",
            ),
            time_per_output_token: histogram(
                names::SERVER_TIME_PER_OUTPUT_TOKEN,
                SECONDS,
                &OUTPUT_TOKENS,
                "Time per output token generated after the first token for successful responses.",
            ),
            token_usage: meter
                .u64_histogram(names::CLIENT_TOKEN_USAGE)
                .with_unit(TOKEN)
                .with_boundaries(TOKEN_COUNTS.to_vec())
                .with_description("Number of input and output tokens used.")
                .build(),
        }
    }

    /// A load broke its plan.
    pub(crate) fn placement_violated(
        &self,
        lane: &[KeyValue],
        verdict: PlacementVerdict,
        cause: Option<Cause>,
    ) {
        let verdict = KeyValue::new(names::VERDICT, verdict.as_str());
        let cause = cause.map(|cause| KeyValue::new(names::CAUSE, cause.as_str()));
        self.placement_violations.add(1, &with(lane, std::iter::once(verdict).chain(cause)));
    }

    /// One request's rate was judged, whoever told it: a response or the engine's log.
    pub(crate) fn judged(
        &self,
        lane: &[KeyValue],
        timings: Option<&Timings>,
        judgement: RateJudgement,
    ) {
        let verdict = KeyValue::new(names::RATE_VERDICT, judgement.verdict.as_str());
        self.throughput_judged.add(1, &with(lane, [verdict]));
        if judgement.verdict == RateVerdict::Degraded {
            self.throughput_violations.add(1, lane);
        }
        if let Some(ratio) = judgement.ratio {
            self.decode_ratio.record(ratio, lane);
        }
        let Some(timings) = timings else { return };
        let sourced = with(lane, [KeyValue::new(names::TIMING_SOURCE, timings.source.as_str())]);
        if let Some(rate) = timings.decode_rate {
            self.decode_rate.record(rate.get(), &sourced);
        }
        if let Some(rate) = timings.prefill_rate {
            self.prefill_rate.record(rate.get(), &sourced);
        }
    }

    /// An engine logged what all its requests decoded in an interval: a rate of the lane, and no judged request.
    pub(crate) fn interval(
        &self,
        lane: &[KeyValue],
        rate: TokensPerSecond,
        judgement: Option<RateJudgement>,
    ) {
        let source = KeyValue::new(names::TIMING_SOURCE, TimingSource::Interval.as_str());
        self.decode_rate.record(rate.get(), &with(lane, [source]));
        if let Some(ratio) = judgement.and_then(|it| it.ratio) {
            self.decode_ratio.record(ratio, lane);
        }
    }

    /// What the conventions want to know of one answered request.
    pub(crate) fn answered(&self, request: &GenAi, timings: &Timings) {
        if let Some(first) = timings.time_to_first_token {
            self.time_to_first_token.record(first.as_secs_f64(), &request.0);
        }
        if let Some(rate) = timings.decode_rate {
            self.time_per_output_token.record(rate.get().recip(), &request.0);
        }
        let counts = [
            (names::TOKEN_TYPE_INPUT, timings.prompt_tokens),
            (names::TOKEN_TYPE_OUTPUT, timings.decode_tokens),
        ];
        for (kind, tokens) in counts {
            if let Some(tokens) = tokens {
                self.token_usage
                    .record(tokens, &request.with(KeyValue::new(names::TOKEN_TYPE, kind)));
            }
        }
    }

    /// A request is over after `duration`; `error` is its `error.type`, if it failed.
    pub(crate) fn finished(&self, request: &GenAi, duration: Duration, error: Option<&str>) {
        let seconds = duration.as_secs_f64();
        match error {
            None => self.request_duration.record(seconds, &request.0),
            Some(error) => {
                let error = KeyValue::new(names::ERROR_TYPE, error.to_owned());
                self.request_duration.record(seconds, &request.with(error));
            }
        }
    }

    /// Requests come (1) and go (-1).
    pub(crate) fn in_flight(&self, lane: &[KeyValue], change: i64) {
        self.in_flight.add(change, lane);
    }

    /// Lines were seen.
    pub(crate) fn lines(&self, lane: &[KeyValue], kind: LineKind, lines: u64) {
        let kind = match kind {
            LineKind::Evidence => "evidence",
            LineKind::Other => "other",
        };
        self.lines.add(lines, &with(lane, [KeyValue::new(names::LINE_KIND, kind)]));
    }

    /// Lines were cut.
    pub(crate) fn truncated(&self, lane: &[KeyValue], lines: u64) {
        self.truncated.add(lines, lane);
    }

    /// Something was not taken.
    pub(crate) fn dropped(&self, kind: DroppedKind, items: u64) {
        self.dropped.add(items, &[KeyValue::new(names::DROPPED_KIND, kind.as_str())]);
    }

    /// Time passed in blindness.
    pub(crate) fn unseen(&self, lane: &[KeyValue], cause: BlindCause, time: Duration) {
        self.unseen.add(
            time.as_secs_f64(),
            &with(lane, [KeyValue::new(names::BLIND_CAUSE, cause.as_str())]),
        );
    }
}

pub(super) fn with(lane: &[KeyValue], more: impl IntoIterator<Item = KeyValue>) -> Vec<KeyValue> {
    lane.iter().cloned().chain(more).collect()
}

#[cfg(test)]
mod tests;
