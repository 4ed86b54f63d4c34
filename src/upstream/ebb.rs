//! Whether more of an answer is ready: a connection tells whenever it finds its socket empty; one that takes no more of
//! a request ends. Never changes a byte.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use futures_util::task::AtomicWaker;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};

use crate::clock::Silence;

/// Tells when a connection has nothing more to read for now; among the extensions of its answers. Cheap to clone.
///
/// An HTTP/1 connection reads its socket only once every frame that it holds was taken: found empty, nothing of the
/// answer is left on this side.
#[derive(Clone, Debug, Default)]
pub struct Ebb(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    times: AtomicU64,
    waiting: AtomicWaker,
}

impl Ebb {
    /// How often the socket was found empty.
    pub fn times(&self) -> u64 {
        self.0.times.load(Ordering::Acquire)
    }

    /// Ready once the socket was found empty more often than `times`; wakes one task, the last that asked.
    pub fn poll_past(&self, times: u64, cx: &mut Context<'_>) -> Poll<()> {
        self.0.waiting.register(cx.waker());
        if self.times() == times {
            Poll::Pending
        } else {
            Poll::Ready(())
        }
    }

    fn found_empty(&self) {
        self.0.times.fetch_add(1, Ordering::AcqRel);
        self.0.waiting.wake();
    }
}

/// The other end takes nothing of what is written.
#[derive(Debug, thiserror::Error)]
#[error("the provider stopped reading")]
pub(super) struct Deaf;

/// A connection that tells its [`Ebb`], and whose writes fail once nothing was taken for a while.
///
/// Without that, hyper waits for ever to flush what it holds, even after its request was given up.
#[derive(Debug)]
pub(super) struct Tidal<T> {
    inner: T,
    ebb: Ebb,
    // Runs while a write waits.
    deaf: Silence,
}

impl<T> Tidal<T> {
    /// Over `inner`; `patience` is the longest wait of a write.
    pub(super) fn new(inner: T, patience: Duration) -> Self {
        Self {
            inner,
            ebb: Ebb::default(),
            deaf: Silence::new(patience),
        }
    }

    fn judge<R>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<R>>) -> Poll<io::Result<R>> {
        if written.is_ready() {
            self.deaf.heard();
            return written;
        }
        ready!(self.deaf.poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, Deaf)))
    }
}

impl<T: Connection> Connection for Tidal<T> {
    fn connected(&self) -> Connected {
        self.inner.connected().extra(self.ebb.clone())
    }
}

impl<T: Read + Unpin> Read for Tidal<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<Result<(), io::Error>> {
        let read = Pin::new(&mut self.inner).poll_read(cx, buffer);
        if read.is_pending() {
            self.ebb.found_empty();
        }
        read
    }
}

impl<T: Write + Unpin> Write for Tidal<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize, io::Error>> {
        let written = Pin::new(&mut self.inner).poll_write(cx, bytes);
        self.judge(cx, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), io::Error>> {
        let written = Pin::new(&mut self.inner).poll_flush(cx);
        self.judge(cx, written)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), io::Error>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<Result<usize, io::Error>> {
        let written = Pin::new(&mut self.inner).poll_write_vectored(cx, bytes);
        self.judge(cx, written)
    }
}
