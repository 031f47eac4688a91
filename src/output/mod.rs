//! Reads an engine's output: bounded lines to the sentinel, a capped log file, one event a line.
//!
//! An engine whose output nobody takes stops at its next word. So both pipes are read as long as they are open,
//! whatever becomes of the lines: a log on a full disk, a terminal that nobody reads and a collector that is gone cost
//! lines in that place, counted, and never a moment of the engine.
//!
//! ```text
//!   stdout --+                    +--> the lane (evidence)          first, in place
//!            +--> bounded lines --+--> queue --> log file           a thread
//!   stderr --+                    +--> queue --> tracing events     a thread
//! ```
//!
//! | setting | default |
//! |---|---|
//! | [`with_max_line_bytes`](OutputReader::with_max_line_bytes) | 16 KiB |
//! | [`with_log_file`](OutputReader::with_log_file) | none; a [`LogFile`] has a cap of 64 MiB |
//! | [`with_event_level`](OutputReader::with_event_level) | INFO |
//! | [`with_queue_bytes`](OutputReader::with_queue_bytes) | 1 MiB for the log, 1 MiB for the events |
//! | [`with_flush_limit`](OutputReader::with_flush_limit) | 2 s for the log, 2 s for the events |
//!
//! Memory is bounded by these: two lines, a chunk of 64 KiB, and per queue twice its bytes (what waits, and what is
//! being written).

mod events;
pub mod launch;
mod lines;
mod log_file;
mod pipes;
mod reading;
mod worker;

use std::future::poll_fn;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncRead;
use tracing::{Dispatch, Level, dispatcher};

use crate::layer::{DroppedKind, Lane};

pub use lines::{Line, LineBuffer};
pub use log_file::{LogFile, LogFileError};

/// Takes what a reader reads. A [`Lane`] does; a test or a program of its own can.
///
/// It is called on the task that reads, so none of it may block.
pub trait Observe: Send + Sync + 'static {
    /// Takes one line, without its end.
    fn observe_line(&self, line: &[u8]);

    /// Counts lines of which only the beginning was given.
    fn count_truncated(&self, lines: u64);

    /// Counts what did not reach its place.
    fn count_dropped(&self, kind: DroppedKind, items: u64);

    /// No line comes any more: both streams are closed, or nobody reads them.
    fn output_closed(&self);
}

impl Observe for Lane {
    fn observe_line(&self, line: &[u8]) {
        Lane::observe_line(self, line);
    }

    fn count_truncated(&self, lines: u64) {
        Lane::count_truncated(self, lines);
    }

    fn count_dropped(&self, kind: DroppedKind, items: u64) {
        Lane::count_dropped(self, kind, items);
    }

    fn output_closed(&self) {
        Lane::output_closed(self);
    }
}

/// One of a child's two output streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stream {
    Stdout,
    Stderr,
}

impl Stream {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }
}

/// What became of an engine's output. All counts are of this reader alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OutputSummary {
    /// Lines read and observed.
    pub lines: u64,
    /// Bytes read, line ends among them.
    pub bytes: u64,
    /// Lines of which only the beginning was given.
    pub truncated: u64,
    /// Lines missing in the log file: it was too slow, failed, or hung.
    pub dropped_log_lines: u64,
    /// Lines of which no event was said: the subscriber was too slow, failed, or hung.
    pub dropped_events: u64,
    /// Writes to the log file that failed.
    pub write_errors: u64,
    /// The last of them, with the path; `None` when none failed.
    pub last_write_error: Option<String>,
    /// Why reading stdout failed; `None` when it was read to its end.
    pub stdout_error: Option<String>,
    /// Why reading stderr failed; `None` when it was read to its end.
    pub stderr_error: Option<String>,
}

/// Reads an engine's stdout and stderr. The module's page says where the lines go and names all defaults.
///
/// ```no_run
/// # async fn example(lane: serving_sentinel::layer::Lane) -> Result<(), Box<dyn std::error::Error>> {
/// use serving_sentinel::output::{LogFile, OutputReader};
/// use std::process::Stdio;
///
/// let mut engine =
///     tokio::process::Command::new("llama-server").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
/// let reader = OutputReader::new(&lane).with_log_file(LogFile::new("/var/log/engines/chat-0.log"));
/// let reading = tokio::spawn(reader.run(engine.stdout.take(), engine.stderr.take()));
///
/// let status = engine.wait().await?;
/// let summary = reading.await?; // its last words come before its end
/// lane.ended(&status.to_string());
/// assert_eq!(summary.dropped_log_lines, 0, "{summary:?}");
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct OutputReader<O = Lane> {
    observer: O,
    lane: Arc<str>,
    dispatch: Dispatch,
    max_line_bytes: NonZeroU32,
    log_file: Option<LogFile>,
    event_level: Option<Level>,
    queue_bytes: NonZeroU32,
    flush_limit: Duration,
}

