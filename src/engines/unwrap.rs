//! Opens a line: its log prefixes, and the JSON that container runtimes and engines put around a message.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::Value;

use super::Service;
use super::prefix::{self, ServiceName};
use super::slog::{self, Structured};

/// JSON in JSON: a container's around a router's around a child's is three.
const DEEPEST: u32 = 4;

/// A line, opened.
#[derive(Debug)]
pub(super) struct Line<'a> {
    /// The messages it holds: one, but for a typed record with rows.
    pub(super) messages: Messages<'a>,
    /// The service that a prefix names.
    pub(super) service: Option<Service>,
    /// Whether something other than the engine or its router wrapped it.
    pub(super) wrapped: bool,
    /// Whether the engine's own prefix, or its own JSON, was around the message.
    pub(super) framed: bool,
    /// The program that runs the engine and put its prefix around its line.
    pub(super) program: Option<&'static str>,
}

/// The messages of a line.
#[derive(Debug)]
pub(super) enum Messages<'a> {
    /// The one message.
    One(Cow<'a, [u8]>),
    /// The rows of a typed record, each as a message.
    Rows(Vec<String>),
}

impl Messages<'_> {
    /// The one message that came out of JSON, without what would be trimmed off a line.
    fn owned(text: &str) -> Self {
        Self::One(Cow::Owned(prefix::trim(text.as_bytes()).to_vec()))
    }

    /// Hands each message to `act`.
    pub(super) fn for_each(&self, mut act: impl FnMut(&[u8])) {
        match self {
            Self::One(message) => act(message),
            Self::Rows(rows) => rows.iter().for_each(|row| act(row.as_bytes())),
        }
    }
}

/// What a JSON line turned out to be.
#[derive(Debug, PartialEq)]
enum Json {
    /// A container runtime's: its content is a line.
    Container(String),
    /// The engine's own (`--log-jsonl`).
    Log {
        /// The message's first line: what follows it is data, such as a template.
        text: String,
        /// Whether the engine only passes it on: a child's line behind its port, or plain output.
        passed_on: bool,
    },
    /// A typed record of the engine.
    Record(Vec<String>),
    /// A server line of 2023 and 2024, put in the form of that time's text: `INFO [main] text | key=value`.
    Server(String),
    /// An event of a Rust program's `tracing`, put in the form of its text: `target: text`.
    Tracing(String),
}

/// Opens `line`. Text that is neither prefix nor known JSON is left as it is.
pub(super) fn open(line: &[u8]) -> Line<'_> {
    match without_colours(line) {
        Cow::Borrowed(line) => open_at(line, 0),
        Cow::Owned(plain) => open_at(&plain, 0).into_owned(),
    }
}

/// Loggers colour words within their lines, not only prefixes. Removes `ESC[..m`.
fn without_colours(line: &[u8]) -> Cow<'_, [u8]> {
    const ESCAPE: u8 = 0x1b;
    if !line.contains(&ESCAPE) {
        return Cow::Borrowed(line);
    }
    let mut plain = Vec::with_capacity(line.len());
    let mut rest = line;
    while let Some((&byte, after)) = rest.split_first() {
        let code = rest.strip_prefix(b"\x1b[").and_then(|code| {
            let end = code.iter().position(|byte| !matches!(byte, b'0'..=b'9' | b';'))?;
            code[end..].strip_prefix(b"m")
        });
        rest = code.unwrap_or_else(|| {
            plain.push(byte);
            after
        });
    }
    Cow::Owned(plain)
}

/// The line as it is, whatever it looks like.
pub(super) fn closed(line: &[u8]) -> Line<'_> {
    Line {
        messages: Messages::One(Cow::Borrowed(line)),
        service: None,
        wrapped: false,
        framed: false,
        program: None,
    }
}

fn open_at(line: &[u8], depth: u32) -> Line<'_> {
    let stripped = prefix::strip(line);
    let mut opened = Line {
        messages: Messages::One(Cow::Borrowed(stripped.message)),
        service: stripped.service.map(Service::from),
        wrapped: stripped.wrapped,
        framed: stripped.framed,
        program: stripped.program,
    };
    // Behind the engine's own prefix a brace is text.
    if stripped.framed || depth == DEEPEST {
        return opened;
    }
    if stripped.message.first() != Some(&b'{') {
        opened.open_structured(stripped.message, depth);
        return opened;
    }
    match parse(stripped.message) {
        None => {}
        Some(Json::Container(content)) => {
            let inner = open_at(content.as_bytes(), depth + 1);
            opened.wrapped = true;
            opened.put_inside(inner);
        }
        Some(Json::Log { text, passed_on: true }) => match prefix::router_child(text.as_bytes()) {
            Some((port, rest)) => {
                opened.service = Some(Service::from(ServiceName::RouterChild(port)));
                let inner = open_at(rest, depth + 1);
                opened.put_inside(inner);
            }
            None => opened.messages = Messages::owned(&text),
        },
        Some(Json::Log { text, passed_on: false }) => {
            opened.messages = Messages::owned(&text);
            opened.framed = true;
        }
        Some(Json::Record(rows)) => {
            opened.messages = Messages::Rows(rows);
            opened.framed = true;
        }
        Some(Json::Server(text) | Json::Tracing(text)) => opened.messages = Messages::owned(&text),
    }
    opened
}

