//! What a person sees: on a terminal one table, redrawn in place, with log lines scrolling above it; elsewhere a line
//! for each change.
//!
//! Results go to stdout and logs to stderr. Both pass through here, so that neither tears the other.

use std::convert::Infallible;
use std::io::{self, IsTerminal as _, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serving_sentinel::layer::Lane;
use tokio::time::interval;
use tracing_subscriber::fmt::MakeWriter;

use crate::table::{self, Look, Row};

/// Often enough to look alive.
const REDRAW: Duration = Duration::from_millis(200);

/// Where the terminal does not say how wide it is, and where there is none: a file takes the whole table.
const DEFAULT_WIDTH: usize = 100;
const FILE_WIDTH: usize = 1000;

const BOLD: &str = "\x1b[1m";
const RED: &str = "\x1b[31m";
const RESET: &str = "\x1b[0m";
const CLEAR_BELOW: &str = "\x1b[J";

/// The two output streams of this process.
#[derive(Clone, Debug)]
pub(crate) struct Screen {
    kind: Kind,
    shared: Arc<Mutex<Shown>>,
}

#[derive(Clone, Copy, Debug)]
struct Kind {
    /// stdout is a terminal that can be redrawn.
    live: bool,
    /// stderr is the same terminal, so far as can be told.
    logs_on_terminal: bool,
    colour: bool,
}

/// What is on the terminal now, or was said last of each lane.
#[derive(Debug, Default)]
struct Shown {
    table: Vec<(Look, String)>,
    said: Vec<String>,
}

impl Screen {
    pub(crate) fn new() -> Self {
        let dumb = std::env::var_os("TERM").is_some_and(|terminal| terminal == "dumb");
        let no_colour = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let kind = Kind {
            live: io::stdout().is_terminal() && !dumb,
            logs_on_terminal: io::stderr().is_terminal(),
            colour: !no_colour && !dumb,
        };
        Self { kind, shared: Arc::default() }
    }

    /// Whether log lines may have colours.
    pub(crate) fn colours_logs(&self) -> bool {
        self.kind.colour && self.kind.logs_on_terminal
    }

    /// Says something once, above the table.
    pub(crate) fn say(&self, text: &str) {
        self.above(|| writeln!(io::stdout(), "{text}"));
    }

    /// Shows the lanes as they are, over and over.
    pub(crate) async fn follow(&self, lanes: &[Lane]) -> Infallible {
        let mut redraw = interval(REDRAW);
        loop {
            redraw.tick().await;
            self.show(lanes);
        }
    }

    fn show(&self, lanes: &[Lane]) {
        let rows = rows(lanes);
        let mut shown = self.lock();
        if !self.kind.live {
            for row in rows.iter().filter(|row| !shown.said.contains(&row.line())) {
                print(&format!("{}\n", row.line()));
            }
            shown.said = rows.iter().map(Row::line).collect();
            return;
        }
        let table = table::lines(&rows, width());
        if table != shown.table {
            self.replace(&mut shown, table);
        }
    }

    /// Shows the lanes for the last time: what is said from here on stands below.
    pub(crate) fn finish(&self, lanes: &[Lane]) {
        self.show(lanes);
        let mut shown = self.lock();
        if !self.kind.live {
            print("\n");
            self.draw(&table::lines(&rows(lanes), FILE_WIDTH));
        }
        shown.table.clear();
    }

    fn replace(&self, shown: &mut Shown, table: Vec<(Look, String)>) {
        erase(&shown.table);
        shown.table = table;
        self.draw(&shown.table);
    }

    /// Writes something that stays, and the table below it again.
    fn above(&self, write: impl FnOnce() -> io::Result<()>) {
        let shown = self.lock();
        erase(&shown.table);
        // A closed stdout or stderr is nobody to tell it to.
        drop(write());
        self.draw(&shown.table);
    }

    fn draw(&self, table: &[(Look, String)]) {
        let mut text = String::new();
        for (look, line) in table {
            let (begin, end) = match look {
                Look::Heading if self.kind.live && self.kind.colour => (BOLD, RESET),
                Look::Alarm if self.kind.live && self.kind.colour => (RED, RESET),
                Look::Heading | Look::Plain | Look::Alarm => ("", ""),
            };
            text.extend([begin, line, end, "\n"]);
        }
        print(&text);
    }

    fn lock(&self) -> MutexGuard<'_, Shown> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes the table that ends where the cursor is.
fn erase(table: &[(Look, String)]) {
    if !table.is_empty() {
        print(&format!("\x1b[{}A\r{CLEAR_BELOW}", table.len()));
    }
}

fn print(text: &str) {
    // A closed stdout is nobody to show it to.
    let mut stdout = io::stdout();
    drop(stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()));
}

fn rows(lanes: &[Lane]) -> Vec<Row> {
    let with_those_within =
        |lane: &Lane| lane.snapshot().into_iter().chain(lane.snapshots_within());
    lanes.iter().flat_map(with_those_within).map(|lane| Row::of(&lane)).collect()
}

#[cfg(unix)]
fn width() -> usize {
    rustix::termios::tcgetwinsize(io::stdout())
        .ok()
        .map(|size| usize::from(size.ws_col))
        .filter(|&width| width > 0)
        .unwrap_or(DEFAULT_WIDTH)
}

#[cfg(not(unix))]
fn width() -> usize {
    std::env::var("COLUMNS").ok().and_then(|width| width.parse().ok()).unwrap_or(DEFAULT_WIDTH)
}

// === impl MakeWriter: log lines, each written whole ===

impl<'a> MakeWriter<'a> for Screen {
    type Writer = LogLine<'a>;

    fn make_writer(&'a self) -> Self::Writer {
        LogLine(self)
    }
}

/// Writes one log line to stderr, above the table where they share a terminal.
pub(crate) struct LogLine<'a>(&'a Screen);

impl Write for LogLine<'_> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let Screen { kind, .. } = self.0;
        if kind.live && kind.logs_on_terminal {
            self.0.above(|| io::stderr().write_all(line));
        } else {
            io::stderr().write_all(line)?;
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}
