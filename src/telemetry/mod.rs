//! Findings become signals: span events, alarms, metrics. Every name of the contract stands in [`names`].

pub(crate) mod alarms;
pub(crate) mod gauges;
pub(crate) mod instruments;
pub mod names;
pub(crate) mod span_events;
