//! What the loggers of other engines than llama.cpp put before a message: process names, levels, times, ranks.
//!
//! A logger's source file or target stays with the message: it is the first word of a format.

use super::prefix::{clock, digits, timestamp};

/// Takes off what a logger put before its message. `framed` tells whether all lines of that logger look so.
#[derive(Debug, PartialEq)]
pub(super) struct Framed<'a> {
    pub(super) message: &'a [u8],
    pub(super) framed: bool,
}

/// Takes a logger's words off `line`; `stamped` tells whether a time was taken off just before it. `None` where there
/// are none.
pub(super) fn strip(line: &[u8], stamped: bool) -> Option<Framed<'_>> {
    let unframed = |message| Framed { message, framed: false };
    let inner = process(line);
    let rest = inner.unwrap_or(line);
    if let Some(message) = dated_level(rest).or_else(|| bracketed_time(rest)) {
        return Some(Framed { message, framed: true });
    }
    let logged = tracing(rest, stamped)
        .or_else(|| dashed_level(rest, stamped))
        .or_else(|| bracketed_level(rest));
    logged.or(inner).map(unframed)
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

/// `[2026-09-17 11:37:01 TP0] `, `[11:37:01 DP0 TP0] `: SGLang. A bare time in brackets is other programs' as well.
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

/// `2026-08-22T10:38:13.123456Z  INFO mistralrs_core::device_map: `, without the target: a Rust program's `tracing`.
fn tracing(line: &[u8], stamped: bool) -> Option<&[u8]> {
    const LEVELS: [&[u8]; 5] = [b" INFO ", b" WARN ", b"ERROR ", b"DEBUG ", b"TRACE "];
    let levelled = |line| LEVELS.iter().find_map(|level| <[u8]>::strip_prefix(line, *level));
    let message = levelled(line).filter(|_| stamped).or_else(|| levelled(timestamp(line)?))?;
    // A target, or a span with its fields.
    let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b':' | b'-');
    let end = message.iter().position(|byte| !is_word(byte)).filter(|&end| end > 0)?;
    let is_target = message[..end].ends_with(b":") && message[end] == b' ';
    (message[0].is_ascii_alphabetic() && (is_target || message[end] == b'{')).then_some(message)
}

/// `- INFO - `, `- flashinfer.jit - INFO - ` behind a time: Python's logging in its documented form.
fn dashed_level(line: &[u8], stamped: bool) -> Option<&[u8]> {
    const LEVELS: [&[u8]; 5] = [b"INFO", b"WARNING", b"ERROR", b"DEBUG", b"CRITICAL"];
    let rest = line.strip_prefix(b"- ").filter(|_| stamped)?;
    let levelled = |line| {
        LEVELS.iter().find_map(|level| <[u8]>::strip_prefix(line, *level)?.strip_prefix(b" - "))
    };
    levelled(rest).or_else(|| {
        let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.');
        let end = rest.iter().position(|byte| !is_name(byte)).filter(|&end| end > 0)?;
        levelled(rest[end..].strip_prefix(b" - ")?)
    })
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
            ("INFO 06-13 11:36:10 ", false, Some(true)),
            ("WARNING 06-13 11:36:10.123 ", false, Some(true)),
            ("(APIServer pid=1) INFO 10-06 11:23:31 ", false, Some(true)),
            ("[1;36m(APIServer pid=1)[0;0m INFO 10-06 11:23:31 ", false, Some(true)),
            ("(EngineCore_DP0 pid=123) ", false, Some(false)),
            ("(RayWorkerWrapper pid=41, ip=192.0.2.7) INFO 06-13 11:36:10 ", false, Some(true)),
            ("[2026-09-17 11:37:01] ", false, Some(true)),
            ("[2026-09-17 11:37:01.250 DP0 TP0 EP0] ", false, Some(true)),
            ("[11:37:01 TP0] ", false, Some(true)),
            ("(SGLangEngine pid=41820) [2026-03-22 13:53:37 TP0] ", false, Some(true)),
            ("2026-08-22T10:38:13.123456Z  INFO ", false, Some(false)),
            ("2026-08-22T10:38:13.123456Z ERROR ", false, Some(false)),
            (" WARN ", true, Some(false)),
            ("- INFO - ", true, Some(false)),
            ("- mlx_lm.server - WARNING - ", true, Some(false)),
            ("[INFO ] ", false, Some(false)),
            ("[DEBUG] ", false, Some(false)),
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
        for (frame, stamped, framed) in rows {
            let line = [frame.as_bytes(), MESSAGE].concat();
            let expected = framed.map(|framed| Framed { message: MESSAGE, framed });
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
