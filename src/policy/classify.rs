//! Evidence → [`Verdict`]: the one function through which every end of an exchange goes, ours and the client's too.
//!
//! Evidence is of this exchange alone. An explicit error of the provider goes before the state of the stream, that
//! before silence, and silence before the client's leaving.

use super::{
    class::Class,
    course::{Clock, Open, State},
    said::Said,
    sentences::Sentence,
    verdict::{Reach, Verdict},
};
use crate::provider::Kind;

/// What was observed.
#[derive(Clone, Copy, Debug)]
pub enum Evidence<'e> {
    /// A status, and what the body said where it was read.
    Answered {
        /// The provider's kind: some words count in the mouth of one alone.
        kind: Kind,
        /// The status.
        status: u16,
        /// What its body said.
        said: &'e Said,
    },
    /// An error inside an answer that began with 200.
    InStream {
        /// The provider's kind.
        kind: Kind,
        /// What the error said.
        said: &'e Said,
    },
    /// The send gave no answer.
    Unanswered(Failure),
    /// The answer's body came to its end, or broke off.
    Ended {
        /// Whether the answer said that this is the end, or is of a kind that does not say so.
        whole: bool,
        /// Whether it broke off rather than ended.
        broken: bool,
    },
    /// One of our clocks ran out while the provider was silent.
    Silent {
        /// The clock.
        clock: Clock,
        /// What was in flight.
        state: State,
    },
    /// The client left.
    ClientGone {
        /// What was in flight.
        state: State,
        /// Whether the provider had been silent for more than half of our patience.
        late: bool,
    },
    /// The client stopped reading.
    ClientStalled,
    /// The client's own request broke or stalled.
    Upload,
    /// No profile is able to serve.
    Exhausted,
    /// Our own limit on the whole exchange.
    Deadline,
}

/// How a send failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Failure {
    /// The name does not resolve.
    Dns,
    /// No connection.
    Connect,
    /// No connection in time.
    ConnectTimeout,
    /// TLS failed: a certificate, a version.
    Tls,
    /// TLS took too long.
    TlsTimeout,
    /// The connection broke while the request was written.
    Send,
    /// The provider stopped taking the request.
    SendTimeout,
    /// The connection broke before the head.
    Head,
    /// No head in time.
    HeadTimeout,
    /// The connection broke in a body that was read whole.
    Body,
    /// Silence in a body that was read whole.
    BodyTimeout,
    /// What came is not HTTP.
    Protocol,
    /// The request's own body failed.
    Request,
}

