//! The handshake of one connection, bounded in time and in its share of the processor.

use std::{io, time::Duration};

use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use super::{KnownNames, ListenerTls, certificate, plain_http};

/// Timeout of a handshake, from the accept of the connection.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// First byte of every TLS handshake.
const HANDSHAKE_RECORD: u8 = 0x16;
/// Plain bytes that wait in rustls for a client that does not read: one TLS record.
///
/// They count as taken by the client, so a larger buffer would hide for longer that it reads nothing.
const SEND_BUFFER_BYTES: usize = 16 * 1024;

/// Shakes hands with the client. Sets `names` if it has presented a certificate.
pub(super) async fn shake_hands(
    tcp: TcpStream,
    tls: ListenerTls,
    names: KnownNames,
) -> io::Result<Box<TlsStream<TcpStream>>> {
    let handshake = tokio::time::timeout(HANDSHAKE_TIMEOUT, complete_handshake(tcp, &tls));
    let stream = handshake.await.map_err(|_| {
        io::Error::new(
            io::ErrorKind::TimedOut,
            "timeout: the client did not complete its TLS handshake in time",
        )
    })??;
    let (_, session) = stream.get_ref();
    // rustls has verified it by now. The CAs behind it have names too, which are nobody's.
    if let Some(own) = session.peer_certificates().and_then(<[_]>::first) {
        // Set once: a connection has one handshake.
        drop(names.set(certificate::read_names(own).into()));
    }
    Ok(Box::new(stream))
}

async fn complete_handshake(tcp: TcpStream, tls: &ListenerTls) -> io::Result<TlsStream<TcpStream>> {
    let mut first = [0];
    // Only a look: the handshake reads the byte again.
    if tcp.peek(&mut first).await? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let [first] = first;
    if first != HANDSHAKE_RECORD {
        if first.is_ascii_uppercase() {
            plain_http::refuse_plain_http(tcp).await?;
        }
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "the client began without a TLS handshake",
        ));
    }
    // Only now: a connection may have been open for a while before it began.
    let acceptor = TlsAcceptor::from(tls.current_config());
    let accept = acceptor.accept_with(tcp, |session| session.set_buffer_limit(Some(SEND_BUFFER_BYTES)));
    tls.turns.run_handshake(accept).await
}
