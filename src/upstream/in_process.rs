//! Providers in this process, and connections that lead to one of them or over the network.

use std::{
    fmt,
    future::Future,
    io::{self, IoSlice},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_rustls::MaybeHttpsStream;
use hyper_util::{
    client::legacy::connect::{Connected, Connection},
    rt::TokioIo,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};

use super::SendError;

/// A connection to a provider in this process.
pub trait InProcessIo: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> InProcessIo for T {}

/// The future of a connection to a provider in this process.
pub type DialFuture = Pin<Box<dyn Future<Output = Result<Box<dyn InProcessIo>, SendError>> + Send>>;

/// The connector to providers in this process: no DNS lookup, and no TLS for `https`. Cheap to clone.
#[derive(Clone)]
pub struct InProcessDialer(Arc<dyn Fn(Uri) -> DialFuture + Send + Sync>);

impl InProcessDialer {
    /// Creates a connector from a function. The connect timeout covers the returned future.
    pub fn new(dial: impl Fn(Uri) -> DialFuture + Send + Sync + 'static) -> Self {
        Self(Arc::new(dial))
    }

    pub(super) fn dial_provider(&self, target: Uri) -> DialFuture {
        (self.0)(target)
    }
}

impl fmt::Debug for InProcessDialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InProcessDialer").finish_non_exhaustive()
    }
}

/// A connection to a provider.
#[expect(clippy::large_enum_variant, reason = "the large one is the one in use")]
pub(super) enum ProviderStream {
    Network(MaybeHttpsStream<TokioIo<TcpStream>>),
    InProcess(TokioIo<Box<dyn InProcessIo>>),
}

impl Connection for ProviderStream {
    fn connected(&self) -> Connected {
        match self {
            Self::Network(stream) => stream.connected(),
            Self::InProcess(_) => Connected::new(),
        }
    }
}

impl Read for ProviderStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Network(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::InProcess(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl Write for ProviderStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Network(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::InProcess(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Network(stream) => Pin::new(stream).poll_flush(cx),
            Self::InProcess(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Network(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::InProcess(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Network(stream) => stream.is_write_vectored(),
            Self::InProcess(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Network(stream) => Pin::new(stream).poll_write_vectored(cx, bytes),
            Self::InProcess(stream) => Pin::new(stream).poll_write_vectored(cx, bytes),
        }
    }
}
