//! Who may ask: by `Host`, `Origin` and token; and the headers that every answer bears.

use axum::{
    extract::{Request, State},
    http::{
        HeaderMap, HeaderName, HeaderValue, StatusCode,
        header::{AUTHORIZATION, CACHE_CONTROL, HOST, ORIGIN},
        uri::Authority,
    },
    middleware::Next,
    response::{IntoResponse, Response},
};

use super::{Parts, problem::Problem};
use crate::{auth::TokenHash, provider};

/// What the page may do: use what this listener serves, and nothing else.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
     connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The headers of every answer.
const PLAIN: [(HeaderName, &str); 6] = [
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

/// Refuses web pages of others, names that are not this machine's own, since a page may point its own host name here, and
/// those without the token.
pub(super) async fn guard(State(parts): State<Parts>, request: Request, next: Next) -> Response {
    let mut answer = match admit(&parts, &request) {
        Ok(()) => next.run(request).await,
        Err(refusal) => refusal.into_response(),
    };
    for (name, value) in PLAIN {
        answer
            .headers_mut()
            .entry(name)
            .or_insert(HeaderValue::from_static(value));
    }
    answer
}

fn admit(parts: &Parts, request: &Request) -> Result<(), Problem> {
    let headers = request.headers();
    let (hosts, has_token) = (&parts.control.in_force().hosts, parts.token.is_some());
    if !is_from_here(headers, request.uri().authority(), hosts, has_token) {
        let text = "only this machine's own names and addresses are answered here, and pages from here; \
            name others in server.allow_hosts";
        return Err(Problem::new(StatusCode::FORBIDDEN, "forbidden", text));
    }
    let Some(token) = parts.token.filter(|_| is_guarded(request.uri().path())) else {
        return Ok(());
    };
    if bears(headers, &token) {
        return Ok(());
    }
    let text = "send the token of server.admin_token: Authorization: Bearer …";
    Err(Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", text))
}

/// Health is everybody's, and so is the page: it holds nothing.
fn is_guarded(path: &str) -> bool {
    path.starts_with("/admin/") || path == "/metrics"
}

fn bears(headers: &HeaderMap, token: &TokenHash) -> bool {
    let value = headers
        .get(AUTHORIZATION)
        .map(HeaderValue::as_bytes)
        .unwrap_or_default();
    let (scheme, rest) = value.split_at_checked("Bearer ".len()).unwrap_or_default();
    scheme.eq_ignore_ascii_case(b"Bearer ") && TokenHash::of(rest).matches(token)
}

/// A literal address cannot be pointed elsewhere by the owner of a name; where there is a token, others than loopback are
/// listened on. Pages may come from this machine, or from here.
fn is_from_here(headers: &HeaderMap, target: Option<&Authority>, named: &[String], has_token: bool) -> bool {
    let parse = |authority: &str| {
        authority
            .parse::<Authority>()
            .ok()
            .filter(|it| !it.as_str().contains('@'))
    };
    let text = |value: &HeaderValue| value.to_str().map(ToOwned::to_owned).unwrap_or_default();
    let mut hosts: Vec<String> = headers.get_all(HOST).iter().map(text).collect();
    hosts.extend(target.map(ToString::to_string));
    let is_ours = |authority: &Authority| {
        let host = authority.host();
        let literal = has_token && host.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_ok();
        literal || provider::is_loopback(host) || named.iter().any(|name| name.eq_ignore_ascii_case(host))
    };
    let host_is_ours = !hosts.is_empty() && hosts.iter().all(|host| parse(host).is_some_and(|it| is_ours(&it)));
    let from_here = |origin: &str| {
        let page = origin
            .strip_prefix("http://")
            .or_else(|| origin.strip_prefix("https://"));
        page.is_some_and(|page| {
            let local = |it: Authority| provider::is_loopback(it.host());
            hosts.iter().any(|host| host.eq_ignore_ascii_case(page)) || parse(page).is_some_and(local)
        })
    };
    let mut origins = headers.get_all(ORIGIN).iter().map(text);
    host_is_ours && origins.all(|origin| from_here(&origin))
}
