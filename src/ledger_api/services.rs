//! Requests of tool services: authentication, posted results, heartbeats.

use http::{HeaderMap, Response, StatusCode};
use serde_json::json;

use super::{
    Ask, LedgerApi, LedgerBody,
    answer::{Code, Refusal, answer},
    asked::{self, ID_BYTES_MAX, Said},
    only,
};
use crate::{
    auth::{Signed, TokenHash},
    clock,
    digest::digest_of,
    late::{
        Beat, Posting,
        entry::{State, Why},
        matching::{Named, Service},
    },
    telemetry::events::ResultPosted,
    wire::{CONTENT_DEPTH_MAX, json::deeper_than},
};

/// The longest `webhook-id`, in bytes.
const WEBHOOK_ID_BYTES_MAX: usize = 256;

/// The credential in the head of a service's request.
pub(super) enum Claim<'h> {
    /// A known bearer token.
    Token(&'h Service),
    /// The webhook headers. The signature is verified once the body is read.
    Signature {
        id: &'h str,
        timestamp: &'h str,
        signatures: &'h str,
    },
}

/// Reads the credential of a service from the head of its request.
pub(super) fn read_claim<'h>(headers: &'h HeaderMap, services: &'h [Service]) -> Result<Claim<'h>, Refusal> {
    let bearer = only(headers, "authorization").and_then(|value| {
        let (scheme, token) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
    });
    if let Some(token) = bearer {
        let hash = TokenHash::of(token.as_bytes());
        // Every token is compared, so that the time does not depend on which one matches.
        let known = |found: Option<&'h Service>, service: &'h Service| {
            let is_it = service.token.is_some_and(|token| token.matches(&hash));
            if is_it { Some(service) } else { found }
        };
        let service = services.iter().fold(None, known);
        return service.map(Claim::Token).ok_or(Refusal::of(Code::NotFound));
    }
    let signed = (
        only(headers, "webhook-id"),
        only(headers, "webhook-timestamp"),
        only(headers, "webhook-signature"),
    );
    let known = services.iter().any(|service| service.key.is_some());
    match signed {
        // Without a configured signature key the body would be read for nothing.
        (Some(id), Some(timestamp), Some(signatures)) if known && id.len() <= WEBHOOK_ID_BYTES_MAX => {
            Ok(Claim::Signature {
                id,
                timestamp,
                signatures,
            })
        }
        _ => Err(Refusal::of(Code::NotFound)),
    }
}

/// Answers a request of a service, and records a posted result with its outcome.
pub(super) async fn answer_service(
    api: &LedgerApi,
    ask: &Ask,
    claim: &Claim<'_>,
    body: &[u8],
) -> Result<Response<LedgerBody>, Refusal> {
    let (Ask::Result(call_id) | Ask::Heartbeat(call_id)) = ask else {
        return Err(Refusal::of(Code::NotFound));
    };
    let service = verify_claim(api, claim, body)?;
    let is_result = matches!(ask, Ask::Result(_));
    let checked = asked::said(body).and_then(|said| check_body(said, claim, call_id, is_result));
    let mut bytes = 0;
    let answered = match checked {
        Ok(said) => {
            let named = Named {
                service,
                call_id,
                owner: said.owner,
            };
            bytes = said.content.as_ref().map_or(0, String::len);
            let once = check_replay(api, service, claim, call_id, body);
            // The content of a heartbeat is ignored.
            match (once, said.content.filter(|_| is_result)) {
                (Err(refusal), _) => Err(refusal),
                (Ok(()), Some(content)) => post_result(api, &named, content, said.is_error).await,
                (Ok(()), None) => return send_heartbeat(api, &named).await,
            }
        }
        Err(refusal) => Err(refusal),
    };
    // Refused posts are recorded too: operators find a misconfigured service by them.
    if is_result {
        let label = answered
            .as_ref()
            .map_or_else(|refusal| post_label(refusal.code), |(label, _)| *label);
        api.telemetry.record_post(&ResultPosted {
            service: &service.name,
            answer: label,
            bytes,
        });
    }
    answered.map(|(_, answer)| answer)
}

/// Returns the service that a credential belongs to.
fn verify_claim<'c>(api: &'c LedgerApi, claim: &Claim<'c>, body: &[u8]) -> Result<&'c Service, Refusal> {
    let (id, timestamp, signatures) = match claim {
        Claim::Token(service) => return Ok(service),
        Claim::Signature {
            id,
            timestamp,
            signatures,
        } => (*id, *timestamp, *signatures),
    };
    let signed = Signed {
        id,
        timestamp,
        signatures,
        body,
    };
    let now = clock::since_1970();
    // As with tokens, every key is tried.
    let known = |found: Option<&'c Service>, service: &'c Service| {
        let is_it = service.key.as_ref().is_some_and(|key| key.verify(&signed, now));
        if is_it { Some(service) } else { found }
    };
    let service = api.late.services().iter().fold(None, known);
    service.ok_or(Refusal::of(Code::NotFound))
}

