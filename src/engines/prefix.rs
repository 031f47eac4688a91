//! Takes log prefixes off a line: what wraps engine lines on their way to us, and the engine's own timestamp.
//!
//! The parts come in one fixed order, each at most once, so text of a message is never mistaken for a further prefix:
//! a time, a syslog head (journald), a compose or container name, two more times, the prefix of a program that runs the
//! engine (`program`), a router child's port, the engine's own `<min>.<ss>.<ms>.<us> <level> ` or another engine's
//! (`frames`). Colours may stand between any two.

use super::frames::{self, Logger, Unframed};
use super::program;

/// What is left of a line, and what its prefixes told.
#[derive(Debug, PartialEq)]
pub(super) struct Stripped<'a> {
    /// The bare message. Padding in front of it belongs to it; space behind it is gone.
    pub(super) message: &'a [u8],
    /// The service that a prefix names.
    pub(super) service: Option<ServiceName<'a>>,
    /// Whether something other than the engine or its router put a prefix here.
    pub(super) wrapped: bool,
    /// Whether the engine's own timestamp and level were here.
    pub(super) framed: bool,
    /// The program that runs the engine and put its prefix here.
    pub(super) program: Option<&'static str>,
}

/// A service's name within a line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum ServiceName<'a> {
    /// The port of a router's child.
    RouterChild(&'a [u8]),
    /// A compose service, a container's tag, a journald unit.
    Named(&'a [u8]),
}

/// Takes every prefix off `line`.
pub(super) fn strip(line: &[u8]) -> Stripped<'_> {
    let mut rest = trim(line);
    let mut service = None;
    let mut wrapped = false;
    // What was known before a time that may be a logger's own.
    let mut wrapped_before = None;

    if let Some(after) = timestamp(rest) {
        wrapped_before = Some(wrapped);
        wrapped = true;
        rest = cri_stream(after).unwrap_or(after);
    }
    // `journalctl -o short-iso` has host and unit behind an ISO time.
    let head = if wrapped { host_and_unit(rest, Pid::Required) } else { syslog(rest) };
    if let Some((unit, after)) = head {
        (wrapped, wrapped_before) = (true, None);
        service = (!unit.is_empty()).then_some(ServiceName::Named(unit));
        rest = after;
    }
    if let Some((name, after)) = compose(rest).or_else(|| tag(rest)) {
        (wrapped, wrapped_before) = (true, None);
        service = Some(ServiceName::Named(name));
        rest = after;
    }
    // The container runtime's, and the program's own.
    for _ in 0..2 {
        let Some(after) = timestamp(rest) else { break };
        wrapped_before = Some(wrapped);
        wrapped = true;
        rest = after;
    }
    let program = program::strip(rest, wrapped_before.is_some()).map(|found| {
        wrapped = true;
        service = found.service.map(ServiceName::Named).or(service);
        rest = found.rest;
        found.program
    });
    if let Some((port, after)) = router_child(rest) {
        service = Some(ServiceName::RouterChild(port));
        rest = after;
    }
    if let Some(message) = own(rest) {
        return Stripped { message, service, wrapped, framed: true, program };
    }
    if let Some(Unframed { message, logger }) = frames::strip(rest, wrapped_before.is_some()) {
        let wrapped = match logger {
            Logger::Stamped => wrapped_before.unwrap_or(wrapped),
            Logger::Engines | Logger::Plain => wrapped,
        };
        let framed = logger == Logger::Engines;
        return Stripped { message: controls(message), service, wrapped, framed, program };
    }
    // With `--no-log-timestamps` the level stands alone.
    let message = level(rest).unwrap_or(rest);
    Stripped { message, service, wrapped, framed: false, program }
}

/// The port before a line that llama-server copied from a child: `[42977] ` (`[%5d] `).
pub(super) fn router_child(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let inside = line.strip_prefix(b"[")?;
    let padded = skip_spaces(inside);
    let (port, rest) = digits(padded, 1, 5)?;
    let rest = rest.strip_prefix(b"]")?;
    // A blank line of the child is copied as well, and its trailing space may have been trimmed.
    let rest = if rest.is_empty() { rest } else { rest.strip_prefix(b" ")? };
    Some((port, controls(rest)))
}

