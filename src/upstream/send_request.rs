//! One request over a connection of the pool. Resends a request only if none of its bytes was sent.

use std::sync::Arc;

use http::{
    HeaderMap, Request, Response, StatusCode, Uri,
    header::{CONTENT_LENGTH, HOST, TRANSFER_ENCODING},
    uri::{Parts, PathAndQuery},
};
use hyper::{body::Incoming, client::conn::TrySendError};

use super::{
    http1::Http1Connection,
    pool::{ConnectError, ConnectionPool, OriginPool, PooledConnection},
    pooled_body::PooledBody,
    send_progress::TrackedBody,
};

/// A request without an answer.
#[derive(Debug)]
pub(super) enum RequestFailure {
    /// No connection could be opened.
    Pool(ConnectError),
    /// The connection failed.
    Http(hyper::Error),
    /// A reused connection ended before the head of the answer: its peer may have closed it before the request came.
    Stale(hyper::Error),
    /// The length of the answer is ambiguous.
    AmbiguousLength,
}

/// Sends a request, whose URI must be absolute, and waits for the head of its answer. `needs_new` demands a new connection.
pub(super) async fn send_request(
    pool: &ConnectionPool,
    mut request: Request<TrackedBody>,
    needs_new: bool,
) -> Result<Response<PooledBody>, RequestFailure> {
    let uri = request.uri().clone();
    let origin = pool.origin_pool(&uri).map_err(RequestFailure::Pool)?;
    loop {
        let available = if needs_new { None } else { origin.take_available() };
        // The futures of new connections are boxed, since they are rare and much larger than the rest.
        let (connection, is_reused) = match available {
            Some(connection) => (connection, true),
            None if needs_new => (
                Box::pin(origin.open(uri.clone())).await.map_err(RequestFailure::Pool)?,
                false,
            ),
            None => Box::pin(origin.connect(uri.clone()))
                .await
                .map_err(RequestFailure::Pool)?,
        };
        // Streams of a shared connection may also be reset, and its end is announced.
        let may_be_stale = is_reused && matches!(connection, PooledConnection::Http1(_));
        let mut failed = match send_on(connection, &origin, &uri, request).await {
            // Drops the connection too, so that later bytes cannot reach another exchange.
            Ok((answer, _)) if has_ambiguous_length(&answer) => return Err(RequestFailure::AmbiguousLength),
            Ok((answer, connection)) => {
                return Ok(answer.map(|incoming| match connection {
                    Some(connection) => PooledBody::new(incoming, connection, origin),
                    None => PooledBody::from_shared(incoming),
                }));
            }
            Err(failed) => failed,
        };
        match failed.take_message() {
            // The provider closed the connection before it got the request, as it may at any time.
            Some(unsent) if is_reused => request = unsent,
            _ => {
                let error = failed.into_error();
                // Bytes that are no answer are no sign of a closed connection.
                let is_stale = may_be_stale && !error.is_parse();
                return Err(if is_stale {
                    RequestFailure::Stale(error)
                } else {
                    RequestFailure::Http(error)
                });
            }
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
        PooledConnection::Http1(mut connection) => {
            *request.uri_mut() = path_only(uri);
            request
                .headers_mut()
                .entry(HOST)
                .or_insert_with(|| origin.host().clone());
            let answer = connection.send(request).await?;
            Ok((answer, Some(connection)))
        }
        PooledConnection::Http2(mut requests) => {
            *request.uri_mut() = uri.clone();
            // HTTP/2 has `:authority` instead.
            request.headers_mut().remove(HOST);
            Ok((requests.try_send_request(request).await?, None))
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
fn has_ambiguous_length<B>(answer: &Response<B>) -> bool {
    // The proxy asks for no upgrade, so what follows such a head is not HTTP.
    answer.status() == StatusCode::SWITCHING_PROTOCOLS || is_ambiguous(answer.headers())
}

fn is_ambiguous(headers: &HeaderMap) -> bool {
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    match (codings.next(), codings.next()) {
        (None, _) => false,
        (Some(coding), None) if coding.as_bytes().eq_ignore_ascii_case(b"chunked") => {
            headers.contains_key(CONTENT_LENGTH)
        }
        _ => true,
    }
}
