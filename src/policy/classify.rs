//! Evidence → [`Verdict`]: the one function that judges every end of an exchange, on either side of the proxy.
//!
//! Evidence comes from this exchange alone. An explicit provider error takes precedence over the state of the stream.
//! The state of the stream takes precedence over silence, and silence over a client's disconnect.

use super::{
    class::Class,
    key_statements::judge_key_error,
    provider_error::{ProviderErrorInfo, RefusedMatter},
    stream_timeouts::{InFlight, StreamState, TimeoutKind},
    verdict::{Verdict, VerdictScope},
};
use crate::provider::ProviderKind;

/// The observation that is judged.
#[derive(Clone, Copy, Debug)]
pub enum Observation<'e> {
    /// A status, and the provider's error if the body was read.
    Response {
        /// The provider's kind: some error texts count for one kind only.
        kind: ProviderKind,
        /// The HTTP status.
        status: u16,
        /// The error in the body; empty if the body was not read.
        error: &'e ProviderErrorInfo,
    },
    /// An answer with a status of success that no model gave.
    NoAnswer {
        /// `true` for a redirect.
        is_redirect: bool,
    },
    /// An error inside an answer that began with 200.
    StreamError {
        /// The provider's kind.
        kind: ProviderKind,
        /// The error in the stream.
        error: &'e ProviderErrorInfo,
    },
    /// A send without an answer.
    SendFailed(Phase, SendErrorKind),
    /// The end of an answer's body.
    BodyEnded {
        /// `true` if the answer announced its end, or is of a format without such an announcement.
        is_complete: bool,
        /// `true` if the connection broke off.
        is_broken: bool,
    },
    /// A timeout while the provider was silent.
    TimedOut {
        /// The timeout that expired.
        timeout: TimeoutKind,
        /// The state of the stream at that time.
        state: StreamState,
    },
    /// The client disconnected.
    ClientGone {
        /// The state of the stream at that time.
        state: StreamState,
        /// `true` if the provider had been silent for more than half of the timeout.
        is_late: bool,
    },
}

/// The phase in which a send failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// The DNS lookup.
    Resolve,
    /// TCP, or the corporate proxy.
    Connect,
    /// The TLS handshake.
    Tls,
    /// Writing the request.
    Send,
    /// The wait for the response head.
    Headers,
    /// Reading the response body.
    Body,
}

/// The way in which a send failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SendErrorKind {
    /// The network or the peer closed the connection.
    Io,
    /// A timeout of the proxy expired.
    TimedOut,
    /// The answer is not valid HTTP, or is ambiguous.
    Protocol,
    /// The request's own body failed. The provider is not at fault.
    Request,
    /// The proxy has no file descriptor left. Neither the network nor the provider is at fault.
    NoDescriptors,
}

/// Judges one observation.
pub fn classify(evidence: Observation<'_>) -> Verdict {
    match evidence {
        Observation::Response {
            kind,
            status,
            error: said,
        } => judge_error(kind, status, said),
        Observation::NoAnswer { is_redirect: true } => Verdict::with_code(Class::NotAnAnswer, "redirect"),
        Observation::NoAnswer { is_redirect: false } => Verdict::from_class(Class::NotAnAnswer),
        // The status of the head was 200, so the status is derived from the error.
        Observation::StreamError { kind, error: said } => judge_error(kind, status_of_error(said), said),
        Observation::SendFailed(phase, kind) => judge_send_failure(phase, kind),
        Observation::BodyEnded {
            is_complete: true,
            is_broken: false,
        } => Verdict::from_class(Class::Success),
        // A broken connection counts even after the terminal event: bytes may be missing.
        Observation::BodyEnded { is_broken: true, .. } => Verdict::with_code(Class::Broken, "answer_broken"),
        Observation::BodyEnded { is_broken: false, .. } => Verdict::with_code(Class::Broken, "incomplete_stream"),
        Observation::TimedOut { timeout: clock, state } => judge_timeout(clock, state),
        Observation::ClientGone { state, is_late: late } => {
            // A running tool or compaction explains the wait: the client's timeout was too short.
            let blames = late && !matches!(state.in_flight, InFlight::ServerTool | InFlight::Compaction);
            Verdict::from_class(if blames { Class::ClientGaveUp } else { Class::ClientGone })
        }
    }
}

