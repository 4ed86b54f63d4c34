//! Evidence → [`Verdict`]: the one function that judges every end of an exchange, on either side of the proxy.
//!
//! Evidence comes from this exchange alone. An explicit provider error takes precedence over the state of the stream.
//! The state of the stream takes precedence over silence, and silence over a client's disconnect.

use super::{
    class::Class,
    course::{Clock, Open, State},
    said::Said,
    sentences::Sentence,
    verdict::{Reach, Verdict},
};
use crate::provider::Kind;

/// The observation that is judged.
#[derive(Clone, Copy, Debug)]
pub enum Evidence<'e> {
    /// A status, and the provider's error if the body was read.
    Answered {
        /// The provider's kind: some error texts count for one kind only.
        kind: Kind,
        /// The HTTP status.
        status: u16,
        /// The error in the body; empty if the body was not read.
        said: &'e Said,
    },
    /// An error inside an answer that began with 200.
    InStream {
        /// The provider's kind.
        kind: Kind,
        /// The error in the stream.
        said: &'e Said,
    },
    /// A send without an answer.
    Unanswered(Failure),
    /// The end of an answer's body.
    Ended {
        /// `true` if the answer announced its end, or is of a format without such an announcement.
        whole: bool,
        /// `true` if the connection broke off.
        broken: bool,
    },
    /// A timeout while the provider was silent.
    Silent {
        /// The timeout that expired.
        clock: Clock,
        /// The state of the stream at that time.
        state: State,
    },
    /// The client disconnected.
    ClientGone {
        /// The state of the stream at that time.
        state: State,
        /// `true` if the provider had been silent for more than half of the timeout.
        late: bool,
    },
    /// The client stopped reading.
    ClientStalled,
    /// The client's own request broke off or stalled.
    Upload,
    /// No profile could serve the request.
    Exhausted,
    /// The proxy's time limit for the whole exchange expired.
    Deadline,
}

/// The way in which a send failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Failure {
    /// The host name does not resolve.
    Dns,
    /// The connection failed.
    Connect,
    /// The connection timed out.
    ConnectTimeout,
    /// TLS failed: an invalid certificate, an unsupported version.
    Tls,
    /// The TLS handshake timed out.
    TlsTimeout,
    /// The connection broke while the request was written.
    Send,
    /// The provider stopped reading the request.
    SendTimeout,
    /// The connection broke before the response head.
    Head,
    /// The response head timed out.
    HeadTimeout,
    /// The connection broke in a body that the proxy collects.
    Body,
    /// A body that the proxy collects timed out.
    BodyTimeout,
    /// The answer is not valid HTTP.
    Protocol,
    /// The request's own body failed.
    Request,
}

/// Judges one observation.
pub fn classify(evidence: Evidence<'_>) -> Verdict {
    match evidence {
        Evidence::Answered { kind, status, said } => of_error(kind, status, said),
        // The status of the head was 200, so the status is derived from the error.
        Evidence::InStream { kind, said } => of_error(kind, status_of(said), said),
        Evidence::Unanswered(failure) => of_failure(failure),
        Evidence::Ended {
            whole: true,
            broken: false,
        } => Verdict::of(Class::Success),
        // A broken connection counts even after the terminal event: bytes may be missing.
        Evidence::Ended { broken: true, .. } => Verdict::named(Class::Broken, "answer_broken"),
        Evidence::Ended { broken: false, .. } => Verdict::named(Class::Broken, "incomplete_stream"),
        Evidence::Silent { clock, state } => of_silence(clock, state),
        Evidence::ClientGone { state, late } => {
            // A running tool or compaction explains the wait: the client's timeout was too short.
            let blames = late && !matches!(state.open, Open::ServerTool | Open::Compaction);
            Verdict::of(if blames { Class::ClientGaveUp } else { Class::ClientGone })
        }
        Evidence::ClientStalled => Verdict::of(Class::ClientStalled),
        Evidence::Upload => Verdict::of(Class::Upload),
        Evidence::Exhausted => Verdict::of(Class::Exhausted),
        Evidence::Deadline => Verdict::of(Class::Deadline),
    }
}

fn of_failure(failure: Failure) -> Verdict {
    let (class, code) = match failure {
        Failure::Dns => (Class::Unreachable, "dns"),
        Failure::Connect => (Class::Unreachable, "connect"),
        Failure::ConnectTimeout => (Class::Unreachable, "connect_timeout"),
        Failure::Tls => (Class::Certificate, "tls"),
        Failure::TlsTimeout => (Class::Handshake, "tls_timeout"),
        Failure::Send => (Class::Interrupted, "send"),
        Failure::SendTimeout => (Class::Interrupted, "send_timeout"),
        Failure::Head => (Class::Interrupted, "headers"),
        Failure::HeadTimeout => (Class::Headless, "headers_timeout"),
        // The head arrived, so the failure is judged like that of a stream.
        Failure::Body => (Class::Broken, "answer_broken"),
        Failure::BodyTimeout => (Class::Stalled, "answer_stalled"),
        Failure::Protocol => (Class::Malformed, "answer_malformed"),
        Failure::Request => (Class::Upload, "body_broken"),
    };
    Verdict::named(class, code)
}

