//! Cuts a stream into its events: server-sent events, or one JSON object a line as Ollama sends them.
//!
//! Both are told apart line by line: no field of a server-sent event starts with a brace. Chunks may be cut anywhere,
//! and memory is bounded whatever comes.

/// The longest event that is read, in bytes; a longer one is counted and skipped.
///
/// The last object of llama-server's `/completion` repeats the prompt: this holds one of some 250,000 tokens.
pub const MAX_EVENT_BYTES: usize = 1 << 20;

/// A buffer that has grown over this is given back after its event.
const KEPT_BYTES: usize = 1 << 16;

/// One event's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event<'a> {
    /// What the server sent as data.
    Data(&'a [u8]),
    /// What the server sent as an error: an event of that name, or llama-server's older `error:` field.
    Error(&'a [u8]),
    /// An event longer than [`MAX_EVENT_BYTES`].
    TooLong,
}

/// The cutter's state between two chunks.
#[derive(Debug, Default)]
pub(super) struct EventReader {
    /// The line that is being read.
    line: Vec<u8>,
    /// The data lines of the event that is being read, each with a line end.
    data: Vec<u8>,
    is_error: bool,
    skip: Skip,
    /// The last chunk ended in a CR, which a LF may follow.
    after_cr: bool,
}

/// What is being skipped.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Skip {
    #[default]
    Nothing,
    /// To the line's end.
    Line,
    /// To the event's end, an empty line. `blank` says whether the present line is empty so far.
    Event { blank: bool },
}

impl EventReader {
    /// Takes a chunk, and gives each event that ends in it.
    pub(super) fn push(&mut self, mut bytes: &[u8], mut give: impl FnMut(Event<'_>)) {
        while !bytes.is_empty() {
            if std::mem::take(&mut self.after_cr) && bytes[0] == b'\n' {
                bytes = &bytes[1..];
                continue;
            }
            let Some(end) = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r')) else {
                self.extend_line(bytes, &mut give);
                return;
            };
            self.extend_line(&bytes[..end], &mut give);
            self.after_cr = bytes[end] == b'\r';
            self.end_line(&mut give);
            bytes = &bytes[end + 1..];
        }
    }

