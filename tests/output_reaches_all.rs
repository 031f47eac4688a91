//! Each line of an engine reaches the observer, the log file and the subscriber, whatever is in it and however the
//! reading ends.
#![cfg(feature = "output")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use std::fmt::{self, Write as _};
use std::io;
use std::num::NonZeroU32;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use serving_sentinel::lane::LaneConfig;
use serving_sentinel::layer::{DroppedKind, Lane, SentinelLayer};
use serving_sentinel::output::{LogFile, Observe, OutputReader, OutputSummary};
use serving_sentinel::placement::{PlacementVerdict, Plan};
use tokio::io::{AsyncRead, AsyncWriteExt as _, ReadBuf, duplex};
use tokio::sync::mpsc;
use tracing::field::{Field, Visit};
use tracing::{Dispatch, Event, Level, Subscriber, dispatcher};
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::{Context as LayerContext, Layer, SubscriberExt as _};

/// Sends on what it is given.
struct Wire(mpsc::UnboundedSender<String>);

impl Wire {
    fn new() -> (Self, mpsc::UnboundedReceiver<String>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (Self(sender), receiver)
    }

    fn tell(&self, what: String) {
        self.0.send(what).ok();
    }
}

impl Observe for Wire {
    fn observe_line(&self, line: &[u8]) {
        self.tell(format!("{:?}", String::from_utf8_lossy(line)));
    }

    fn count_truncated(&self, lines: u64) {
        self.tell(format!("truncated {lines}"));
    }

    fn count_dropped(&self, kind: DroppedKind, items: u64) {
        self.tell(format!("dropped {items} {}", kind.as_str()));
    }

    fn output_closed(&self) {
        self.tell("closed".to_owned());
    }
}

fn told(mut wire: mpsc::UnboundedReceiver<String>) -> Vec<String> {
    std::iter::from_fn(|| wire.try_recv().ok()).collect()
}

/// Keeps events as `LEVEL name field=value ..`.
#[derive(Clone, Default)]
struct Events(Arc<Mutex<Vec<String>>>);

impl<S: Subscriber> Layer<S> for Events {
    fn on_event(&self, event: &Event<'_>, _: LayerContext<'_, S>) {
        let meta = event.metadata();
        assert_eq!(meta.target(), "serving_sentinel::engine");
        let mut text = Text(format!("{} {}", meta.level(), meta.name()));
        event.record(&mut text);
        self.0.lock().unwrap().push(text.0);
    }
}

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        write!(self.0, " {field}={value:?}").unwrap();
    }
}

#[tokio::test]
async fn lines_go_to_all_three_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("engine.log");
    let (wire, observed) = Wire::new();
    let events = Events::default();
    let dispatch = Dispatch::new(tracing_subscriber::registry().with(events.clone()));
    let summary =
        dispatcher::with_default(&dispatch, || OutputReader::with_observer("chat-0", wire))
            .with_log_file(LogFile::new(&path))
            .with_max_line_bytes(NonZeroU32::new(12).unwrap())
            .run(None::<&[u8]>, Some(&b"one\r\n\xff\0\na line that is long\nno end"[..]))
            .await;

    assert_eq!(
        told(observed),
        [
            r#""one""#,
            "\"\u{fffd}\\0\"",
            r#""a line that ""#,
            "truncated 1",
            r#""no end""#,
            "closed"
        ]
    );
    assert_eq!(
        std::fs::read(&path).unwrap(),
        b"one\n\xff\0\na line that  [serving-sentinel: 7 bytes left out]\nno end\n"
    );
    let start = r#"INFO serving.engine.line serving.lane.name="chat-0" stream="stderr""#;
    assert_eq!(
        *events.0.lock().unwrap(),
        [
            format!(r#"{start} line="one""#),
            format!("{start} line=\"\u{fffd}\\0\""),
            format!(r#"{start} truncated=true line="a line that ""#),
            format!(r#"{start} line="no end""#),
        ]
    );
    assert_eq!((summary.lines, summary.bytes, summary.truncated), (4, 34, 1));
    assert_eq!(
        (summary.dropped_log_lines, summary.dropped_events, summary.write_errors),
        (0, 0, 0)
    );
}

#[tokio::test]
async fn the_level_of_the_events_is_the_callers() {
    for level in [Level::ERROR, Level::WARN, Level::INFO, Level::DEBUG, Level::TRACE] {
        let events = Events::default();
        let dispatch = Dispatch::new(tracing_subscriber::registry().with(events.clone()));
        let reader = || {
            dispatcher::with_default(&dispatch, || {
                OutputReader::with_observer("chat-0", Wire::new().0)
            })
        };
        reader().with_event_level(level).run(Some(&b"a\n"[..]), None::<&[u8]>).await;
        reader().without_events().run(Some(&b"b\n"[..]), None::<&[u8]>).await;
        let said = events.0.lock().unwrap();
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].starts_with(&level.to_string()), "{said:?}");
    }
}

