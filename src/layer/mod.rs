//! The `tracing` layer.
mod handle;
pub use handle::{Lane, LaneSnapshot};
