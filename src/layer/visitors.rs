//! Visitors: each reads the few fields the layer needs, borrowed where it can.

use std::fmt;
use std::fmt::Write as _;

use tracing::field::{Field, Visit};

use crate::telemetry::names;

/// Reads an engine event: `info!(target: "my_app::engine", lane = "chat-0", line = %line)`, or the line as message.
#[derive(Debug, Default)]
pub(super) struct LineVisitor {
    line: Option<String>,
    message: Option<String>,
    lane: Option<String>,
}

impl LineVisitor {
    /// The line or lines, and the lane's name if the event has one.
    pub(super) fn into_parts(self) -> (Option<String>, Option<String>) {
        (self.line.or(self.message), self.lane)
    }

    fn slot(&mut self, field: &Field) -> Option<&mut Option<String>> {
        match field.name() {
            names::LINE_FIELD => Some(&mut self.line),
            "message" => Some(&mut self.message),
            names::LANE_FIELD | names::LANE_NAME => Some(&mut self.lane),
            _ => None,
        }
    }
}

impl Visit for LineVisitor {
    fn record_str(&mut self, field: &Field, value: &str) {
        if let Some(slot) = self.slot(field) {
            *slot = Some(value.to_owned());
        }
    }

    fn record_bytes(&mut self, field: &Field, value: &[u8]) {
        if let Some(slot) = self.slot(field) {
            *slot = Some(String::from_utf8_lossy(value).into_owned());
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if let Some(slot) = self.slot(field) {
            *slot = formatted(value);
        }
    }
}

/// Reads a request's span: `info_span!("chat", serving.lane.name = "chat-0", gen_ai.operation.name = "chat")`.
#[derive(Debug, Default)]
pub(super) struct RequestVisitor {
    /// The lane's name; `None` when it is not said yet.
    pub(super) lane: Option<String>,
    /// The operation; `None` when the span has no such field.
    pub(super) operation: Option<String>,
    /// All fields that have a value: they are attributes of its OpenTelemetry span.
    pub(super) fields: Vec<&'static str>,
}

impl Visit for RequestVisitor {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.fields.push(field.name());
        match field.name() {
            names::LANE_NAME => self.lane = Some(value.to_owned()),
            names::OPERATION => self.operation = Some(value.to_owned()),
            _ => {}
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.fields.push(field.name());
        match field.name() {
            names::LANE_NAME => self.lane = formatted(value),
            names::OPERATION => self.operation = formatted(value),
            _ => {}
        }
    }
}

/// A value as its `Debug` prints it. A value that fails to print is no line of an engine.
fn formatted(value: &dyn fmt::Debug) -> Option<String> {
    let mut text = String::new();
    write!(text, "{value:?}").ok().map(|()| text)
}
