//! Read idleness and write timeouts of connections: counts each time the socket is empty, and ends a connection whose
//! provider stops reading. Never changes a byte.

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

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};

use crate::clock::SilenceTimeout;

/// A counter of the moments at which a connection had nothing left to read. Cheap to clone.
///
/// An HTTP/1 connection reads its socket only after every buffered frame was taken. An empty socket therefore means
/// that no received part of the answer is left. The task that reads the answer runs the connection too, so this counter
/// needs no waker.
#[derive(Clone, Debug, Default)]
pub struct ReadIdle(Arc<AtomicU64>);

impl ReadIdle {
    /// Returns the number of times that the socket was empty.
    pub fn empty_reads(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn record_empty_read(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// The error of a connection whose peer reads nothing.
#[derive(Debug, thiserror::Error)]
#[error("write timeout: the provider stopped reading")]
pub(super) struct PeerNotReading;

/// A connection with an [`ReadIdle`], whose writes fail if the peer reads nothing for a while.
///
/// Otherwise hyper would wait forever to flush its buffer, even after the request was dropped.
#[derive(Debug)]
pub(super) struct WriteTimeoutIo<T> {
    inner: T,
    read_idle: ReadIdle,
    // Runs while a write is pending.
    write_silence: SilenceTimeout,
}

impl<T> WriteTimeoutIo<T> {
    /// Wraps `inner`. `patience` is the longest wait of a write.
    pub(super) fn new(inner: T, patience: Duration) -> Self {
        Self {
            inner,
            read_idle: ReadIdle::default(),
            write_silence: SilenceTimeout::new(patience),
        }
    }

    /// Returns the counter of its empty reads.
    pub(super) fn read_idle(&self) -> ReadIdle {
        self.read_idle.clone()
    }

    fn check_write<R>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<R>>) -> Poll<io::Result<R>> {
        // Any progress of a write stops the timeout, even a single byte.
        if written.is_ready() {
            self.write_silence.reset();
            return written;
        }
        ready!(self.write_silence.poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, PeerNotReading)))
    }
}

impl<T: Connection> Connection for WriteTimeoutIo<T> {
    fn connected(&self) -> Connected {
        self.inner.connected()
    }
}

impl<T: Read + Unpin> Read for WriteTimeoutIo<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<Result<(), io::Error>> {
        let read = Pin::new(&mut self.inner).poll_read(cx, buffer);
        // `Pending` is the only sign of an empty socket that hyper passes on.
        if read.is_pending() {
            self.read_idle.record_empty_read();
        }
        read
    }
}

impl<T: Write + Unpin> Write for WriteTimeoutIo<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize, io::Error>> {
        let written = Pin::new(&mut self.inner).poll_write(cx, bytes);
        self.check_write(cx, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), io::Error>> {
        let written = Pin::new(&mut self.inner).poll_flush(cx);
        self.check_write(cx, written)
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
        self.check_write(cx, written)
    }
}