/// What the evidence says.
pub fn classify(evidence: Evidence<'_>) -> Verdict {
    match evidence {
        Evidence::Answered { kind, status, said } => of_error(kind, status, said),
        Evidence::InStream { kind, said } => of_error(kind, status_of(said), said),
        Evidence::Unanswered(failure) => of_failure(failure),
        Evidence::Ended {
            whole: true,
            broken: false,
        } => Verdict::of(Class::Success),
        Evidence::Ended { broken: true, .. } => Verdict::named(Class::Broken, "answer_broken"),
        Evidence::Ended { broken: false, .. } => Verdict::named(Class::Broken, "incomplete_stream"),
        Evidence::Silent { clock, state } => of_silence(clock, state),
        Evidence::ClientGone { state, late } => {
            // A tool or a compaction in flight explains the wait: the client's budget was too short.
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
        Failure::Body => (Class::Broken, "answer_broken"),
        Failure::BodyTimeout => (Class::Stalled, "answer_stalled"),
        Failure::Protocol => (Class::Malformed, "answer_malformed"),
        Failure::Request => (Class::Upload, "body_broken"),
    };
    Verdict::named(class, code)
}

/// Rows 7 and 10 to 14 of the decision table.
fn of_silence(clock: Clock, state: State) -> Verdict {
    match clock {
        Clock::Total => Verdict::of(Class::Deadline),
        Clock::ServerTool => Verdict::of(Class::ServerTool),
        Clock::Compaction => Verdict::of(Class::Compaction),
        Clock::FirstEvent => Verdict::of(Class::Parked { queued: state.queued }),
        // Of bytes: the socket itself fell silent, whatever was in flight.
        Clock::Bytes | Clock::Progress | Clock::Reasoning => Verdict::named(Class::Stalled, "answer_stalled"),
    }
}

/// Reasoning that belongs to another prefix, organisation or model (Claude Code gateway guide; openai/codex#13724).
const AFFINITY: &[&str] = &[
    "bound to a different conversation",
    "invalid signature in thinking block",
    "invalid `signature` in `thinking` block",
    "corrupted thought signature",
    "thought signature is not valid",
];
const LONG: &[&str] = &["prompt is too long", "maximum context length", "input token count"];

/// Judges an answer by its status and words.
fn of_error(kind: Kind, status: u16, said: &Said) -> Verdict {
    match status {
        400 => of_account(kind, said).unwrap_or_else(|| Verdict::of(of_status(kind, status, said))),
        // The key works, but not here: other paths have other scopes.
        401 | 403 if lacks_scope(said) => Verdict::of(Class::Permission).within(Reach::Exchange),
        _ => Verdict::of(of_status(kind, status, said)),
    }
}

/// Judges a sentence of Anthropic's about the account; `None` if the error is none, or not Anthropic's.
fn of_account(kind: Kind, said: &Said) -> Option<Verdict> {
    // Any other provider's message may be what the client wrote.
    if kind != Kind::Anthropic || said.kind != "invalid_request_error" {
        return None;
    }
    let class = match said.sentence? {
        Sentence::Credit => Class::Billing,
        Sentence::Limit { .. } => Class::SpendLimit,
    };
    Some(Verdict::of(class).within(Reach::Text))
}

/// Returns `true` if a restricted key of OpenAI's lacks the scope of the path. An echo of these words spares a key.
fn lacks_scope(said: &Said) -> bool {
    said.is_any(&["missing_scope"]) || said.mentions(&["missing scopes"])
}

/// The class of a status, the error table row by row.
fn of_status(kind: Kind, status: u16, said: &Said) -> Class {
    match status {
        200..=399 => Class::Success,
        401 => Class::Auth,
        402 => Class::Billing,
        // Amazon answers a key that it does not know, or that has expired, with 403.
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
        503 | 529 => Class::Overloaded,
        504 if said.is_any(&["timeout_error", "DEADLINE_EXCEEDED"]) => Class::ProviderTimeout,
        _ => Class::ProviderFault,
    }
}

/// A 400 or one like it: the request's own fault, but for a few phrases. A phrase costs no key: clients write them too.
fn of_refusal(kind: Kind, said: &Said) -> Class {
    if said.is_any(&["invalid_encrypted_content"]) || said.mentions(AFFINITY) {
        Class::Affinity
    } else if said.is_key_invalid && matches!(kind, Kind::Gemini | Kind::Vertex) {
        // Google answers an unknown key with 400. Its message may hold words of the client, its reason may not.
        Class::Auth
    } else if said.is_any(&["context_length_exceeded", "request_too_large"]) || said.mentions(LONG) {
        Class::TooLarge
    } else if said.is_any(&["content_filter", "content_policy_violation"]) {
        Class::Filtered
    } else {
        Class::Request
    }
}

/// The status that an error inside a stream would have had.
pub fn status_of(said: &Said) -> u16 {
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
    // The code is the closer of the two: a type like `invalid_request_error` stands over many.
    let named = |text: &str| NAMES.iter().find(|(name, _)| *name == text).map(|(_, status)| *status);
    let number = |text: &str| text.parse().ok().filter(|status| (400..600).contains(status));
    named(&said.code)
        .or_else(|| named(&said.kind))
        .or_else(|| number(&said.code))
        .unwrap_or(500)
}
