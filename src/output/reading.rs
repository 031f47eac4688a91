//! The reading itself: takes what both pipes give, and hands each line to whom it concerns.
//!
//! It waits for nothing but the pipes. The observer comes first, so that no trouble with a log can hide evidence.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll, ready};
use std::thread;
use std::time::Duration;

use tokio::io::{AsyncRead, ReadBuf};
use tokio::sync::oneshot;
use tracing::Level;

use super::lines::{Line, LineBuffer};
use super::log_file::{CappedLog, LogFile};
use super::worker::{self, Batch, Item, Queue};
use super::{Observe, OutputReader, OutputSummary, Stream, events};

/// `serving.dropped.kind` of a line that is missing in the log file.
const LOG_LINE: &str = "log_line";
/// `serving.dropped.kind` of a line of which no event was said.
const ENGINE_EVENT: &str = "engine_event";

/// As much as a pipe holds on Linux.
const CHUNK_BYTES: usize = 64 * 1024;
/// Reads in one turn before other tasks of the thread get theirs.
const READS_A_TURN: usize = 8;

/// Two pipes, read in turns.
pub(super) struct Pipes<A, B> {
    stdout: Option<A>,
    stderr: Option<B>,
    chunk: Box<[u8]>,
}

impl<A: AsyncRead + Unpin, B: AsyncRead + Unpin> Pipes<A, B> {
    pub(super) fn new(stdout: Option<A>, stderr: Option<B>) -> Self {
        Self { stdout, stderr, chunk: vec![0; CHUNK_BYTES].into() }
    }