fn judge_send_failure(phase: Phase, kind: SendErrorKind) -> Verdict {
    let (class, code) = match (phase, kind) {
        (_, SendErrorKind::Request) => (Class::Upload, "body_broken"),
        (_, SendErrorKind::Protocol) => (Class::Malformed, "answer_malformed"),
        (_, SendErrorKind::NoDescriptors) => (Class::Unavailable, "no_descriptors"),
        (Phase::Resolve, _) => (Class::Unreachable, "dns"),
        (Phase::Connect, SendErrorKind::Io) => (Class::Unreachable, "connect"),
        (Phase::Connect, SendErrorKind::TimedOut) => (Class::Unreachable, "connect_timeout"),
        (Phase::Tls, SendErrorKind::Io) => (Class::Certificate, "tls"),
        (Phase::Tls, SendErrorKind::TimedOut) => (Class::Handshake, "tls_timeout"),
        (Phase::Send, SendErrorKind::Io) => (Class::Interrupted, "send"),
        (Phase::Send, SendErrorKind::TimedOut) => (Class::Interrupted, "send_timeout"),
        (Phase::Headers, SendErrorKind::Io) => (Class::Interrupted, "headers"),
        (Phase::Headers, SendErrorKind::TimedOut) => (Class::Headless, "headers_timeout"),
        // The head arrived, so the failure is judged like that of a stream.
        (Phase::Body, SendErrorKind::Io) => (Class::Broken, "answer_broken"),
        (Phase::Body, SendErrorKind::TimedOut) => (Class::Stalled, "answer_stalled"),
    };
    Verdict::with_code(class, code)
}

/// Judges a timeout: rows 7 and 10 to 14 of the decision table.
fn judge_timeout(clock: TimeoutKind, state: StreamState) -> Verdict {
    match clock {
        TimeoutKind::Total => Verdict::from_class(Class::Deadline),
        TimeoutKind::ServerTool => Verdict::from_class(Class::ServerTool),
        TimeoutKind::Compaction => Verdict::from_class(Class::Compaction),
        TimeoutKind::FirstEvent => Verdict::from_class(Class::Parked {
            queued: state.is_queued,
        }),
        TimeoutKind::ClientPatience => Verdict::from_class(Class::Parked {
            queued: state.is_queued,
        })
        .with_scope(VerdictScope::Client),
        // After a timeout of bytes the connection itself was silent, whatever was in flight.
        TimeoutKind::Bytes | TimeoutKind::Progress | TimeoutKind::Reasoning => {
            Verdict::with_code(Class::Stalled, "answer_stalled")
        }
    }
}

/// Errors about reasoning of another prefix, organisation or model (Claude Code gateway guide; openai/codex#13724).
const AFFINITY_PHRASES: &[&str] = &[
    "bound to a different conversation",
    "invalid signature in thinking block",
    "invalid `signature` in `thinking` block",
    "corrupted thought signature",
    "thought signature is not valid",
];
const TOO_LONG_PHRASES: &[&str] = &["prompt is too long", "maximum context length", "input token count"];

/// Judges an answer by its status and its error text.
fn judge_error(kind: ProviderKind, status: u16, said: &ProviderErrorInfo) -> Verdict {
    if let Some(verdict) = judge_key_error(kind, status, said) {
        return verdict;
    }
    match class_of_other_status(status, said) {
        // Servers that apply chat templates refuse a history with 500. The client may have written the text, so it proves
        // nothing about the endpoint either.
        Class::ProviderFault => match said.refused {
            Some(RefusedMatter::Length) => Verdict::from_class(Class::TooLarge).with_scope(VerdictScope::Client),
            Some(RefusedMatter::Content) => Verdict::from_class(Class::Request).with_scope(VerdictScope::Client),
            None => Verdict::from_class(Class::ProviderFault),
        },
        class => Verdict::from_class(class),
    }
}

