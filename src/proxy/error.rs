//! `ProxyError`: every failure of an exchange, and the answer it becomes. Inner detail goes to the log alone.

use bytes::Bytes;
use http::{
    HeaderValue, Response, StatusCode,
    header::{CONNECTION, CONTENT_TYPE, UPGRADE, WWW_AUTHENTICATE},
};
use serde_json::Value;

use super::{body::ClientFault, guard::Refusal, headers, reject::Rejection, shape::Shape};
use crate::upstream::{Kind, Phase, SendError};

/// Why an exchange got an answer of ours.
#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    /// Refused at the door.
    #[error("refused: {0:?}")]
    Refused(Refusal),
    /// No upstream has this path.
    #[error("no route")]
    NoRoute {
        /// The base URLs that work.
        bases: Vec<String>,
    },
    /// The client's body is malformed, cut short, or stalls.
    #[error(transparent)]
    Body(ClientFault),
    /// Above the inspection limit, on a strict route.
    #[error("the body is above the inspection limit")]
    TooLarge {
        /// The limit in bytes.
        limit: usize,
    },
    /// Findings on a strict route.
    #[error("rejected")]
    Rejected(Rejection),
    /// The provider could not be asked, or gave no answer.
    #[error("no answer of the provider")]
    Upstream {
        /// The upstream's name and host, as in `anthropic (api.anthropic.com)`.
        upstream: String,
        /// What failed.
        #[source]
        error: SendError,
    },
}

impl ProxyError {
    /// The stable name.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Refused(refusal) => refusal.code(),
            Self::NoRoute { .. } => "no_route",
            Self::Body(ClientFault::Broken) => "body_broken",
            Self::Body(ClientFault::Stalled) => "body_stalled",
            Self::TooLarge { .. } => "too_large",
            Self::Rejected(_) => "rejected",
            Self::Upstream { error, .. } => match (error.phase, error.kind) {
                (_, Kind::Request) => "body_broken",
                (_, Kind::Protocol) => "answer_malformed",
                (Phase::Resolve, _) => "dns",
                (Phase::Connect, Kind::Io) => "connect",
                (Phase::Connect, Kind::TimedOut) => "connect_timeout",
                (Phase::Tls, Kind::TimedOut) => "tls_timeout",
                (Phase::Tls, _) => "tls",
                (Phase::Send, Kind::Io) => "send",
                (Phase::Send, Kind::TimedOut) => "send_timeout",
                (Phase::Headers, Kind::Io) => "headers",
                (Phase::Headers, Kind::TimedOut) => "headers_timeout",
                (Phase::Body, Kind::Io) => "answer_broken",
                (Phase::Body, Kind::TimedOut) => "answer_stalled",
            },
        }
    }

    /// Who is at fault.
    pub fn side(&self) -> &'static str {
        match self {
            Self::Upstream { error, .. } => match (error.phase, error.kind) {
                (_, Kind::Request) => "client",
                (Phase::Headers | Phase::Body, Kind::TimedOut) => "provider",
                _ => "network",
            },
            _ => "client",
        }
    }

    /// Where it happened.
    pub fn phase(&self) -> &'static str {
        match self {
            Self::Upstream { error, .. } => match error.phase {
                Phase::Resolve | Phase::Connect | Phase::Tls => "connect",
                Phase::Send => "send",
                Phase::Headers => "headers",
                Phase::Body => "body",
            },
            _ => "request",
        }
    }

    /// The status of the answer.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Refused(refusal) => refusal.status(),
            Self::NoRoute { .. } => StatusCode::NOT_FOUND,
            Self::Body(ClientFault::Broken) | Self::Rejected(_) => StatusCode::BAD_REQUEST,
            Self::Body(ClientFault::Stalled) => StatusCode::REQUEST_TIMEOUT,
            Self::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Upstream { error, .. } => match error.kind {
                Kind::Io | Kind::Protocol => StatusCode::BAD_GATEWAY,
                Kind::TimedOut => StatusCode::GATEWAY_TIMEOUT,
                Kind::Request => StatusCode::BAD_REQUEST,
            },
        }
    }

    /// What the client is told: what happened and what to do.
    pub fn public_message(&self) -> String {
        match self {
            Self::Refused(refusal) => refusal.message().to_owned(),
            Self::NoRoute { bases } => {
                format!(
                    "no upstream has this path; set the base url to one of: {}",
                    bases.join(", ")
                )
            }
            Self::Body(ClientFault::Broken) => "the request's body is malformed or was cut short".to_owned(),
            Self::Body(ClientFault::Stalled) => "the request's body stalled; send it again".to_owned(),
            Self::TooLarge { limit } => {
                format!("the body is larger than {limit} bytes, the most that is inspected, and this route is strict")
            }
            Self::Rejected(rejection) => rejection.message(),
            Self::Upstream { upstream, error } => upstream_message(upstream, error),
        }
    }

    /// RFC 9209 error type.
    fn proxy_status(&self) -> &'static str {
        let Self::Upstream { error, .. } = self else {
            return match self.status() {
                StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => "http_request_denied",
                _ => "http_request_error",
            };
        };
        let io = error.cause::<std::io::Error>().map(std::io::Error::kind);
        match (error.phase, error.kind) {
            (_, Kind::Request) => "http_request_error",
            (_, Kind::Protocol) => "http_protocol_error",
            (Phase::Resolve, _) => "dns_error",
            (Phase::Connect | Phase::Tls, Kind::TimedOut) => "connection_timeout",
            (Phase::Connect, _) if io == Some(std::io::ErrorKind::ConnectionRefused) => "connection_refused",
            (Phase::Connect, _) => "destination_unavailable",
            (Phase::Tls, _) if is_certificate(error) => "tls_certificate_error",
            (Phase::Tls, _) => "tls_protocol_error",
            (Phase::Send, Kind::TimedOut) => "connection_write_timeout",
            (Phase::Headers, Kind::TimedOut) => "http_response_timeout",
            (Phase::Body, Kind::TimedOut) => "connection_read_timeout",
            (Phase::Body, Kind::Io) => "http_response_incomplete",
            (Phase::Send | Phase::Headers, Kind::Io) => "connection_terminated",
        }
    }

    /// Whether the connection must not carry another request.
    fn closes(&self) -> bool {
        matches!(self, Self::Refused(Refusal::Framing) | Self::Body(_))
    }

    /// The answer in the shape that the client reads.
    pub fn answer(&self, shape: Shape, request_id: &str) -> Response<Bytes> {
        let status = self.status();
        let mut body = shape.body(status, self.code(), &self.public_message(), request_id);
        if let (Self::Rejected(rejection), Value::Object(body)) = (self, &mut body) {
            body.insert("antiphon".to_owned(), rejection.findings());
        }
        let mut answer = Response::new(Bytes::from(body.to_string()));
        *answer.status_mut() = status;
        let fields = answer.headers_mut();
        fields.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        fields.insert(headers::FAULT, HeaderValue::from_static(self.side()));
        fields.insert(headers::PHASE, HeaderValue::from_static(self.phase()));
        if let Ok(value) = format!("antiphon; error={}", self.proxy_status()).try_into() {
            fields.insert(headers::PROXY_STATUS, value);
        }
        if let Some(kind) = shape.error_type_header(status) {
            fields.insert("x-amzn-errortype", HeaderValue::from_static(kind));
        }
        match self {
            Self::Refused(Refusal::Upgrade) => {
                // RFC 9110 15.5.22: the answer names the protocol to use instead.
                fields.insert(UPGRADE, HeaderValue::from_static("HTTP/1.1"));
                fields.insert(CONNECTION, HeaderValue::from_static("upgrade"));
            }
            Self::Refused(Refusal::ClientToken) => {
                // The same token again is as wrong. RFC 9110 15.5.2: the answer names the way to do better.
                fields.insert(headers::SHOULD_RETRY, HeaderValue::from_static("false"));
                fields.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"antiphon\""));
            }
            _ if self.closes() => drop(fields.insert(CONNECTION, HeaderValue::from_static("close"))),
            _ => {}
        }
        answer
    }
}