    /// The stream is over: what was not yet ended, ends here.
    pub(super) fn finish(&mut self, mut give: impl FnMut(Event<'_>)) {
        self.end_line(&mut give);
        self.end_event(&mut give);
    }

    fn extend_line(&mut self, part: &[u8], give: &mut impl FnMut(Event<'_>)) {
        match &mut self.skip {
            Skip::Line => return,
            Skip::Event { blank } => {
                *blank &= part.is_empty();
                return;
            }
            Skip::Nothing => {}
        }
        let room = MAX_EVENT_BYTES.saturating_sub(self.data.len() + self.line.len());
        if part.len() <= room {
            self.line.extend_from_slice(part);
            return;
        }
        self.line.extend_from_slice(&part[..room]);
        self.skip_too_long(give);
    }

    /// Skips no more than it must: an object's line, else the event that there is. A comment alone is no event.
    fn skip_too_long(&mut self, give: &mut impl FnMut(Event<'_>)) {
        let is_event = match Line::of(&self.line) {
            Line::Object(_) => {
                give(Event::TooLong);
                false
            }
            Line::Data(_) | Line::Error(_) => true,
            // With a long event before it, too little of the line is kept to know it by.
            Line::Blank | Line::Name(_) | Line::Other => !self.data.is_empty(),
        };
        clear(&mut self.line);
        if !is_event {
            self.skip = Skip::Line;
            return;
        }
        give(Event::TooLong);
        self.skip = Skip::Event { blank: false };
        self.is_error = false;
        clear(&mut self.data);
    }

    fn end_line(&mut self, give: &mut impl FnMut(Event<'_>)) {
        match self.skip {
            Skip::Line | Skip::Event { blank: true } => {
                self.skip = Skip::Nothing;
                return;
            }
            Skip::Event { blank: false } => {
                self.skip = Skip::Event { blank: true };
                return;
            }
            Skip::Nothing => {}
        }
        match Line::of(&self.line) {
            Line::Blank => self.end_event(give),
            Line::Object(object) => give(Event::Data(object)),
            Line::Data(data) => append(&mut self.data, data),
            Line::Error(data) => {
                append(&mut self.data, data);
                self.is_error = true;
            }
            Line::Name(name) => self.is_error = name == b"error",
            Line::Other => {}
        }
        clear(&mut self.line);
    }

    fn end_event(&mut self, give: &mut impl FnMut(Event<'_>)) {
        let is_error = std::mem::take(&mut self.is_error);
        let data = self.data.trim_ascii();
        if !data.is_empty() {
            give(if is_error { Event::Error(data) } else { Event::Data(data) });
        }
        clear(&mut self.data);
    }
}

/// What a line is.
enum Line<'a> {
    Blank,
    /// A bare JSON object or array.
    Object(&'a [u8]),
    Data(&'a [u8]),
    Error(&'a [u8]),
    /// An event's name.
    Name(&'a [u8]),
    /// A comment, or a field that tells nothing here.
    Other,
}

impl<'a> Line<'a> {
    fn of(line: &'a [u8]) -> Self {
        // A byte order mark may open a stream; no field starts with one.
        let line = line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line);
        if line.is_empty() {
            return Self::Blank;
        }
        if let [b'{' | b'[', ..] = line.trim_ascii_start() {
            return Self::Object(line.trim_ascii());
        }
        let colon = line.iter().position(|byte| *byte == b':').unwrap_or(line.len());
        let value = line.get(colon + 1..).unwrap_or_default();
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match &line[..colon] {
            b"data" => Self::Data(value),
            b"error" => Self::Error(value),
            b"event" => Self::Name(value),
            _ => Self::Other,
        }
    }
}

fn append(data: &mut Vec<u8>, line: &[u8]) {
    data.extend_from_slice(line);
    data.push(b'\n');
}

fn clear(buffer: &mut Vec<u8>) {
    buffer.clear();
    buffer.shrink_to(KEPT_BYTES);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(chunks: &[&[u8]]) -> Vec<String> {
        let mut reader = EventReader::default();
        let mut told = Vec::new();
        let mut give = |event: Event<'_>| {
            told.push(match event {
                Event::Data(data) => String::from_utf8_lossy(data).into_owned(),
                Event::Error(data) => format!("error {}", String::from_utf8_lossy(data)),
                Event::TooLong => "too long".to_owned(),
            });
        };
        for chunk in chunks {
            reader.push(chunk, &mut give);
        }
        reader.finish(give);
        told
    }

    const ROWS: [(&str, &str, &[&str]); 17] = [
        ("two events", "data: a\n\ndata: b\n\n", &["a", "b"]),
        ("no blank after the colon", "data:a\n\n", &["a"]),
        ("CRLF", "data: a\r\n\r\ndata: b\r\n\r\n", &["a", "b"]),
        ("CR", "data: a\r\rdata: b\r\r", &["a", "b"]),
        ("mixed line ends", "data: a\r\n\ndata: b\n\r\n", &["a", "b"]),
        ("several data lines", "data: a\ndata: b\n\n", &["a\nb"]),
        ("comments", ": ping\n\n: ping\ndata: a\n:\n\n", &["a"]),
        ("other fields", "id: 7\nretry: 10\nevent: delta\ndata: a\n\n", &["a"]),
        ("no data", "event: ping\n\ndata\n\ndata:\n\n", &[]),
        ("an error event", "event: error\ndata: a\n\ndata: b\n\n", &["error a", "b"]),
        ("an error's name after its data", "data: a\nevent: error\n\n", &["error a"]),
        ("llama-server's older error field", "error: a\n\ndata: b\n\n", &["error a", "b"]),
        ("no line end at the end", "data: a\n\ndata: b", &["a", "b"]),
        ("a byte order mark", "\u{feff}data: a\n\n", &["a"]),
        ("objects, one a line", "{\"a\":1}\n{\"b\":2}\r\n[3]", &["{\"a\":1}", "{\"b\":2}", "[3]"]),
        ("beyond ASCII", "data: \u{e9}\u{1f600}\n\n", &["\u{e9}\u{1f600}"]),
        ("a colon within", "data: a: b\n\n", &["a: b"]),
    ];

    #[test]
    fn a_stream_is_cut_into_its_events_wherever_its_chunks_are_cut() {
        for (case, stream, expected) in ROWS {
            let bytes = stream.as_bytes();
            assert_eq!(read(&[bytes]), expected, "{case}: whole");
            assert_eq!(
                read(&bytes.chunks(1).collect::<Vec<_>>()),
                expected,
                "{case}: byte by byte"
            );
            for cut in 0..bytes.len() {
                assert_eq!(read(&[&bytes[..cut], &bytes[cut..]]), expected, "{case}: cut at {cut}");
            }
        }
    }

    #[test]
    fn an_event_too_long_is_told_and_skipped_and_the_next_is_read() {
        let long = "x".repeat(MAX_EVENT_BYTES);
        let half = "x".repeat(MAX_EVENT_BYTES / 2);
        let rows = [
            (
                "a data line",
                format!("data: {long}\ndata: rest\n\ndata: a\n\n"),
                &["too long", "a"][..],
            ),
            (
                "data lines together",
                format!("data: {half}\ndata: {half}\nid: 1\n\ndata: a\n\n"),
                &["too long", "a"],
            ),
            ("an object", format!("{{{long}\n{{}}\n"), &["too long", "{}"]),
            ("a comment", format!(":{long}\ndata: a\n\n"), &["a"]),
            ("to the end", format!("data: {long}"), &["too long"]),
            ("an error", format!("event: error\ndata: {long}\n\ndata: a\n\n"), &["too long", "a"]),
        ];
        for (case, stream, expected) in rows {
            let bytes = stream.as_bytes();
            assert_eq!(read(&[bytes]), expected, "{case}: whole");
            for size in [1, 7, 1 << 16] {
                assert_eq!(
                    read(&bytes.chunks(size).collect::<Vec<_>>()),
                    expected,
                    "{case}: in chunks of {size}"
                );
            }
        }
    }

    #[test]
    fn an_event_of_the_longest_length_is_read() {
        let longest = "x".repeat(MAX_EVENT_BYTES - "data: ".len());
        assert_eq!(read(&[format!("data: {longest}\n\n").as_bytes()]), [longest]);
    }

    #[test]
    fn memory_is_bounded_whatever_comes() {
        let mut reader = EventReader::default();
        for chunk in [b"data: y\n".as_slice(), b"xxxxxxx", b"{", b"data: y", b"\r\n:"] {
            for _ in 0..MAX_EVENT_BYTES / 2 {
                reader.push(chunk, |_| {});
            }
            assert!(reader.line.capacity() + reader.data.capacity() <= 4 * MAX_EVENT_BYTES);
        }
    }
}
