//! Tells the truth about self-hosted LLM inference.

pub mod alarm;
pub mod evidence;
pub mod lane;
pub mod placement;
pub mod throughput;
pub mod wedge;