/// Gives a line's beginning, then fails.
struct Broken(Option<&'static [u8]>);

impl AsyncRead for Broken {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        chunk: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Some(bytes) = self.0.take() else {
            return Poll::Ready(Err(io::Error::other("the pipe burst")));
        };
        chunk.put_slice(bytes);
        Poll::Ready(Ok(()))
    }
}

#[tokio::test]
async fn a_stream_that_fails_ends_alone() {
    let (mut engine, stderr) = duplex(64);
    let (wire, mut observed) = Wire::new();
    let reader = OutputReader::with_observer("chat-0", wire);
    let reading = tokio::spawn(reader.run(Some(Broken(Some(b"half a li"))), Some(stderr)));
    assert_eq!(observed.recv().await.unwrap(), r#""half a li""#);
    engine.write_all(b"still here\n").await.unwrap();
    assert_eq!(observed.recv().await.unwrap(), r#""still here""#);
    drop(engine);
    let summary = reading.await.unwrap();
    assert_eq!(summary.stdout_error.as_deref(), Some("the pipe burst"));
    assert_eq!(summary.stderr_error, None);
}

#[tokio::test]
async fn a_reader_that_is_dropped_loses_nothing_it_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("engine.log");
    let (mut engine, stdout) = duplex(64);
    let (wire, mut observed) = Wire::new();
    let reader = OutputReader::with_observer("chat-0", wire).with_log_file(LogFile::new(&path));
    let reading = tokio::spawn(reader.run(Some(stdout), None::<&[u8]>));
    engine.write_all(b"whole\nhal").await.unwrap();
    assert_eq!(observed.recv().await.unwrap(), r#""whole""#);
    reading.abort();
    assert!(reading.await.unwrap_err().is_cancelled());
    assert_eq!(told(observed), [r#""hal""#, "closed"]);
    assert_eq!(std::fs::read(&path).unwrap(), b"whole\nhal\n");
}

#[tokio::test]
async fn without_a_pipe_there_is_nothing_to_wait_for() {
    let (wire, observed) = Wire::new();
    let summary =
        OutputReader::with_observer("chat-0", wire).run(None::<&[u8]>, None::<&[u8]>).await;
    assert_eq!(told(observed), ["closed"]);
    assert_eq!(summary, OutputSummary::default());
}

#[tokio::test]
async fn a_watched_engine_is_judged_and_its_lines_are_said() {
    let log = include_bytes!("fixtures/cases/006-cpu-only-build-no-banner.log");
    let events = Events::default();
    let dispatch = Dispatch::new(
        tracing_subscriber::registry()
            .with(
                events
                    .clone()
                    .with_filter(filter_fn(|meta| meta.target() == "serving_sentinel::engine")),
            )
            .with(SentinelLayer::default()),
    );
    let config = LaneConfig::new("chat-0").with_plan(Plan::GPU);
    let lane = dispatcher::with_default(&dispatch, || Lane::open(config));
    let summary = tokio::spawn(lane.watch(None::<&[u8]>, Some(&log[..]))).await.unwrap();
    lane.ready();
    let placement = lane.snapshot().unwrap().placement.unwrap();
    assert_eq!(placement.verdict, PlacementVerdict::CpuFallback);
    assert_eq!(
        events.0.lock().unwrap().len() as u64,
        summary.lines,
        "in the program's own log, too"
    );
}
