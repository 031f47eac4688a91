//! The engine never waits for its reader: whatever takes its lines may hang, fail or be full, and a child that prints
//! megabytes still comes to its end, with each of its lines observed.
#![cfg(feature = "output")]
#![cfg(unix)]
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking, its helpers too"
)]

use std::io;
use std::path::Path;
use std::pin::Pin;
use std::process::Stdio;
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll};
use std::time::Duration;

use serving_sentinel::layer::DroppedKind;
use serving_sentinel::output::{LogFile, Observe, OutputReader, OutputSummary};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::process::Command;
use tracing::{Dispatch, Event, Subscriber, dispatcher};
use tracing_subscriber::layer::{Context as LayerContext, Layer, SubscriberExt as _};

/// Lines that a child prints on each stream: some three megabytes, far over any pipe and any queue here.
const LINES: usize = 120_000;
/// Far over what a child needs, and what a hang never ends in.
const PATIENCE: Duration = Duration::from_secs(60);

/// Keeps what it is given.
#[derive(Clone, Default)]
struct Ledger(Arc<Mutex<Entries>>);

#[derive(Default)]
struct Entries {
    lines: Vec<Vec<u8>>,
    truncated: u64,
    dropped_log_lines: u64,
    dropped_events: u64,
    closed: u32,
}

impl Observe for Ledger {
    fn observe_line(&self, line: &[u8]) {
        self.0.lock().unwrap().lines.push(line.to_vec());
    }

    fn count_truncated(&self, lines: u64) {
        self.0.lock().unwrap().truncated += lines;
    }

    fn count_dropped(&self, kind: DroppedKind, items: u64) {
        let mut entries = self.0.lock().unwrap();
        match kind.as_str() {
            "log_line" => entries.dropped_log_lines += items,
            "engine_event" => entries.dropped_events += items,
            other => panic!("an unknown kind `{other}`"),
        }
    }

    fn output_closed(&self) {
        self.0.lock().unwrap().closed += 1;
    }
}

/// Does `act` with each event.
struct OnEvent<F>(F);

impl<S: Subscriber, F: Fn(&Event<'_>) + 'static> Layer<S> for OnEvent<F> {
    fn on_event(&self, event: &Event<'_>, _: LayerContext<'_, S>) {
        (self.0)(event);
    }
}

fn subscriber(act: impl Fn(&Event<'_>) + Send + Sync + 'static) -> Dispatch {
    Dispatch::new(tracing_subscriber::registry().with(OnEvent(act)))
}

/// A subscriber that comes back from no event.
fn hanging_subscriber() -> Dispatch {
    subscriber(|_| {
        loop {
            std::thread::park();
        }
    })
}

/// A log that opens and then takes no more than a pipe holds: a disk that hangs.
fn hanging_log(folder: &Path) -> LogFile {
    let path = folder.join("engine.log");
    assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
    LogFile::new(path)
}

/// Runs a talkative child under a reader, and checks that nothing reached the child or the ledger.
async fn talk(dispatch: &Dispatch, log_file: Option<LogFile>) -> OutputSummary {
    let script = format!(
        "seq -f 'out %.0f of an engine' {LINES} & seq -f 'err %.0f of an engine' {LINES} >&2; wait; exit 7"
    );
    let mut child = Command::new("/bin/sh")
        .args(["-c", &script])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let ledger = Ledger::default();
    let mut reader = dispatcher::with_default(dispatch, || {
        OutputReader::with_observer("chat-0", ledger.clone())
    })
    .with_flush_limit(Duration::from_millis(50));
    if let Some(log_file) = log_file {
        reader = reader.with_log_file(log_file);
    }
    let reading = tokio::spawn(reader.run(child.stdout.take(), child.stderr.take()));

    let status =
        tokio::time::timeout(PATIENCE, child.wait()).await.expect("the child waits for its reader");
    assert_eq!(status.unwrap().code(), Some(7), "the child ended by itself");
    let summary = tokio::time::timeout(PATIENCE, reading).await.expect("the reader ends").unwrap();

    let entries = ledger.0.lock().unwrap();
    for (stream, prefix) in [("stdout", "out "), ("stderr", "err ")] {
        let mut seen = entries.lines.iter().filter(|line| line.starts_with(prefix.as_bytes()));
        for number in 1..=LINES {
            let expected = format!("{prefix}{number} of an engine");
            assert_eq!(seen.next().map(Vec::as_slice), Some(expected.as_bytes()), "of {stream}");
        }
        assert_eq!(seen.next(), None);
    }
    assert_eq!(summary.lines, 2 * LINES as u64);
    assert_eq!(
        (entries.dropped_log_lines, entries.dropped_events),
        (summary.dropped_log_lines, summary.dropped_events)
    );
    assert_eq!(entries.closed, 1);
    summary
}

#[tokio::test]
async fn with_a_log_on_a_full_disk() {
    if !cfg!(target_os = "linux") {
        return; // no other system has a disk that is always full
    }
    let (sender, warnings) = mpsc::channel();
    let dispatch = subscriber(move |event| {
        if *event.metadata().level() == tracing::Level::WARN {
            sender.send(event.metadata().target()).unwrap();
        }
    });
    let summary = talk(&dispatch, Some(LogFile::new("/dev/full"))).await;
    assert_eq!(summary.dropped_log_lines, 2 * LINES as u64);
    assert!(summary.write_errors > 0);
    let why = summary.last_write_error.unwrap();
    assert!(why.starts_with("/dev/full: No space left"), "{why}");
    drop(dispatch);
    assert_eq!(warnings.iter().collect::<Vec<_>>(), ["serving_sentinel"], "said once");
}

#[tokio::test]
async fn with_a_log_that_hangs() {
    let folder = tempfile::tempdir().unwrap();
    let summary = talk(&Dispatch::none(), Some(hanging_log(folder.path()))).await;
    assert!(summary.dropped_log_lines > 0);
    assert_eq!((summary.write_errors, summary.dropped_events), (0, 0));
}

#[tokio::test]
async fn with_a_subscriber_that_hangs_and_the_log_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("engine.log");
    let summary = talk(&hanging_subscriber(), Some(LogFile::new(&path))).await;
    assert!(summary.dropped_events > 0);
    let written = std::fs::read_to_string(&path).unwrap().lines().count() as u64;
    assert!(
        written + summary.dropped_log_lines >= summary.lines,
        "{written} lines written, {summary:?}"
    );
}

#[tokio::test]
async fn with_a_subscriber_that_panics() {
    let summary = talk(&subscriber(|_| panic!("a fault of the subscriber's own")), None).await;
    assert!(summary.dropped_events > 0);
}

#[tokio::test]
async fn with_everything_hanging_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let summary = talk(&hanging_subscriber(), Some(hanging_log(folder.path()))).await;
    assert!(summary.dropped_log_lines > 0 && summary.dropped_events > 0);
}

/// Gives `a` without end.
struct Endless;

impl AsyncRead for Endless {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        chunk: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        chunk.initialize_unfilled().fill(b'a');
        chunk.advance(chunk.remaining());
        Poll::Ready(Ok(()))
    }
}

#[tokio::test(flavor = "current_thread")]
async fn an_engine_that_never_pauses_leaves_others_their_turn() {
    let reader = OutputReader::with_observer("chat-0", Ledger::default());
    let reading = tokio::spawn(reader.run(Some(Endless), None::<Endless>));
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    reading.abort();
    assert!(reading.await.unwrap_err().is_cancelled());
}
