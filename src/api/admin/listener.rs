//! The socket of the admin listener. It may use the reserved file descriptor, so that health checks are answered even
//! if the proxy has none left.

use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use futures_util::FutureExt;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    time::Sleep,
};

use crate::{
    clock,
    server::{
        AcceptOutage, DescriptorReserve, ReserveLoan,
        tls::{ClientStream, ListenerTls},
    },
    upstream::descriptors,
};

/// Longest time for which a connection may have the reserved descriptor: a health check takes milliseconds.
const RESERVE_TIMEOUT: Duration = Duration::from_secs(2);

/// The listener. Never fails: it waits for as long as it cannot accept.
#[derive(Debug)]
pub(super) struct AdminListener {
    listener: TcpListener,
    reserve: DescriptorReserve,
    tls: Option<ListenerTls>,
    outage: AcceptOutage,
}

impl AdminListener {
    /// Wraps a bound listener, which may use the reserve. `tls` is `None` for plain HTTP.
    pub(super) fn new(listener: TcpListener, reserve: DescriptorReserve, tls: Option<&ListenerTls>) -> Self {
        Self {
            listener,
            reserve,
            tls: tls.map(ListenerTls::for_operators),
            outage: AcceptOutage::new("admin"),
        }
    }

    /// Accepts a connection with the reserved descriptor. `None` if another connection has it.
    fn accept_with_reserve(&self) -> Option<(AdminStream, SocketAddr)> {
        // Never waits: the client may have left.
        let accept = || self.listener.accept().now_or_never()?.ok();
        let ((stream, address), loan) = self.reserve.lend_to(accept)?;
        let end = Box::pin(tokio::time::sleep_until(clock::now() + RESERVE_TIMEOUT));
        let stream = AdminStream {
            stream: Some(ClientStream::new(stream, self.tls.as_ref())),
            loan: Some((loan, end)),
        };
        Some((stream, address))
    }

    /// Accepts the next connection.
    pub(super) async fn accept_connection(&mut self) -> (AdminStream, SocketAddr) {
        loop {
            // At the start, and if a send to a provider was faster when the reserve was free.
            self.reserve.fill();
            match self.listener.accept().await {
                Ok((stream, address)) => {
                    self.outage.record_success();
                    let stream = AdminStream {
                        stream: Some(ClientStream::new(stream, self.tls.as_ref())),
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
}

/// A connection to the admin listener.
#[derive(Debug)]
pub(super) struct AdminStream {
    // `None` only while it is dropped.
    stream: Option<ClientStream>,
    /// The loan of the reserved descriptor, and its end.
    loan: Option<(ReserveLoan, Pin<Box<Sleep>>)>,
}

impl AdminStream {
    /// Returns the open stream. Fails only while it is dropped, when nothing polls it.
    fn open_stream(&mut self) -> io::Result<Pin<&mut ClientStream>> {
        self.stream
            .as_mut()
            .map(Pin::new)
            .ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

impl Drop for AdminStream {
    fn drop(&mut self) {
        if let (Some((loan, _)), Some(stream)) = (self.loan.take(), self.stream.take())
            && let Some(Ok(socket)) = stream.into_socket().map(TcpStream::into_std)
        {
            loan.return_socket(socket);
        }
    }
}

impl AsyncRead for AdminStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if let Some((_, end)) = &mut self.loan
            && end.as_mut().poll(cx).is_ready()
        {
            // Looks like the end of the connection. Another health check needs the descriptor.
            return Poll::Ready(Ok(()));
        }
        self.open_stream()?.poll_read(cx, buf)
    }
}

impl AsyncWrite for AdminStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.open_stream()?.poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.open_stream()?.poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.open_stream()?.poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.open_stream()?.poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.as_ref().is_some_and(AsyncWrite::is_write_vectored)
    }
}
