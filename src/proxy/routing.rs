//! The way of a request: its upstream, and the base URLs that work where it has none.

use http::{
    HeaderMap, Request, Uri,
    header::HOST,
    uri::{Authority, PathAndQuery},
};

use super::{data_path::DataPath, error::ProxyError, guard::Refusal};
use crate::provider::{Route, RouteError};

/// Finds the route of a request.
pub(super) fn find_route<'p, B>(path: &'p DataPath, request: &Request<B>) -> Result<Route<'p>, ProxyError> {
    let root = PathAndQuery::from_static("/");
    let target = request.uri().path_and_query().unwrap_or(&root);
    path.routes
        .find_route(request.method(), target, request.headers())
        .map_err(|reason| match reason {
            RouteError::BadPath => ProxyError::Refused(Refusal::Path),
            RouteError::UnknownPath => ProxyError::NoRoute {
                bases: base_urls(path, request.uri(), request.headers()),
            },
        })
}

/// Returns the base URLs that lead to an upstream, for the client whose URL did not.
fn base_urls(path: &DataPath, uri: &Uri, headers: &HeaderMap) -> Vec<String> {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    let host = host
        .or_else(|| uri.authority().map(Authority::as_str))
        .unwrap_or("localhost");
    path.routes.base_urls(host).into_iter().map(|(_, base)| base).collect()
}
