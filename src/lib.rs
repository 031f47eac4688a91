//! Tells the truth about self-hosted LLM inference: where the engine really put the model, and how fast it really
//! decodes.

pub mod alarm;
pub mod catalog;
pub mod engines;
pub mod evidence;
pub mod lane;
pub mod layer;
pub mod observer;
#[cfg(feature = "otlp")]
pub mod otlp;
#[cfg(feature = "output")]
pub mod output;
pub mod placement;
pub mod span_ext;
pub mod telemetry;
pub mod throughput;
pub mod timings;
pub mod wedge;