/// Without controls at the front, and without space and colour resets at the end.
pub(super) fn trim(line: &[u8]) -> &[u8] {
    let mut rest = controls(line);
    loop {
        let without = rest.trim_ascii_end();
        let without = without.strip_suffix(b"\x1b[0m").unwrap_or(without);
        if without.len() == rest.len() {
            return rest;
        }
        rest = without;
    }
}

/// Without colour codes (`ESC[..m`) and carriage returns at the front.
pub(super) fn controls(line: &[u8]) -> &[u8] {
    let mut rest = line;
    loop {
        rest = match (rest.strip_prefix(b"\r"), rest.strip_prefix(b"\x1b[")) {
            (Some(after), _) => after,
            (_, Some(code)) => {
                let end = code.iter().position(|byte| !matches!(byte, b'0'..=b'9' | b';'));
                let Some(after) = end.and_then(|end| code[end..].strip_prefix(b"m")) else {
                    return rest;
                };
                after
            }
            (None, None) => return rest,
        };
    }
}

/// `2026-05-31T16:41:57.826321631Z `, `2026-05-31 16:41:57,123 `, `2026/05/31 16:41:57 `.
fn timestamp(line: &[u8]) -> Option<&[u8]> {
    let rest = date(line)?;
    let rest = rest.strip_prefix(b"T").or_else(|| rest.strip_prefix(b" "))?;
    let rest = clock(rest)?;
    let rest = rest.strip_prefix(b"Z").or_else(|| zone(rest)).unwrap_or(rest);
    Some(controls(rest.strip_prefix(b" ")?))
}

/// `2026-05-31`, `2026/05/31`.
pub(super) fn date(line: &[u8]) -> Option<&[u8]> {
    let (_, rest) = digits(line, 4, 4)?;
    let separator = rest.first().copied().filter(|byte| matches!(byte, b'-' | b'/'))?;
    let (_, rest) = digits(&rest[1..], 2, 2)?;
    let (_, rest) = digits(rest.strip_prefix(&[separator])?, 2, 2)?;
    Some(rest)
}

/// `16:41:57`, with a fraction or not.
pub(super) fn clock(line: &[u8]) -> Option<&[u8]> {
    let (_, rest) = digits(line, 2, 2)?;
    let (_, rest) = digits(rest.strip_prefix(b":")?, 2, 2)?;
    let (_, rest) = digits(rest.strip_prefix(b":")?, 2, 2)?;
    let fraction = rest.strip_prefix(b".").or_else(|| rest.strip_prefix(b","));
    Some(fraction.and_then(|fraction| digits(fraction, 1, 9)).map_or(rest, |(_, rest)| rest))
}

/// `+02:00` or `+0200`.
fn zone(line: &[u8]) -> Option<&[u8]> {
    let rest = line.strip_prefix(b"+").or_else(|| line.strip_prefix(b"-"))?;
    let (hours, rest) = digits(rest, 2, 4)?;
    match (hours.len(), rest.strip_prefix(b":")) {
        (2, Some(minutes)) => Some(digits(minutes, 2, 2)?.1),
        (4, _) => Some(rest),
        _ => None,
    }
}

/// `stderr F `, as Kubernetes writes it behind its time.
fn cri_stream(line: &[u8]) -> Option<&[u8]> {
    let rest = line.strip_prefix(b"stderr ").or_else(|| line.strip_prefix(b"stdout "))?;
    let rest = rest.strip_prefix(b"F ").or_else(|| rest.strip_prefix(b"P "))?;
    Some(controls(rest))
}

