//! The telemetry contract on the wire: the gateway example plays four recorded engines, and what a collector received
//! is held against the recordings and the contract.
//!
//! One run over gRPC, and each test looks at one side of it; a shorter one over HTTP.

#![cfg(all(unix, feature = "otlp", feature = "output"))]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::float_cmp,
    reason = "tests: what is exported is exact, and its absence is a failure"
)]

mod alarms;
mod contract;
mod facts;
mod http;
mod loads;
mod metrics;
mod origin;
mod private;
mod recording;
mod requests;
mod run;

#[path = "../support/gateway.rs"]
mod gateway;
#[path = "../support/otlp.rs"]
mod otlp;
#[path = "../support/wire.rs"]
mod wire;

/// A lane of the run: its name, its recording, and which of the recorded requests are played.
pub(crate) struct Lane {
    pub(crate) name: &'static str,
    pub(crate) run: &'static str,
    pub(crate) requests: &'static [usize],
}

pub(crate) const HEALTHY: Lane =
    Lane { name: "healthy", run: "on-device-healthy", requests: &[0, 1, 2] };
pub(crate) const LYING: Lane =
    Lane { name: "lying-banner", run: "no-gpu-banner-lies", requests: &[0, 1, 2] };
pub(crate) const SILENT: Lane =
    Lane { name: "silent", run: "default-verbosity-silent", requests: &[0, 1, 2] };
pub(crate) const COLLAPSING: Lane =
    Lane { name: "collapsing", run: "decode-collapses", requests: &[0, 1, 2, 3, 6] };
pub(crate) const LANES: [&Lane; 4] = [&HEALTHY, &LYING, &SILENT, &COLLAPSING];

pub(crate) const MODEL: &str = "gemma-3-270m-q4_k_m";
pub(crate) const REQUEST: &str = "chat gemma-3-270m-q4_k_m";
pub(crate) const LOAD: &str = "serving.load";
pub(crate) const EXPECTED_RATE: f64 = 85.0;
pub(crate) const EXPECTATION_SOURCE: &str = "measured on this recording's machine";