fn is_certificate(error: &SendError) -> bool {
    // hyper-rustls and tokio-rustls wrap the handshake's error in io errors, which hide it from `source`.
    let mut io = error.cause::<std::io::Error>();
    while let Some(inner) = io.and_then(std::io::Error::get_ref) {
        if let Some(tls) = inner.downcast_ref::<rustls::Error>() {
            return matches!(tls, rustls::Error::InvalidCertificate(_));
        }
        io = inner.downcast_ref();
    }
    false
}

fn upstream_message(upstream: &str, error: &SendError) -> String {
    let what = match (error.phase, error.kind) {
        (_, Kind::Request) => return "the request's body is malformed or was cut short".to_owned(),
        (_, Kind::Protocol) => "its answer is not valid http; check that the url is right",
        (Phase::Resolve, _) => "the host name does not resolve; check the url and the network",
        (Phase::Connect, Kind::Io) => "cannot connect; check that it is up and that its url is right",
        (Phase::Connect, Kind::TimedOut) => "connecting took too long; check the network, or try again",
        (Phase::Tls, Kind::TimedOut) => "the tls handshake took too long; check the network, or try again",
        (Phase::Tls, _) => "the tls handshake failed; check the url's scheme and the trusted certificates",
        (Phase::Send, Kind::Io) => "the connection broke while the request was sent; try again",
        (Phase::Send, Kind::TimedOut) => "it stopped taking the request; try again",
        (Phase::Headers, Kind::Io) => "the connection broke before an answer came; try again",
        (Phase::Headers, Kind::TimedOut) => "no answer came in time; try again, or raise the headers timeout",
        (Phase::Body, Kind::Io) => "the connection broke in the middle of the answer; try again",
        (Phase::Body, Kind::TimedOut) => "the answer stalled; try again, or raise the idle timeout",
    };
    format!("upstream {upstream}: {what}")
}