impl Line<'_> {
    fn into_owned(self) -> Line<'static> {
        let messages = match self.messages {
            Messages::One(message) => Messages::One(Cow::Owned(message.into_owned())),
            Messages::Rows(rows) => Messages::Rows(rows),
        };
        Line { messages, ..self }
    }

    /// Opens a structured line of a Go program, where `message` is one.
    fn open_structured(&mut self, message: &[u8], depth: u32) {
        match slog::open(&String::from_utf8_lossy(message)) {
            None => {}
            Some(Structured::Own(text)) => self.messages = Messages::One(text.into_bytes().into()),
            Some(Structured::PassedOn { line, process }) => {
                let inner = open_at(line.as_bytes(), depth + 1);
                self.wrapped = true;
                self.program = Some("localai");
                self.service = Some(Service::Named(process.into())).or(self.service.take());
                self.put_inside(inner);
            }
        }
    }

    /// Whether the line is only the head of lines to come.
    pub(super) fn opens_block(&self) -> bool {
        matches!(&self.messages, Messages::One(message) if message.is_empty())
    }

    /// Takes over what a line within this one holds.
    fn put_inside(&mut self, inner: Line<'_>) {
        let inner = inner.into_owned();
        self.messages = inner.messages;
        self.framed = inner.framed;
        self.wrapped |= inner.wrapped;
        self.program = inner.program.or(self.program);
        if let Some(service) = inner.service {
            self.service = Some(service);
        }
    }
}

impl From<ServiceName<'_>> for Service {
    fn from(name: ServiceName<'_>) -> Self {
        match name {
            ServiceName::RouterChild(port) => {
                Self::RouterChild(String::from_utf8_lossy(port).into())
            }
            ServiceName::Named(name) => Self::Named(String::from_utf8_lossy(name).into()),
        }
    }
}

fn parse(message: &[u8]) -> Option<Json> {
    let text = String::from_utf8_lossy(message);
    let mut fields: BTreeMap<String, Value> = serde_json::from_str(&text).ok()?;
    if let Some(Value::String(kind)) = fields.get("type") {
        if kind == "log" {
            let text = first_line(fields.get("msg")?.as_str()?);
            let passed_on = matches!(fields.get("level")?.as_str()?, "none" | "cont");
            return Some(Json::Log { text, passed_on });
        }
        let data = fields.get("data")?.as_object()?;
        return Some(Json::Record(rows(kind, data)));
    }
    if let Some(Value::String(content)) = fields.get("log") {
        return Some(Json::Container(first_line(content)));
    }
    if let Some(Value::String(target)) = fields.get("target") {
        let message = fields.get("fields").and_then(|it| it.get("message"));
        let message = message.or_else(|| fields.get("message"))?.as_str()?;
        fields.get("level")?.as_str()?;
        return Some(Json::Tracing(format!("{target}: {}", first_line(message))));
    }
    let message = fields.remove("msg").or_else(|| fields.remove("message"))?;
    let (level, function) = (fields.remove("level")?, fields.remove("function")?);
    for noise in ["tid", "timestamp", "line"] {
        fields.remove(noise);
    }
    let mut text =
        format!("{} [{}] {}", level.as_str()?, function.as_str()?, first_line(message.as_str()?));
    if !fields.is_empty() {
        text.push_str(" |");
        for (key, value) in &fields {
            push_pair(&mut text, key, value);
        }
    }
    Some(Json::Server(text))
}

/// The rows of a typed record, each as `kind | key=value ..`, keys in order, the record's unit last.
fn rows(kind: &str, data: &serde_json::Map<String, Value>) -> Vec<String> {
    let Some(Value::Array(rows)) = data.get("rows") else { return Vec::new() };
    let row = |row: &Value| {
        let fields: BTreeMap<&String, &Value> = row.as_object()?.iter().collect();
        let mut text = format!("{kind} |");
        for (key, value) in fields {
            push_pair(&mut text, key, value);
        }
        if let Some(unit) = data.get("unit") {
            push_pair(&mut text, "unit", unit);
        }
        Some(text)
    };
    rows.iter().filter_map(row).collect()
}

fn push_pair(text: &mut String, key: &str, value: &Value) {
    // Writing to a string cannot fail.
    let _ = write!(text, " {key}={value}");
}

