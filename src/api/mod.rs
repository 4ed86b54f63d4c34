//! The proxy's own HTTP APIs, `/ledger/v1` and `/admin/v1`, and what they share: the table of operations, which is both
//! the router and the `OpenAPI` document, the reader of queries, streams of events, and problem documents.

pub mod admin;
pub mod json;
pub mod ledger_api;
pub mod problem;
pub mod query;
pub mod routes;
pub mod stream;

use std::convert::Infallible;

use bytes::{Bytes, BytesMut};
use http::{HeaderName, HeaderValue, Response, StatusCode, header::CACHE_CONTROL};
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};

pub use problem::{Problem, ProblemCode};

use crate::upstream::BoxedBody;

/// The body of an answer of an API: a stream of events, or a complete body of known length.
pub type ApiBody = UnsyncBoxBody<Bytes, Infallible>;

/// Builds an answer with this body. No cache may store it, since it is private, and no browser may guess another type.
pub fn private_response(status: StatusCode, media_type: &'static str, body: impl Into<Bytes>) -> Response<ApiBody> {
    let mut response = Response::new(Full::new(body.into()).boxed_unsync());
    *response.status_mut() = status;
    let plain = [
        (http::header::CONTENT_TYPE, media_type),
        (CACHE_CONTROL, "no-store"),
        (HeaderName::from_static("x-content-type-options"), "nosniff"),
    ];
    for (name, value) in plain {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Collects a body. `admit` decides on each chunk, by its length and the sum of those before. `broken` is the code for a
/// body that breaks off.
pub async fn collect_body(
    mut body: BoxedBody,
    broken: ProblemCode,
    mut admit: impl FnMut(usize, usize) -> Result<(), ProblemCode>,
) -> Result<Bytes, Problem> {
    let mut bytes = BytesMut::new();
    while let Some(frame) = body.frame().await {
        // Trailers have no meaning in the APIs.
        let Ok(data) = frame.map_err(|_| broken)?.into_data() else {
            continue;
        };
        // Before the copy: `content-length` may be absent or wrong.
        admit(data.len(), bytes.len())?;
        bytes.extend_from_slice(&data);
    }
    Ok(bytes.freeze())
}
