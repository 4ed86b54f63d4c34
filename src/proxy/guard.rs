//! Admission by the request head alone: refuses foreign origins, and requests that two servers could read differently.

use std::{borrow::Cow, net::IpAddr};

use http::{
    HeaderMap, HeaderValue, Method, Request, StatusCode, Uri, Version,
    header::{CONTENT_LENGTH, EXPECT, HOST, ORIGIN, TRANSFER_ENCODING, UPGRADE},
    uri::Authority,
};

use super::data_path::DataPath;
use crate::{
    api::ledger_api::is_task_path,
    labels::labelled_enum,
    server::{ClientConnection, framing::RequestFraming},
};

labelled_enum! {
    /// The reason for which a request is refused by its head.
    pub enum RequestRefusal {
        /// CONNECT or TRACE.
        Method = "method",
        /// Not a path: absolute form, authority form or an asterisk.
        Target = "target",
        /// Dot segments, encoded slashes and the like in the path.
        Path = "path",
        /// `Host` is missing, repeated or not a host.
        Host = "host",
        /// `Host` is not a name of this proxy: DNS rebinding, or a name missing in the configuration.
        ForeignHost = "foreign_host",
        /// A web page that may not call the proxy.
        Origin = "origin",
        /// The length of the body can be read in two ways.
        Framing = "framing",
        /// A WebSocket.
        Upgrade = "upgrade",
        /// An expectation that the proxy cannot meet.
        Expect = "expect",
        /// `x-antiphon-mode` is none of the modes.
        Mode = "mode",
        /// The header that names the user is empty, too long or repeated.
        User = "user",
        /// A client token is required, and is missing or unknown.
        ClientToken = "client_token",
        /// The client certificate stands for no client, and there is no client token beside it.
        ClientCertificate = "client_certificate",
    }
}

impl RequestRefusal {
    /// Returns the status of the answer.
    pub const fn status(self) -> StatusCode {
        match self {
            Self::Method => StatusCode::METHOD_NOT_ALLOWED,
            Self::Target | Self::Path | Self::Host | Self::Framing | Self::Mode | Self::User => StatusCode::BAD_REQUEST,
            Self::ForeignHost | Self::Origin | Self::ClientCertificate => StatusCode::FORBIDDEN,
            Self::Upgrade => StatusCode::UPGRADE_REQUIRED,
            Self::Expect => StatusCode::EXPECTATION_FAILED,
            Self::ClientToken => StatusCode::UNAUTHORIZED,
        }
    }

    /// Returns the message for the client: the fault, and what to do about it.
    pub const fn message(self) -> &'static str {
        match self {
            Self::Method => "this method is not proxied",
            Self::Target => "the request target must be a path; use this proxy as a base url, not as an http proxy",
            Self::Path => "the path contains dot segments, encoded slashes, backslashes or doubly encoded bytes",
            Self::Host => "exactly one valid host header is required",
            Self::ForeignHost => {
                "this host name is not allowed; use a loopback address, or add the name to server.allow_hosts"
            }
            Self::Origin => "web pages of this origin may not call this proxy; add the origin to server.allow_origins",
            Self::Framing => {
                "the length of the body is ambiguous; send one content-length, or transfer-encoding: chunked"
            }
            Self::Upgrade => "websockets are not supported; use http",
            Self::Expect => "the only supported expectation is 100-continue",
            Self::Mode => "x-antiphon-mode must be repair, strict or observe",
            Self::User => "the header that names the user must be sent once and contain 1 to 256 bytes",
            Self::ClientToken => {
                "a valid client token is required; send one as the api key, or in x-antiphon-client-token"
            }
            Self::ClientCertificate => {
                "the client certificate stands for no client; list one of its names in [client_certificates], or send \
                 a client token"
            }
        }
    }
}

/// The result for a request that is not refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// The request may be routed.
    Forward,
    /// A preflight of an allowed web page, which the proxy answers itself.
    Preflight,
}

/// Checks the head of a request to a provider.
pub(super) fn admit_request<B>(path: &DataPath, request: &Request<B>) -> Result<Admission, RequestRefusal> {
    if matches!(*request.method(), Method::CONNECT | Method::TRACE) {
        return Err(RequestRefusal::Method);
    }
    admit_any_method(path, request)
}

/// Checks the head of a request apart from its method.
pub(super) fn admit_any_method<B>(path: &DataPath, request: &Request<B>) -> Result<Admission, RequestRefusal> {
    let http2 = request.version() >= Version::HTTP_2;
    // HTTP/2 has frames of its own: hyper checks them, and no length is ambiguous.
    if !http2 {
        check_framing(request)?;
    }
    check_target(request.uri(), http2)?;
    check_host(path, request.uri(), request.headers(), http2)?;
    // The page asks the server that it came from, which was checked as the host.
    let is_own = is_task_path(request.uri().path()) && is_same_origin(request.uri(), request.headers());
    let preflight = !is_own
        && check_origin(&path.settings.allow_origins, request.headers())?
        && request.method() == Method::OPTIONS;
    if wants_websocket(request.headers()) {
        return Err(RequestRefusal::Upgrade);
    }
    let unmet = |value: &HeaderValue| !value.as_bytes().eq_ignore_ascii_case(b"100-continue");
    if request.headers().get_all(EXPECT).iter().any(unmet) {
        return Err(RequestRefusal::Expect);
    }
    Ok(if preflight {
        Admission::Preflight
    } else {
        Admission::Forward
    })
}

