//! A log file under a hard cap that keeps the beginning, where a load is told, and the end, where a fault is told.
//!
//! Three files side by side: `engine.log` is the head, and is closed once full; `engine.log.1` and `engine.log.2` are
//! the tail, older and newer. When the newer is full it takes the older one's place, so nothing is ever copied.
//! Between head and tail one line, the last of `engine.log`, says how many bytes are left out.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

/// Where an engine's lines are kept, and how much of them.
///
/// Lines are written as they came, stdout and stderr in the order in which they were read, each ended by a line feed.
/// The files are `engine.log` (the head), `engine.log.1` and `engine.log.2` (the tail), for a path of `engine.log`;
/// read all by `cat engine.log engine.log.1 engine.log.2`. The last two come only when the head is full.
///
/// | setting | default |
/// |---|---|
/// | [`with_cap_bytes`](Self::with_cap_bytes) | 64 MiB, all files together |
/// | [`with_head_share`](Self::with_head_share) | 0.25 |
///
/// A restart appends, so the head is that of the path's first run; a path for each run keeps each one's head. One
/// writer at a time. The folder must exist.
#[derive(Clone, Debug, PartialEq)]
pub struct LogFile {
    path: PathBuf,
    cap_bytes: u64,
    head_share: f64,
}

/// Why a log file cannot be kept as asked.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum LogFileError {
    /// The cap has no room for a head and a tail.
    #[error(
        "a cap of {given} bytes has no room for a log; give {} or more",
        LogFile::MIN_CAP_BYTES
    )]
    Cap {
        /// The cap given.
        given: u64,
    },
    /// The head's share leaves no head or no tail.
    #[error("{given} is not a share for the head of a log; give a number from 0.1 to 0.9")]
    HeadShare {
        /// The share given.
        given: f64,
    },
}

impl LogFile {
    /// 64 MiB: days of an engine at its usual verbosity, and no threat to a disk.
    pub const DEFAULT_CAP_BYTES: u64 = 64 * 1024 * 1024;
    /// 64 KiB.
    pub const MIN_CAP_BYTES: u64 = 64 * 1024;
    /// A quarter.
    pub const DEFAULT_HEAD_SHARE: f64 = 0.25;

    /// A log at `path`.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            cap_bytes: Self::DEFAULT_CAP_BYTES,
            head_share: Self::DEFAULT_HEAD_SHARE,
        }
    }

    /// Sets how many bytes the files take at most, all together and at any time.
    ///
    /// By default, this is [`DEFAULT_CAP_BYTES`](Self::DEFAULT_CAP_BYTES). A log found larger than a lowered cap is
    /// cut to it.
    ///
    /// # Errors
    ///
    /// [`LogFileError::Cap`] under [`MIN_CAP_BYTES`](Self::MIN_CAP_BYTES).
    pub fn with_cap_bytes(self, cap_bytes: u64) -> Result<Self, LogFileError> {
        if cap_bytes < Self::MIN_CAP_BYTES {
            return Err(LogFileError::Cap { given: cap_bytes });
        }
        Ok(Self { cap_bytes, ..self })
    }

    /// Sets the share of the cap that keeps the beginning.
    ///
    /// By default, this is [`DEFAULT_HEAD_SHARE`](Self::DEFAULT_HEAD_SHARE).
    ///
    /// # Errors
    ///
    /// [`LogFileError::HeadShare`] unless it is from 0.1 to 0.9.
    pub fn with_head_share(self, head_share: f64) -> Result<Self, LogFileError> {
        if !(0.1..=0.9).contains(&head_share) {
            return Err(LogFileError::HeadShare { given: head_share });
        }
        Ok(Self { head_share, ..self })
    }

    /// The path of the head.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The older half of the tail.
    fn older(&self) -> PathBuf {
        self.beside(".1")
    }

    /// The newer half of the tail.
    fn newer(&self) -> PathBuf {
        self.beside(".2")
    }

    fn beside(&self, suffix: &str) -> PathBuf {
        let mut path = OsString::from(&self.path);
        path.push(suffix);
        path.into()
    }

    /// The head's bytes, its marker among them.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a share of a size, between a tenth and nine tenths of it"
    )]
    fn head_bytes(&self) -> u64 {
        (self.cap_bytes as f64 * self.head_share) as u64
    }

    /// The bytes of each half of the tail.
    fn tail_bytes(&self) -> u64 {
        (self.cap_bytes - self.head_bytes()) / 2
    }

    /// What lines may take of one part. A byte is kept back for the end of a line that an earlier run broke off.
    fn room_of(&self, part: Part) -> u64 {
        match part {
            Part::Head => self.head_bytes() - MARKER_BYTES - 1,
            Part::Tail => self.tail_bytes() - 1,
        }
    }
}

