//! A witness of HTTP/1 framing: notes per request head what hyper resolves silently, and how long a head takes. Never
//! changes a byte.
//!
//! hyper drops `content-length` where `transfer-encoding` stands too, and folds equal lengths into one. Both are how
//! request smuggling begins, so the proxy wants to refuse them. The witness follows the framing of well-formed requests
//! only; where it loses the thread it says so, and the request is refused.

use std::{
    collections::VecDeque,
    io,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
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

/// What stood in one request head about the length of the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// At most one length, or one transfer coding.
    Plain,
    /// `content-length` more than once.
    RepeatedLength,
    /// Both `content-length` and `transfer-encoding`.
    LengthAndCoding,
    /// The witness lost the thread.
    Unknown,
}

/// The heads seen on one connection and not yet asked for. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Heads(Arc<Seen>);

#[derive(Debug, Default)]
struct Seen {
    framings: Mutex<VecDeque<Framing>>,
    // Whether the body at hand is sent on piece by piece.
    streamed: AtomicBool,
}

impl Heads {
    /// The framing of the next request in order of arrival.
    pub fn next(&self) -> Framing {
        self.lock().pop_front().unwrap_or(Framing::Unknown)
    }

    /// The body at hand is sent on piece by piece: each one costs a write, so that they may be large.
    pub fn streamed(&self) {
        self.0.streamed.store(true, Ordering::Relaxed);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<Framing>> {
        self.0.framings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Bytes of a line that are kept: enough for any name and length we look for.
const LINE_BYTES_MAX: usize = 256;

/// Bytes of a short body that are read at once: just too few for hyper to let its buffer grow, which it keeps for the
/// life of the connection. An idle stream after a 64 kB request holds 0.7 times the memory; its CPU could not be told from noise.
const SHORT_READ: usize = 16 * 1024 - 1;
/// Longest body that is read so: at 4 MiB it would be 1.2 times the CPU.
const SHORT_BODY: u64 = 256 * 1024;

/// How long a client that we have answered may go on sending.
const FAREWELL: Duration = Duration::from_secs(1);

#[derive(Debug)]
enum State {
    Head,
    Length(u64),
    ChunkSize,
    Chunk(u64),
    Trailers,
    Blind,
}

/// The state of one connection's request side.
#[derive(Debug)]
struct Witness {
    state: State,
    line: Vec<u8>,
    lines: usize,
    lengths: usize,
    codings: usize,
    length: Option<u64>,
    // Length of the body at hand.
    body: u64,
    // Heads that came to their end.
    ended: u64,
    heads: Heads,
}

impl Witness {
    fn new(heads: Heads) -> Self {
        let (state, line) = (State::Head, Vec::new());
        Self {
            state,
            line,
            lines: 0,
            lengths: 0,
            codings: 0,
            length: None,
            body: 0,
            ended: 0,
            heads,
        }
    }

    /// Whether the client owes us the rest of a head, or its first.
    fn awaits_head(&self) -> bool {
        let begun = self.lines > 0 || !self.line.is_empty() || self.ended == 0;
        matches!(self.state, State::Head) && begun
    }

    /// Whether what comes next belongs to a body that is short altogether, and is gathered.
    fn is_in_short_body(&self) -> bool {
        let streamed = self.heads.0.streamed.load(Ordering::Relaxed);
        matches!(self.state, State::Length(_)) && self.body <= SHORT_BODY && !streamed
    }

    /// Whether the client may still be sending a body, or what we refused.
    fn awaits_body(&self) -> bool {
        !matches!(self.state, State::Head)
    }

    fn read(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            bytes = match &mut self.state {
                State::Blind => return,
                State::Length(left) | State::Chunk(left) => {
                    let taken = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                    *left = left.saturating_sub(taken as u64);
                    if *left == 0 {
                        self.state = if matches!(self.state, State::Chunk(_)) {
                            State::ChunkSize
                        } else {
                            State::Head
                        };
                    }
                    bytes.get(taken..).unwrap_or_default()
                }
                State::Head | State::ChunkSize | State::Trailers => self.read_line(bytes),
            };
        }
    }

    /// Takes bytes up to the end of the line, and acts on the line once it is whole.
    fn read_line<'b>(&mut self, bytes: &'b [u8]) -> &'b [u8] {
        let end = memchr::memchr(b'\n', bytes);
        let piece = bytes.get(..end.unwrap_or(bytes.len())).unwrap_or_default();
        let room = LINE_BYTES_MAX.saturating_sub(self.line.len());
        self.line
            .extend_from_slice(piece.get(..room.min(piece.len())).unwrap_or_default());
        let Some(end) = end else { return &[] };
        if self.line.last() == Some(&b'\r') {
            self.line.pop();
        }
        let line = std::mem::take(&mut self.line);
        match self.state {
            State::Head => self.head_line(&line),
            State::ChunkSize => self.state = chunk_size(&line),
            State::Trailers if line.is_empty() => self.state = State::Head,
            _ => {}
        }
        self.line = line;
        self.line.clear();
        bytes.get(end.saturating_add(1)..).unwrap_or_default()
    }

