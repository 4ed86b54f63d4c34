//! The socket of the admin listener. It has one file descriptor in reserve, so that health checks are answered even if
//! the proxy has none left.

use std::{
    fs::File,
    io,
    net::{IpAddr, Shutdown, SocketAddr},
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    extract::connect_info::Connected,
    serve::{IncomingStream, Listener},
};
use futures_util::FutureExt;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    time::Sleep,
};

use crate::{clock, descriptors, server::AcceptOutage};

/// Longest time for which a connection may have the reserved descriptor: a health check takes milliseconds.
const RESERVE_TIMEOUT: Duration = Duration::from_secs(2);

/// The address of a client.
#[derive(Clone, Copy, Debug)]
pub(super) struct PeerAddress(pub(super) IpAddr);

impl Connected<IncomingStream<'_, AdminListener>> for PeerAddress {
    fn connect_info(stream: IncomingStream<'_, AdminListener>) -> Self {
        Self(stream.remote_addr().ip())
    }
}

/// The reserved descriptor: a file that nobody reads, or the closed socket of a connection that had it last.
#[derive(Debug)]
enum SpareDescriptor {
    File(#[expect(dead_code, reason = "only its descriptor is of use")] File),
    Socket(#[expect(dead_code, reason = "only its descriptor is of use")] std::net::TcpStream),
}

/// The place of the reserved descriptor. Empty while a connection has it. Cheap to clone.
#[derive(Clone, Debug, Default)]
struct DescriptorReserve(Arc<Mutex<Option<SpareDescriptor>>>);

impl DescriptorReserve {
    fn take_spare(&self) -> Option<SpareDescriptor> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn put_spare(&self, spare: SpareDescriptor) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(spare);
    }

    /// Opens the reserve if it is missing. Stays without it if there is no descriptor.
    fn fill(&self) {
        let mut spare = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if spare.is_none() {
            *spare = descriptors::open_spare().ok().map(SpareDescriptor::File);
        }
    }
}

/// The listener. Never fails: it waits for as long as it cannot accept.
#[derive(Debug)]
pub(super) struct AdminListener {
    listener: TcpListener,
    reserve: DescriptorReserve,
    /// `true` while a connection has the reserved descriptor, which it gives back.
    lent: Arc<()>,
    outage: AcceptOutage,
}

impl AdminListener {
    /// Wraps a bound listener, and takes the reserve.
    pub(super) fn new(listener: TcpListener) -> Self {
        let reserve = DescriptorReserve::default();
        reserve.fill();
        Self {
            listener,
            reserve,
            lent: Arc::new(()),
            outage: AcceptOutage::new("admin"),
        }
    }

    /// Accepts a connection with the reserved descriptor. `None` if it is in use, or if another part was faster.
    fn accept_with_reserve(&self) -> Option<(AdminStream, SocketAddr)> {
        // Closed right before the accept, which gets its number.
        drop(self.reserve.take_spare()?);
        // Never waits: a client may have left, and the reserve is needed for the next.
        let Some(Ok((stream, address))) = self.listener.accept().now_or_never() else {
            self.reserve.fill();
            return None;
        };
        let loan = ReserveLoan {
            reserve: self.reserve.clone(),
            end: Box::pin(tokio::time::sleep_until(clock::now() + RESERVE_TIMEOUT)),
            _lent: Arc::clone(&self.lent),
        };
        let stream = AdminStream {
            stream: Some(stream),
            loan: Some(loan),
        };
        Some((stream, address))
    }
}

impl Listener for AdminListener {
    type Io = AdminStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (AdminStream, SocketAddr) {
        loop {
            // Another part of the process may have been faster when the reserve was opened again.
            if Arc::strong_count(&self.lent) == 1 {
                self.reserve.fill();
            }
            match self.listener.accept().await {
                Ok((stream, address)) => {
                    self.outage.record_success();
                    let stream = AdminStream {
                        stream: Some(stream),
                        loan: None,
                    };
                    return (stream, address);
                }
                Err(error) => {
                    let is_lack = descriptors::is_exhausted(&error);
                    if let Some(accepted) = is_lack.then(|| self.accept_with_reserve()).flatten() {
                        return accepted;
                    }
                    self.outage.wait_after_failure(&error).await;
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// The loan of the reserved descriptor to one connection.
#[derive(Debug)]
struct ReserveLoan {
    reserve: DescriptorReserve,
    end: Pin<Box<Sleep>>,
    _lent: Arc<()>,
}

/// A connection to the admin listener.
#[derive(Debug)]
pub(super) struct AdminStream {
    // `None` only while it is dropped.
    stream: Option<TcpStream>,
    loan: Option<ReserveLoan>,
}

impl AdminStream {
    /// Returns the socket. Fails only while the stream is dropped, when nothing polls it.
    fn socket(&mut self) -> io::Result<Pin<&mut TcpStream>> {
        self.stream
            .as_mut()
            .map(Pin::new)
            .ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

impl Drop for AdminStream {
    fn drop(&mut self) {
        // The very descriptor is kept: a closed one could be taken by another part before it is opened again.
        if let (Some(loan), Some(stream)) = (self.loan.take(), self.stream.take())
            && let Ok(socket) = stream.into_std()
        {
            drop(socket.shutdown(Shutdown::Both));
            loan.reserve.put_spare(SpareDescriptor::Socket(socket));
        }
    }
}

impl AsyncRead for AdminStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if let Some(loan) = &mut self.loan
            && loan.end.as_mut().poll(cx).is_ready()
        {
            // Looks like the end of the connection. Another health check needs the descriptor.
            return Poll::Ready(Ok(()));
        }
        self.socket()?.poll_read(cx, buf)
    }
}

impl AsyncWrite for AdminStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.socket()?.poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.socket()?.poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.socket()?.poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.socket()?.poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.as_ref().is_some_and(AsyncWrite::is_write_vectored)
    }
}
