//! Cuts a stream of bytes into lines of bounded length.
//!
//! Engines print banners, prompts and progress bars into one stream; whatever they print, a reader must hold no more of
//! it than one line's worth.

use std::num::NonZeroU32;

/// One line, without its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line<'a> {
    /// The line as printed, at most its buffer's maximum. Any byte but a line feed can be in it: NUL, bytes that are no
    /// UTF-8, and a carriage return that is not the line's last byte.
    pub bytes: &'a [u8],
    /// The bytes after these that the line had and that are left out; 0 for a line that is given whole.
    pub left_out: u64,
}

impl Line<'_> {
    /// Whether only the beginning of the line is given.
    pub const fn is_truncated(&self) -> bool {
        self.left_out > 0
    }
}

/// Cuts chunks of bytes, split anywhere, into lines.
///
/// - A line ends with LF or CRLF. A lone CR ends none: it is how a progress bar redraws itself, and its line is given
///   when it ends.
/// - A line longer than the maximum is given once, when it ends: its first bytes and how many were left out.
/// - A line without an end is given by [`finish`](Self::finish), never earlier: half a line matches nothing, or worse,
///   something else.
///
/// It holds at most one line's maximum, whatever comes.
///
/// ```
/// use serving_sentinel::output::LineBuffer;
///
/// let (mut buffer, mut lines) = (LineBuffer::default(), Vec::new());
/// for chunk in [&b"first\r\nsec"[..], b"ond\nthe last"] {
///     buffer.push(chunk, |line| lines.push(line.bytes.to_vec()));
/// }
/// buffer.finish(|line| lines.push(line.bytes.to_vec()));
/// assert_eq!(lines, [&b"first"[..], b"second", b"the last"]);
/// ```
#[derive(Clone, Debug)]
pub struct LineBuffer {
    max_bytes: usize,
    /// The beginning of the line under way.
    held: Vec<u8>,
    /// All bytes of the line under way, held or not.
    length: u64,
    /// Whether the line under way ends, so far, with a carriage return.
    ends_in_cr: bool,
}

impl Default for LineBuffer {
    fn default() -> Self {
        Self::new(Self::DEFAULT_MAX_BYTES)
    }
}

impl LineBuffer {
    /// 16 KiB: the longest line of evidence recorded from any engine is under 2 KiB, and what is longer is a prompt or
    /// a list of tokens.
    pub const DEFAULT_MAX_BYTES: NonZeroU32 = NonZeroU32::new(16 * 1024).unwrap();

    /// A buffer that gives at most `max_bytes` of a line.
    pub const fn new(max_bytes: NonZeroU32) -> Self {
        Self { max_bytes: max_bytes.get() as usize, held: Vec::new(), length: 0, ends_in_cr: false }
    }

    /// Takes the next bytes of the stream and gives each line that ends in them.
    pub fn push(&mut self, mut chunk: &[u8], mut each: impl FnMut(Line<'_>)) {
        while let Some(end) = chunk.iter().position(|byte| *byte == b'\n') {
            let (piece, rest) = chunk.split_at(end);
            if self.length == 0 {
                each(self.line(piece, piece.len() as u64, piece.ends_with(b"\r"))); // whole in the chunk: not copied
            } else {
                self.hold(piece);
                each(self.line(&self.held, self.length, self.ends_in_cr));
                self.clear();
            }
            chunk = &rest[1..];
        }
        self.hold(chunk);
    }

    /// The stream is over: gives the last line if it has no end.
    pub fn finish(&mut self, mut each: impl FnMut(Line<'_>)) {
        if self.length > 0 {
            each(self.line(&self.held, self.length, false));
            self.clear();
        }
    }

    fn hold(&mut self, piece: &[u8]) {
        let Some(last) = piece.last() else { return };
        let room = self.max_bytes - self.held.len();
        self.held.extend_from_slice(&piece[..piece.len().min(room)]);
        self.length += piece.len() as u64;
        self.ends_in_cr = *last == b'\r';
    }

    /// The line that begins with `held` and has `length` bytes, a carriage return of its end among them or not.
    fn line<'a>(&self, held: &'a [u8], length: u64, ends_in_cr: bool) -> Line<'a> {
        let length = length - u64::from(ends_in_cr);
        let given =
            usize::try_from(length).map_or(self.max_bytes, |length| length.min(self.max_bytes));
        Line { bytes: &held[..given], left_out: length - given as u64 }
    }

