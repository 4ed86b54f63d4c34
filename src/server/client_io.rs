//! The bytes of one client connection: inspection of what comes in, and the timeouts of a head, a write and a close.
//!
//! A client that stops reading must not hold a provider's answer open.

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
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf, Take},
    time::Sleep,
};

use super::framing::{FramingInspector, RequestHeads};
use crate::clock;

/// The largest read of a short body, in bytes: just too small for hyper to grow its read buffer further.
///
/// hyper never shrinks that buffer while the connection lives. After a 64 kB request, an idle stream holds 0.7 times
/// the memory. No difference in CPU time was measurable.
const SHORT_READ_BYTES: u64 = 16 * 1024 - 1;
/// The answer to a client whose request head takes too long.
const SLOW_HEAD_ANSWER: &[u8] = b"HTTP/1.1 408 Request Timeout\r\ncontent-type: text/plain\r\ncontent-length: 102\r\n\
    connection: close\r\n\r\ntimeout: the head of the request did not arrive in time; try again (retryable like a connection reset)";
/// Time for which a client may continue to send after its request was answered.
const LINGER_TIMEOUT: Duration = Duration::from_secs(1);

/// The client's reading on a connection. Each request carries it in its extensions.
#[derive(Clone, Debug, Default)]
pub struct ClientStall(Arc<ClientReading>);

/// State shared by the connection's I/O and its requests.
#[derive(Debug, Default)]
struct ClientReading {
    // Set once the client has stopped reading, and the connection was closed.
    has_stalled: AtomicBool,
    // Set while a write waits for the client to read.
    is_write_waiting: AtomicBool,
}

impl ClientStall {
    /// Returns `true` if the connection was closed because the client stopped reading.
    pub fn has_stalled(&self) -> bool {
        self.0.has_stalled.load(Ordering::Acquire)
    }

    /// Returns `true` if the last write waits for the client to read. A stall is no longer waited for.
    pub fn is_write_waiting(&self) -> bool {
        self.0.is_write_waiting.load(Ordering::Acquire)
    }

    fn set_write_waiting(&self, waits: bool) {
        self.0.is_write_waiting.store(waits, Ordering::Release);
    }
}

/// A connection whose incoming bytes are inspected. A read fails if a request head takes too long. A write fails after
/// a timeout in which the client took no bytes.
#[derive(Debug)]
pub(super) struct ClientIo<T> {
    // A limit on the bytes of one read, set before each.
    inner: Take<T>,
    inspector: FramingInspector,
    head_timeout: Duration,
    stall_timeout: Duration,
    stalled: ClientStall,
    // The head timeout while a head is due, with the number of heads before it.
    head_timer: Option<(u64, Pin<Box<Sleep>>)>,
    // The timeout of a write, while one waits.
    write_timer: Option<Pin<Box<Sleep>>>,
    // The timeout of reading away the rest of a refused request.
    linger: Option<Pin<Box<Sleep>>>,
}

impl<T: AsyncRead> ClientIo<T> {
    /// Wraps `inner`, and sends the framing of each request to `heads`.
    pub(super) fn new(inner: T, heads: RequestHeads, head_timeout: Duration, stall_timeout: Duration) -> Self {
        Self {
            inner: inner.take(u64::MAX),
            inspector: FramingInspector::new(heads),
            head_timeout,
            stall_timeout,
            stalled: ClientStall::default(),
            head_timer: None,
            write_timer: None,
            linger: None,
        }
    }

    /// Returns the flag that is set once the client has stopped reading.
    pub(super) fn stall_flag(&self) -> ClientStall {
        self.stalled.clone()
    }

    /// Resolves once the timeout of the current head has passed.
    fn poll_head_timeout(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let ended = self.inspector.heads_ended;
        // The timer belongs to one head: the next head gets its full time.
        if !self.inspector.awaits_head() || self.head_timer.as_ref().is_some_and(|(before, _)| *before != ended) {
            self.head_timer = None;
        }
        if !self.inspector.awaits_head() {
            return Poll::Pending;
        }
        let deadline = clock::now() + self.head_timeout;
        let (_, alarm) = self
            .head_timer
            .get_or_insert_with(|| (ended, Box::pin(tokio::time::sleep_until(deadline))));
        alarm.as_mut().poll(cx)
    }