/// Returns `true` if the request names an origin. Fails if the origin is not allowed.
fn check_origin(known: &[String], headers: &HeaderMap) -> Result<bool, RequestRefusal> {
    // Every value must be allowed: a repeated header could hide a second origin.
    let mut origins = headers.get_all(ORIGIN).iter().peekable();
    let present = origins.peek().is_some();
    let allowed = |origin: &HeaderValue| known.iter().any(|known| known.as_bytes() == origin.as_bytes());
    if origins.all(allowed) {
        Ok(present)
    } else {
        Err(RequestRefusal::Origin)
    }
}

/// Returns `true` if the only origin that a request names is its own host.
fn is_same_origin(uri: &Uri, headers: &HeaderMap) -> bool {
    let mut origins = headers.get_all(ORIGIN).iter();
    let (Some(origin), None) = (origins.next(), origins.next()) else {
        return false;
    };
    let origin = origin.as_bytes();
    let authority = origin
        .strip_prefix(b"https://")
        .or_else(|| origin.strip_prefix(b"http://"));
    let host = headers.get(HOST).map(HeaderValue::as_bytes);
    let host = host.or_else(|| uri.authority().map(|authority| authority.as_str().as_bytes()));
    authority.is_some() && authority == host
}

/// Checks that the host is a name of this proxy.
fn check_host(path: &DataPath, uri: &Uri, headers: &HeaderMap, http2: bool) -> Result<(), RequestRefusal> {
    let mut hosts = headers.get_all(HOST).iter();
    // An HTTP/2 request may name its host twice, but both must agree. HTTP/1 has exactly one `Host`.
    let host = match (uri.authority().filter(|_| http2), hosts.next(), hosts.next()) {
        (Some(authority), None, _) => parse_host(authority.as_str()),
        (Some(authority), Some(host), None) if authority.as_str().as_bytes() == host.as_bytes() => {
            parse_host(authority.as_str())
        }
        (None, Some(host), None) => host.to_str().ok().and_then(parse_host),
        _ => None,
    };
    let host = host.ok_or(RequestRefusal::Host)?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let is_address = || {
        let address = host.parse::<IpAddr>().ok();
        address.is_some_and(|address| address.is_loopback() || Some(address) == path.own_address)
    };
    // DNS rebinding needs a name that an attacker controls, so addresses are safe. Names must be configured.
    let is_known = || {
        let names = &path.settings.allow_hosts;
        names.iter().any(|known| known.eq_ignore_ascii_case(host))
    };
    if host.eq_ignore_ascii_case("localhost") || is_address() || is_known() {
        Ok(())
    } else {
        Err(RequestRefusal::ForeignHost)
    }
}

/// Returns the host of a `Host` or an `:authority`, which may have a port. `None` if it is anything else.
fn parse_host(text: &str) -> Option<Cow<'_, str>> {
    // Most are a plain name or address with a port.
    let (host, port) = text.split_once(':').unwrap_or((text, "0"));
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-');
    if !host.is_empty()
        && host.bytes().all(is_plain)
        && port.bytes().all(|byte| byte.is_ascii_digit())
        && port.parse::<u16>().is_ok()
    {
        return Some(Cow::Borrowed(host));
    }
    parse_unusual_host(text).map(Cow::Owned)
}

/// Returns what [`parse_host`] does, of any text.
fn parse_unusual_host(text: &str) -> Option<String> {
    // `Authority` accepts some of these, which other servers read in different ways.
    if text.is_empty() || text.contains(['@', ',', '/', '\\', '?', '#', ' ', '\t']) {
        return None;
    }
    let authority: Authority = text.parse().ok()?;
    // Servers would read a port that is no number, or too large, in different ways.
    let port = text.get(authority.host().len()..)?;
    let valid = port.is_empty() || port.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok());
    (valid && !authority.host().is_empty()).then(|| authority.host().to_owned())
}

/// Checks that the request target is a path.
fn check_target(uri: &Uri, http2: bool) -> Result<(), RequestRefusal> {
    // Absolute forms are for forward proxies. In HTTP/2 every request names scheme and authority.
    let absolute = !http2 && (uri.scheme().is_some() || uri.authority().is_some());
    if absolute || !uri.path().starts_with('/') {
        Err(RequestRefusal::Target)
    } else {
        Ok(())
    }
}

/// Checks that the length of the body can be read in one way only.
fn check_framing<B>(request: &Request<B>) -> Result<(), RequestRefusal> {
    let headers = request.headers();
    let connection = request.extensions().get::<ClientConnection>();
    let witnessed = connection.and_then(|connection| Some(connection.framing.as_ref()?.0));
    // The only coding that every server reads alike is a single `chunked`.
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    let coding = match (codings.next(), codings.next()) {
        (None, _) => false,
        (Some(value), None) if value.as_bytes().eq_ignore_ascii_case(b"chunked") => true,
        _ => return Err(RequestRefusal::Framing),
    };
    let lengths = headers.get_all(CONTENT_LENGTH).iter().count();
    let ambiguous = lengths > 1 || (coding && (lengths > 0 || request.version() < Version::HTTP_11));
    // hyper resolves some of these silently. The framing inspector of the connection has seen the original head.
    if ambiguous || witnessed.is_some_and(|framing| framing != RequestFraming::Plain) {
        return Err(RequestRefusal::Framing);
    }
    Ok(())
}

/// Returns `true` if the request asks for an upgrade to WebSocket.
fn wants_websocket(headers: &HeaderMap) -> bool {
    let protocols = headers
        .get_all(UPGRADE)
        .iter()
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    protocols
        .into_iter()
        .any(|protocol| protocol.trim_ascii().eq_ignore_ascii_case(b"websocket"))
}