/// Returns the class of a status other than 401, 402, 403 and 429, which `key_statements.rs` judges.
fn class_of_other_status(status: u16, said: &ProviderErrorInfo) -> Class {
    match status {
        200..=399 => Class::Success,
        404 => Class::NotFound,
        408 => Class::ProviderTimeout,
        409 => Class::Conflict,
        413 => Class::TooLarge,
        400..=499 => class_of_bad_request(said),
        // Both mean that the provider is short of capacity, and both pass by themselves.
        503 | 529 => Class::Overloaded,
        504 if said.has_code(&["timeout_error", "DEADLINE_EXCEEDED"]) => Class::ProviderTimeout,
        _ => Class::ProviderFault,
    }
}

/// Classifies a 400 or similar: the request is at fault, except for a few phrases. Phrases never cost a key anything,
/// because clients can write them too.
fn class_of_bad_request(said: &ProviderErrorInfo) -> Class {
    // Checked first: the profile that the lane left may still accept the history.
    if said.has_code(&["invalid_encrypted_content"]) || said.contains_phrase(AFFINITY_PHRASES) {
        Class::Affinity
    } else if said.refused == Some(RefusedMatter::Length)
        || said.has_code(&["context_length_exceeded", "request_too_large"])
        || said.contains_phrase(TOO_LONG_PHRASES)
    {
        Class::TooLarge
    } else if said.has_code(&["content_filter", "content_policy_violation"]) {
        Class::Filtered
    } else {
        Class::Request
    }
}

/// Returns the status that an error inside a stream would have had.
pub fn status_of_error(said: &ProviderErrorInfo) -> u16 {
    // Names of all dialects in one table: no name has different meanings in two of them. Those of keys are statements of
    // `key_statements` too. It has more names, because a status tells them apart.
    const NAMES: &[(&str, u16)] = &[
        ("authentication_error", 401),
        ("invalid_api_key", 401),
        ("UNAUTHENTICATED", 401),
        ("billing_error", 402),
        ("permission_error", 403),
        ("PERMISSION_DENIED", 403),
        ("not_found_error", 404),
        ("NOT_FOUND", 404),
        ("request_too_large", 413),
        ("rate_limit_error", 429),
        ("rate_limit_exceeded", 429),
        ("too_many_requests", 429),
        ("insufficient_quota", 429),
        ("usage_limit_reached", 429),
        ("RESOURCE_EXHAUSTED", 429),
        ("timeout_error", 504),
        ("DEADLINE_EXCEEDED", 504),
        ("overloaded_error", 529),
        ("server_is_overloaded", 503),
        ("slow_down", 503),
        ("UNAVAILABLE", 503),
        ("context_length_exceeded", 400),
        ("invalid_encrypted_content", 400),
        ("content_filter", 400),
        ("invalid_prompt", 400),
        ("INVALID_ARGUMENT", 400),
        ("FAILED_PRECONDITION", 400),
        ("invalid_request_error", 400),
        // Amazon's exceptions (Bedrock API reference, 2026-11). Those of a model that failed count as any unknown name.
        ("ValidationException", 400),
        ("AccessDeniedException", 403),
        ("ResourceNotFoundException", 404),
        ("ModelTimeoutException", 408),
        ("ThrottlingException", 429),
        ("ModelNotReadyException", 429),
        // Sent with 400, although the same request succeeds later.
        ("ServiceQuotaExceededException", 429),
        ("ServiceUnavailableException", 503),
    ];
    // The code is more specific: a type like `invalid_request_error` covers many errors.
    let named = |text: &str| NAMES.iter().find(|(name, _)| *name == text).map(|(_, status)| *status);
    // Google's code is the status itself.
    let number = |text: &str| text.parse().ok().filter(|status| (400..600).contains(status));
    named(&said.code)
        .or_else(|| named(&said.kind))
        .or_else(|| number(&said.code))
        // An unknown name counts as the provider's own failure.
        .unwrap_or(500)
}
