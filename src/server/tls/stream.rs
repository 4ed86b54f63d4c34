//! The stream of one client connection, with or without TLS.

use std::{
    fmt, io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};
use tokio_rustls::server::TlsStream;

use super::{KnownNames, ListenerTls, handshake};

/// The bytes of a client connection without their encryption.
///
/// The first read runs the handshake. So it runs in the connection's own task, and the accept loop never waits for it.
pub struct ClientStream {
    state: ClientStreamState,
    names: KnownNames,
    /// The bytes that the client must send next. Empty if they may be any.
    expected: &'static [u8],
}

/// First bytes of a client that speaks HTTP/2.
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Name of HTTP/2 in a handshake.
const HTTP2_NAME: &[u8] = b"h2";

type Handshake = Pin<Box<dyn Future<Output = io::Result<Box<TlsStream<TcpStream>>>> + Send>>;

enum ClientStreamState {
    Plain(TcpStream),
    Handshake(Handshake),
    Tls(Box<TlsStream<TcpStream>>),
    /// The handshake has failed.
    Closed,
}

impl fmt::Debug for ClientStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientStream").finish_non_exhaustive()
    }
}

impl ClientStream {
    /// Wraps an accepted connection. `tls` is `None` for a listener without TLS.
    pub fn new(tcp: TcpStream, tls: Option<&ListenerTls>) -> Self {
        let names = KnownNames::default();
        let state = match tls {
            Some(tls) => {
                let handshake = handshake::shake_hands(tcp, tls.clone(), Arc::clone(&names));
                ClientStreamState::Handshake(Box::pin(handshake))
            }
            None => ClientStreamState::Plain(tcp),
        };
        Self {
            state,
            names,
            expected: &[],
        }
    }

    /// Returns the connection's socket, whatever its state. `None` if its handshake has not ended well.
    pub fn into_socket(self) -> Option<TcpStream> {
        match self.state {
            ClientStreamState::Plain(socket) => Some(socket),
            ClientStreamState::Tls(stream) => Some(stream.into_inner().0),
            ClientStreamState::Handshake(_) | ClientStreamState::Closed => None,
        }
    }

    /// Returns the names of the client's certificate, which are set once the handshake is done.
    pub(super) fn certificate_names(&self) -> KnownNames {
        Arc::clone(&self.names)
    }

    /// Checks the first bytes of a client that has chosen HTTP/2. RFC 9113 3.4: anything else ends the connection.
    fn check_begin(&mut self, bytes: &[u8]) -> io::Result<()> {
        let checked = bytes.len().min(self.expected.len());
        let (wanted, rest) = self.expected.split_at(checked);
        if !bytes.starts_with(wanted) {
            let text = "the client chose HTTP/2 in its handshake, and does not speak it";
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        self.expected = rest;
        Ok(())
    }

    /// Completes the handshake, and returns the stream that is open then.
    fn poll_open(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<OpenStream<'_>>> {
        if let ClientStreamState::Handshake(handshake) = &mut self.state {
            match ready!(handshake.as_mut().poll(cx)) {
                Ok(stream) => {
                    if stream.get_ref().1.alpn_protocol() == Some(HTTP2_NAME) {
                        self.expected = HTTP2_PREFACE;
                    }
                    self.state = ClientStreamState::Tls(stream);
                }
                Err(error) => {
                    self.state = ClientStreamState::Closed;
                    return Poll::Ready(Err(error));
                }
            }
        }
        Poll::Ready(match &mut self.state {
            ClientStreamState::Plain(stream) => Ok(OpenStream::Plain(Pin::new(stream))),
            ClientStreamState::Tls(stream) => Ok(OpenStream::Tls(Pin::new(stream))),
            ClientStreamState::Handshake(_) | ClientStreamState::Closed => Err(io::ErrorKind::NotConnected.into()),
        })
    }
}

/// A stream that can be read and written.
enum OpenStream<'s> {
    Plain(Pin<&'s mut TcpStream>),
    Tls(Pin<&'s mut TlsStream<TcpStream>>),
}

impl AsyncRead for ClientStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = match ready!(self.poll_open(cx))? {
            OpenStream::Plain(stream) => stream.poll_read(cx, buf),
            OpenStream::Tls(stream) => stream.poll_read(cx, buf),
        };
        ready!(read)?;
        Poll::Ready(self.check_begin(buf.filled().get(before..).unwrap_or_default()))
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match ready!(self.poll_open(cx))? {
            OpenStream::Plain(stream) => stream.poll_write(cx, buf),
            OpenStream::Tls(stream) => stream.poll_write(cx, buf),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Before the end of the handshake there is nothing to flush.
        match &mut self.state {
            ClientStreamState::Plain(stream) => Pin::new(stream).poll_flush(cx),
            ClientStreamState::Tls(stream) => Pin::new(stream).poll_flush(cx),
            ClientStreamState::Handshake(_) | ClientStreamState::Closed => Poll::Ready(Ok(())),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.state {
            ClientStreamState::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            ClientStreamState::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
            ClientStreamState::Handshake(_) | ClientStreamState::Closed => {
                // Dropping an unfinished handshake closes its connection.
                self.state = ClientStreamState::Closed;
                Poll::Ready(Ok(()))
            }
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match ready!(self.poll_open(cx))? {
            OpenStream::Plain(stream) => stream.poll_write_vectored(cx, bufs),
            OpenStream::Tls(stream) => stream.poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        // True of TCP and of rustls. hyper asks before the handshake.
        true
    }
}
