//! Every name that leaves this crate: dashboards, alert rules and trace searches are built on them.
//!
//! A change here is a breaking change. Nothing else in the code spells a name out.

use crate::lane::{AlarmKind, SpanEvent};

/// The target of this crate's own spans and alarms.
pub const TARGET: &str = "serving_sentinel";
/// The target of the events that carry one engine line each.
pub const ENGINE_TARGET: &str = "serving_sentinel::engine";
/// The metadata name of the events that the output reader says for the user's own log. The layer passes over them:
/// it was handed those lines already.
pub const LINE_EVENT: &str = "serving.engine.line";
/// The field of an engine event that holds the line; without it, the message is the line.
pub const LINE_FIELD: &str = "line";
/// The target of all events that the bridge from the `log` crate says, and the field that holds the record's own.
pub const LOG_TARGET: &str = "log";
/// See [`LOG_TARGET`].
pub const LOG_TARGET_FIELD: &str = "log.target";
/// The short form of [`LANE_NAME`] as a field of an engine event.
pub const LANE_FIELD: &str = "lane";
/// The instrumentation scope of all metrics.
pub const SCOPE: &str = "serving-sentinel";
/// The semantic conventions that the `gen_ai.*` names follow.
pub const SCHEMA_URL: &str = "https://opentelemetry.io/schemas/1.41.0";

// === Spans ===

/// One load of one model, from its start to its verdict.
pub const LOAD_SPAN: &str = "serving.load";
/// One request, as `tracing` knows it. In OpenTelemetry it is named `{operation} {model}`.
pub const REQUEST_SPAN: &str = "serving.request";
/// Gives a `tracing` span another name in OpenTelemetry.
pub const OTEL_NAME: &str = "otel.name";
/// Gives a `tracing` span its kind in OpenTelemetry.
pub const OTEL_KIND: &str = "otel.kind";
/// The kind of a request span.
pub const OTEL_KIND_CLIENT: &str = "client";

// === Span events and alarms ===

/// A GPU was planned, and no weights are on one.
pub const CPU_FALLBACK: &str = "serving.placement.cpu_fallback";
/// A smaller share on accelerators than the plan's minimum.
pub const PARTIAL: &str = "serving.placement.partial";
/// Nothing was said from which placement could be judged.
pub const UNREPORTED: &str = "serving.placement.unreported";
/// A later load keeps the plan again.
pub const PLACEMENT_RECOVERED: &str = "serving.placement.recovered";
/// A decode rate under the floor.
pub const DEGRADED: &str = "serving.throughput.degraded";
/// The rate is at or over the floor again.
pub const THROUGHPUT_RECOVERED: &str = "serving.throughput.recovered";
/// No progress past the budget, or an impossible one.
pub const WEDGED: &str = "serving.engine.wedged";
/// Loading failed.
pub const LOAD_FAILED: &str = "serving.engine.load_failed";
/// The engine calls itself a debug build.
pub const DEBUG_BUILD: &str = "serving.engine.debug_build";
/// The sentinel itself cannot see.
pub const BLIND: &str = "serving.sentinel.blind";

/// The event name of an alarm that stands.
pub const fn alarm(kind: AlarmKind) -> &'static str {
    match kind {
        AlarmKind::CpuFallback => CPU_FALLBACK,
        AlarmKind::Partial => PARTIAL,
        AlarmKind::Unreported => UNREPORTED,
        AlarmKind::Degraded => DEGRADED,
        AlarmKind::Wedged => WEDGED,
        AlarmKind::LoadFailed => LOAD_FAILED,
        AlarmKind::DebugBuild => DEBUG_BUILD,
        AlarmKind::Blind => BLIND,
    }
}

/// The name of a span event.
pub const fn span_event(event: SpanEvent) -> &'static str {
    match event {
        SpanEvent::Fault(kind) => alarm(kind),
        SpanEvent::PlacementRecovered => PLACEMENT_RECOVERED,
        SpanEvent::ThroughputRecovered => THROUGHPUT_RECOVERED,
    }
}

// === Attributes ===

/// The lane: one engine process serving one model.
pub const LANE_NAME: &str = "serving.lane.name";
/// `llama.cpp`, `ollama`, `vllm`, ...
pub const ENGINE_NAME: &str = "serving.engine.name";
/// `gpu`, `cpu`, `unknown`.
pub const PLAN: &str = "serving.placement.plan";
/// The plan's minimum, where it states one.
pub const MINIMUM_SHARE: &str = "serving.placement.minimum_share";
/// `gpu`, `partial`, `cpu`, `cpu_fallback`, `unreported`.
pub const VERDICT: &str = "serving.placement.verdict";
/// The strongest evidence the verdict rests on.
pub const BASIS: &str = "serving.placement.basis";
/// The weaker claim that the evidence refutes.
pub const CONTRADICTED: &str = "serving.placement.contradicted";
/// Layers offloaded, as the banner states.
pub const LAYERS_OFFLOADED: &str = "serving.placement.layers.offloaded";
/// Layers there are, as the banner states.
pub const LAYERS_TOTAL: &str = "serving.placement.layers.total";
/// Model weights on accelerators, in bytes.
pub const BYTES_ACCELERATOR: &str = "serving.placement.bytes.accelerator";
/// Model weights in host memory, in bytes.
pub const BYTES_HOST: &str = "serving.placement.bytes.host";
/// The most likely cause.
pub const CAUSE: &str = "serving.cause";
/// All causes, most likely first.
pub const CAUSES: &str = "serving.causes";
/// The engine's own words for the cause.
pub const CAUSE_DETAIL: &str = "serving.cause_detail";
/// What to do about it.
pub const ADVICE: &str = "serving.advice";
/// The expected rate's source.
pub const EXPECTATION_SOURCE: &str = "serving.expectation.source";
/// Whose clock measured.
pub const TIMING_SOURCE: &str = "serving.timing.source";
/// Decoded tokens in the sample.
pub const DECODE_TOKENS: &str = "serving.decode.tokens";
/// Standing facts that can explain a degraded rate.
pub const SUSPECTS: &str = "serving.suspects";
/// Why the sentinel cannot see.
pub const BLIND_CAUSE: &str = "serving.blind.cause";
/// The slot that is wedged.
pub const SLOT: &str = "serving.slot";
/// `raised`, `renewed`, `cleared`, `expired`.
pub const ALARM_STATE: &str = "serving.alarm.state";
/// An alarm's event name, as an attribute of [`ALARMS_ACTIVE`].
pub const ALARM: &str = "serving.alarm";
/// `accelerator`, `host`, `unknown`.
pub const RESIDENCE: &str = "serving.placement.residence";
/// A device's name as the engine prints it.
pub const DEVICE: &str = "serving.device";
/// `model`, `kv`, `compute`.
pub const BUFFER: &str = "serving.buffer";
/// What became of one request's rate.
pub const RATE_VERDICT: &str = "serving.throughput.verdict";
/// `evidence`, `other`.
pub const LINE_KIND: &str = "serving.line.kind";
/// What was dropped.
pub const DROPPED_KIND: &str = "serving.dropped.kind";

