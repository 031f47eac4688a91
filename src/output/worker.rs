//! A thread that handles lines away from the task that reads them, and the bounded queue between the two.
//!
//! What a line is written to may be slow, full or stuck for good. The reader hands a line over and goes on; what does
//! not fit is refused, and the reader counts it.

use std::mem::{size_of, swap, take};
use std::num::NonZeroU32;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use super::Stream;

/// What a queued text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Item {
    /// A line, of which `left_out` bytes are missing at its end.
    Line { stream: Stream, left_out: u64 },
    /// The log file cannot be written, for the reason that the text gives.
    LogFailed,
}

/// Items in order. Their texts share one buffer, so that a line costs no allocation of its own.
#[derive(Debug, Default)]
pub(super) struct Batch {
    text: Vec<u8>,
    items: Vec<(Item, usize)>,
    refused: u64,
}

impl Batch {
    pub(super) fn push(&mut self, item: Item, text: &[u8]) {
        self.text.extend_from_slice(text);
        self.items.push((item, self.text.len()));
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Item, &[u8])> {
        let mut start = 0;
        self.items.iter().map(move |&(item, end)| {
            let text = &self.text[start..end];
            start = end;
            (item, text)
        })
    }

    /// The lines, each with the bytes that are left out of it.
    pub(super) fn lines(&self) -> impl Iterator<Item = (&[u8], u64)> {
        self.iter().filter_map(|(item, text)| match item {
            Item::Line { left_out, .. } => Some((text, left_out)),
            Item::LogFailed => None,
        })
    }

    pub(super) fn len(&self) -> u64 {
        self.items.len() as u64
    }

    /// How many items there was no room for, behind these or among the last of them.
    pub(super) fn refused(&self) -> u64 {
        self.refused
    }

    fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// What it takes of memory. An empty line is not free.
    fn bytes(&self) -> usize {
        self.text.len() + self.items.len() * size_of::<(Item, usize)>()
    }

    fn clear(&mut self) {
        self.text.clear();
        self.items.clear();
        self.refused = 0;
    }
}

/// The way to a worker. It holds at most `limit` bytes that wait, and as many again in the worker's hand.
#[derive(Debug)]
pub(super) struct Queue {
    limit: usize,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    waiting: Batch,
    /// Items the worker took and is not through with.
    in_hand: u64,
    phase: Phase,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Open,
    /// Nothing more is coming; what waits is still handled.
    Closed,
    /// The worker is gone.
    Ended,
}

/// Starts a thread of that name that hands each batch to `handle`.
///
/// The thread lives until the queue is closed. If it cannot be started, or `handle` panics, the queue refuses all.
pub(super) fn start(
    name: &str,
    limit: NonZeroU32,
    mut handle: impl FnMut(&Batch) + Send + 'static,
) -> Arc<Queue> {
    let queue = Arc::new(Queue::new(limit));
    let ended = EndOnDrop(queue.clone());
    let work = move || {
        let mut batch = Batch::default();
        while ended.0.next(&mut batch) {
            handle(&batch);
            batch.clear();
        }
    };
    // A thread that is refused drops its closure, and so ends the queue.
    drop(thread::Builder::new().name(name.to_owned()).spawn(work));
    queue
}

// === impl Queue ===

impl Queue {
    fn new(limit: NonZeroU32) -> Self {
        Self { limit: limit.get() as usize, state: Mutex::default(), changed: Condvar::new() }
    }

    /// Hands one item over, and says whether it was taken. Never waits for the worker.
    pub(super) fn push(&self, item: Item, text: &[u8]) -> bool {
        let mut state = self.lock();
        let bytes = state.waiting.bytes() + text.len() + size_of::<(Item, usize)>();
        if state.phase != Phase::Open || bytes > self.limit {
            state.waiting.refused += 1;
            return false;
        }
        // The worker sleeps only while nothing waits: one wake for a burst, not one a line.
        if state.waiting.is_empty() {
            self.changed.notify_all();
        }
        state.waiting.push(item, text);
        true
    }

    /// Closes the queue, waits until the worker is through or `limit` is over, and says how many items it did not
    /// finish. Those that still wait then are given up; one that it is stuck in may yet come to its end.
    pub(super) fn finish(&self, limit: Duration) -> u64 {
        let mut state = self.lock();
        if state.phase == Phase::Open {
            state.phase = Phase::Closed;
            self.changed.notify_all();
        }
        let waited =
            self.changed.wait_timeout_while(state, limit, |state| state.phase != Phase::Ended);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        take(&mut state.waiting).len() + take(&mut state.in_hand)
    }

    /// The worker's side: is through with the last batch, and waits for the next. `false` when there will be none.
    fn next(&self, batch: &mut Batch) -> bool {
        let mut state = self.lock();
        state.in_hand = 0;
        let idle = |state: &mut State| state.waiting.is_empty() && state.phase == Phase::Open;
        let mut state =
            self.changed.wait_while(state, idle).unwrap_or_else(PoisonError::into_inner);
        swap(&mut state.waiting, batch);
        state.in_hand = batch.len();
        !batch.is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends the queue when the worker ends, however it ends.
struct EndOnDrop(Arc<Queue>);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.lock().phase = Phase::Ended;
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    const LINE: Item = Item::Line { stream: Stream::Stderr, left_out: 0 };
    const LONG: Duration = Duration::from_secs(60);

    fn limit(bytes: u32) -> NonZeroU32 {
        NonZeroU32::new(bytes).unwrap()
    }

    #[test]
    fn items_come_in_order_and_all_before_the_end() {
        let (sender, received) = mpsc::channel();
        let queue = start("test", limit(1 << 20), move |batch| {
            for (item, text) in batch.iter() {
                sender.send((item, text.to_vec())).unwrap();
            }
        });
        for text in [&b"one"[..], b"", b"three"] {
            assert!(queue.push(LINE, text));
        }
        assert_eq!(queue.finish(LONG), 0);
        assert!(!queue.push(LINE, b"late"), "a closed queue takes nothing");
        let texts: Vec<_> = received.iter().map(|(_, text)| text).collect();
        assert_eq!(texts, [&b"one"[..], b"", b"three"]);
    }

    #[test]
    fn a_stuck_worker_costs_bounded_memory_and_its_items_are_counted() {
        let (entered, is_in) = mpsc::channel();
        let (_never, release) = mpsc::channel::<()>();
        let queue = start("test", limit(1000), move |_| {
            entered.send(()).unwrap();
            release.recv().ok();
        });
        assert!(queue.push(LINE, b"the one it is stuck in"));
        is_in.recv().unwrap();
        let taken = (0..1000).filter(|_| queue.push(LINE, b"")).count();
        assert_eq!(taken, 1000 / size_of::<(Item, usize)>(), "an empty line has a cost");
        assert!(queue.lock().waiting.bytes() <= 1000);
        assert_eq!(queue.finish(Duration::ZERO), 1 + taken as u64);
        assert_eq!(queue.finish(Duration::ZERO), 0, "told once");
    }

    #[test]
    fn a_worker_that_panics_takes_no_more() {
        let queue = start("test", limit(1000), |_| panic!("a subscriber's own fault"));
        assert!(queue.push(LINE, b"one"));
        assert_eq!(queue.finish(LONG), 1, "the end is seen without waiting");
        assert!(!queue.push(LINE, b"two"));
    }
}
