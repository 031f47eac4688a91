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
    target: Option<String>,
}

/// What an engine event holds.
#[derive(Debug)]
pub(super) struct Heard {
    /// The line or lines.
    pub(super) text: Option<String>,
    /// The lane's name, if the event has one.
    pub(super) lane: Option<String>,
    /// The record's own target, if the event is one of the `log` crate: those all have the target `log`.
    pub(super) target: Option<String>,
}

impl LineVisitor {
    pub(super) fn into_heard(self) -> Heard {
        let lane = self.lane.filter(|lane| !lane.is_empty());
        Heard { text: self.line.or(self.message), lane, target: self.target }
    }

    fn slot(&mut self, field: &Field) -> Option<&mut Option<String>> {
        match field.name() {
            names::LINE_FIELD => Some(&mut self.line),
            "message" => Some(&mut self.message),
            names::LANE_FIELD | names::LANE_NAME => Some(&mut self.lane),
            names::LOG_TARGET_FIELD => Some(&mut self.target),
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

/// A value as its `Debug` prints it, a string without the quotes of that. A value that fails to print is no line of an
/// engine.
fn formatted(value: &dyn fmt::Debug) -> Option<String> {
    let mut text = String::new();
    write!(text, "{value:?}").ok()?;
    Some(unquoted(&text).unwrap_or(text))
}

/// The string that `Debug` printed as `quoted`; `None` when it is not one. `line = ?line` means the line.
fn unquoted(quoted: &str) -> Option<String> {
    let mut inner = quoted.strip_prefix('"')?.strip_suffix('"')?.chars();
    let mut text = String::with_capacity(quoted.len());
    while let Some(character) = inner.next() {
        text.push(match character {
            '"' => return None,
            '\\' => match inner.next()? {
                'n' => '\n',
                'r' => '\r',
                't' => '\t',
                '0' => '\0',
                'u' => {
                    let code: String = inner.by_ref().take_while(|it| *it != '}').collect();
                    char::from_u32(u32::from_str_radix(code.strip_prefix('{')?, 16).ok()?)?
                }
                plain @ ('\\' | '"' | '\'') => plain,
                _ => return None,
            },
            plain => plain,
        });
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_string_is_read_back_from_its_debug_form() {
        for text in ["", "plain", "\"quoted\" \\ it's", "\u{1b}[0m\t\r\n\0", "\u{fffd} é \u{301}"]
        {
            assert_eq!(formatted(&text).as_deref(), Some(text), "{text:?}");
        }
        for other in
            ["\"", "\"a\" and \"b\"", "{\"json\": 1}", "no quotes", r#""\q""#, r#""\u{zz}""#]
        {
            assert_eq!(formatted(&format_args!("{other}")).as_deref(), Some(other));
        }
    }
}
