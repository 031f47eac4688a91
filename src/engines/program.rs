//! The prefixes that programs put before the lines of the engine that they run.

use super::prefix::{clock, controls, date, digits};

/// A program's prefix, taken off.
#[derive(Debug, PartialEq)]
pub(super) struct Found<'a> {
    /// The program, by the name of its file of recognisers.
    pub(super) program: &'static str,
    /// The engine process among several.
    pub(super) service: Option<&'a [u8]>,
    /// What is left of the line.
    pub(super) rest: &'a [u8],
}

/// Takes a program's prefix off; `is_timed` says that a time stood before it.
pub(super) fn strip(line: &[u8], is_timed: bool) -> Option<Found<'_>> {
    let plain = |program, rest| Found { program, service: None, rest: controls(rest) };
    jan(line)
        .or_else(|| cortex(line).filter(|_| is_timed))
        .map(|rest| plain("jan", rest))
        .or_else(|| lm_studio(line, is_timed).map(|rest| plain("lmstudio", rest)))
        .or_else(|| local_ai(line))
}

/// `[2025-09-27][09:18:10][tauri_plugin_llamacpp::commands][INFO] [llamacpp] `.
fn jan(line: &[u8]) -> Option<&[u8]> {
    let rest = date(line.strip_prefix(b"[")?)?;
    let rest = clock(rest.strip_prefix(b"][")?)?.strip_prefix(b"][")?;
    let (_target, rest) = until(rest, b"][")?;
    let (_level, rest) = until(rest, b"] ")?;
    rest.strip_prefix(b"[llamacpp] ")
}

/// `[NITRO]::Error: `, `[CORTEX]::Debug: `, as Jan logged its engine until 2025. Behind a time.
fn cortex(line: &[u8]) -> Option<&[u8]> {
    let rest = line.strip_prefix(b"[NITRO]::").or_else(|| line.strip_prefix(b"[CORTEX]::"))?;
    rest.strip_prefix(b"Error: ").or_else(|| rest.strip_prefix(b"Debug: "))
}

/// `[2026-03-01 12:00:00][DEBUG] `, or `[DEBUG]` behind a time, alone on its line for a block of lines.
fn lm_studio(line: &[u8], is_timed: bool) -> Option<&[u8]> {
    let level = if is_timed {
        line
    } else {
        let rest = date(line.strip_prefix(b"[")?)?;
        clock(rest.strip_prefix(b" ")?)?.strip_prefix(b"]")?
    };
    let rest = level.strip_prefix(b"[DEBUG]")?;
    if rest.is_empty() { Some(rest) } else { rest.strip_prefix(b" ") }
}

/// `8:36PM DBG GRPC(model-7b.gguf-127.0.0.1:33657): stderr `.
fn local_ai(line: &[u8]) -> Option<Found<'_>> {
    let (_, rest) = digits(line, 1, 2)?;
    let (_, rest) = digits(rest.strip_prefix(b":")?, 2, 2)?;
    let rest = rest.strip_prefix(b"AM").or_else(|| rest.strip_prefix(b"PM"))?;
    let rest = controls(controls(rest).strip_prefix(b" ")?).strip_prefix(b"DBG")?;
    let rest = controls(rest).strip_prefix(b" GRPC(")?;
    let (service, rest) = until(rest, b"): ")?;
    let rest = rest.strip_prefix(b"stderr ").or_else(|| rest.strip_prefix(b"stdout "))?;
    Some(Found { program: "localai", service: Some(service), rest: controls(rest) })
}

/// What stands before `end`, and what behind it.
fn until<'a>(line: &'a [u8], end: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let at = line.windows(end.len()).position(|window| window == end)?;
    Some((&line[..at], &line[at + end.len()..]))
}
