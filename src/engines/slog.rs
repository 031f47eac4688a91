//! Opens the structured lines of Go programs: `time=.. level=INFO source=ggml.go:482 msg=".." key=value`.
//!
//! Keys are added in the middle from version to version, and a value is quoted only where it must be. So a line is put
//! in one stable form, `INFO [ggml.go] message | key="value"`, with its keys in order and every value quoted.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::Value;

/// A structured line.
#[derive(Debug, PartialEq)]
pub(super) enum Structured {
    /// The program's own, in the stable form.
    Own(String),
    /// A line of an engine that the program passes on, and the engine process it is of.
    PassedOn { line: String, process: String },
}

/// Opens `message`; `None` when it is no whole structured line.
pub(super) fn open(message: &str) -> Option<Structured> {
    if message.starts_with("time=") {
        let mut pairs = pairs(message)?;
        let (level, text) = (pairs.remove("level")?, pairs.remove("msg")?);
        pairs.remove("time");
        let source = pairs.remove("source").unwrap_or_default();
        let passed_on = |text: &str| matches!(text, "GRPC stderr" | "GRPC stdout");
        return match pairs.remove("line") {
            Some(line) if passed_on(&text) => {
                Some(Structured::PassedOn { line, process: pairs.remove("id").unwrap_or_default() })
            }
            Some(line) => {
                pairs.insert("line".to_owned(), line);
                Some(Structured::Own(stable(&level, file_of(&source), &text, &pairs)))
            }
            None => Some(Structured::Own(stable(&level, file_of(&source), &text, &pairs))),
        };
    }
    grpc(message).or_else(|| go_log(message))
}

/// `DEBUG GRPC stderr id=".." line=".."`, as `LocalAI` prints it behind its time.
fn grpc(message: &str) -> Option<Structured> {
    let (time, rest) = message.split_once("DEBUG GRPC std")?;
    if time.len() > LONGEST_TIME || time.contains(['"', '=']) {
        return None;
    }
    let rest = rest.strip_prefix("err ").or_else(|| rest.strip_prefix("out "))?;
    let mut pairs = pairs(rest)?;
    Some(Structured::PassedOn {
        line: pairs.remove("line")?,
        process: pairs.remove("id").unwrap_or_default(),
    })
}

/// The longest time that stands before a level.
const LONGEST_TIME: usize = 40;

