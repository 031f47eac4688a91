//! Cuts what both pipes give into lines, and hands each line to whom it concerns.
//!
//! The observer comes first, so that no trouble with a log can hide evidence; then the queues, which take a line or
//! refuse it, and never wait.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use tokio::sync::oneshot;
use tracing::Level;

use super::lines::{Line, LineBuffer};
use super::log_file::{CappedLog, LogFile};
use super::pipes::Read;
use super::worker::{self, Batch, Item, Queue};
use super::{Observe, OutputReader, OutputSummary, Stream, events};
use crate::layer::DroppedKind;

/// Lines under way, and where they go. Dropped at any moment, it hands on what was read and waits, for a bounded time,
/// until that is written.
#[derive(Debug)]
pub(super) struct Reading<O: Observe> {
    stdout: LineBuffer,
    stderr: LineBuffer,
    desk: Desk<O>,
    stage: Stage,
}

/// How far a reading has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Reading,
    /// No line comes any more, and all were handed on.
    Ended,
    /// All that could be written in time is written.
    Flushed,
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
        // Lines for nobody's ears are not queued: they could only be dropped, and counted as a loss that is none.
        let says_lines = reader.event_level.is_some() && events::is_heard(&reader.dispatch);
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
                says_lines,
                sinks: Sinks { log, trouble, events, flush_limit: reader.flush_limit },
                summary: OutputSummary::default(),
            },
            stage: Stage::Reading,
        }
    }

    /// Takes one read of one stream.
    pub(super) fn take(&mut self, stream: Stream, read: Read<'_>) {
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
        self.end();
        let (flushed, lost) = oneshot::channel();
        let sinks = self.desk.sinks.clone();
        // Waiting for the workers blocks, so a thread does it and not this task.
        let flush = move || flushed.send(sinks.flush()).is_ok();
        drop(thread::Builder::new().name("sentinel-flush".to_owned()).spawn(flush));
        if let Ok(lost) = lost.await {
            self.stage = Stage::Flushed;
            self.desk.lost(lost);
        }
        std::mem::take(&mut self.desk.summary)
    }

    /// Hands on what is left of either stream.
    fn end(&mut self) {
        let Self { stdout, stderr, desk, .. } = self;
        stdout.finish(|line| desk.line(Stream::Stdout, line));
        stderr.finish(|line| desk.line(Stream::Stderr, line));
        desk.observer.output_closed();
        self.stage = Stage::Ended;
    }
}

impl<O: Observe> Drop for Reading<O> {
    fn drop(&mut self) {
        if self.stage == Stage::Reading {
            self.end();
        }
        if self.stage == Stage::Ended {
            let lost = self.desk.sinks.flush();
            self.desk.lost(lost);
        }
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
            self.observer.count_dropped(DroppedKind::LogLine, 1);
        }
        if self.says_lines && !self.sinks.events.push(item, line.bytes) {
            self.summary.dropped_events += 1;
            self.observer.count_dropped(DroppedKind::EngineEvent, 1);
        }
    }

    /// Takes what the sinks did not come to, and what the log's writer could not do.
    fn lost(&mut self, lost: Lost) {
        for (kind, items) in
            [(DroppedKind::LogLine, lost.log_lines), (DroppedKind::EngineEvent, lost.events)]
        {
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
#[derive(Clone, Copy, Debug)]
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
        let Err(failed) = log.write(batch.lines(), batch.refused()) else { return };
        if let Some(observer) = observer.upgrade() {
            observer.count_dropped(DroppedKind::LogLine, failed.lost_lines);
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
