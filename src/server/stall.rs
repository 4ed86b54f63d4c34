//! The write timeout of client connections. A client that stops reading must not hold a provider's answer open.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::Sleep,
};

use crate::clock;

/// A flag of a connection: its client has stopped reading. Each request carries it in its extensions.
#[derive(Clone, Debug, Default)]
pub struct ClientStall(Arc<AtomicBool>);

impl ClientStall {
    /// Returns `true` if the connection was closed because the client stopped reading.
    pub fn has_stalled(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// A connection whose writes fail after a timeout in which the client took no bytes.
#[derive(Debug)]
pub(super) struct WriteStallTimeout<T> {
    inner: T,
    limit: Duration,
    stalled: ClientStall,
    // The timeout, while a write waits.
    write_timer: Option<Pin<Box<Sleep>>>,
}

impl<T> WriteStallTimeout<T> {
    pub(super) fn new(inner: T, limit: Duration) -> Self {
        Self {
            inner,
            limit,
            stalled: ClientStall::default(),
            write_timer: None,
        }
    }

    /// Returns the flag that is set once the client has stopped reading.
    pub(super) fn stall_flag(&self) -> ClientStall {
        self.stalled.clone()
    }

    /// Fails a write that has waited for longer than the limit.
    fn check_stall<R>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<R>>) -> Poll<io::Result<R>> {
        // Any progress restarts the timeout: a slow client is fine, a silent one is not.
        if written.is_ready() {
            self.write_timer = None;
            return written;
        }
        let limit = self.limit;
        let alarm = self
            .write_timer
            .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(clock::now() + limit)));
        ready!(alarm.as_mut().poll(cx));
        // Set before the error: the exchange reads the flag when it is dropped.
        self.stalled.0.store(true, Ordering::Release);
        Poll::Ready(Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "timeout: the client stopped reading",
        )))
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for WriteStallTimeout<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for WriteStallTimeout<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(cx, buf);
        self.check_stall(cx, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write_vectored(cx, bufs);
        self.check_stall(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_a_reader_that_takes_nothing_is_cut() {
        let (near, mut far) = tokio::io::duplex(4);
        let mut near = WriteStallTimeout::new(near, Duration::from_secs(120));
        near.write_all(b"full").await.unwrap();
        let slow = async {
            for _ in 0..4 {
                tokio::time::sleep(Duration::from_secs(100)).await;
                far.read_exact(&mut [0; 4]).await.unwrap();
            }
        };
        let (written, ()) = tokio::join!(near.write_all(b"full, and full"), slow);
        written.unwrap();
        near.write_all(b"ab").await.unwrap();
        let began = clock::now();
        assert_eq!(
            near.write_all(b"more").await.unwrap_err().kind(),
            io::ErrorKind::TimedOut
        );
        assert_eq!((clock::now() - began).as_secs(), 120);
    }
}