/// The last line of a closed head. Its length never changes, so that the number in it can.
const MARKER_START: &str = "[serving-sentinel: ";
const MARKER_END: &str = " bytes left out here; the log goes on in the files .1 and .2]\n";
const MARKER_DIGITS: usize = 20;
const MARKER_BYTES: u64 = (MARKER_START.len() + MARKER_DIGITS + MARKER_END.len()) as u64;

fn marker(left_out: u64) -> String {
    format!("{MARKER_START}{left_out:>MARKER_DIGITS$}{MARKER_END}")
}

fn parse_marker(line: &[u8]) -> Option<u64> {
    let line = std::str::from_utf8(line).ok()?;
    line.strip_prefix(MARKER_START)?.strip_suffix(MARKER_END)?.trim_start().parse().ok()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Head,
    Tail,
}

/// Writes a [`LogFile`]. It blocks as files do: it is for a thread of its own.
///
/// A failed write is met like a restart: the next one opens the files anew and goes on from what is there.
#[derive(Debug)]
pub(super) struct CappedLog {
    kept: LogFile,
    open: Option<OpenLog>,
    /// Lines that are missing since the last one that is there, told before the next.
    missing: u64,
}

/// Lines that could not be written, and why.
#[derive(Debug)]
pub(super) struct WriteLogError {
    /// Those that are not there, or not as a whole, in any of the files.
    pub(super) lost_lines: u64,
    pub(super) source: io::Error,
}

impl CappedLog {
    pub(super) fn new(kept: LogFile) -> Self {
        Self { kept, open: None, missing: 0 }
    }

    /// Writes lines, each given with the bytes that were left out of it, and leaves nothing in a buffer. `refused`
    /// lines that should follow never came; a log with a hole says so.
    pub(super) fn write<'a>(
        &mut self,
        mut lines: impl Iterator<Item = (&'a [u8], u64)>,
        refused: u64,
    ) -> Result<(), WriteLogError> {
        let mut unwritten = 0;
        self.try_write(&mut lines, refused, &mut unwritten).map_err(|source| {
            let lost_lines = unwritten + lines.count() as u64;
            self.open = None;
            self.missing += lost_lines + refused;
            WriteLogError { lost_lines, source }
        })
    }

    /// `unwritten` counts the lines that were taken from `lines` and are in no file yet.
    fn try_write<'a>(
        &mut self,
        lines: impl Iterator<Item = (&'a [u8], u64)>,
        refused: u64,
        unwritten: &mut u64,
    ) -> io::Result<()> {
        let Self { kept, open, missing } = self;
        let open = match open {
            Some(open) => open,
            closed => closed.insert(OpenLog::open(kept)?),
        };
        open.append_hole(kept, *missing)?;
        let mut text = Vec::new();
        for (line, left_out) in lines {
            text.clear();
            text.extend_from_slice(line);
            if left_out > 0 {
                write!(text, " [serving-sentinel: {left_out} bytes left out]")?;
            }
            text.push(b'\n');
            if open.room(kept) < text.len() {
                open.flush()?;
                (*missing, *unwritten) = (0, 0);
            }
            *unwritten += 1;
            open.append(kept, &text)?;
        }
        open.append_hole(kept, refused)?;
        open.flush()?;
        *missing = 0;
        Ok(())
    }
}

/// The files as they are now, and the part that is written.
#[derive(Debug)]
struct OpenLog {
    file: File,
    part: Part,
    /// Bytes in `file`, and those that are about to be.
    bytes: u64,
    pending: Vec<u8>,
    /// The head's bytes without its marker; while the head is written, 0.
    head_bytes: u64,
    left_out: u64,
}

// === impl OpenLog ===

impl OpenLog {
    /// Opens what is there, and makes it fit.
    fn open(kept: &LogFile) -> io::Result<Self> {
        let mut head = append_to(&kept.path)?;
        let (mut head_bytes, marked) = head_of(&mut head)?;
        let (mut closed, mut left_out) = (marked.is_some(), marked.unwrap_or(0));

        // A cap that was lowered. The marker goes where the head is cut, so a cut head is a closed one.
        let room = kept.room_of(Part::Head);
        if head_bytes > room + 1 {
            left_out += head_bytes - room;
            head_bytes = room;
            head.set_len(head_bytes)?;
            end_line(&mut head, &mut head_bytes)?;
            head.write_all(marker(left_out).as_bytes())?;
            closed = true;
        }
        // Half a tail that does not fit goes, and so does a tail whose head is no more.
        for path in [kept.older(), kept.newer()] {
            let bytes = size_of_file(&path)?;
            if bytes > kept.tail_bytes() || (bytes > 0 && !closed) {
                fs::remove_file(&path)?;
                left_out += bytes;
                if closed {
                    mark(&kept.path, head_bytes, left_out)?;
                }
            }
        }

        let mut open = Self {
            file: head,
            part: Part::Head,
            bytes: head_bytes,
            pending: Vec::new(),
            head_bytes: 0,
            left_out,
        };
        if closed {
            open.file = append_to(&kept.newer())?;
            open.bytes = open.file.metadata()?.len();
            open.part = Part::Tail;
            open.head_bytes = head_bytes;
        }
        // A line that an earlier run, or a disk that was full, broke off.
        end_line(&mut open.file, &mut open.bytes)?;
        Ok(open)
    }

