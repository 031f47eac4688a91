//! What the loggers of other engines than llama.cpp put before a message: process names, levels, times, ranks.
//!
//! A logger's source file or target stays with the message: it is the first word of a format.

use super::prefix::{clock, digits};

/// What is left behind a logger's words.
#[derive(Debug, PartialEq)]
pub(super) struct Unframed<'a> {
    pub(super) message: &'a [u8],
    pub(super) logger: Logger,
}

/// Whose words were taken off.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Logger {
    /// Of an engine all of whose logged lines have them.
    Engines,
    /// One of many programs', an engine's or not; the time before the line is its own.
    Stamped,
    /// A word around what a process prints, logged or not.
    Plain,
}

/// Takes a logger's words off `line`; `stamped` tells whether a time was taken off just before it. `None` where there
/// are none.
pub(super) fn strip(line: &[u8], stamped: bool) -> Option<Unframed<'_>> {
    let inner = process(line);
    let rest = inner.unwrap_or(line);
    let of = |logger| move |message| Unframed { message, logger };
    dated_level(rest)
        .or_else(|| bracketed_time(rest))
        .map(of(Logger::Engines))
        .or_else(|| {
            let logged = tracing(line).or_else(|| dashed_level(line)).filter(|_| stamped);
            logged.map(of(Logger::Stamped))
        })
        .or_else(|| bracketed_level(rest).or(inner).map(of(Logger::Plain)))
}

/// `(EngineCore_DP0 pid=123) `, as vLLM and Ray write it around all that a process prints; pasted logs keep what is left
/// of its colours: `[1;36m(APIServer pid=1)[0;0m `.
fn process(line: &[u8]) -> Option<&[u8]> {
    const LONGEST: usize = 80;
    let inside = lost_colour(line).strip_prefix(b"(")?;
    let end = inside.iter().take(LONGEST).position(|&byte| byte == b')')?;
    let (name, rest) = (&inside[..end], &inside[end + 1..]);
    let space = name.iter().position(|&byte| byte == b' ')?;
    let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let (word, number) = (&name[..space], name[space + 1..].strip_prefix(b"pid=")?);
    let (_, after) = digits(number, 1, 10)?;
    let is_process = !word.is_empty() && word.iter().all(is_word);
    if !is_process || !(after.is_empty() || after.starts_with(b", ")) {
        return None;
    }
    let rest = lost_colour(rest);
    // A blank line's trailing space is gone.
    if rest.is_empty() { Some(rest) } else { rest.strip_prefix(b" ") }
}

/// Without a colour code that lost its escape: `[0;0m`.
fn lost_colour(line: &[u8]) -> &[u8] {
    let Some(code) = line.strip_prefix(b"[") else { return line };
    let end = code.iter().position(|byte| !matches!(byte, b'0'..=b'9' | b';')).unwrap_or(0);
    code[end..].strip_prefix(b"m").filter(|_| end > 0).unwrap_or(line)
}

/// `INFO 06-13 11:36:10 `: vLLM.
fn dated_level(line: &[u8]) -> Option<&[u8]> {
    const LEVELS: [&[u8]; 5] = [b"INFO ", b"WARNING ", b"ERROR ", b"DEBUG ", b"CRITICAL "];
    let rest = LEVELS.iter().find_map(|level| line.strip_prefix(*level))?;
    let (_, rest) = digits(rest, 2, 2)?;
    let (_, rest) = digits(rest.strip_prefix(b"-")?, 2, 2)?;
    clock(rest.strip_prefix(b" ")?)?.strip_prefix(b" ")
}

/// `[2026-09-17 11:37:01 TP0] `, `[11:37:01 DP0 TP0] `: that of `SGLang`. A bare time in brackets is other programs' as well.
fn bracketed_time(line: &[u8]) -> Option<&[u8]> {
    let inside = line.strip_prefix(b"[")?;
    let dated = date(inside);
    let mut rest = clock(dated.unwrap_or(inside))?;
    let mut ranked = false;
    while let Some(rank) = rest.strip_prefix(b" ") {
        let end = rank.iter().position(|byte| !byte.is_ascii_uppercase()).filter(|&end| end > 0)?;
        rest = digits(&rank[end..], 1, 4)?.1;
        ranked = true;
    }
    let rest = rest.strip_prefix(b"] ")?;
    (dated.is_some() || ranked).then_some(rest)
}

fn date(line: &[u8]) -> Option<&[u8]> {
    let (_, rest) = digits(line, 4, 4)?;
    let (_, rest) = digits(rest.strip_prefix(b"-")?, 2, 2)?;
    digits(rest.strip_prefix(b"-")?, 2, 2)?.1.strip_prefix(b" ")
}

