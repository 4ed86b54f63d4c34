//! The proxy's own description, by which `antiphon run` recognizes a running proxy.
//!
//! It is no exchange: a look at the port must leave nothing in log, metrics and dashboard.

use std::collections::HashMap;

use bytes::Bytes;
use http::{
    HeaderName, HeaderValue, Method, Request, Response,
    header::{CACHE_CONTROL, CONTENT_TYPE},
};

use super::{
    data_path::DataPath,
    guard::{self, Admission},
    response::AnswerBody,
};
use crate::upstream::BoxedBody;

/// Path of the description.
pub const IDENTITY_PATH: &str = "/.well-known/antiphon";

/// Returns the description if the request asks for it, and may.
pub(super) fn describe_proxy(path: &DataPath, request: &Request<BoxedBody>) -> Option<Response<AnswerBody>> {
    let is_asked = request.uri().path() == IDENTITY_PATH && matches!(*request.method(), Method::GET | Method::HEAD);
    // A refused request goes on as an exchange: a web page that looks for proxies should be seen in the log.
    if !is_asked || guard::admit_request(path, request).ok()? != Admission::Forward {
        return None;
    }
    // Other machines need not know where the dashboard is.
    let is_local = path.own_address.is_some_and(|address| address.is_loopback());
    let admin = path
        .admin_listen
        .filter(|_| is_local)
        .map(|address| address.to_string());
    let upstreams: HashMap<&str, String> = path.routes.fingerprints().collect();
    let body = serde_json::json!({
        "server": "antiphon", "version": 1, "admin_listen": admin, "upstreams": upstreams,
    });
    let mut answer = Response::new(AnswerBody::from_bytes(Bytes::from(format!("{body}\n"))));
    let headers = [
        (CONTENT_TYPE, "application/json"),
        (CACHE_CONTROL, "no-store"),
        (HeaderName::from_static("x-content-type-options"), "nosniff"),
    ];
    answer
        .headers_mut()
        .extend(headers.map(|(name, value)| (name, HeaderValue::from_static(value))));
    Some(answer)
}
