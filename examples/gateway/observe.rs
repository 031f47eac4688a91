//! What the sentinel is told of one request: that it progresses, what it took, how it failed.

use std::time::Instant;

use axum::http::{HeaderMap, StatusCode, header};
use serving_sentinel::span_ext::SpanExt as _;
use serving_sentinel::throughput::Timings;
use serving_sentinel::timings::StreamTimings;
use tracing::Span;

/// Timings stand at the end of an answer that is not a stream; one that is larger than this is not read for them.
const LARGEST_ANSWER_BYTES: usize = 4 << 20;

/// One request, from its arrival to the last piece of its answer.
#[derive(Debug)]
pub(crate) struct Observed {
    /// Disabled for what is not inference: then nothing is recorded.
    span: Span,
    answer: Answer,
    /// Bytes that are still to come; `None` when the answer does not say.
    remaining: Option<usize>,
}

/// What is kept of an answer until its timings are read: never logged, and never more than it takes.
#[derive(Debug)]
enum Answer {
    /// Not there yet. The clock of a stream starts when the request is sent.
    Awaited(StreamTimings),
    Stream(StreamTimings),
    Whole(Vec<u8>),
    /// Too large to keep.
    Unread,
    /// All is recorded.
    Over,
}

impl Observed {
    pub(crate) fn begin(span: Span) -> Self {
        Self { span, answer: Answer::Awaited(StreamTimings::begin(now())), remaining: None }
    }

    pub(crate) fn span(&self) -> &Span {
        &self.span
    }

    /// The answer begins.
    pub(crate) fn answered(&mut self, status: StatusCode, headers: &HeaderMap) {
        if !status.is_success() {
            return self.fail(status.as_str());
        }
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
        let kind = text(header::CONTENT_TYPE).unwrap_or_default();
        self.remaining = text(header::CONTENT_LENGTH).and_then(|length| length.parse().ok());
        let streamed =
            kind.starts_with("text/event-stream") || kind.starts_with("application/x-ndjson");
        self.answer = match std::mem::replace(&mut self.answer, Answer::Over) {
            Answer::Awaited(timings) if streamed => Answer::Stream(timings),
            _ => Answer::Whole(Vec::new()),
        };
    }

    /// A piece of the answer came.
    pub(crate) fn piece(&mut self, piece: &[u8]) {
        match &mut self.answer {
            Answer::Stream(timings) => {
                if timings.push(piece, now()) {
                    self.span.record_progress();
                }
            }
            Answer::Whole(answer) if answer.len() + piece.len() <= LARGEST_ANSWER_BYTES => {
                answer.extend_from_slice(piece);
            }
            Answer::Whole(_) => self.answer = Answer::Unread,
            Answer::Awaited(_) | Answer::Unread | Answer::Over => {}
        }
        // The server asks for no more than it announced, so that the end of such an answer is never seen.
        self.remaining = self.remaining.map(|remaining| remaining.saturating_sub(piece.len()));
        if self.remaining == Some(0) {
            self.finish();
        }
    }

    /// The answer is whole.
    pub(crate) fn finish(&mut self) {
        let timings = match std::mem::replace(&mut self.answer, Answer::Over) {
            Answer::Stream(timings) => timings.finish(now()).ok(),
            Answer::Whole(answer) => Timings::from_response(&answer).ok(),
            Answer::Awaited(_) | Answer::Unread => None,
            Answer::Over => return,
        };
        self.span.record_timings(timings.as_ref());
    }

    /// The request failed: `kind` is its `error.type`.
    pub(crate) fn fail(&mut self, kind: &str) {
        if !matches!(std::mem::replace(&mut self.answer, Answer::Over), Answer::Over) {
            self.span.record_error(kind);
        }
    }
}

impl Drop for Observed {
    /// Neither finished nor failed: the client is gone.
    fn drop(&mut self) {
        self.fail("cancelled");
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the gateway is an edge: the core is handed this time"
)]
fn now() -> Instant {
    Instant::now()
}