/// The first line of a JSON string, where a colour's escape is spelt out and comes to light only now.
fn first_line(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    String::from_utf8_lossy(&without_colours(line.as_bytes())).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The messages, the service, and whether the engine's logger spoke.
    fn opened(line: &str) -> (Vec<String>, Option<Service>, bool) {
        let line = open(line.as_bytes());
        let mut messages = Vec::new();
        line.messages
            .for_each(|message| messages.push(String::from_utf8_lossy(message).into_owned()));
        (messages, line.service, line.framed)
    }

    #[test]
    fn json_is_opened_by_the_table() {
        let child = || Some(Service::RouterChild("32801".into()));
        let rows: &[(&str, &str, Option<Service>, bool)] = &[
            (r#"{"type":"log","time":1,"level":"info","msg":"a: b\n"}"#, "a: b", None, true),
            (r#"{"type":"log","time":1,"level":"info","msg":"a: b\nc: d\n"}"#, "a: b", None, true),
            (r#"{"log":"\u001b[2ma\u001b[0m: b\n","stream":"stdout"}"#, "a: b", None, false),
            (r#"{"type":"log","time":1,"level":"none","msg":"a: b\n"}"#, "a: b", None, false),
            (r#"{"type":"log","time":1,"level":"cont","msg":"a: b\n"}"#, "a: b", None, false),
            (
                r#"{"type":"log","time":1,"level":"none","msg":"[32801] a: b\n"}"#,
                "a: b",
                child(),
                false,
            ),
            (
                r#"{"type":"log","time":1,"level":"none","msg":"[32801] 0.00.000.001 I a: b\n"}"#,
                "a: b",
                child(),
                true,
            ),
            (r#"{"type":"log","time":1,"level":"none","msg":"[32801] \n"}"#, "", child(), false),
            (
                r#"{"type":"log","time":1,"level":"info","msg":"[32801] a: b\n"}"#,
                "[32801] a: b",
                None,
                true,
            ),
            (r#"{"log":"a: b\n","stream":"stderr","time":"t"}"#, "a: b", None, false),
            (
                r#"{"tid":"1","timestamp":1,"level":"INFO","function":"main","line":2,"msg":"a","z":1,"b":"x"}"#,
                r#"INFO [main] a | b="x" z=1"#,
                None,
                false,
            ),
            (r#"{"level":"INFO","function":"main","message":"a"}"#, "INFO [main] a", None, false),
            (
                r#"{"timestamp":"t","level":"INFO","message":"a b","target":"c::d"}"#,
                "c::d: a b",
                None,
                false,
            ),
            (r#"{"level":"INFO","fields":{"message":"a\nb"},"target":"c"}"#, "c: a", None, false),
            ("\u{1b}[2mINFO\u{1b}[0m a\u{1b}[1;31m: b\u{1b}[m", "INFO a: b", None, false),
            ("a \u{1b}[31 b \u{1b}[", "a \u{1b}[31 b \u{1b}[", None, false),
        ];
        for (line, message, service, framed) in rows {
            assert_eq!(
                opened(line),
                (vec![(*message).to_owned()], service.clone(), *framed),
                "{line}"
            );
        }
    }

    #[test]
    fn other_json_is_left_closed() {
        for line in [
            "{",
            "{}",
            "{\"log\":1}",
            "{\"type\":\"log\"}",
            r#"{"type":"log","level":"info","msg":1}"#,
            r#"{"type":"log","msg":"a"}"#,
            r#"{"type":"text","msg":"a"}"#,
            r#"{"role":"user","content":"a"}"#,
            r#"{"msg":"a","level":"INFO"}"#,
            r#"["log","a"]"#,
        ] {
            assert_eq!(opened(line), (vec![line.to_owned()], None, false));
        }
    }

    #[test]
    fn a_record_gives_a_message_a_row() {
        let line =
            r#"{"type":"t","data":{"unit":"MiB","rows":[{"name":"A","b":1},{"name":"B"},3]}}"#;
        let rows = [r#"t | b=1 name="A" unit="MiB""#, r#"t | name="B" unit="MiB""#];
        assert_eq!(opened(line), (rows.map(str::to_owned).to_vec(), None, true));
        assert_eq!(opened(r#"{"type":"t","data":{}}"#).0, Vec::<String>::new());
    }

    #[test]
    fn json_in_json_ends_somewhere() {
        let wrap = |line: String| format!("{{\"log\":{}}}", Value::String(line));
        let deep = (0..DEEPEST + 2).fold("a: b".to_owned(), |line, _| wrap(line));
        assert!(opened(&deep).0[0].starts_with("{\"log\":"));
        let shallow = (0..DEEPEST).fold("a: b".to_owned(), |line, _| wrap(line));
        assert_eq!(opened(&shallow).0, ["a: b"]);
    }

    #[test]
    fn bytes_that_are_no_text_stay_where_they_do_not_matter() {
        let line = open(b"0.00.000.001 I a: \xff\xfe");
        line.messages.for_each(|message| assert_eq!(message, b"a: \xff\xfe"));
        let json = open(b"{\"log\":\"a: \xff b\\n\"}");
        json.messages.for_each(|message| assert_eq!(message, "a: \u{fffd} b".as_bytes()));
    }
}