    fn clear(&mut self) {
        self.held.clear();
        self.length = 0;
        self.ends_in_cr = false;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn buffer(max_bytes: u32) -> LineBuffer {
        LineBuffer::new(NonZeroU32::new(max_bytes).unwrap())
    }

    fn cut<'a>(max_bytes: u32, chunks: impl IntoIterator<Item = &'a [u8]>) -> Vec<(Vec<u8>, u64)> {
        let (mut buffer, mut lines) = (buffer(max_bytes), Vec::new());
        for chunk in chunks {
            buffer.push(chunk, |line| lines.push((line.bytes.to_vec(), line.left_out)));
            assert!(buffer.held.len() <= max_bytes as usize, "holds {} bytes", buffer.held.len());
        }
        buffer.finish(|line| lines.push((line.bytes.to_vec(), line.left_out)));
        lines
    }

    #[test]
    fn lines_end_where_they_end_and_are_bounded() {
        type Row = (&'static str, &'static [u8], &'static [(&'static [u8], u64)]);
        let rows: [Row; 16] = [
            ("nothing", b"", &[]),
            ("an empty line", b"\n", &[(b"", 0)]),
            ("two lines", b"a\nb\n", &[(b"a", 0), (b"b", 0)]),
            ("CRLF", b"a\r\nb\r\n", &[(b"a", 0), (b"b", 0)]),
            ("an empty line of CRLF", b"\r\n", &[(b"", 0)]),
            ("only the CR before the LF is the end's", b"a\r\r\n", &[(b"a\r", 0)]),
            ("a CR within", b"10%\r20%\n", &[(b"10%\r20%", 0)]),
            ("a CR at the very end stays", b"10%\r", &[(b"10%\r", 0)]),
            ("no end", b"a\nb", &[(b"a", 0), (b"b", 0)]),
            ("NUL and no UTF-8", b"\0\xff\n", &[(b"\0\xff", 0)]),
            ("just the maximum", b"12345678\n", &[(b"12345678", 0)]),
            ("just the maximum, CRLF", b"12345678\r\n", &[(b"12345678", 0)]),
            ("one over", b"123456789\n", &[(b"12345678", 1)]),
            ("one over, CRLF", b"123456789\r\nb\n", &[(b"12345678", 1), (b"b", 0)]),
            ("one over, and it is a CR that stays", b"12345678\r\r\n", &[(b"12345678", 1)]),
            ("far over, without an end", b"12345678901234567890", &[(b"12345678", 12)]),
        ];
        for (case, input, expected) in rows {
            let expected: Vec<_> =
                expected.iter().map(|(bytes, left_out)| (bytes.to_vec(), *left_out)).collect();
            assert_eq!(cut(8, [input]), expected, "{case}, in one chunk");
            assert_eq!(cut(8, input.chunks(1)), expected, "{case}, byte by byte");
        }
    }

    #[test]
    fn a_progress_bar_that_never_ends_a_line_is_bounded() {
        let mut buffer = buffer(1024);
        for _ in 0..10_000 {
            buffer.push(b"\rloading 42% of the weights, as ever", |line| panic!("gave {line:?}"));
        }
        assert!(buffer.held.capacity() < 4096, "holds {} bytes", buffer.held.capacity());
    }

    #[test]
    fn an_unfinished_line_is_not_given_early() {
        let mut buffer = LineBuffer::default();
        buffer.push(b"offloaded 19/", |line| panic!("gave {line:?}"));
        let mut lines = Vec::new();
        buffer.push(b"19 layers\n", |line| lines.push(line.bytes.to_vec()));
        assert_eq!(lines, [b"offloaded 19/19 layers"]);
    }

    proptest! {
        #[test]
        fn any_bytes_split_anywhere_give_the_same_lines(
            // Few letters, so that line ends and long lines are both common.
            input in prop::collection::vec(prop::sample::select(b"ab\r\n\0\xff".to_vec()), 0..200),
            cuts in prop::collection::vec(0_usize..200, 0..20),
            max_bytes in 1_u32..20,
        ) {
            let mut cuts: Vec<_> = cuts.into_iter().map(|at| at.min(input.len())).collect();
            cuts.extend([0, input.len()]);
            cuts.sort_unstable();
            let chunks = cuts.windows(2).map(|pair| &input[pair[0]..pair[1]]);
            let lines = cut(max_bytes, chunks);
            prop_assert_eq!(&lines, &cut(max_bytes, [&input[..]]));

            // And they are what a reader with all memory of the world would give.
            let mut expected: Vec<_> = input.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
            let last = expected.pop().unwrap_or_default();
            for line in &mut expected {
                if line.ends_with(b"\r") {
                    line.pop();
                }
            }
            expected.extend((!last.is_empty()).then_some(last));
            prop_assert_eq!(lines.len(), expected.len());
            for ((given, left_out), whole) in lines.iter().zip(&expected) {
                prop_assert_eq!(given.len() as u64 + left_out, whole.len() as u64);
                prop_assert!(whole.starts_with(given));
                prop_assert!(*left_out == 0 || given.len() == max_bytes as usize);
            }
        }
    }
}
