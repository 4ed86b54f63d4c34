//! Whether more of an answer is ready: a connection tells whenever it finds its socket empty. Never changes a byte.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
};

use futures_util::task::AtomicWaker;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};

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

/// A connection that tells its [`Ebb`].
#[derive(Debug)]
pub(super) struct Tidal<T> {
    inner: T,
    ebb: Ebb,
}

impl<T> Tidal<T> {
    pub(super) fn new(inner: T) -> Self {
        Self {
            inner,
            ebb: Ebb::default(),
        }
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
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), io::Error>> {
        Pin::new(&mut self.inner).poll_flush(cx)
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
        Pin::new(&mut self.inner).poll_write_vectored(cx, bytes)
    }
}
