//! The client's clock of one stream: when it was asked for, when its first and last pieces came.

use std::time::{Duration, Instant};

use super::json;
use crate::throughput::TokensPerSecond;

/// Instants of one stream, all handed in.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClientClock {
    begun: Instant,
    pieces: Option<Pieces>,
}

#[derive(Clone, Copy, Debug)]
struct Pieces {
    first: Instant,
    last: Instant,
    /// Tokens that were out when the first piece came.
    tokens_at_first: u64,
}

impl ClientClock {
    pub(super) fn begin(now: Instant) -> Self {
        Self { begun: now, pieces: None }
    }

    /// A piece came. `tokens` is the running count beside it, where the engine states one: a first piece can hold
    /// several tokens, which took no time that was seen.
    pub(super) fn piece(&mut self, tokens: Option<u64>, now: Instant) {
        match &mut self.pieces {
            Some(pieces) => pieces.last = now,
            None => {
                self.pieces =
                    Some(Pieces { first: now, last: now, tokens_at_first: tokens.unwrap_or(1) });
            }
        }
    }

    pub(super) fn first_piece_at(&self) -> Option<Instant> {
        Some(self.pieces?.first)
    }

    pub(super) fn last_piece_at(&self) -> Option<Instant> {
        Some(self.pieces?.last)
    }

    pub(super) fn time_to_first_token(&self) -> Option<Duration> {
        Some(self.pieces?.first.saturating_duration_since(self.begun))
    }

    pub(super) fn duration(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.begun)
    }

    /// The rate of `tokens` from the first piece to the last. `None` when all came at once.
    pub(super) fn rate(&self, tokens: u64) -> Option<TokensPerSecond> {
        let Pieces { first, last, tokens_at_first } = self.pieces?;
        let steps = tokens.checked_sub(tokens_at_first)?;
        json::rate_of(steps, last.saturating_duration_since(first).as_secs_f64())
    }
}
