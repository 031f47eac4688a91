//! From OTLP to the screens: the configurations of `collector-config/` in a real OpenTelemetry Collector, a real Jaeger
//! and a real Prometheus, asked by their own APIs.
//!
//! Needs `SENTINEL_STACK_HOME`, the folder that `.ci/stack` prints, and for the runs of a real engine
//! `SENTINEL_ENGINE_HOME`, the one that `.ci/engine` prints.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a test fails by panicking and prints what it measured"
)]
#![allow(clippy::disallowed_methods, reason = "a test reads its clock")]

#[path = "../support/engine_home.rs"]
mod engine_home;
#[path = "../support/gateway.rs"]
mod gateway;

mod collector;
mod dashboard;
mod fleet;
mod jaeger;
mod no_rust;
mod program;
mod prometheus;
mod stack;
mod web;