    /// Reads what there is; ready when both are closed.
    pub(super) fn poll<O: Observe>(
        &mut self,
        context: &mut Context<'_>,
        reading: &mut Reading<O>,
    ) -> Poll<()> {
        for _ in 0..READS_A_TURN {
            let stdout = poll_pipe(&mut self.stdout, context, &mut self.chunk, |read| {
                reading.take(Stream::Stdout, read)
            });
            let stderr = poll_pipe(&mut self.stderr, context, &mut self.chunk, |read| {
                reading.take(Stream::Stderr, read)
            });
            if self.stdout.is_none() && self.stderr.is_none() {
                return Poll::Ready(());
            }
            if stdout.is_pending() && stderr.is_pending() {
                return Poll::Pending;
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

/// What one read gave.
enum Read<'a> {
    Bytes(&'a [u8]),
    End,
    Failed(&'a io::Error),
}

/// Reads once, and lets go of a pipe that ended or failed. Pending also for a pipe that is gone.
fn poll_pipe<R: AsyncRead + Unpin>(
    pipe: &mut Option<R>,
    context: &mut Context<'_>,
    chunk: &mut [u8],
    take: impl FnOnce(Read<'_>),
) -> Poll<()> {
    let Some(reader) = pipe else { return Poll::Pending };
    let mut chunk = ReadBuf::new(chunk);
    match ready!(Pin::new(reader).poll_read(context, &mut chunk)) {
        Ok(()) if chunk.filled().is_empty() => {
            *pipe = None;
            take(Read::End);
        }
        Ok(()) => take(Read::Bytes(chunk.filled())),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
        Err(error) => {
            *pipe = None;
            take(Read::Failed(&error));
        }
    }
    Poll::Ready(())
}

/// Lines under way, and where they go. Dropped at any moment, it hands on what was read and waits, for a bounded time,
/// until that is written.
#[derive(Debug)]
pub(super) struct Reading<O: Observe> {
    stdout: LineBuffer,
    stderr: LineBuffer,
    desk: Desk<O>,
    /// Whether all was handed on and written.
    finished: bool,
}

/// Hands lines on.
#[derive(Debug)]
struct Desk<O> {
    observer: Arc<O>,
    /// Whether lines are said as events.
    says_lines: bool,
    sinks: Sinks,
    summary: OutputSummary,
}

/// The workers a reader has.
#[derive(Clone, Debug)]
struct Sinks {
    log: Option<Arc<Queue>>,
    trouble: Arc<Mutex<LogTrouble>>,
    events: Arc<Queue>,
    flush_limit: Duration,
}

/// What went wrong with the log file so far.
#[derive(Debug, Default)]
struct LogTrouble {
    lost_lines: u64,
    errors: u64,
    last: Option<String>,
}

// === impl Reading ===

impl<O: Observe> Reading<O> {
    pub(super) fn start(reader: OutputReader<O>) -> Self {
        let observer = Arc::new(reader.observer);
        let says =
            events::sayer(reader.dispatch, reader.lane, reader.event_level.unwrap_or(Level::INFO));
        let events = worker::start("sentinel-events", reader.queue_bytes, says);
        let trouble = Arc::default();
        let log = reader.log_file.map(|kept| {
            let writes =
                log_writer(kept, Arc::downgrade(&observer), Arc::clone(&trouble), events.clone());
            worker::start("sentinel-log", reader.queue_bytes, writes)
        });
        let buffer = LineBuffer::new(reader.max_line_bytes);
        Self {
            stdout: buffer.clone(),
            stderr: buffer,
            desk: Desk {
                observer,
                says_lines: reader.event_level.is_some(),
                sinks: Sinks { log, trouble, events, flush_limit: reader.flush_limit },
                summary: OutputSummary::default(),
            },
            finished: false,
        }
    }

    fn take(&mut self, stream: Stream, read: Read<'_>) {
        let Self { stdout, stderr, desk, .. } = self;
        let (lines, read_error) = match stream {
            Stream::Stdout => (stdout, &mut desk.summary.stdout_error),
            Stream::Stderr => (stderr, &mut desk.summary.stderr_error),
        };
        match read {
            Read::Bytes(bytes) => {
                desk.summary.bytes += bytes.len() as u64;
                return lines.push(bytes, |line| desk.line(stream, line));
            }
            Read::End => {}
            Read::Failed(error) => *read_error = Some(error.to_string()),
        }
        lines.finish(|line| desk.line(stream, line));
    }

    /// Both pipes are closed: waits until all is written, and sums up.
    pub(super) async fn finish(mut self) -> OutputSummary {
        self.desk.observer.output_closed();
        let (flushed, lost) = oneshot::channel();
        let sinks = self.desk.sinks.clone();
        // The wait is the sinks'; it is a thread's, so that it is not this task's.
        let flush = move || drop(flushed.send(sinks.flush()));
        drop(thread::Builder::new().name("sentinel-flush".to_owned()).spawn(flush));
        if let Ok(lost) = lost.await {
            self.finished = true;
            self.desk.lost(lost);
        }
        std::mem::take(&mut self.desk.summary)
    }
}

impl<O: Observe> Drop for Reading<O> {
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        let Self { stdout, stderr, desk, .. } = self;
        stdout.finish(|line| desk.line(Stream::Stdout, line));
        stderr.finish(|line| desk.line(Stream::Stderr, line));
        desk.observer.output_closed();
        let lost = desk.sinks.flush();
        desk.lost(lost);
    }
}

// === impl Desk ===

impl<O: Observe> Desk<O> {
    fn line(&mut self, stream: Stream, line: Line<'_>) {
        self.observer.observe_line(line.bytes);
        self.summary.lines += 1;
        if line.is_truncated() {
            self.summary.truncated += 1;
            self.observer.count_truncated(1);
        }
        let item = Item::Line { stream, left_out: line.left_out };
        if let Some(log) = &self.sinks.log
            && !log.push(item, line.bytes)
        {
            self.summary.dropped_log_lines += 1;
            self.observer.count_dropped(LOG_LINE, 1);
        }
        if self.says_lines && !self.sinks.events.push(item, line.bytes) {
            self.summary.dropped_events += 1;
            self.observer.count_dropped(ENGINE_EVENT, 1);
        }
    }

    /// Takes what the sinks did not come to, and what the log's writer could not do.
    fn lost(&mut self, lost: Lost) {
        for (kind, items) in [(LOG_LINE, lost.log_lines), (ENGINE_EVENT, lost.events)] {
            if items > 0 {
                self.observer.count_dropped(kind, items);
            }
        }
        let mut trouble = self.sinks.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        self.summary.dropped_log_lines += lost.log_lines + trouble.lost_lines;
        self.summary.dropped_events += lost.events;
        self.summary.write_errors = trouble.errors;
        self.summary.last_write_error = trouble.last.take();
    }
}

/// Items that a flush had no time for.
struct Lost {
    log_lines: u64,
    events: u64,
}

impl Sinks {
    /// Ends the workers. The log's comes first: its trouble is told by the other.
    fn flush(&self) -> Lost {
        let log_lines = self.log.as_ref().map_or(0, |log| log.finish(self.flush_limit));
        Lost { log_lines, events: self.events.finish(self.flush_limit) }
    }
}

/// What the log's worker does with a batch. It holds the observer weakly: a disk that hangs for good keeps no lane
/// open.
fn log_writer<O: Observe>(
    kept: LogFile,
    observer: Weak<O>,
    trouble: Arc<Mutex<LogTrouble>>,
    events: Arc<Queue>,
) -> impl FnMut(&Batch) + Send + 'static {
    let path = kept.path().to_owned();
    let mut log = CappedLog::new(kept);
    move |batch| {
        let Err(failed) = log.write(batch.lines()) else { return };
        if let Some(observer) = observer.upgrade() {
            observer.count_dropped(LOG_LINE, failed.lost_lines);
        }
        let why = format!("{}: {}", path.display(), failed.source);
        let mut trouble = trouble.lock().unwrap_or_else(PoisonError::into_inner);
        if trouble.errors == 0 {
            events.push(Item::LogFailed, why.as_bytes());
        }
        trouble.errors += 1;
        trouble.lost_lines += failed.lost_lines;
        trouble.last = Some(why);
    }
}