/// `chat`, `text_completion`, `embeddings`, ...
pub const OPERATION: &str = "gen_ai.operation.name";
/// `llama_cpp`, `ollama`, `vllm`, ...
pub const PROVIDER: &str = "gen_ai.provider.name";
/// The lane's model as configured.
pub const REQUEST_MODEL: &str = "gen_ai.request.model";
/// The model that answered, in the engine's words. On spans alone.
pub const RESPONSE_MODEL: &str = "gen_ai.response.model";
/// The response's id. On spans alone.
pub const RESPONSE_ID: &str = "gen_ai.response.id";
/// Why the answer ended.
pub const FINISH_REASONS: &str = "gen_ai.response.finish_reasons";
/// Seconds from sending the request to the first piece of content.
pub const TIME_TO_FIRST_CHUNK: &str = "gen_ai.response.time_to_first_chunk";
/// Tokens of the prompt, cached ones among them.
pub const INPUT_TOKENS: &str = "gen_ai.usage.input_tokens";
/// Tokens generated.
pub const OUTPUT_TOKENS: &str = "gen_ai.usage.output_tokens";
/// Prompt tokens taken from a cache.
pub const CACHED_TOKENS: &str = "gen_ai.usage.cache_read.input_tokens";
/// `input`, `output`.
pub const TOKEN_TYPE: &str = "gen_ai.token.type";
/// Prompt tokens, as a value of [`TOKEN_TYPE`].
pub const TOKEN_TYPE_INPUT: &str = "input";
/// Generated tokens, as a value of [`TOKEN_TYPE`].
pub const TOKEN_TYPE_OUTPUT: &str = "output";
/// Why a request failed.
pub const ERROR_TYPE: &str = "error.type";
/// The value of an attribute whose vocabulary has no word for what is there.
pub const OTHER: &str = "_OTHER";

// === Metrics (some names are attributes too) ===

/// Layers by residence.
pub const LAYERS: &str = "serving.placement.layers";
/// Bytes by device, residence and what they hold.
pub const BYTES: &str = "serving.placement.bytes";
/// 1 for the present verdict, 0 for the others.
pub const STATE: &str = "serving.placement.state";
/// Loads that broke their plan.
pub const PLACEMENT_VIOLATIONS: &str = "serving.placement.violations";
/// Decode rates, tokens/s; also the attribute with one request's. Each value is one request's, but for those of source
/// `interval`: what all running requests of the lane decoded together.
pub const DECODE_RATE: &str = "serving.decode.rate";
/// Measured over expected; also the attribute with one request's.
pub const DECODE_RATIO: &str = "serving.decode.ratio";
/// Prefill rates, tokens/s.
pub const PREFILL_RATE: &str = "serving.prefill.rate";
/// Requests under the floor.
pub const THROUGHPUT_VIOLATIONS: &str = "serving.throughput.violations";
/// Requests by verdict.
pub const THROUGHPUT_JUDGED: &str = "serving.throughput.judged";
/// The rate a lane should reach, tokens/s; also an attribute.
pub const EXPECTED_RATE: &str = "serving.decode.expected_rate";
/// Requests on the lane now; also an attribute.
pub const IN_FLIGHT: &str = "serving.requests.in_flight";
/// 1 for each alarm that stands, 0 for the others.
pub const ALARMS_ACTIVE: &str = "serving.alarms.active";
/// Engine lines seen.
pub const LINES: &str = "serving.sentinel.lines";
/// Engine lines cut for their length.
pub const TRUNCATED: &str = "serving.sentinel.truncated";
/// What a full queue did not take.
pub const DROPPED: &str = "serving.sentinel.dropped";
/// Seconds during which the sentinel could not see.
pub const UNSEEN: &str = "serving.sentinel.unseen";
/// Model-server latency of one request, as in the conventions for generative AI.
pub const SERVER_REQUEST_DURATION: &str = "gen_ai.server.request.duration";
/// Queue and prefill of one request, as in the conventions for generative AI.
pub const SERVER_TIME_TO_FIRST_TOKEN: &str = "gen_ai.server.time_to_first_token";
/// Decode time per token of one request, as in the conventions for generative AI.
pub const SERVER_TIME_PER_OUTPUT_TOKEN: &str = "gen_ai.server.time_per_output_token";
/// Tokens of one request by type, as in the conventions for generative AI.
pub const CLIENT_TOKEN_USAGE: &str = "gen_ai.client.token.usage";