    /// Fails a write that has waited for longer than the limit.
    fn check_stall<R>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<R>>) -> Poll<io::Result<R>> {
        self.stalled.set_write_waiting(written.is_pending());
        // Any progress restarts the timeout: a slow client is fine, a silent one is not.
        if written.is_ready() {
            self.write_timer = None;
            return written;
        }
        let limit = self.stall_timeout;
        let alarm = self
            .write_timer
            .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(clock::now() + limit)));
        ready!(alarm.as_mut().poll(cx));
        // Set before the error: the exchange reads the flag when it is dropped.
        self.stalled.0.has_stalled.store(true, Ordering::Release);
        self.stalled.set_write_waiting(false);
        Poll::Ready(Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "timeout: the client stopped reading",
        )))
    }
}

impl<T: AsyncRead + Unpin> ClientIo<T> {
    /// Discards what the client still sends, for up to 1 second.
    ///
    /// An immediate close would reset the connection before the client has read the answer.
    fn poll_linger(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.inspector.awaits_body() {
            return Poll::Ready(());
        }
        let deadline = clock::now() + LINGER_TIMEOUT;
        let farewell = self
            .linger
            .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
        let mut scratch = [0; 4096];
        while farewell.as_mut().poll(cx).is_pending() {
            let mut buffer = ReadBuf::new(&mut scratch);
            let read = ready!(Pin::new(self.inner.get_mut()).poll_read(cx, &mut buffer));
            if read.is_err() || buffer.filled().is_empty() {
                break;
            }
        }
        Poll::Ready(())
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> ClientIo<T> {
    /// Answers a client that has begun a head and did not end it in time. hyper only closes the connection.
    fn answer_slow_head(&mut self, cx: &mut Context<'_>) {
        // hyper reads a head only after it has passed on the whole answer to the request before. While a write waits,
        // a part of that answer is still in hyper's buffer.
        if self.inspector.has_begun_head() && !self.stalled.is_write_waiting() {
            // Best effort: the connection is closed whether or not the socket takes it.
            drop(Pin::new(self.inner.get_mut()).poll_write(cx, SLOW_HEAD_ANSWER));
        }
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncRead for ClientIo<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        // Small reads keep hyper's buffer small for collected bodies: see the constants above.
        let limit = if self.inspector.is_in_short_body() {
            SHORT_READ_BYTES
        } else {
            u64::MAX
        };
        self.inner.set_limit(limit);
        let polled = Pin::new(&mut self.inner).poll_read(cx, buf);
        if polled.is_ready() {
            self.inspector
                .inspect_bytes(buf.filled().get(before..).unwrap_or_default());
            return polled;
        }
        // Only while nothing arrives: bytes that are there are read, however late.
        ready!(self.poll_head_timeout(cx));
        self.answer_slow_head(cx);
        Poll::Ready(Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "timeout: the client did not send its request head in time",
        )))
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncWrite for ClientIo<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(self.inner.get_mut()).poll_write(cx, buf);
        self.check_stall(cx, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Bytes that wait for TLS to send them have not been taken by the client.
        let flushed = Pin::new(self.inner.get_mut()).poll_flush(cx);
        self.check_stall(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // TLS still has to send its farewell, for which a client that reads nothing leaves no room.
        let shut = Pin::new(self.inner.get_mut()).poll_shutdown(cx);
        ready!(self.check_stall(cx, shut))?;
        self.poll_linger(cx).map(Ok)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(self.inner.get_mut()).poll_write_vectored(cx, bufs);
        self.check_stall(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.get_ref().is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_a_reader_that_takes_nothing_is_cut() {
        let (near, mut far) = tokio::io::duplex(4);
        let mut near = ClientIo::new(near, RequestHeads::default(), Duration::MAX, Duration::from_secs(120));
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

    /// A stream that takes every byte into a buffer of its own, as TLS does, and never sends one.
    #[derive(Debug)]
    struct Hoarder;

    impl AsyncWrite for Hoarder {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
            Poll::Ready(Ok(buf.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Pending
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Pending
        }
    }

    impl AsyncRead for Hoarder {
        fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            Poll::Pending
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_takes_nothing_of_a_buffer_below_is_cut() {
        let new = || {
            ClientIo::new(
                Hoarder,
                RequestHeads::default(),
                Duration::MAX,
                Duration::from_secs(120),
            )
        };
        for shuts_down in [false, true] {
            let (began, mut near) = (clock::now(), new());
            near.write_all(b"the end of an answer").await.unwrap();
            let waiting = async {
                if shuts_down {
                    near.shutdown().await
                } else {
                    near.flush().await
                }
            };
            let ended = tokio::time::timeout(Duration::from_secs(600), waiting).await.unwrap();
            assert_eq!(ended.unwrap_err().kind(), io::ErrorKind::TimedOut);
            assert_eq!((clock::now() - began).as_secs(), 120);
        }
    }
}
