//! The admin listener as axum's server accepts from it, with or without TLS.

use std::{io, net::SocketAddr};

use tokio::net::TcpListener;

use super::{ClientStream, ListenerTls, accept_connection};

/// A listener for operators, their browsers, probes and scrapers.
#[derive(Debug)]
pub struct OperatorListener {
    listener: TcpListener,
    tls: Option<ListenerTls>,
}

impl OperatorListener {
    /// Wraps a bound listener. `tls` is `None` for plain HTTP.
    pub fn new(listener: TcpListener, tls: Option<ListenerTls>) -> Self {
        let tls = tls.map(|tls| tls.for_operators());
        Self { listener, tls }
    }
}

impl axum::serve::Listener for OperatorListener {
    type Io = ClientStream;
    // The server needs no address of the client.
    type Addr = ();

    async fn accept(&mut self) -> (ClientStream, ()) {
        let stream = accept_connection(&self.listener).await;
        (ClientStream::new(stream, self.tls.as_ref()), ())
    }

    fn local_addr(&self) -> io::Result<()> {
        self.listener.local_addr().map(|_: SocketAddr| ())
    }
}
