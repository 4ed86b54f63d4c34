//! Access control by `Host`, `Origin` and token, and the security headers of every answer.

use std::net::IpAddr;

use http::{
    HeaderMap, HeaderName, HeaderValue, Request, Response,
    header::{AUTHORIZATION, CACHE_CONTROL, HOST, ORIGIN},
    uri::Authority,
};

use super::{
    AdminState,
    api::needs_token,
    token_attempts::{TokenAttempt, TokenAttempts},
};
use crate::{
    api::{Problem, ProblemCode},
    auth::TokenHash,
    provider,
    server::{ClientAddress, ClientConnection},
};

/// The content security policy: the page may load only what this listener serves.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
     connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The headers of every answer.
const ANSWER_HEADERS: [(HeaderName, &str); 6] = [
    (CACHE_CONTROL, "no-store"),
    (HeaderName::from_static("x-content-type-options"), "nosniff"),
    (HeaderName::from_static("referrer-policy"), "no-referrer"),
    (HeaderName::from_static("x-frame-options"), "DENY"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (
        HeaderName::from_static("content-security-policy"),
        CONTENT_SECURITY_POLICY,
    ),
];

/// Adds the headers of every answer. On refusals too: a browser must not cache or frame them either.
pub(super) fn complete_head<B>(answer: &mut Response<B>) {
    for (name, value) in ANSWER_HEADERS {
        let field = answer.headers_mut().entry(name);
        // A handler's own value takes precedence.
        field.or_insert(HeaderValue::from_static(value));
    }
}

/// Refuses web pages of other origins, foreign host names, and requests without the token.
///
/// Host names are checked because a web page can point its own name at this machine (DNS rebinding).
pub(super) fn check_access<B>(
    parts: &AdminState,
    attempts: &TokenAttempts,
    request: &Request<B>,
) -> Result<(), Problem> {
    let headers = request.headers();
    let (hosts, has_token) = (&parts.control.active_config().hosts, parts.token.is_some());
    // Checked before the token, so that a foreign page cannot even test tokens.
    if !is_allowed_source(headers, request.uri().authority(), hosts, has_token) {
        return Err(ProblemCode::Forbidden.into());
    }
    // Without a configured token, loopback is the only protection, and it was checked above.
    let Some(token) = parts.token.filter(|_| needs_token(request.uri().path())) else {
        return Ok(());
    };
    // A request without a token is no attempt: a browser sends one to learn that it needs a token.
    let Some(given) = sent_token(headers) else {
        return Err(ProblemCode::Unauthorized.into());
    };
    match attempts.judge_token(peer_address(request), given, &token) {
        TokenAttempt::Right => Ok(()),
        TokenAttempt::Wrong => Err(ProblemCode::Unauthorized.into()),
        TokenAttempt::TooMany(wait) => Err(Problem::from_code(ProblemCode::TooManyAttempts).with_retry_after(wait)),
    }
}

/// Returns the address of the client; `None` if the router is not behind a listener.
fn peer_address<B>(request: &Request<B>) -> Option<IpAddr> {
    let connection = request.extensions().get::<ClientConnection>()?;
    connection.address.map(|ClientAddress(address)| address)
}

/// Returns the hash of the token that a request sends; `None` if it sends none.
fn sent_token(headers: &HeaderMap) -> Option<TokenHash> {
    let value = headers.get(AUTHORIZATION)?.as_bytes();
    let (scheme, rest) = value.split_at_checked("Bearer ".len())?;
    let is_bearer = scheme.eq_ignore_ascii_case(b"Bearer ") && !rest.is_empty();
    is_bearer.then(|| TokenHash::hash_token(rest))
}

/// Returns `true` if all hosts and origins of a request are allowed.
///
/// Hosts are loopback, the names in `named`, and literal addresses if there is a token. The only origin is the host
/// itself, with its port: another page of this machine may be anybody's.
fn is_allowed_source(headers: &HeaderMap, target: Option<&Authority>, named: &[String], has_token: bool) -> bool {
    let parse = |authority: &str| {
        authority
            .parse::<Authority>()
            .ok()
            // User info before `@` could make a foreign host look like a local one.
            .filter(|it| !it.as_str().contains('@'))
    };
    let text = |value: &HeaderValue| value.to_str().map(ToOwned::to_owned).unwrap_or_default();
    // Every value counts: proxies and servers disagree on which of several `Host` headers is used.
    let mut hosts: Vec<String> = headers.get_all(HOST).iter().map(text).collect();
    // The target of HTTP/2 and of absolute-form requests names the host too.
    hosts.extend(target.map(ToString::to_string));
    let is_ours = |authority: &Authority| {
        let host = authority.host();
        // A literal address is safe from DNS rebinding, and only a listener with a token may leave loopback.
        let literal = has_token && host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
        literal || provider::is_loopback(host) || named.iter().any(|name| name.eq_ignore_ascii_case(host))
    };
    let host_is_ours = !hosts.is_empty() && hosts.iter().all(|host| parse(host).is_some_and(|it| is_ours(&it)));
    let is_own_page = |origin: &str| {
        // The scheme may be that of a server with TLS in front, which passes `Host` on.
        let page = origin
            .strip_prefix("http://")
            .or_else(|| origin.strip_prefix("https://"));
        page.is_some_and(|page| hosts.iter().any(|host| host.eq_ignore_ascii_case(page)))
    };
    // Browsers send `Origin` with every request that changes state. Without one there is nothing to check.
    let mut origins = headers.get_all(ORIGIN).iter().map(text);
    host_is_ours && origins.all(|origin| is_own_page(&origin))
}
