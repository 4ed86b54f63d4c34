//! `ProxyError`: every failure of an exchange, and the answer it becomes. Inner detail goes to the log alone.

use std::time::Duration;

use bytes::Bytes;
use http::{
    HeaderValue, Response, StatusCode,
    header::{CONNECTION, CONTENT_TYPE, RETRY_AFTER, UPGRADE, WWW_AUTHENTICATE},
};
use serde_json::Value;

use super::{
    client_body::ClientFault, credential::ApplyError, error_shape::ErrorShape, guard::Refusal, headers,
    rejection::Rejection,
};
use crate::{
    policy::{Class, Observation, Reason, Side, Verdict, classify},
    upstream::{Phase, SendError, SendErrorKind},
};

/// Seconds above which clients do not wait for `retry-after` but try at once (anthropic-python, 2026-10).
const PATIENCE_SECONDS: u64 = 60;

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
    /// The profile's credential could not be put on the request.
    #[error("the request could not be signed")]
    Unsigned {
        /// Why not.
        #[source]
        error: ApplyError,
        /// Bodies above this size, in bytes, are not kept.
        limit: usize,
    },
    /// The provider's stream broke off or fell silent before it had begun.
    #[error("the answer did not begin")]
    Unbegun(Verdict),
    /// The exchange has taken as long as it may.
    #[error("the exchange has reached its limit")]
    Deadline,
    /// Every profile that could serve rests.
    #[error("no profile is able to serve")]
    Exhausted {
        /// The upstream's name.
        upstream: String,
        /// The recorded reasons.
        reasons: Vec<Reason>,
        /// How long until the first is able again.
        wait: Option<Duration>,
        /// Whether others could serve, but the conversation is bound to the one that rests.
        bound: bool,
    },
}

impl ProxyError {
    /// What happened, and whose doing it was.
    pub fn verdict(&self) -> Verdict {
        let refused = |code| Verdict::with_code(Class::Refused, code);
        let upload = |code| Verdict {
            code,
            ..classify(Observation::UploadFailed)
        };
        match self {
            Self::Refused(refusal) => refused(refusal.code()),
            Self::NoRoute { .. } => refused("no_route"),
            Self::Body(ClientFault::Broken) => upload("body_broken"),
            Self::Body(ClientFault::Stalled) => upload("body_stalled"),
            Self::TooLarge { .. }
            | Self::Unsigned {
                error: ApplyError::Streamed,
                ..
            } => refused("too_large"),
            Self::Unsigned { .. } => refused("unsigned"),
            Self::Rejected(_) => refused("rejected"),
            Self::Upstream { error, .. } => classify(Observation::SendFailed(error.to_failure())),
            Self::Unbegun(verdict) => *verdict,
            Self::Exhausted { .. } => classify(Observation::Exhausted),
            Self::Deadline => classify(Observation::Deadline),
        }
    }