/// ` INFO mistralrs_core::device_map: `, without the target, behind a time: a Rust program's `tracing`.
fn tracing(line: &[u8]) -> Option<&[u8]> {
    const LEVELS: [&[u8]; 5] = [b" INFO ", b" WARN ", b"ERROR ", b"DEBUG ", b"TRACE "];
    let message = LEVELS.iter().find_map(|level| line.strip_prefix(*level))?;
    // A target, or a span with its fields.
    let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b':' | b'-');
    let end = message.iter().position(|byte| !is_word(byte)).filter(|&end| end > 0)?;
    let is_target = message[..end].ends_with(b":") && message[end] == b' ';
    let is_span = message[end] == b'{';
    (message[0].is_ascii_alphabetic() && (is_target || is_span)).then_some(message)
}

/// `- INFO - `, `- flashinfer.jit - INFO - ` behind a time: Python's logging in its documented form.
fn dashed_level(line: &[u8]) -> Option<&[u8]> {
    const LEVELS: [&[u8]; 5] = [b"INFO", b"WARNING", b"ERROR", b"DEBUG", b"CRITICAL"];
    let rest = line.strip_prefix(b"- ")?;
    let levelled = |line: &'_ [u8]| -> Option<usize> {
        let level = LEVELS.iter().find(|level| line.starts_with(level))?;
        line[level.len()..].starts_with(b" - ").then_some(level.len() + 3)
    };
    if let Some(length) = levelled(rest) {
        return Some(&rest[length..]);
    }
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.');
    let end = rest.iter().position(|byte| !is_name(byte)).filter(|&end| end > 0)?;
    let rest = rest[end..].strip_prefix(b" - ")?;
    levelled(rest).map(|length| &rest[length..])
}

/// `[INFO ] `, padded to one width: stable-diffusion.cpp.
fn bracketed_level(line: &[u8]) -> Option<&[u8]> {
    const LEVELS: [&[u8]; 4] = [b"[INFO ] ", b"[WARN ] ", b"[DEBUG] ", b"[ERROR] "];
    LEVELS.iter().find_map(|level| line.strip_prefix(*level))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MESSAGE: &[u8] = b"loader::part: a message";

    #[test]
    fn every_frame_leaves_the_message() {
        let rows = [
            ("INFO 06-13 11:36:10 ", false, Some(Logger::Engines)),
            ("WARNING 06-13 11:36:10.123 ", false, Some(Logger::Engines)),
            ("(APIServer pid=1) INFO 10-06 11:23:31 ", false, Some(Logger::Engines)),
            ("[1;36m(APIServer pid=1)[0;0m INFO 10-06 11:23:31 ", false, Some(Logger::Engines)),
            ("(EngineCore_DP0 pid=123) ", false, Some(Logger::Plain)),
            (
                "(RayWorkerWrapper pid=41, ip=192.0.2.7) INFO 06-13 11:36:10 ",
                false,
                Some(Logger::Engines),
            ),
            ("[2026-09-17 11:37:01] ", false, Some(Logger::Engines)),
            ("[2026-09-17 11:37:01.250 DP0 TP0 EP0] ", false, Some(Logger::Engines)),
            ("[11:37:01 TP0] ", false, Some(Logger::Engines)),
            ("(SGLangEngine pid=41820) [2026-03-22 13:53:37 TP0] ", false, Some(Logger::Engines)),
            (" INFO ", true, Some(Logger::Stamped)),
            ("ERROR ", true, Some(Logger::Stamped)),
            (" WARN ", true, Some(Logger::Stamped)),
            ("- INFO - ", true, Some(Logger::Stamped)),
            ("- mlx_lm.server - WARNING - ", true, Some(Logger::Stamped)),
            ("[INFO ] ", false, Some(Logger::Plain)),
            ("[DEBUG] ", false, Some(Logger::Plain)),
            // Text, and prefixes of others.
            ("", false, None),
            ("INFO ", false, None),
            ("INFO: ", false, None),
            ("INFO 06-13 11:36 ", false, None),
            ("[INFO] ", false, None),
            ("[12:34:56] ", false, None),
            ("[2026-09-17 11:37:01 tp0] ", false, None),
            ("(a note pid=1) ", false, None),
            ("(note pid=x) ", false, None),
            ("( pid=1) ", false, None),
            ("[0;0m", false, None),
            (" INFO ", false, None),
            ("- INFO - ", false, None),
            ("- INFO ", true, None),
        ];
        for (frame, stamped, logger) in rows {
            let line = [frame.as_bytes(), MESSAGE].concat();
            let expected = logger.map(|logger| Unframed { message: MESSAGE, logger });
            assert_eq!(strip(&line, stamped), expected, "{frame:?}");
        }
    }

    #[test]
    fn a_level_before_other_words_than_a_target_is_text() {
        for line in [" INFO the model loaded", " INFO GRPC stderr id=1", " WARN 5: a", " INFO "] {
            assert_eq!(strip(line.as_bytes(), true), None, "{line:?}");
        }
    }
}
