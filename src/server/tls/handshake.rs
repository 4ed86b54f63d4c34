//! The handshake of one connection, bounded in time and in its share of the processor.

use std::{io, time::Duration};

use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use super::{KnownNames, ListenerTls, certificate, plain_http};
use crate::telemetry::events::HandshakeFault;

/// Timeout of a handshake, from the accept of the connection.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// First byte of every TLS handshake.
const HANDSHAKE_RECORD: u8 = 0x16;
/// Plain bytes that wait in rustls for a client that does not read: one TLS record.
///
/// They count as taken by the client, so a larger buffer would hide for longer that it reads nothing.
const SEND_BUFFER_BYTES: usize = 16 * 1024;

/// A handshake that failed.
struct FailedHandshake {
    /// `None` if it had not begun: a look at the port, as by a health check.
    fault: Option<HandshakeFault>,
    error: io::Error,
}

impl FailedHandshake {
    const fn new(fault: HandshakeFault, error: io::Error) -> Self {
        Self {
            fault: Some(fault),
            error,
        }
    }

    const fn before_its_start(error: io::Error) -> Self {
        Self { fault: None, error }
    }

    fn timed_out() -> Self {
        let text = "timeout: the client did not complete its TLS handshake in time";
        Self::new(HandshakeFault::Timeout, io::Error::new(io::ErrorKind::TimedOut, text))
    }

    /// Reads the fault from an error of rustls, or of the connection.
    fn in_handshake(error: io::Error) -> Self {
        let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        let fault = match tls {
            Some(rustls::Error::NoCertificatesPresented | rustls::Error::InvalidCertificate(_)) => {
                HandshakeFault::ClientCertificate
            }
            Some(rustls::Error::AlertReceived(_)) => HandshakeFault::ClientAlert,
            Some(_) => HandshakeFault::Protocol,
            None => HandshakeFault::Closed,
        };
        Self::new(fault, error)
    }
}

/// Shakes hands with the client. Sets `names` if it has presented a certificate.
pub(super) async fn shake_hands(
    tcp: TcpStream,
    tls: ListenerTls,
    names: KnownNames,
) -> io::Result<Box<TlsStream<TcpStream>>> {
    let handshake = tokio::time::timeout(HANDSHAKE_TIMEOUT, complete_handshake(tcp, &tls));
    let done = handshake.await.unwrap_or_else(|_| Err(FailedHandshake::timed_out()));
    let stream = done.map_err(|failed| {
        if let (Some(telemetry), Some(fault)) = (&tls.telemetry, failed.fault) {
            telemetry.record_failed_handshake(fault);
        }
        failed.error
    })?;
    let (_, session) = stream.get_ref();
    // rustls has verified it by now. The CAs behind it have names too, which are nobody's.
    if let Some(own) = session.peer_certificates().and_then(<[_]>::first) {
        // Set once: a connection has one handshake.
        drop(names.set(certificate::read_names(own).into()));
    }
    Ok(Box::new(stream))
}

async fn complete_handshake(tcp: TcpStream, tls: &ListenerTls) -> Result<TlsStream<TcpStream>, FailedHandshake> {
    let mut first = [0];
    // Only a look: the handshake reads the byte again.
    let peeked = tcp.peek(&mut first).await.map_err(FailedHandshake::before_its_start)?;
    if peeked == 0 {
        let closed = io::ErrorKind::UnexpectedEof.into();
        return Err(FailedHandshake::before_its_start(closed));
    }
    let [first] = first;
    if first != HANDSHAKE_RECORD {
        let mut answered = Ok(());
        if first.is_ascii_uppercase() {
            answered = plain_http::refuse_plain_http(tcp).await;
        }
        let text = "the client began without a TLS handshake";
        let error = answered
            .err()
            .unwrap_or_else(|| io::Error::new(io::ErrorKind::InvalidData, text));
        return Err(FailedHandshake::new(HandshakeFault::NoTls, error));
    }
    // Only now: a connection may have been open for a while before it began.
    let acceptor = TlsAcceptor::from(tls.current_config());
    let accept = acceptor.accept_with(tcp, |session| session.set_buffer_limit(Some(SEND_BUFFER_BYTES)));
    tls.turns
        .run_handshake(accept)
        .await
        .map_err(FailedHandshake::in_handshake)
}