/// `Jun 18 08:57:40 host1 llama-server[1351]: `; the month is in the reader's language (`9月`).
fn syslog(line: &[u8]) -> Option<(&[u8], &[u8])> {
    const LONGEST_MONTH: usize = 16;
    let space = line.iter().take(LONGEST_MONTH + 1).position(|&byte| byte == b' ')?;
    // A month has a letter in it, be it of another script, and nothing else but digits and a full stop.
    let month = &line[..space];
    let is_letter = |byte: &u8| byte.is_ascii_alphabetic() || !byte.is_ascii();
    let is_month_byte = |byte: &u8| is_letter(byte) || byte.is_ascii_digit() || *byte == b'.';
    if !month.iter().any(is_letter) || !month.iter().all(is_month_byte) {
        return None;
    }
    let (_, rest) = digits(skip_spaces(&line[space..]), 1, 2)?;
    let rest = clock(rest.strip_prefix(b" ")?)?;
    host_and_unit(rest.strip_prefix(b" ")?, Pid::Optional)
}

/// Whether a unit without a process id is taken for one.
#[derive(Clone, Copy, PartialEq)]
enum Pid {
    Optional,
    Required,
}

/// `host1 llama-server[1351]: `, `host1 :[1351]: ` (no unit).
fn host_and_unit(line: &[u8], pid: Pid) -> Option<(&[u8], &[u8])> {
    let space = line.iter().position(|&byte| byte == b' ').filter(|&length| length > 0)?;
    let rest = &line[space + 1..];
    let end = rest.iter().position(|byte| matches!(byte, b' ' | b':' | b'['))?;
    let (unit, rest) = rest.split_at(end);
    let numbered = rest.strip_prefix(b":").unwrap_or(rest).strip_prefix(b"[").and_then(|rest| {
        let (_, rest) = digits(rest, 1, 10)?;
        rest.strip_prefix(b"]")
    });
    let rest = match numbered {
        Some(rest) => rest,
        None if pid == Pid::Optional && !unit.is_empty() => rest,
        None => return None,
    };
    let rest = rest.strip_prefix(b":")?;
    let rest = if rest.is_empty() { rest } else { rest.strip_prefix(b" ")? };
    Some((unit, controls(rest)))
}

/// `llama-1  | `, as docker compose writes it.
fn compose(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let (name, rest) = name(line)?;
    let pipe = skip_spaces(rest);
    if pipe.len() == rest.len() {
        return None;
    }
    let rest = pipe.strip_prefix(b"|")?;
    let rest = controls(rest);
    let rest = if rest.is_empty() { rest } else { rest.strip_prefix(b" ")? };
    Some((name, controls(rest)))
}

/// `[llama-cpp] `, where a time follows: alone it could be a level, or text.
fn tag(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let (name, rest) = name(line.strip_prefix(b"[")?)?;
    let rest = controls(rest.strip_prefix(b"] ")?);
    timestamp(rest)?;
    Some((name, rest))
}