impl OutputReader {
    /// 1 MiB: several loads of an engine at its most talkative.
    pub const DEFAULT_QUEUE_BYTES: NonZeroU32 = NonZeroU32::new(1024 * 1024).unwrap();
    /// 2 s: a disk or terminal that works needs less, and one that hangs is not worth more.
    pub const DEFAULT_FLUSH_LIMIT: Duration = Duration::from_secs(2);

    /// A reader for `lane`. Its events go to the subscriber that the lane reports to.
    pub fn new(lane: &Lane) -> Self {
        let dispatch = lane.dispatch().unwrap_or_else(Dispatch::none);
        Self::with(lane.clone(), lane.name().into(), dispatch)
    }
}

impl<O: Observe> OutputReader<O> {
    /// A reader for an observer of one's own. Its events name `lane` and go to the subscriber that is current now.
    pub fn with_observer(lane: impl Into<Arc<str>>, observer: O) -> Self {
        Self::with(observer, lane.into(), dispatcher::get_default(Clone::clone))
    }

    fn with(observer: O, lane: Arc<str>, dispatch: Dispatch) -> Self {
        Self {
            observer,
            lane,
            dispatch,
            max_line_bytes: LineBuffer::DEFAULT_MAX_BYTES,
            log_file: None,
            event_level: Some(Level::INFO),
            queue_bytes: OutputReader::DEFAULT_QUEUE_BYTES,
            flush_limit: OutputReader::DEFAULT_FLUSH_LIMIT,
        }
    }

    /// Sets how many bytes of a line are taken; the rest of a longer one is left out, and counted.
    ///
    /// By default, this is [`LineBuffer::DEFAULT_MAX_BYTES`].
    #[must_use]
    pub fn with_max_line_bytes(self, max_line_bytes: NonZeroU32) -> Self {
        Self { max_line_bytes, ..self }
    }

    /// Keeps the lines in a file, too.
    ///
    /// By default, there is none.
    #[must_use]
    pub fn with_log_file(self, log_file: LogFile) -> Self {
        Self { log_file: Some(log_file), ..self }
    }

    /// Sets the level at which each line is said as an event: name `serving.engine.line`, target
    /// `serving_sentinel::engine`, fields `serving.lane.name`, `stream` (`stdout` or `stderr`), `truncated` (only when
    /// it is) and `line` (bytes that are no UTF-8 replaced).
    ///
    /// They are for the program's own log. Lines can hold prompts: what exports logs leaves this target out, unless the
    /// operator wants them exported.
    ///
    /// By default, this is [`Level::INFO`].
    #[must_use]
    pub fn with_event_level(self, level: Level) -> Self {
        Self { event_level: Some(level), ..self }
    }

    /// Says no line as an event.
    #[must_use]
    pub fn without_events(self) -> Self {
        Self { event_level: None, ..self }
    }

    /// Sets how many bytes wait for the log file at most, and as many for the subscriber. Lines over that are dropped
    /// there, and counted.
    ///
    /// By default, this is [`OutputReader::DEFAULT_QUEUE_BYTES`].
    #[must_use]
    pub fn with_queue_bytes(self, queue_bytes: NonZeroU32) -> Self {
        Self { queue_bytes, ..self }
    }

    /// Sets how long the end waits for the log file, and then for the subscriber, to take what was read.
    /// A thread that hangs longer is left behind, with what it holds, and its lines count as dropped.
    ///
    /// By default, this is [`OutputReader::DEFAULT_FLUSH_LIMIT`].
    #[must_use]
    pub fn with_flush_limit(self, flush_limit: Duration) -> Self {
        Self { flush_limit, ..self }
    }

    /// Reads both streams until both are closed, then waits, no longer than the flush limit each, for the log file and
    /// the subscriber. A stream that fails ends alone, and the summary says why.
    ///
    /// A stream closes when every process that holds it has closed it, an engine's children among them. The caller
    /// says [`Lane::ended`] when the process is over; this does not wait for it.
    ///
    /// Dropped before its end, it hands on what was read and waits in place, no longer than the flush limit each. The
    /// streams are closed then, and an engine that is still alive gets an error at its next word.
    ///
    /// It can be polled on any runtime that the streams can be polled on.
    pub async fn run<A, B>(self, stdout: Option<A>, stderr: Option<B>) -> OutputSummary
    where
        A: AsyncRead + Unpin + Send,
        B: AsyncRead + Unpin + Send,
    {
        let mut reading = reading::Reading::start(self);
        let mut pipes = pipes::Pipes::new(stdout, stderr);
        poll_fn(|context| pipes.poll(context, |stream, read| reading.take(stream, read))).await;
        reading.finish().await
    }
}

impl Lane {
    /// Reads the engine's stdout and stderr until both are closed: [`OutputReader::run`] with every default, for
    /// `tokio::spawn`.
    pub fn watch<A, B>(
        &self,
        stdout: Option<A>,
        stderr: Option<B>,
    ) -> impl Future<Output = OutputSummary> + Send + 'static + use<A, B>
    where
        A: AsyncRead + Unpin + Send + 'static,
        B: AsyncRead + Unpin + Send + 'static,
    {
        OutputReader::new(self).run(stdout, stderr)
    }
}
