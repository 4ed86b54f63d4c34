//! One request over a connection of the pool. Resends only a request of which no byte was sent.

use std::sync::Arc;

use http::{
    HeaderMap, Request, Response, StatusCode, Uri,
    header::{CONTENT_LENGTH, HOST, TRANSFER_ENCODING},
    uri::{Parts, PathAndQuery},
};
use hyper::{body::Incoming, client::conn::TrySendError};

use super::{
    http1::Http1Connection,
    pool::{ConnectionPool, OriginPool, PoolError, PooledConnection},
    received_body::ReceivedBody,
    send_progress::TrackedBody,
};

/// A request without an answer.
#[derive(Debug)]
pub(super) enum ClientError {
    /// No connection could be opened.
    Pool(PoolError),
    /// The connection failed.
    Http(hyper::Error),
    /// The end of the answer cannot be known.
    UnclearEnd,
}

/// Sends a request, whose URI must be absolute, and waits for the head of its answer.
pub(super) async fn send_request(
    pool: &ConnectionPool,
    mut request: Request<TrackedBody>,
) -> Result<Response<ReceivedBody>, ClientError> {
    let uri = request.uri().clone();
    let origin = pool.find_origin(&uri).map_err(ClientError::Pool)?;
    loop {
        let (connection, was_used) = match origin.take_open() {
            Some(connection) => (connection, true),
            None => origin.connect(uri.clone()).await.map_err(ClientError::Pool)?,
        };
        let mut failed = match send_on(connection, &origin, &uri, request).await {
            // Without the connection, which is closed: later bytes on it must not reach another exchange.
            Ok((answer, _)) if has_unclear_end(&answer) => return Err(ClientError::UnclearEnd),
            Ok((answer, connection)) => {
                return Ok(answer.map(|incoming| match connection {
                    Some(connection) => ReceivedBody::new(incoming, connection, origin),
                    None => ReceivedBody::from_shared(incoming),
                }));
            }
            Err(failed) => failed,
        };
        match failed.take_message() {
            // The provider closed the connection before it got the request, as it may at any time.
            Some(unsent) if was_used => request = unsent,
            _ => return Err(ClientError::Http(failed.into_error())),
        }
    }
}

/// Sends a request on one connection. Returns the answer and the connection, if it is not a shared one.
async fn send_on(
    connection: PooledConnection,
    origin: &Arc<OriginPool>,
    uri: &Uri,
    mut request: Request<TrackedBody>,
) -> Result<(Response<Incoming>, Option<Box<Http1Connection>>), TrySendError<Request<TrackedBody>>> {
    match connection {
        PooledConnection::Own(mut connection) => {
            *request.uri_mut() = path_only(uri);
            request
                .headers_mut()
                .entry(HOST)
                .or_insert_with(|| origin.host().clone());
            let mut answer = connection.send(request).await?;
            answer.extensions_mut().insert(connection.read_idle());
            Ok((answer, Some(connection)))
        }
        PooledConnection::Shared(mut requests) => {
            *request.uri_mut() = uri.clone();
            // HTTP/2 has `:authority` instead.
            request.headers_mut().remove(HOST);
            let sent = requests.try_send_request(request).await;
            if sent.as_ref().is_err_and(|failed| failed.message().is_some()) {
                // The next attempt must not choose it again.
                origin.remove_shared();
            }
            Ok((sent?, None))
        }
    }
}

/// Returns the path and the query of a URI, which is all that HTTP/1 sends of it.
fn path_only(uri: &Uri) -> Uri {
    let mut parts = Parts::default();
    parts.path_and_query = uri
        .path_and_query()
        .cloned()
        .or_else(|| Some(PathAndQuery::from_static("/")));
    Uri::from_parts(parts).unwrap_or_default()
}

/// Returns `true` if two readers could disagree on the end of the answer, or if hyper would pass a transfer coding on.
fn has_unclear_end<B>(answer: &Response<B>) -> bool {
    // The proxy asks for no upgrade, so what follows such a head is no HTTP.
    answer.status() == StatusCode::SWITCHING_PROTOCOLS || has_unclear_framing(answer.headers())
}

fn has_unclear_framing(headers: &HeaderMap) -> bool {
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    match (codings.next(), codings.next()) {
        (None, _) => false,
        (Some(coding), None) if coding.as_bytes().eq_ignore_ascii_case(b"chunked") => {
            headers.contains_key(CONTENT_LENGTH)
        }
        _ => true,
    }
}
