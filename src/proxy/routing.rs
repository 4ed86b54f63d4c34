//! Routing: finds the upstream of a request, or the base URLs for a client whose path has none.

use http::{
    HeaderMap, Request, Uri,
    header::HOST,
    uri::{Authority, PathAndQuery},
};

use super::{data_path::DataPath, error::ProxyError, exchange_route::ExchangeRoute, guard::RequestRefusal};
use crate::provider::RouteError;

/// Finds the route of a request.
pub(super) fn find_route<'p, B>(path: &'p DataPath, request: &Request<B>) -> Result<ExchangeRoute<'p>, ProxyError> {
    // A request without a path cannot be routed: `/` leads to the answer with the base URLs.
    let root = PathAndQuery::from_static("/");
    let target = request.uri().path_and_query().unwrap_or(&root);
    let found = path.routes.find_route(request.method(), target, request.headers());
    found
        .map(|route| ExchangeRoute {
            pool: path.profiles.pool(&route.upstream.name),
            route,
        })
        .map_err(|reason| match reason {
            RouteError::BadPath => ProxyError::Refused(RequestRefusal::Path),
            RouteError::UnknownPath => no_route(path, request, None),
            RouteError::PrefixNeeded(api) => no_route(path, request, Some(api)),
        })
}

/// Returns the error for a request without a route. `api` is the API whose paths need a prefix.
fn no_route<B>(path: &DataPath, request: &Request<B>, api: Option<&'static str>) -> ProxyError {
    ProxyError::NoRoute {
        api,
        bases: base_urls(path, request.uri(), request.headers()),
    }
}

/// Returns the base URL of each upstream, as the client can reach the proxy.
fn base_urls(path: &DataPath, uri: &Uri, headers: &HeaderMap) -> Vec<String> {
    // The name that the client itself used is certain to work for it. HTTP/2 has it in the URI.
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    let host = host
        .or_else(|| uri.authority().map(Authority::as_str))
        .unwrap_or("localhost");
    let root = format!("{}://{host}", path.scheme);
    path.routes.base_urls(&root).into_iter().map(|(_, base)| base).collect()
}
