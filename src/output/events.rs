//! Says an engine's lines as `tracing` events, for the program's own log.
//!
//! On a thread of its own, because a subscriber may write to a terminal that nobody reads.

use std::sync::Arc;

use tracing::subscriber::NoSubscriber;
use tracing::{Dispatch, Level, dispatcher, event};

use super::Stream;
use super::worker::{Batch, Item};
use crate::telemetry::names;

/// Whether anybody hears what is said to `dispatch`.
pub(super) fn is_heard(dispatch: &Dispatch) -> bool {
    !dispatch.is::<NoSubscriber>()
}

/// What a worker of events does with a batch: one event each, to `dispatch`.
pub(super) fn sayer(
    dispatch: Dispatch,
    lane: Arc<str>,
    level: Level,
) -> impl FnMut(&Batch) + Send + 'static {
    // A callsite first met with no subscriber can be put to sleep for all of them: tracing-core asks only the thread's
    // own while it knows of no more than one.
    let is_heard = is_heard(&dispatch);
    move |batch| {
        if !is_heard {
            return;
        }
        dispatcher::with_default(&dispatch, || {
            for (item, text) in batch.iter() {
                match item {
                    Item::Line { stream, left_out } => {
                        say_line(level, &lane, stream, text, left_out > 0);
                    }
                    Item::LogFailed => say_log_failed(&lane, text),
                }
            }
        });
    }
}

/// A callsite has one level, so each level has a callsite. The line becomes text only where someone listens.
fn say_line(level: Level, lane: &str, stream: Stream, text: &[u8], truncated: bool) {
    macro_rules! say {
        ($level:expr) => {
            event!(
                name: names::LINE_EVENT,
                target: names::ENGINE_TARGET,
                $level,
                { names::LANE_NAME } = lane,
                stream = stream.as_str(),
                truncated = truncated.then_some(true),
                { names::LINE_FIELD } = &*String::from_utf8_lossy(text),
            )
        };
    }
    match level {
        Level::ERROR => say!(Level::ERROR),
        Level::WARN => say!(Level::WARN),
        Level::INFO => say!(Level::INFO),
        Level::DEBUG => say!(Level::DEBUG),
        Level::TRACE => say!(Level::TRACE),
    }
}

fn say_log_failed(lane: &str, why: &[u8]) {
    event!(
        target: names::TARGET,
        Level::WARN,
        { names::LANE_NAME } = lane,
        error = &*String::from_utf8_lossy(why),
        "the engine's log file cannot be written, and lines are lost to it; make room or correct its path, it is \
         tried again with the next lines",
    );
}