/// The name of a service: letters, digits, `_`, `.`, `-`.
fn name(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = line
        .iter()
        .position(|byte| !(byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-')))
        .unwrap_or(line.len());
    line.first().filter(|byte| byte.is_ascii_alphanumeric())?;
    Some(line.split_at(end))
}

/// `0.00.785.316 I `: minutes since the process started, seconds, milliseconds, microseconds, the level.
/// llama-box later prints `[2025-05-15 16:41:00.460010] I `.
fn own(line: &[u8]) -> Option<&[u8]> {
    if let Some(dated) = line.strip_prefix(b"[").and_then(date) {
        let rest = clock(dated.strip_prefix(b" ")?)?;
        return level(controls(rest.strip_prefix(b"] ")?));
    }
    let (_, rest) = digits(line, 1, 9)?;
    let (_, rest) = digits(rest.strip_prefix(b".")?, 2, 2)?;
    let (_, rest) = digits(rest.strip_prefix(b".")?, 3, 3)?;
    let (_, rest) = digits(rest.strip_prefix(b".")?, 3, 3)?;
    level(controls(controls(rest).strip_prefix(b" ")?))
}

/// `I `, `W `, `E `, `D `.
fn level(line: &[u8]) -> Option<&[u8]> {
    let (letter, rest) = line.split_first()?;
    if !matches!(letter, b'I' | b'W' | b'E' | b'D') {
        return None;
    }
    Some(controls(rest.strip_prefix(b" ")?))
}

fn skip_spaces(line: &[u8]) -> &[u8] {
    let end = line.iter().position(|&byte| byte != b' ').unwrap_or(line.len());
    &line[end..]
}

/// At least `least` and at most `most` digits, with no digit behind them.
pub(super) fn digits(line: &[u8], least: usize, most: usize) -> Option<(&[u8], &[u8])> {
    let end = line.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(line.len());
    (least..=most).contains(&end).then(|| line.split_at(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy)]
    enum Expect {
        Plain,
        Framed,
        Wrapped(&'static str),
        WrappedFramed(&'static str),
        Child(&'static str),
        ChildFramed(&'static str),
        Anonymous,
    }

    const MESSAGE: &str = "  load_tensors: offloaded 19/19 layers to GPU";

    const PREFIXES: &[(&str, Expect)] = &[
        ("", Expect::Plain),
        ("\r", Expect::Plain),
        ("\x1b[0m", Expect::Plain),
        ("I ", Expect::Plain),
        ("0.00.785.316 I ", Expect::Framed),
        ("868.50.896.345 W ", Expect::Framed),
        ("\x1b[0m\x1b[34m0.00.785.316\x1b[0m \x1b[32mI \x1b[0m", Expect::Framed),
        ("\x1b[34m0.00.785.316\x1b[0m \x1b[35mW ", Expect::Framed),
        ("[42977] ", Expect::Child("42977")),
        ("[ 8080] ", Expect::Child("8080")),
        ("[42977] 2.24.418.070 I ", Expect::ChildFramed("42977")),
        ("[42977] \x1b[34m0.00.785.316\x1b[0m \x1b[32mI \x1b[0m", Expect::ChildFramed("42977")),
        ("llama-1  | ", Expect::Wrapped("llama-1")),
        ("\x1b[36mllama-1  | \x1b[0m", Expect::Wrapped("llama-1")),
        ("\x1b[36mllama-1  |\x1b[0m ", Expect::Wrapped("llama-1")),
        (
            "llama-1  | 2026-05-31T16:41:57.826321631Z 0.00.041.185 I ",
            Expect::WrappedFramed("llama-1"),
        ),
        ("llama-1  | [42977] ", Expect::Child("42977")),
        (
            "[llama-cpp] 2026-05-31T16:41:57.826321631Z 0.00.041.185 I ",
            Expect::WrappedFramed("llama-cpp"),
        ),
        (
            "[llama-cpp] 2026-05-31T16:42:06.551102334Z [42977] 0.00.041.185 I ",
            Expect::ChildFramed("42977"),
        ),
        ("Jun 18 08:57:40 host1 llama-server[1351]: ", Expect::Wrapped("llama-server")),
        (
            "Jun  8 08:57:40 host1 llama-server[1351]: 10.13.175.674 I ",
            Expect::WrappedFramed("llama-server"),
        ),
        ("Jun 18 08:57:40.123456 host1 llama-server[1351]: ", Expect::Wrapped("llama-server")),
        ("Jun 18 08:57:40 host1 :[1351]: ", Expect::Anonymous),
        ("9月 02 14:46:54 host1 ollama[1756]: ", Expect::Wrapped("ollama")),
        ("Mär 02 14:46:54 host1 python[433748]: ", Expect::Wrapped("python")),
        ("Jun 18 08:57:40 host1 docker[77]: llama-1  | ", Expect::Wrapped("llama-1")),
        ("2026-05-31T16:41:57+0200 host1 llama-server[1351]: ", Expect::Wrapped("llama-server")),
        ("2026-05-31T16:41:57.826Z ", Expect::Anonymous),
        ("2026-05-31T16:41:57.826321631Z stderr F ", Expect::Anonymous),
        ("2026/05/31 16:41:57 ", Expect::Anonymous),
        ("[2025-05-15 16:41:00.460010] I ", Expect::Framed),
        (
            "[2025-09-27][09:18:10][tauri_plugin_llamacpp::commands][INFO] [llamacpp] ",
            Expect::Anonymous,
        ),
        ("2024-03-22T09:56:00.550Z [NITRO]::Error: ", Expect::Anonymous),
        ("2024-06-22T11:40:42.013Z [CORTEX]::Debug: ", Expect::Anonymous),
        ("[2026-03-01 12:00:00][DEBUG] ", Expect::Anonymous),
        ("2026-01-07 17:36:54 [DEBUG] ", Expect::Anonymous),
        (
            "8:36PM DBG GRPC(model-7b.gguf-127.0.0.1:33657): stderr ",
            Expect::Wrapped("model-7b.gguf-127.0.0.1:33657"),
        ),
        ("2026-05-31 16:41:57,123 ", Expect::Anonymous),
    ];

    #[test]
    fn every_prefix_leaves_the_message() {
        for &(prefix, expect) in PREFIXES {
            for ending in ["", "\r", " ", "\x1b[0m", " \x1b[0m\r\n"] {
                let line = format!("{prefix}{MESSAGE}{ending}");
                let stripped = strip(line.as_bytes());
                let named = |name: &'static str| Some(ServiceName::Named(name.as_bytes()));
                let child = |port: &'static str| Some(ServiceName::RouterChild(port.as_bytes()));
                let (service, wrapped, framed) = match expect {
                    Expect::Plain => (None, Some(false), false),
                    Expect::Framed => (None, Some(false), true),
                    Expect::Wrapped(name) => (named(name), Some(true), false),
                    Expect::WrappedFramed(name) => (named(name), Some(true), true),
                    Expect::Child(port) => (child(port), None, false),
                    Expect::ChildFramed(port) => (child(port), None, true),
                    Expect::Anonymous => (None, Some(true), false),
                };
                assert_eq!(String::from_utf8_lossy(stripped.message), MESSAGE, "{line:?}");
                assert_eq!(stripped.service, service, "{line:?}");
                assert_eq!(stripped.framed, framed, "{line:?}");
                assert!(wrapped.is_none_or(|wrapped| wrapped == stripped.wrapped), "{line:?}");
            }
        }
    }

    #[test]
    fn text_is_no_prefix() {
        for line in [
            "load_tensors: offloaded 19/19 layers to GPU",
            "slot print_timing: id  0 | task 970 | eval time",
            "common_memory_breakdown_print: |   - Host",
            "[INFO] <qwen> Executing start command: llama-server",
            "[llama-cpp] load_tensors: no time follows the tag",
            "[ Prompt: 512.3 t/s | Generation: 87.1 t/s ]",
            "[123456] load_tensors: a port has five digits at most",
            "0.00.785 I load_tensors: too short a time",
            "0.00.785.316 X load_tensors: no level",
            "0.0.785.316 I load_tensors: one digit of seconds",
            "main: build = 2463 (924ce1dc)",
            "prompt eval time = 96.51 ms / 26 tokens",
            "If you have 18 08:57:40 minutes",
            "18 18 08:57:40 host1 x[1]: no month",
            "In 18 08:57:40 host1 no unit here",
            r#"{"log":"Jun 18 08:57:40 host1 x[1]: not yet opened"}"#,
            "2026-05-31: a date alone",
            "2026-05/31 16:41:57 mixed",
            "[NITRO]::Error: no time before it",
            "[2026-03-01 12:00:00][USER] load_tensors: no level",
            "[2026-03-01] I load_tensors: no clock",
            "[2025-09-27][09:18:10][target][INFO] [GIN] another program",
            "8:36PM DBG GRPC(unclosed stderr load_tensors: text",
            "36PM DBG GRPC(x): stderr no clock",
            "|",
            "a |b",
            "",
            "[",
            "\x1b",
            "\x1b[",
            "\x1b[3",
        ] {
            let stripped = strip(line.as_bytes());
            let whole = Stripped {
                message: line.as_bytes(),
                service: None,
                wrapped: false,
                framed: false,
                program: None,
            };
            assert_eq!(stripped, whole, "{line:?}");
        }
    }

    #[test]
    fn nothing_is_stripped_behind_the_engines_own_prefix() {
        let stripped = strip(b"0.00.785.316 I llama-1  | [42977] 0.00.785.317 I text");
        assert_eq!(stripped.message, b"llama-1  | [42977] 0.00.785.317 I text");
        assert_eq!(stripped.service, None);
    }
}
