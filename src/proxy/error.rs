//! `ProxyError`: every failure of an exchange, and its answer to the client. Internal detail is only logged.

use std::time::Duration;

use bytes::Bytes;
use http::{
    HeaderValue, Response, StatusCode,
    header::{CONNECTION, CONTENT_TYPE, RETRY_AFTER, UPGRADE, WWW_AUTHENTICATE},
};
use serde_json::Value;

use super::{
    client_body::{ClientFault, CollectError},
    credential::ApplyError,
    exhausted_pool::{ExhaustedPool, is_long, whole_seconds},
    guard::RequestRefusal,
    headers,
    rejection::Rejection,
    response::RETRIED_PREFIX,
    send_failure::{self, RETRY_SUFFIX},
};
use crate::{
    api::problem::{PROBLEM_JSON, proxy_problem},
    keys::profiles::LackingProfile,
    policy::{Class, CooldownReason, Side, Verdict},
    server::budget::Overloaded,
    upstream::{NetworkCause, Phase, SendError, SendErrorKind},
    wire::ErrorShape,
};

/// Profiles without a credential that a message names.
const LACKING_SHOWN_MAX: usize = 3;

/// The `retry-after` of a request that needs the ledger, in seconds.
const LEDGER_RETRY_AFTER: u64 = 2;
/// The `retry-after` of a request for which a budget has no share left, in seconds.
const BUDGET_RETRY_AFTER: u64 = 5;
/// The `retry-after` of a request for which no file descriptor was left, in seconds.
const DESCRIPTORS_RETRY_AFTER: u64 = 1;
/// The `retry-after` of a request that the end of the drain has met, in seconds.
const DRAINED_RETRY_AFTER: u64 = 1;
/// The `retry-after` of a request whose client token has no place left, in seconds.
const PLACE_RETRY_AFTER: u64 = 1;

/// The failure for which the proxy itself answers an exchange.
#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    /// Refused by its head.
    #[error("request refused: {0:?}")]
    Refused(RequestRefusal),
    /// A client token stands where the provider's key belongs.
    #[error("a client token is no key of the provider")]
    TokenAsKey {
        /// The upstream's name.
        upstream: String,
    },
    /// The client token may not use the upstream.
    #[error("the client token may not use this upstream")]
    UpstreamNotAllowed {
        /// The upstream's name.
        upstream: String,
        /// The token's name.
        token: String,
    },
    /// The client token has too many exchanges at the same time.
    #[error("the client token has too many exchanges at the same time")]
    TooManyExchanges {
        /// The token's name.
        token: String,
        /// The number that is allowed.
        max: usize,
    },
    /// No upstream has this path.
    #[error("no route")]
    NoRoute {
        /// The API that the path belongs to, if its paths need the prefix of an upstream.
        api: Option<&'static str>,
        /// The base URLs that work.
        bases: Vec<String>,
    },
    /// The client's body was malformed, cut short, or stalled.
    #[error(transparent)]
    Body(ClientFault),
    /// A budget has no share left for the body.
    #[error(transparent)]
    Overloaded(Overloaded),
    /// A body above the inspection limit, on a strict route.
    #[error("the request's body exceeds the inspection limit")]
    TooLarge {
        /// The limit in bytes.
        limit: usize,
    },
    /// Findings on a strict route.
    #[error("request rejected: the strict route has findings")]
    Rejected(Rejection),
    /// The request could not be sent, or the provider did not answer.
    #[error("no answer from the provider")]
    Upstream {
        /// The upstream's name and host, as in `anthropic (api.anthropic.com)`.
        upstream: String,
        /// The failed step.
        #[source]
        error: SendError,
    },
    /// The profile's credential could not be applied to the request.
    #[error("applying the profile's credential failed")]
    Unsigned {
        /// The reason.
        #[source]
        error: ApplyError,
        /// Maximum size of a buffered body, in bytes.
        limit: usize,
    },
    /// The provider's stream broke or timed out before its first event.
    #[error("the answer failed before its first event")]
    NotBegun(Verdict),
    /// The ledger did not answer, and the body may contradict what was sent before.
    #[error("the ledger did not answer in time")]
    LedgerAway,
    /// The proxy stops, and the exchange has no answer yet.
    #[error("the drain timeout is over")]
    Drained {
        /// The phase of the exchange.
        phase: &'static str,
    },
    /// The exchange reached its total time limit.
    #[error("timeout: the exchange reached its total time limit")]
    Deadline,
    /// Profiles that could serve the request have no valid credential, and all others are in cooldown.
    #[error("no profile has a valid credential")]
    NoCredential {
        /// The upstream's name.
        upstream: String,
        /// The profiles without a credential.
        lacking: Vec<LackingProfile>,
        /// The reasons of the other profiles' cooldowns.
        reasons: Vec<CooldownReason>,
        /// Time until the first of these cooldowns ends. `None` if that is not known.
        wait: Option<Duration>,
    },
    /// Every profile that could serve the request is in cooldown.
    #[error("no profile can serve the request")]
    Exhausted(ExhaustedPool),
}

