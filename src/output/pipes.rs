//! Reads two pipes in turns, each as long as it is open.
//!
//! One task reads both: an engine that fills one pipe while the other is waited for would stop.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};

use super::Stream;

/// As much as a pipe holds on Linux.
const CHUNK_BYTES: usize = 64 * 1024;
/// Rounds in one turn before other tasks of the thread get theirs.
const ROUNDS_A_TURN: usize = 8;

/// An engine's pipes; `None` for one that is closed or never was.
pub(super) struct Pipes<A, B> {
    stdout: Option<A>,
    stderr: Option<B>,
    chunk: Box<[u8]>,
}

/// What one read gave.
#[derive(Clone, Copy, Debug)]
pub(super) enum Read<'a> {
    Bytes(&'a [u8]),
    End,
    Failed(&'a io::Error),
}

impl<A: AsyncRead + Unpin, B: AsyncRead + Unpin> Pipes<A, B> {
    pub(super) fn new(stdout: Option<A>, stderr: Option<B>) -> Self {
        Self { stdout, stderr, chunk: vec![0; CHUNK_BYTES].into() }
    }

    /// Reads what there is; ready when both are closed.
    pub(super) fn poll(
        &mut self,
        context: &mut Context<'_>,
        mut take: impl FnMut(Stream, Read<'_>),
    ) -> Poll<()> {
        let Self { stdout, stderr, chunk } = self;
        for _ in 0..ROUNDS_A_TURN {
            let out = poll_pipe(stdout, context, chunk, |read| take(Stream::Stdout, read));
            let err = poll_pipe(stderr, context, chunk, |read| take(Stream::Stderr, read));
            if stdout.is_none() && stderr.is_none() {
                return Poll::Ready(());
            }
            if out.is_pending() && err.is_pending() {
                return Poll::Pending;
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

/// Reads once, and lets go of a pipe that ended or failed. Pending also for a pipe that is gone.
fn poll_pipe<R: AsyncRead + Unpin>(
    pipe: &mut Option<R>,
    context: &mut Context<'_>,
    chunk: &mut [u8],
    take: impl FnOnce(Read<'_>),
) -> Poll<()> {
    let Some(reader) = pipe else { return Poll::Pending };
    let mut chunk = ReadBuf::new(chunk);
    match ready!(Pin::new(reader).poll_read(context, &mut chunk)) {
        Ok(()) if chunk.filled().is_empty() => {
            *pipe = None;
            take(Read::End);
        }
        Ok(()) => take(Read::Bytes(chunk.filled())),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
        Err(error) => {
            *pipe = None;
            take(Read::Failed(&error));
        }
    }
    Poll::Ready(())
}