/// Refuses a signed message whose id was used for another message. The same message may be sent again.
fn check_replay(
    api: &LedgerApi,
    service: &Service,
    claim: &Claim<'_>,
    call_id: &[u8],
    body: &[u8],
) -> Result<(), Refusal> {
    let Claim::Signature { id, .. } = claim else {
        return Ok(());
    };
    let name = digest_of([service.name.as_bytes(), id.as_bytes()]);
    let digest = digest_of([call_id, body]);
    // One atomic step: of two concurrent messages under one id the second sees the first.
    if api.seen.get_with(name, || digest) == digest {
        return Ok(());
    }
    Err(Refusal::of(Code::Replayed))
}

/// Posts a result. Returns its metric label with the answer.
async fn post_result(
    api: &LedgerApi,
    named: &Named<'_>,
    content: String,
    failed: bool,
) -> Result<(&'static str, Response<LedgerBody>), Refusal> {
    Ok(match api.late.post(named, content, failed).await? {
        Posting::Settled { state, first } => {
            let body = json!({ "state": state.label(), "first": first });
            (
                if first { "settled" } else { "repeated" },
                answer(StatusCode::OK, &body),
            )
        }
        Posting::Parked => ("parked", answer(StatusCode::ACCEPTED, &json!({ "state": "parked" }))),
        Posting::Refused(Why::Conflict) => return Err(Refusal::of(Code::Conflict)),
        Posting::Refused(Why::Ambiguous) => return Err(Refusal::of(Code::AmbiguousCall)),
        Posting::Refused(Why::Expired | Why::Cancelled) => return Err(Refusal::of(Code::Expired)),
        Posting::Unknown => return Err(Refusal::of(Code::NotFound)),
    })
}

/// Extends the deadline of a call.
async fn send_heartbeat(api: &LedgerApi, named: &Named<'_>) -> Result<Response<LedgerBody>, Refusal> {
    match api.late.heartbeat(named).await? {
        Beat::Open { deadline } => {
            let body = json!({ "state": State::Open.label(), "deadline": deadline.as_secs() });
            Ok(answer(StatusCode::OK, &body))
        }
        Beat::Terminal => Err(Refusal::of(Code::Conflict)),
        Beat::Expired => Err(Refusal::of(Code::Expired)),
        Beat::Ambiguous => Err(Refusal::of(Code::AmbiguousCall)),
        Beat::Unknown => Err(Refusal::of(Code::NotFound)),
    }
}

/// Checks that a body names the call of its path, and that a result has a readable content.
fn check_body(said: Said, claim: &Claim<'_>, call_id: &[u8], is_result: bool) -> Result<Said, Refusal> {
    if call_id.len() > ID_BYTES_MAX {
        return Err(Refusal::malformed("the call id in the path is longer than 1024 bytes"));
    }
    let named = said.call_id.as_deref();
    // The signature covers the body and not the path: without a call id it would be valid for every call.
    let is_signed = matches!(claim, Claim::Signature { .. });
    if named.is_some_and(|named| named != call_id) || (is_signed && named.is_none()) {
        return Err(Refusal::malformed(
            "call_id in the body must equal the call id in the path; a signed body must contain it",
        ));
    }
    if is_result {
        let content = said.content.as_deref();
        check_depth(content.ok_or(Refusal::malformed("content is missing"))?)?;
    }
    Ok(said)
}

/// Refuses a content that is nested too deep for common JSON readers.
fn check_depth(content: &str) -> Result<(), Refusal> {
    let too_deep = deeper_than(content.as_bytes(), CONTENT_DEPTH_MAX);
    too_deep.map_or(Ok(()), |at| Err(Refusal::too_deep(at)))
}

/// Returns the metric label of a refused post.
const fn post_label(code: Code) -> &'static str {
    match code {
        Code::Conflict | Code::Replayed => "conflict",
        Code::AmbiguousCall => "ambiguous_call",
        Code::Expired => "expired",
        Code::NotFound => "unknown",
        Code::Malformed | Code::TooLarge => "malformed",
        Code::Full | Code::Busy | Code::Unavailable => "unavailable",
    }
}
