//! One streamed answer, piece by piece, by two clocks: the engine's, where it states its timings, and the client's.

use std::time::Instant;

use serde_json::{Deserializer, Value};

use super::answer::{self, Answer};
use super::clock::ClientClock;
use super::events::{Event, EventReader};
use super::{ParseTimingsError, object, pieces};
use crate::throughput::{TimingSource, Timings, TokensPerSecond};

/// What ends a stream of the `OpenAI` kind.
const DONE: &[u8] = b"[DONE]";

/// Times one streamed answer.
///
/// Hand it the request's start, every chunk as it comes, and the end. It reads server-sent events and Ollama's lines of
/// JSON, cut anywhere, and keeps neither text nor more than one event in memory
/// ([`MAX_EVENT_BYTES`](super::MAX_EVENT_BYTES)). Of running timings and running usage the last counts.
///
/// ```
/// use std::time::{Duration, Instant};
///
/// use serving_sentinel::timings::StreamTimings;
///
/// let start = Instant::now();
/// let mut stream = StreamTimings::begin(start);
/// stream.push(b"data: {\"choices\":[{\"delta\":{\"content\":\"Hi\"}}]}\n\n", start + Duration::from_millis(40));
/// stream.push(b"data: [DONE]\n\n", start + Duration::from_millis(50));
/// assert!(stream.is_complete());
/// let timings = stream.finish(start + Duration::from_millis(50))?;
/// assert_eq!(timings.time_to_first_token, Some(Duration::from_millis(40)));
/// assert_eq!(timings.decode_rate, None); // nobody said how many tokens that was
/// # Ok::<(), serving_sentinel::timings::ParseTimingsError>(())
/// ```
#[derive(Debug)]
pub struct StreamTimings {
    events: EventReader,
    told: Told,
}

/// What the events told so far.
#[derive(Debug)]
struct Told {
    clock: ClientClock,
    answer: Answer,
    error: Option<String>,
    is_complete: bool,
    unread: u64,
}

impl StreamTimings {
    /// The request is sent at `now`.
    pub fn begin(now: Instant) -> Self {
        let told = Told {
            clock: ClientClock::begin(now),
            answer: Answer::default(),
            error: None,
            is_complete: false,
            unread: 0,
        };
        Self { events: EventReader::default(), told }
    }

    /// A chunk came at `now`. Says whether a piece of content ended in it: the request makes progress.
    pub fn push(&mut self, bytes: &[u8], now: Instant) -> bool {
        let mut progress = false;
        self.events.push(bytes, |event| progress |= self.told.take(event, now));
        progress
    }

    /// The stream is over at `now`, at its end or before it; what is known is told either way.
    ///
    /// The decode rate is the engine's where it states one, else the client's clock's
    /// ([`client_clock_rate`](Self::client_clock_rate)); `source` says which. A stream that broke off has no
    /// `finish_reason`, and was not [complete](Self::is_complete).
    ///
    /// # Errors
    ///
    /// [`ParseTimingsError::Engine`] when the engine sent an error within the stream.
    pub fn finish(mut self, now: Instant) -> Result<Timings, ParseTimingsError> {
        self.events.finish(|event| {
            self.told.take(event, now);
        });
        let client_clock_rate = self.client_clock_rate();
        let Told { clock, answer, error, .. } = self.told;
        if let Some(kind) = error {
            return Err(ParseTimingsError::Engine { kind });
        }
        let engine_rate = answer.reading.decode_rate;
        let source = if engine_rate.is_some() {
            TimingSource::EngineResponse
        } else {
            TimingSource::ClientClock
        };
        Ok(Timings {
            decode_rate: engine_rate.or(client_clock_rate),
            time_to_first_token: clock.time_to_first_token(),
            duration: Some(clock.duration(now)),
            ..answer.into_timings(source)
        })
    }

    /// The decode rate by the client's clock: the tokens after the first piece, over the time from the first piece to
    /// the last.
    ///
    /// `None` while the engine has stated no count, since pieces are not tokens, and when all pieces came at once.
    pub fn client_clock_rate(&self) -> Option<TokensPerSecond> {
        self.told.clock.rate(self.told.answer.reading.decode_tokens?)
    }

    /// When the first piece of content came: text, reasoning or a tool call, not a role alone. `None` before it.
    pub fn first_piece_at(&self) -> Option<Instant> {
        self.told.clock.first_piece_at()
    }

    /// When the latest piece of content came. `None` before the first.
    pub fn last_piece_at(&self) -> Option<Instant> {
        self.told.clock.last_piece_at()
    }

    /// Whether the stream said that it is at its end (`[DONE]`, `"done":true`, `message_stop`, ...).
    pub fn is_complete(&self) -> bool {
        self.told.is_complete
    }

    /// Events that were not read: longer than [`MAX_EVENT_BYTES`](super::MAX_EVENT_BYTES), or no JSON.
    pub fn unread_events(&self) -> u64 {
        self.told.unread
    }
}

// === impl Told ===

impl Told {
    /// Takes one event; says whether it has a piece of content.
    fn take(&mut self, event: Event<'_>, now: Instant) -> bool {
        match event {
            Event::Data(DONE) => {
                self.is_complete = true;
                false
            }
            Event::Data(data) => self.take_data(data, now),
            Event::Error(data) => {
                self.error = Some(answer::error_event_kind(data));
                false
            }
            Event::TooLong => {
                self.unread += 1;
                false
            }
        }
    }

    /// Some servers leave out the empty line between two events, so data can hold several objects.
    fn take_data(&mut self, data: &[u8], now: Instant) -> bool {
        let mut progress = false;
        for value in Deserializer::from_slice(data).into_iter::<Value>() {
            match value.map_err(ParseTimingsError::Json).and_then(object) {
                Ok(object) => progress |= self.take_object(&object, now),
                Err(_) => self.unread += 1,
            }
        }
        progress
    }

    fn take_object(&mut self, object: &Value, now: Instant) -> bool {
        if let Some(kind) = answer::error_kind(object) {
            self.error = Some(kind);
            return false;
        }
        let read = Answer::read(object);
        let progress = pieces::has_piece(object);
        if progress {
            self.clock.piece(read.reading.decode_tokens, now);
        }
        self.is_complete |= answer::is_end(object);
        self.answer = read.or(std::mem::take(&mut self.answer));
        progress
    }
}
