//! The frame of the proxy's own HTTP APIs, `/ledger/v1` and `/admin/v1`: the problem document of a refusal.

pub mod json;
pub mod problem;

use std::convert::Infallible;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Response, StatusCode, header::CACHE_CONTROL};
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};

pub use problem::{Problem, ProblemCode};

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