    fn room(&self, kept: &LogFile) -> usize {
        usize::try_from(kept.room_of(self.part).saturating_sub(self.bytes)).unwrap_or(usize::MAX)
    }

    /// Takes one line with its end, and begins the next file where it does not fit in this.
    fn append(&mut self, kept: &LogFile, mut text: &[u8]) -> io::Result<()> {
        while self.room(kept) < text.len() {
            // Longer than a whole file: it runs over the seam. The head ends with a whole line all the same.
            if self.part == Part::Tail && text.len() as u64 > kept.room_of(Part::Tail) {
                let (now, later) = text.split_at(self.room(kept));
                self.hold(now);
                text = later;
            }
            self.begin_next(kept)?;
        }
        self.hold(text);
        Ok(())
    }

    /// Says that lines are missing here.
    fn append_hole(&mut self, kept: &LogFile, lines: u64) -> io::Result<()> {
        if lines == 0 {
            return Ok(());
        }
        self.append(kept, format!("[serving-sentinel: {lines} lines left out here]\n").as_bytes())
    }

    fn hold(&mut self, text: &[u8]) {
        self.pending.extend_from_slice(text);
        self.bytes += text.len() as u64;
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.write_all(&self.pending)?;
        self.pending.clear();
        Ok(())
    }

    /// Closes the file that is full. Space is given back before it is taken: the sum never goes over the cap.
    fn begin_next(&mut self, kept: &LogFile) -> io::Result<()> {
        self.flush()?;
        match self.part {
            Part::Head => {
                self.file.write_all(marker(self.left_out).as_bytes())?;
                self.head_bytes = self.bytes;
                self.part = Part::Tail;
            }
            Part::Tail => {
                let bytes = size_of_file(&kept.older())?;
                if bytes > 0 {
                    self.left_out += bytes;
                    // Before they go: if all ends between the two, the marker says too much and not too little.
                    mark(&kept.path, self.head_bytes, self.left_out)?;
                }
                fs::rename(kept.newer(), kept.older())?;
            }
        }
        self.file = append_to(&kept.newer())?;
        self.bytes = 0;
        Ok(())
    }
}

fn append_to(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).append(true).create(true).open(path)
}

fn size_of_file(path: &Path) -> io::Result<u64> {
    match fs::metadata(path) {
        Ok(metadata) => Ok(metadata.len()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
        Err(error) => Err(error),
    }
}

/// The bytes of a head without its marker, and what the marker says if there is one.
fn head_of(head: &mut File) -> io::Result<(u64, Option<u64>)> {
    let bytes = head.metadata()?.len();
    let Some(before) = bytes.checked_sub(MARKER_BYTES) else { return Ok((bytes, None)) };
    let mut last = Vec::new();
    head.seek(SeekFrom::Start(before))?;
    head.take(MARKER_BYTES).read_to_end(&mut last)?;
    Ok(match parse_marker(&last) {
        Some(left_out) => (before, Some(left_out)),
        None => (bytes, None),
    })
}

/// Writes the marker over the one that a closed head has.
fn mark(path: &Path, head_bytes: u64, left_out: u64) -> io::Result<()> {
    let mut head = OpenOptions::new().write(true).open(path)?;
    head.seek(SeekFrom::Start(head_bytes))?;
    head.write_all(marker(left_out).as_bytes())
}

/// Ends the last line of a file if it has no end. `bytes` is the file's size, and is asked for first: an empty file can
/// be a pipe, which has no last byte.
fn end_line(file: &mut File, bytes: &mut u64) -> io::Result<()> {
    if *bytes == 0 {
        return Ok(());
    }
    let mut last = [0];
    file.seek(SeekFrom::Start(*bytes - 1))?;
    file.read_exact(&mut last)?;
    if last != *b"\n" {
        file.write_all(b"\n")?;
        *bytes += 1;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