impl From<CollectError> for ProxyError {
    fn from(error: CollectError) -> Self {
        match error {
            CollectError::Client(fault) => Self::Body(fault),
            CollectError::Overloaded(overloaded) => Self::Overloaded(overloaded),
        }
    }
}

impl ProxyError {
    /// Returns the verdict on the exchange.
    pub fn verdict(&self) -> Verdict {
        let refused = |code| Verdict::with_code(Class::Refused, code);
        let upload = |code| Verdict::with_code(Class::Upload, code);
        match self {
            Self::Refused(refusal) => refused(refusal.label()),
            Self::TokenAsKey { .. } => refused("token_as_key"),
            Self::UpstreamNotAllowed { .. } => refused("upstream_not_allowed"),
            Self::TooManyExchanges { .. } => refused("too_many_exchanges"),
            Self::NoRoute { .. } => refused("no_route"),
            Self::Body(ClientFault::Broken) => upload("body_broken"),
            Self::Body(ClientFault::Stalled) => upload("body_stalled"),
            Self::TooLarge { .. }
            | Self::Unsigned {
                error: ApplyError::Streamed,
                ..
            } => refused("too_large"),
            Self::Unsigned {
                error: ApplyError::Awaited,
                ..
            }
            | Self::NoCredential { .. } => Verdict::with_code(Class::Exhausted, "no_credential"),
            Self::Unsigned { .. } => Verdict::with_code(Class::Unavailable, "unsigned"),
            Self::Rejected(_) => refused("rejected"),
            Self::LedgerAway => Verdict::with_code(Class::Unavailable, "ledger_away"),
            Self::Drained { .. } => Verdict::with_code(Class::Unavailable, "drained"),
            Self::Overloaded(Overloaded::Work) => Verdict::with_code(Class::Unavailable, "work_full"),
            Self::Overloaded(Overloaded::Memory) => Verdict::with_code(Class::Unavailable, "memory_full"),
            Self::Upstream { error, .. } => error.verdict(),
            Self::NotBegun(verdict) => *verdict,
            Self::Exhausted(_) => Verdict::from_class(Class::Exhausted),
            Self::Deadline => Verdict::from_class(Class::Deadline),
        }
    }

