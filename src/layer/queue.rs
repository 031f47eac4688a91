//! A bounded queue from callbacks to one thread, with a way to wait until all that was put in is dealt with.
//!
//! Putting in never waits: what does not fit is refused, and the caller counts it.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A queue with one consumer.
#[derive(Debug)]
pub(super) struct Queue<T> {
    state: Mutex<State<T>>,
    /// Something was put in, asked for, or the queue was closed.
    changed: Condvar,
    /// The consumer is done with something.
    done: Condvar,
    capacity: usize,
}

#[derive(Debug)]
struct State<T> {
    items: VecDeque<T>,
    /// How many rounds the consumer was asked for, and how many it has ended: a round deals with all there is.
    asked: u64,
    ended: u64,
    closed: bool,
}

/// What the consumer is to do next.
#[derive(Debug, PartialEq)]
pub(super) enum Next<T> {
    /// Deal with these, then say [`Queue::ended`] with the round's number.
    Round(VecDeque<T>, u64),
    /// Nothing will ever come again.
    Closed,
}

impl<T> Queue<T> {
    pub(super) fn new(capacity: usize) -> Self {
        let state = State { items: VecDeque::new(), asked: 0, ended: 0, closed: false };
        Self { state: Mutex::new(state), changed: Condvar::new(), done: Condvar::new(), capacity }
    }

    /// Puts one in; `false` when there is no room, or nobody to take it.
    pub(super) fn push(&self, item: T) -> bool {
        let mut state = self.enter();
        if state.closed || state.items.len() >= self.capacity {
            return false;
        }
        state.items.push_back(item);
        drop(state);
        self.changed.notify_one();
        true
    }

    /// Puts one in beyond the capacity: for what is bounded elsewhere and must not be lost.
    pub(super) fn push_over(&self, item: T) {
        let mut state = self.enter();
        if state.closed {
            return;
        }
        state.items.push_back(item);
        drop(state);
        self.changed.notify_one();
    }

    /// Waits at most `timeout` for something to do, and gives all there is: maybe nothing.
    pub(super) fn next(&self, timeout: Duration) -> Next<T> {
        let state = self.enter();
        let idle = |state: &mut State<T>| {
            state.items.is_empty() && state.asked == state.ended && !state.closed
        };
        let (mut state, _) = self
            .changed
            .wait_timeout_while(state, timeout, idle)
            .unwrap_or_else(PoisonError::into_inner);
        if state.closed {
            return Next::Closed;
        }
        Next::Round(std::mem::take(&mut state.items), state.asked)
    }

    /// The consumer has dealt with all that was in the queue when that round began.
    pub(super) fn ended(&self, round: u64) {
        self.enter().ended = round;
        self.done.notify_all();
    }

    /// Waits until everything put in before is dealt with; `false` when that takes until `deadline`.
    pub(super) fn wait(&self, deadline: Instant, now: impl Fn() -> Instant) -> bool {
        let mut state = self.enter();
        state.asked += 1;
        let round = state.asked;
        self.changed.notify_one();
        loop {
            if state.ended >= round || state.closed {
                return state.ended >= round;
            }
            let left = deadline.saturating_duration_since(now());
            if left.is_zero() {
                return false;
            }
            (state, _) =
                self.done.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Nothing more is taken, and the consumer ends. Gives what it has not dealt with.
    pub(super) fn close(&self) -> VecDeque<T> {
        let mut state = self.enter();
        state.closed = true;
        let left = std::mem::take(&mut state.items);
        drop(state);
        self.changed.notify_all();
        self.done.notify_all();
        left
    }

    fn enter(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layer::now;

    const SOON: Duration = Duration::from_secs(10);

    #[test]
    fn what_does_not_fit_is_refused_and_the_rest_keeps_its_order() {
        let queue = Queue::new(2);
        assert!(queue.push(1) && queue.push(2));
        assert!(!queue.push(3));
        assert_eq!(queue.next(SOON), Next::Round([1, 2].into(), 0));
        assert!(queue.push(4));
        assert_eq!(queue.next(SOON), Next::Round([4].into(), 0));
        assert_eq!(queue.next(Duration::ZERO), Next::Round([].into(), 0));
    }

    #[test]
    fn waiting_ends_with_the_round_that_took_everything_put_in_before() {
        let queue = Queue::new(8);
        std::thread::scope(|scope| {
            assert!(queue.push(1));
            let waiter = scope.spawn(|| queue.wait(now() + SOON, now));
            let mut taken = 0;
            loop {
                let Next::Round(items, round) = queue.next(SOON) else { panic!("closed") };
                taken += items.len();
                queue.ended(round);
                if round == 1 {
                    break;
                }
            }
            assert_eq!(taken, 1);
            assert!(waiter.join().unwrap());
        });
    }

    #[test]
    fn waiting_is_bounded_and_ends_when_nobody_will_ever_take_it() {
        let queue = Queue::<u8>::new(8);
        assert!(!queue.wait(now(), now), "no consumer");
        queue.close();
        assert!(!queue.wait(now() + SOON, now), "closed");
        assert!(!queue.push(1));
        assert_eq!(queue.next(SOON), Next::Closed);
    }
}