/// `routes.go:1232: INFO server config env=..`, `llama.go:290: 3849 MB VRAM available`, both behind a time.
fn go_log(message: &str) -> Option<Structured> {
    let (source, rest) = message.split_once(": ")?;
    let (file, line) = source.split_once(':')?;
    let is_name = |text: &str| {
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    if !file.strip_suffix(".go").is_some_and(is_name) || line.parse::<u32>().is_err() {
        return None;
    }
    let level = ["DEBUG", "INFO", "WARN", "ERROR"]
        .into_iter()
        .find(|level| rest.strip_prefix(level).is_some_and(|rest| rest.starts_with(' ')));
    let Some(level) = level else {
        return Some(Structured::Own(stable("LOG", file, rest, &BTreeMap::new())));
    };
    // The message is not quoted here: it ends where pairs to the line's end begin.
    let rest = &rest[level.len() + 1..];
    let split = rest.match_indices(' ').find_map(|(at, _)| Some((at, pairs(&rest[at + 1..])?)));
    let (text, pairs) = split.map_or((rest, BTreeMap::new()), |(at, pairs)| (&rest[..at], pairs));
    Some(Structured::Own(stable(level, file, text, &pairs)))
}

fn stable(level: &str, file: &str, text: &str, pairs: &BTreeMap<String, String>) -> String {
    let text = text.lines().next().unwrap_or_default();
    let mut stable = format!("{level} [{file}] {text}");
    if !pairs.is_empty() {
        stable.push_str(" |");
    }
    for (key, value) in pairs {
        // Writing to a string cannot fail.
        let _ = write!(stable, " {key}={}", Value::from(value.as_str()));
    }
    stable
}

/// `ggml.go` of `ggml.go:482`.
fn file_of(source: &str) -> &str {
    source.split(':').next().unwrap_or_default()
}

/// Every pair of `text`, all of it.
fn pairs(text: &str) -> Option<BTreeMap<String, String>> {
    let mut pairs = BTreeMap::new();
    let mut rest = text.trim_end();
    while !rest.is_empty() {
        let (key, after) = word(rest, "=")?;
        let after = after.strip_prefix('=')?;
        let (value, after) = word(after, " ")?;
        if key.is_empty() || !after.is_empty() && !after.starts_with(' ') {
            return None;
        }
        pairs.insert(key, value);
        rest = after.trim_start_matches(' ');
    }
    (!pairs.is_empty()).then_some(pairs)
}

/// A quoted word, or a bare one up to `end`, and what is behind it.
fn word<'a>(text: &'a str, end: &str) -> Option<(String, &'a str)> {
    let Some(quoted) = text.strip_prefix('"') else {
        let at = text.find([' ', '"', '=']).filter(|at| !text[*at..].starts_with('"'));
        // A bare value may hold `=`, a bare key may not.
        let at = if end == " " { text.find(' ') } else { at };
        let at = at.unwrap_or(text.len());
        let bare = &text[..at];
        return (!bare.contains('"')).then(|| (bare.to_owned(), &text[at..]));
    };
    let mut word = String::new();
    let mut characters = quoted.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((word, &quoted[at + 1..])),
            '\\' => match characters.next()?.1 {
                'n' => word.push('\n'),
                't' => word.push('\t'),
                'r' => word.push('\r'),
                // Other escapes stand for bytes that decide nothing here.
                escaped @ ('"' | '\\' | '\'') => word.push(escaped),
                escaped => word.extend(['\\', escaped]),
            },
            plain => word.push(plain),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(text: &str) -> Structured {
        Structured::Own(text.to_owned())
    }

    #[test]
    fn one_form_whatever_the_order_and_the_quotes() {
        let stable = own(r#"INFO [ggml.go] model weights | device="CUDA0" size="12.2 GiB""#);
        for line in [
            r#"time=2025-09-27T19:30:15.381+02:00 level=INFO source=ggml.go:310 msg="model weights" device=CUDA0 size="12.2 GiB""#,
            r#"time=t level=INFO source=ggml.go:310 msg="model weights" size="12.2 GiB" device="CUDA0""#,
            r#"time=t source=ggml.go:1 device=CUDA0 level=INFO msg="model weights" size="12.2 GiB" "#,
            r#"ggml.go:310: INFO model weights device=CUDA0 size="12.2 GiB""#,
        ] {
            assert_eq!(open(line).as_ref(), Some(&stable), "{line}");
        }
    }

    #[test]
    fn values_are_read_as_go_writes_them() {
        let rows = [
            ("time=t level=WARN source=a.go:1 msg=plain", "WARN [a.go] plain"),
            (r#"time=t level=WARN msg="no source""#, "WARN [] no source"),
            (
                r#"time=t level=INFO source=a.go:1 msg=x "total vram"="0 B" empty="" a.b=1=2"#,
                r#"INFO [a.go] x | a.b="1=2" empty="" total vram="0 B""#,
            ),
            (
                r#"time=t level=INFO source=a.go:1 msg="a \"b\" c" cmd="C:\\x y""#,
                r#"INFO [a.go] a "b" c | cmd="C:\\x y""#,
            ),
            (
                r#"time=t level=INFO source=a.go:1 msg="first\nload_tensors: second""#,
                "INFO [a.go] first",
            ),
            ("llama.go:290: 3849 MB VRAM available", "LOG [llama.go] 3849 MB VRAM available"),
            ("routes.go:12: INFO Listening on a b", "INFO [routes.go] Listening on a b"),
        ];
        for (line, expected) in rows {
            assert_eq!(open(line), Some(own(expected)), "{line}");
        }
    }

    #[test]
    fn what_is_not_whole_is_left_closed() {
        for line in [
            "time=t",
            "time=t level=INFO",
            r#"time=t level=INFO source=a.go:1 msg="cut of"#,
            r#"time=t level=INFO source=a.go:1 msg="a"b=c"#,
            r#"time=t level=INFO source=a.go:1 msg=a size="1"#,
            "time=t level=INFO source=a.go:1 msg=a size",
            "a.go:1 no colon",
            "a b.go:1: text",
            ".go:1: text",
            "a.go:x: text",
            "load_tensors: offloaded 0/19 layers to GPU",
            "",
            "=",
            "\"",
        ] {
            assert_eq!(open(line), None, "{line}");
        }
    }

    #[test]
    fn lines_that_are_passed_on_come_out() {
        for line in [
            r#"Dec 17 09:38:20 DEBUG GRPC stderr id="m-127.0.0.1:4" line="a: \"b\"" caller={x}"#,
            r#"DEBUG GRPC stdout id="m-127.0.0.1:4" line="a: \"b\"""#,
            r#"time=t level=DEBUG msg="GRPC stderr" id="m-127.0.0.1:4" line="a: \"b\"""#,
        ] {
            let expected = Structured::PassedOn {
                line: r#"a: "b""#.to_owned(),
                process: "m-127.0.0.1:4".to_owned(),
            };
            assert_eq!(open(line), Some(expected), "{line}");
        }
    }
}