    /// The stable name.
    pub fn code(&self) -> &'static str {
        self.verdict().code
    }

    /// Whose doing it was.
    pub fn side(&self) -> &'static str {
        self.verdict().fault_side().map_or("proxy", Side::label)
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
            Self::Unbegun(_) => "body",
            Self::Deadline => "headers",
            Self::Exhausted { .. } => "queue",
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
            Self::TooLarge { .. }
            | Self::Unsigned {
                error: ApplyError::Streamed,
                ..
            } => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Unsigned { .. } => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Upstream { error, .. } => match error.kind {
                SendErrorKind::Io | SendErrorKind::Protocol => StatusCode::BAD_GATEWAY,
                SendErrorKind::TimedOut => StatusCode::GATEWAY_TIMEOUT,
                SendErrorKind::Request => StatusCode::BAD_REQUEST,
            },
            Self::Unbegun(verdict) if verdict.class == Class::Broken => StatusCode::BAD_GATEWAY,
            Self::Unbegun(_) | Self::Deadline => StatusCode::GATEWAY_TIMEOUT,
            Self::Exhausted { reasons, .. }
                if !reasons.is_empty() && reasons.iter().all(|reason| reason.is_limit()) =>
            {
                StatusCode::TOO_MANY_REQUESTS
            }
            Self::Exhausted { .. } => StatusCode::SERVICE_UNAVAILABLE,
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
            Self::Unsigned {
                error: ApplyError::Streamed,
                limit,
            } => {
                format!("the body is larger than {limit} bytes, the most that is kept to be signed")
            }
            Self::Unsigned { .. } => "the profile's credential cannot be used for this request".to_owned(),
            Self::Rejected(rejection) => rejection.message(),
            Self::Upstream { upstream, error } => upstream_message(upstream, error),
            Self::Unbegun(verdict) if verdict.class == Class::Broken => {
                "the provider's connection broke before the answer had begun; try again".to_owned()
            }
            Self::Unbegun(_) => "the provider took the request and did not begin to answer; try again".to_owned(),
            Self::Deadline => "the exchange has reached the limit on its whole duration; try again".to_owned(),
            Self::Exhausted {
                upstream,
                reasons,
                wait,
                bound,
            } => exhausted_message(upstream, reasons, *wait, *bound),
        }
    }

    /// RFC 9209 error type.
    fn proxy_status(&self) -> &'static str {
        let error = match self {
            Self::Upstream { error, .. } => error,
            Self::Unbegun(verdict) if verdict.class == Class::Broken => return "http_response_incomplete",
            Self::Unbegun(_) => return "connection_read_timeout",
            Self::Deadline => return "http_response_timeout",
            Self::Exhausted { .. } => return "destination_unavailable",
            _ => {
                return match self.status() {
                    StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => "http_request_denied",
                    _ => "http_request_error",
                };
            }
        };
        let io = error.find_cause::<std::io::Error>().map(std::io::Error::kind);
        match (error.phase, error.kind) {
            (_, SendErrorKind::Request) => "http_request_error",
            (_, SendErrorKind::Protocol) => "http_protocol_error",
            (Phase::Resolve, _) => "dns_error",
            (Phase::Connect | Phase::Tls, SendErrorKind::TimedOut) => "connection_timeout",
            (Phase::Connect, _) if io == Some(std::io::ErrorKind::ConnectionRefused) => "connection_refused",
            (Phase::Connect, _) => "destination_unavailable",
            (Phase::Tls, _) if is_certificate(error) => "tls_certificate_error",
            (Phase::Tls, _) => "tls_protocol_error",
            (Phase::Send, SendErrorKind::TimedOut) => "connection_write_timeout",
            (Phase::Headers, SendErrorKind::TimedOut) => "http_response_timeout",
            (Phase::Body, SendErrorKind::TimedOut) => "connection_read_timeout",
            (Phase::Body, SendErrorKind::Io) => "http_response_incomplete",
            (Phase::Send | Phase::Headers, SendErrorKind::Io) => "connection_terminated",
        }
    }

    /// Whether the connection must not carry another request.
    fn closes(&self) -> bool {
        matches!(self, Self::Refused(Refusal::Framing) | Self::Body(_))
    }

    /// The answer in the shape that the client reads.
    pub fn answer(&self, shape: ErrorShape, request_id: &str) -> Response<Bytes> {
        let status = self.status();
        let mut body = shape.error_body(status, self.code(), &self.public_message(), request_id);
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
        if let Self::Exhausted { wait: Some(wait), .. } = self {
            // Some clients wait for no more than a minute and then try at once: they must be told not to.
            let seconds = wait.as_secs().saturating_add(u64::from(wait.subsec_nanos() > 0)).max(1);
            fields.insert(RETRY_AFTER, seconds.into());
            if seconds > PATIENCE_SECONDS {
                fields.insert(headers::SHOULD_RETRY, HeaderValue::from_static("false"));
            }
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
    let mut io = error.find_cause::<std::io::Error>();
    while let Some(inner) = io.and_then(std::io::Error::get_ref) {
        if let Some(tls) = inner.downcast_ref::<rustls::Error>() {
            return matches!(tls, rustls::Error::InvalidCertificate(_));
        }
        io = inner.downcast_ref();
    }
    false
}

fn exhausted_message(upstream: &str, reasons: &[Reason], wait: Option<Duration>, bound: bool) -> String {
    let reasons: Vec<&str> = reasons.iter().map(|reason| reason.label()).collect();
    let why = if reasons.is_empty() {
        "no profile serves this model".to_owned()
    } else if bound {
        format!(
            "the profile that this conversation is bound to rests ({}), and no other holds its state",
            reasons.join(", ")
        )
    } else {
        format!("every profile rests ({})", reasons.join(", "))
    };
    match wait {
        Some(wait) => format!(
            "upstream {upstream}: {why}; the first is able again in {} s",
            wait.as_secs()
        ),
        None => format!("upstream {upstream}: {why}; see the profiles of this upstream in the configuration"),
    }
}

fn upstream_message(upstream: &str, error: &SendError) -> String {
    let what = match (error.phase, error.kind) {
        (_, SendErrorKind::Request) => return "the request's body is malformed or was cut short".to_owned(),
        (_, SendErrorKind::Protocol) => "its answer is not valid http; check that the url is right",
        (Phase::Resolve, _) => "the host name does not resolve; check the url and the network",
        (Phase::Connect, SendErrorKind::Io) => "cannot connect; check that it is up and that its url is right",
        (Phase::Connect, SendErrorKind::TimedOut) => "connecting took too long; check the network, or try again",
        (Phase::Tls, SendErrorKind::TimedOut) => "the tls handshake took too long; check the network, or try again",
        (Phase::Tls, _) => "the tls handshake failed; check the url's scheme and the trusted certificates",
        (Phase::Send, SendErrorKind::Io) => "the connection broke while the request was sent; try again",
        (Phase::Send, SendErrorKind::TimedOut) => "it stopped taking the request; try again",
        (Phase::Headers, SendErrorKind::Io) => "the connection broke before an answer came; try again",
        (Phase::Headers, SendErrorKind::TimedOut) => "no answer came in time; try again, or raise the headers timeout",
        (Phase::Body, SendErrorKind::Io) => "the connection broke in the middle of the answer; try again",
        (Phase::Body, SendErrorKind::TimedOut) => "the answer stalled; try again, or raise the idle timeout",
    };
    format!("upstream {upstream}: {what}")
}