    /// Returns the stable name of the failure.
    pub fn code(&self) -> &'static str {
        self.verdict().code
    }

    /// Returns the side that caused the failure, as in `x-antiphon-fault`.
    pub fn side(&self) -> &'static str {
        self.verdict().class.fault_side().map_or("proxy", Side::label)
    }

    /// Returns the phase of the failure, as in `x-antiphon-phase`.
    pub fn phase(&self) -> &'static str {
        match self {
            Self::Upstream { error, .. } => match error.phase {
                Phase::Resolve | Phase::Connect | Phase::Tls => "connect",
                Phase::Send => "send",
                Phase::Headers => "headers",
                Phase::Body => "body",
            },
            Self::NotBegun(_) => "body",
            Self::Deadline => "headers",
            Self::Drained { phase } => phase,
            Self::Exhausted(_) | Self::NoCredential { .. } | Self::TooManyExchanges { .. } => "queue",
            _ => "request",
        }
    }

    /// Returns the cause in the network. `None` if the failure is not one of a send.
    pub fn network_cause(&self) -> Option<NetworkCause> {
        match self {
            Self::Upstream { error, .. } => error.network_cause(),
            _ => None,
        }
    }

    /// Returns `true` if a profile has no credential because its source has not ended its first run.
    pub fn is_awaited(&self) -> bool {
        matches!(self, Self::NoCredential { lacking, .. } if lacking.iter().any(|one| one.failure.is_none()))
    }

    /// Returns the status of the answer.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Refused(refusal) => refusal.status(),
            Self::TokenAsKey { .. } => StatusCode::UNAUTHORIZED,
            Self::UpstreamNotAllowed { .. } => StatusCode::FORBIDDEN,
            Self::TooManyExchanges { .. } => StatusCode::TOO_MANY_REQUESTS,
            Self::NoRoute { .. } => StatusCode::NOT_FOUND,
            Self::Body(ClientFault::Broken) | Self::Rejected(_) => StatusCode::BAD_REQUEST,
            Self::Body(ClientFault::Stalled) => StatusCode::REQUEST_TIMEOUT,
            Self::TooLarge { .. }
            | Self::Unsigned {
                error: ApplyError::Streamed,
                ..
            } => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Unsigned { error, .. } if *error != ApplyError::Awaited => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Upstream { error, .. } => match error.kind {
                SendErrorKind::Io | SendErrorKind::Protocol => StatusCode::BAD_GATEWAY,
                SendErrorKind::TimedOut => StatusCode::GATEWAY_TIMEOUT,
                SendErrorKind::Request => StatusCode::BAD_REQUEST,
                SendErrorKind::NoDescriptors => StatusCode::SERVICE_UNAVAILABLE,
            },
            Self::NotBegun(verdict) if verdict.class == Class::Broken => StatusCode::BAD_GATEWAY,
            Self::NotBegun(_) | Self::Deadline => StatusCode::GATEWAY_TIMEOUT,
            Self::Exhausted(pool) => pool.status(),
            // The credential expired after it was chosen.
            Self::NoCredential { .. }
            | Self::Unsigned { .. }
            | Self::LedgerAway
            | Self::Overloaded(_)
            | Self::Drained { .. } => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// Returns `true` if the same request may succeed later without a change by a person. Then, and only then, the message
    /// says "try again".
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Upstream { error, .. } => send_failure::is_retryable(error),
            Self::Exhausted(pool) => pool.is_retryable(),
            Self::NoCredential { wait, .. } => wait.is_some_and(|wait| !is_long(wait)) || self.is_awaited(),
            Self::NotBegun(_)
            | Self::Deadline
            | Self::LedgerAway
            | Self::Drained { .. }
            | Self::Overloaded(_)
            | Self::TooManyExchanges { .. }
            | Self::Body(ClientFault::Stalled) => true,
            Self::Unsigned { error, .. } => *error == ApplyError::Awaited,
            Self::Refused(_)
            | Self::TokenAsKey { .. }
            | Self::UpstreamNotAllowed { .. }
            | Self::NoRoute { .. }
            | Self::Body(ClientFault::Broken)
            | Self::TooLarge { .. }
            | Self::Rejected(_) => false,
        }
    }

    /// Returns `true` if the answer asks for no retry. SDKs and agents retry such errors otherwise.
    fn forbids_retry(&self) -> bool {
        let is_about_keys = matches!(
            self,
            Self::Exhausted(_)
                | Self::TokenAsKey { .. }
                | Self::UpstreamNotAllowed { .. }
                | Self::Refused(RequestRefusal::ClientToken | RequestRefusal::ClientCertificate)
        );
        !self.is_retryable() && (is_about_keys || self.status().is_server_error())
    }

    /// Returns the `retry-after` of the answer, in seconds. `None` if it has none.
    fn retry_after(&self) -> Option<u64> {
        match self {
            Self::LedgerAway => Some(LEDGER_RETRY_AFTER),
            Self::Drained { .. } => Some(DRAINED_RETRY_AFTER),
            Self::Overloaded(_) => Some(BUDGET_RETRY_AFTER),
            Self::Upstream { error, .. } if error.kind == SendErrorKind::NoDescriptors => Some(DESCRIPTORS_RETRY_AFTER),
            Self::TooManyExchanges { .. } => Some(PLACE_RETRY_AFTER),
            Self::Exhausted(pool) => pool.retry_after(),
            Self::NoCredential { wait, .. } => wait.map(whole_seconds),
            _ => None,
        }
    }

    /// Returns the message for the client: the failure, and what to do about it.
    ///
    /// Some clients retry on words of the message alone, so each retryable one contains such words.
    pub fn public_message(&self) -> String {
        let text = self.message_text();
        // Clients retry on the prefix: see `RETRIED_PREFIX`. Failures of a connection have words of their own.
        let is_prefixed = matches!(
            self.status(),
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE
        );
        if is_prefixed && self.is_retryable() {
            format!("{RETRIED_PREFIX}{text}")
        } else {
            text
        }
    }

    /// Returns the failure, and what to do about it.
    fn message_text(&self) -> String {
        match self {
            Self::Refused(refusal) => refusal.message().to_owned(),
            Self::TokenAsKey { upstream } => format!(
                "this is a token of this proxy; upstream {upstream} passes your own key on: send the provider's key, \
                 and this token in x-antiphon-client-token"
            ),
            Self::UpstreamNotAllowed { upstream, token } => {
                format!("the client token {token} may not use upstream {upstream}; ask the operator of this proxy")
            }
            Self::TooManyExchanges { token, max } => {
                format!("the client token {token} may have {max} requests at the same time; try again")
            }
            Self::NoRoute { api, bases } => {
                let bases = bases.join(", ");
                match api {
                    None => format!("no upstream has this path; set the base url to one of: {bases}"),
                    Some(api) => format!(
                        "this is a path of {api}, which needs the prefix of its upstream; set the base url to one of: \
                         {bases}"
                    ),
                }
            }
            Self::Body(ClientFault::Broken) => "the request's body is malformed or was cut short".to_owned(),
            Self::Body(ClientFault::Stalled) => {
                format!("timeout: the request's body stalled or came too slowly; try again{RETRY_SUFFIX}")
            }
            Self::TooLarge { limit } => {
                format!("the body exceeds the inspection limit of {limit} bytes, which this strict route enforces")
            }
            Self::Unsigned {
                error: ApplyError::Streamed,
                limit,
            } => {
                format!("the body exceeds {limit} bytes, the limit for bodies that the proxy signs")
            }
            Self::Unsigned {
                error: ApplyError::Awaited,
                ..
            } => "the profile's credential has just expired; try again".to_owned(),
            Self::Unsigned { .. } => "the profile's credential cannot be used for this request".to_owned(),
            Self::Rejected(rejection) => rejection.to_message(),
            Self::Upstream { upstream, error } => send_failure::client_message(upstream, error),
            Self::NotBegun(verdict) if verdict.class == Class::Broken => {
                "connection reset before the answer began; try again".to_owned()
            }
            Self::NotBegun(_) => format!("timeout: the provider did not begin to answer; try again{RETRY_SUFFIX}"),
            Self::Deadline => format!("timeout: the exchange reached its total time limit; try again{RETRY_SUFFIX}"),
            Self::LedgerAway => {
                "the proxy's ledger did not answer, and the history has a call that it may have answered \
                                 before; try again"
                    .to_owned()
            }
            Self::Drained { .. } => "the proxy restarts; try again".to_owned(),
            Self::Overloaded(Overloaded::Work) => {
                "the proxy is busy with other large request bodies; try again in some seconds".to_owned()
            }
            Self::Overloaded(Overloaded::Memory) => {
                "request bodies fill the memory of the proxy (server.body_memory_max); try again in some seconds"
                    .to_owned()
            }
            Self::Exhausted(pool) => pool.public_message(),
            Self::NoCredential {
                upstream,
                lacking,
                reasons,
                wait: _,
            } => no_credential_message(upstream, lacking, reasons, self.is_retryable()),
        }
    }

    /// Returns the error type of RFC 9209.
    fn proxy_status(&self) -> &'static str {
        let error = match self {
            Self::Upstream { error, .. } => error,
            Self::NotBegun(verdict) if verdict.class == Class::Broken => return "http_response_incomplete",
            Self::NotBegun(_) => return "connection_read_timeout",
            Self::Deadline => return "http_response_timeout",
            Self::Exhausted(_) | Self::NoCredential { .. } => return "destination_unavailable",
            Self::LedgerAway | Self::Drained { .. } => return "proxy_internal_error",
            Self::Overloaded(_) => return "connection_limit_reached",
            _ => {
                return match self.status() {
                    StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => "http_request_denied",
                    _ => "http_request_error",
                };
            }
        };
        send_failure::proxy_status(error)
    }

    /// Returns `true` if the connection must not carry another request.
    fn closes_connection(&self) -> bool {
        // The rest of such a body cannot be told from the next request, or is not worth reading.
        matches!(
            self,
            Self::Refused(RequestRefusal::Framing) | Self::Body(_) | Self::Overloaded(Overloaded::Memory)
        )
    }

    /// Returns the answer to a request of the ledger API: a problem document, as the API itself refuses.
    pub(super) fn to_problem(&self, request_id: &str) -> Response<Bytes> {
        let mut answer = self.to_response(ErrorShape::OpenAi, request_id);
        *answer.body_mut() = proxy_problem(self.status(), self.code(), &self.public_message()).into();
        let media_type = HeaderValue::from_static(PROBLEM_JSON);
        answer.headers_mut().insert(CONTENT_TYPE, media_type);
        answer
    }

    /// Returns the answer in the shape that the client's SDK reads.
    pub fn to_response(&self, shape: ErrorShape, request_id: &str) -> Response<Bytes> {
        let status = self.status();
        let mut body = shape.error_body(status.as_u16(), self.code(), &self.public_message(), request_id);
        if let (Self::Rejected(rejection), Value::Object(body)) = (self, &mut body) {
            body.insert("antiphon".to_owned(), rejection.findings_json());
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
        if let Some(kind) = shape.error_type_header(status.as_u16()) {
            fields.insert("x-amzn-errortype", HeaderValue::from_static(kind));
        }
        if let Some(seconds) = self.retry_after() {
            fields.insert(RETRY_AFTER, seconds.into());
        }
        if self.forbids_retry() {
            fields.insert(headers::SHOULD_RETRY, HeaderValue::from_static("false"));
        }
        match self {
            Self::Refused(RequestRefusal::Upgrade) => {
                // RFC 9110 15.5.22: the answer names the protocol to use instead.
                fields.insert(UPGRADE, HeaderValue::from_static("HTTP/1.1"));
                fields.insert(CONNECTION, HeaderValue::from_static("upgrade"));
            }
            Self::Refused(RequestRefusal::ClientToken) | Self::TokenAsKey { .. } => {
                // RFC 9110 15.5.2 requires the challenge.
                fields.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"antiphon\""));
            }
            _ if self.closes_connection() => drop(fields.insert(CONNECTION, HeaderValue::from_static("close"))),
            _ => {}
        }
        answer
    }
}

/// Returns the message for a request whose profiles have no valid credential: the failed source, and what to do.
fn no_credential_message(
    upstream: &str,
    lacking: &[LackingProfile],
    reasons: &[CooldownReason],
    is_retryable: bool,
) -> String {
    let name = |one: &LackingProfile| {
        let (profile, source) = (&one.profile, one.source);
        match one.failure {
            Some(failure) => format!("profile {profile}: its {source} {failure}"),
            None => format!("profile {profile}: its {source} has not supplied one yet"),
        }
    };
    let named: Vec<String> = lacking.iter().take(LACKING_SHOWN_MAX).map(name).collect();
    let others = if reasons.is_empty() {
        String::new()
    } else {
        let reasons: Vec<&str> = reasons.iter().map(|reason| reason.label()).collect();
        format!("; the other profiles are in cooldown ({})", reasons.join(", "))
    };
    // The proxy shows nothing of the output, so the operator must look at it.
    format!(
        "upstream {upstream}: no valid credential; {}{others}; run the command, or ask the endpoint, as the proxy's user \
         to see its output{}",
        named.join("; "),
        if is_retryable { ", or try again" } else { "" }
    )
}