/// Judges a timeout: rows 7 and 10 to 14 of the decision table.
fn of_silence(clock: Clock, state: State) -> Verdict {
    match clock {
        Clock::Total => Verdict::of(Class::Deadline),
        Clock::ServerTool => Verdict::of(Class::ServerTool),
        Clock::Compaction => Verdict::of(Class::Compaction),
        Clock::FirstEvent => Verdict::of(Class::Parked { queued: state.queued }),
        // After a timeout of bytes the connection itself was silent, whatever was in flight.
        Clock::Bytes | Clock::Progress | Clock::Reasoning => Verdict::named(Class::Stalled, "answer_stalled"),
    }
}

/// Errors about reasoning of another prefix, organisation or model (Claude Code gateway guide; openai/codex#13724).
const AFFINITY: &[&str] = &[
    "bound to a different conversation",
    "invalid signature in thinking block",
    "invalid `signature` in `thinking` block",
    "corrupted thought signature",
    "thought signature is not valid",
];
const LONG: &[&str] = &["prompt is too long", "maximum context length", "input token count"];

/// Judges an answer by its status and its error text.
fn of_error(kind: Kind, status: u16, said: &Said) -> Verdict {
    match status {
        // Anthropic reports accounts that cannot pay with 400, like any faulty request.
        400 => of_account(kind, said).unwrap_or_else(|| Verdict::of(of_status(kind, status, said))),
        // The key works, but not on this path: other paths have other scopes.
        401 | 403 if lacks_scope(said) => Verdict::of(Class::Permission).within(Reach::Exchange),
        _ => Verdict::of(of_status(kind, status, said)),
    }
}

/// Judges Anthropic's sentences about an account; `None` for any other error, and for other providers.
fn of_account(kind: Kind, said: &Said) -> Option<Verdict> {
    // The message of any other provider may repeat text of the client.
    if kind != Kind::Anthropic || said.kind != "invalid_request_error" {
        return None;
    }
    let class = match said.sentence? {
        Sentence::Credit => Class::Billing,
        Sentence::Limit { .. } => Class::SpendLimit,
    };
    // Evidence from text is weaker than a status, so it moves the exchange only once.
    Some(Verdict::of(class).within(Reach::Text))
}

/// Returns `true` if a restricted OpenAI key lacks the scope of the path. An echo of these words only spares a key.
fn lacks_scope(said: &Said) -> bool {
    said.is_any(&["missing_scope"]) || said.mentions(&["missing scopes"])
}

/// Returns the class of a status, row by row of the error table.
fn of_status(kind: Kind, status: u16, said: &Said) -> Class {
    match status {
        200..=399 => Class::Success,
        401 => Class::Auth,
        402 => Class::Billing,
        // Amazon answers an unknown or expired key with 403.
        403 if said.is_any(&[
            "ExpiredTokenException",
            "UnrecognizedClientException",
            "InvalidSignatureException",
            "IncompleteSignatureException",
        ]) =>
        {
            Class::Auth
        }
        403 => Class::Permission,
        404 => Class::NotFound,
        408 => Class::ProviderTimeout,
        409 => Class::Conflict,
        413 => Class::TooLarge,
        // A cooldown of seconds would only repeat the refusal until the quota resets.
        429 if said.daily
            || said.is_any(&[
                "insufficient_quota",
                "usage_limit_reached",
                "billing_hard_limit_reached",
            ]) =>
        {
            Class::Quota
        }
        429 => Class::RateLimit,
        400..=499 => of_refusal(kind, said),
        // Both mean that the provider is short of capacity, and both pass by themselves.
        503 | 529 => Class::Overloaded,
        504 if said.is_any(&["timeout_error", "DEADLINE_EXCEEDED"]) => Class::ProviderTimeout,
        _ => Class::ProviderFault,
    }
}

/// Classifies a 400 or similar: the request is at fault, except for a few phrases. Phrases never cost a key anything,
/// because clients can write them too.
fn of_refusal(kind: Kind, said: &Said) -> Class {
    // Checked first: the profile that the lane left may still accept the history.
    if said.is_any(&["invalid_encrypted_content"]) || said.mentions(AFFINITY) {
        Class::Affinity
    } else if said.is_key_invalid && matches!(kind, Kind::Gemini | Kind::Vertex) {
        // Google answers an unknown key with 400. Its message may repeat text of the client, its reason cannot.
        Class::Auth
    } else if said.is_any(&["context_length_exceeded", "request_too_large"]) || said.mentions(LONG) {
        Class::TooLarge
    } else if said.is_any(&["content_filter", "content_policy_violation"]) {
        Class::Filtered
    } else {
        Class::Request
    }
}

/// Returns the status that an error inside a stream would have had.
pub fn status_of(said: &Said) -> u16 {
    // Names of all dialects in one table: no name has different meanings in two of them.
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