    fn head_line(&mut self, line: &[u8]) {
        if line.is_empty() {
            if self.lines > 0 {
                self.head_end();
            }
            return;
        }
        if self.lines == 0 && line.starts_with(b"PRI * HTTP/2.0") {
            self.state = State::Blind;
            return;
        }
        self.lines = self.lines.saturating_add(1);
        let Some(colon) = memchr::memchr(b':', line) else {
            return;
        };
        let (name, value) = line.split_at(colon);
        if name.eq_ignore_ascii_case(b"content-length") {
            self.lengths = self.lengths.saturating_add(1);
            // A line that was not kept whole says nothing sure.
            let whole = line.len() < LINE_BYTES_MAX;
            let digits = value.get(1..).filter(|_| whole).unwrap_or_default().trim_ascii();
            self.length = std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok());
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            self.codings = self.codings.saturating_add(1);
        }
    }

    fn head_end(&mut self) {
        let (framing, state) = match (self.lengths, self.codings) {
            (0, 0) => (Framing::Plain, State::Head),
            (0, _) => (Framing::Plain, State::ChunkSize),
            // A refused request closes the connection: nothing behind it is read.
            (1.., 1..) => (Framing::LengthAndCoding, State::Blind),
            (1, 0) => match self.length {
                Some(0) => (Framing::Plain, State::Head),
                Some(length) => (Framing::Plain, State::Length(length)),
                None => (Framing::Unknown, State::Blind),
            },
            (2.., 0) => (Framing::RepeatedLength, State::Blind),
        };
        self.heads.lock().push_back(framing);
        self.heads.0.streamed.store(false, Ordering::Relaxed);
        self.body = self.length.unwrap_or(0);
        self.ended = self.ended.saturating_add(1);
        self.state = state;
        (self.lines, self.lengths, self.codings, self.length) = (0, 0, 0, None);
    }
}

/// The state behind a chunk-size line; the two bytes that end a chunk count as its data.
fn chunk_size(line: &[u8]) -> State {
    let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    let digits = line
        .get(..digits)
        .and_then(|digits| std::str::from_utf8(digits).ok())
        .unwrap_or_default();
    match u64::from_str_radix(digits, 16) {
        Ok(0) => State::Trailers,
        Ok(size) => size.checked_add(2).map_or(State::Blind, State::Chunk),
        Err(_) => State::Blind,
    }
}

/// A connection whose incoming bytes the witness sees, and which fails where a head takes too long.
#[derive(Debug)]
pub struct Witnessed<T> {
    inner: T,
    witness: Witness,
    head_timeout: Duration,
    // Armed while a head is due, with the number of heads before it.
    alarm: Option<(u64, Pin<Box<Sleep>>)>,
    farewell: Option<Pin<Box<Sleep>>>,
}

impl<T> Witnessed<T> {
    /// Wraps `inner`; the framing of each request can be asked of the second value.
    pub fn new(inner: T, head_timeout: Duration) -> (Self, Heads) {
        let heads = Heads::default();
        let witness = Witness::new(heads.clone());
        (
            Self {
                inner,
                witness,
                head_timeout,
                alarm: None,
                farewell: None,
            },
            heads,
        )
    }

    /// Ready once the head that is due is late.
    fn poll_late(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let ended = self.witness.ended;
        if !self.witness.awaits_head() || self.alarm.as_ref().is_some_and(|(before, _)| *before != ended) {
            self.alarm = None;
        }
        if !self.witness.awaits_head() {
            return Poll::Pending;
        }
        let deadline = clock::now() + self.head_timeout;
        let (_, alarm) = self
            .alarm
            .get_or_insert_with(|| (ended, Box::pin(tokio::time::sleep_until(deadline))));
        alarm.as_mut().poll(cx)
    }
}

impl<T: AsyncRead + Unpin> Witnessed<T> {
    /// Reads away what a refused client is still sending: closed at once, it would be reset before it reads our answer.
    fn poll_farewell(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.witness.awaits_body() {
            return Poll::Ready(());
        }
        let deadline = clock::now() + FAREWELL;
        let farewell = self
            .farewell
            .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
        let mut scratch = [0; 4096];
        while farewell.as_mut().poll(cx).is_pending() {
            let mut buffer = ReadBuf::new(&mut scratch);
            let read = ready!(Pin::new(&mut self.inner).poll_read(cx, &mut buffer));
            if read.is_err() || buffer.filled().is_empty() {
                break;
            }
        }
        Poll::Ready(())
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Witnessed<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let polled = if self.witness.is_in_short_body() && buf.remaining() > SHORT_READ {
            let mut short = ReadBuf::new(buf.initialize_unfilled_to(SHORT_READ));
            let polled = Pin::new(&mut self.inner).poll_read(cx, &mut short);
            let read = short.filled().len();
            buf.advance(read);
            polled
        } else {
            Pin::new(&mut self.inner).poll_read(cx, buf)
        };
        if polled.is_ready() {
            self.witness.read(buf.filled().get(before..).unwrap_or_default());
            return polled;
        }
        ready!(self.poll_late(cx));
        Poll::Ready(Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "the head of the request is late",
        )))
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Witnessed<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.inner).poll_shutdown(cx))?;
        self.poll_farewell(cx).map(Ok)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heads(input: &[u8], cut: usize) -> Vec<Framing> {
        let heads = Heads::default();
        let mut witness = Witness::new(heads.clone());
        witness.read(&input[..cut]);
        witness.read(&input[cut..]);
        heads.lock().drain(..).collect()
    }

    #[test]
    fn follows_bodies_and_names_conflicts_at_any_cut() {
        let input = b"POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\n\r\n\r\na\
            POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\n\r\n\r\r\n0\r\nA: b\r\n\r\n\
            \r\nGET / HTTP/1.1\n\n\
            POST / HTTP/1.1\r\nTRANSFER-encoding: chunked\r\ncontent-length: 1\r\n\r\n0\r\n\r\nGET / HTTP/1.1\r\n\r\n";
        let want = [Framing::Plain, Framing::Plain, Framing::Plain, Framing::LengthAndCoding];
        for cut in 0..=input.len() {
            assert_eq!(heads(input, cut), want, "cut at {cut}");
        }
    }

    #[test]
    fn a_length_that_is_not_kept_whole_is_unknown() {
        let input = format!("POST / HTTP/1.1\r\nContent-Length: {}1\r\n\r\na", "0".repeat(300));
        assert_eq!(heads(input.as_bytes(), 40), [Framing::Unknown]);
    }

    #[test]
    fn equal_lengths_are_still_two() {
        let input = b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\na";
        assert_eq!(heads(input, 3), [Framing::RepeatedLength]);
    }
}
