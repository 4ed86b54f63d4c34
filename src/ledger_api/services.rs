//! What tool services ask: who they are, results, heartbeats.

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

/// Bytes of a `webhook-id`.
const WEBHOOK_ID_BYTES_MAX: usize = 256;

/// How a service proves itself.
pub(super) enum Claim<'h> {
    /// Its token is known.
    Token(&'h Service),
    /// What a signature will say once the body is there.
    Signature {
        id: &'h str,
        timestamp: &'h str,
        signatures: &'h str,
    },
}

/// Who a service claims to be. Of tokens every one is compared.
pub(super) fn claim<'h>(headers: &'h HeaderMap, services: &'h [Service]) -> Result<Claim<'h>, Refusal> {
    let bearer = only(headers, "authorization").and_then(|value| {
        let (scheme, token) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
    });
    if let Some(token) = bearer {
        let hash = TokenHash::of(token.as_bytes());
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
        // Where nobody signs, nobody's body is read for it.
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

impl LedgerApi {
    /// Answers a service.
    pub(super) async fn service(
        &self,
        ask: &Ask,
        claim: &Claim<'_>,
        body: &[u8],
    ) -> Result<Response<LedgerBody>, Refusal> {
        let (Ask::Result(call_id) | Ask::Heartbeat(call_id)) = ask else {
            return Err(Refusal::of(Code::NotFound));
        };
        let service = self.proven(claim, body)?;
        let is_result = matches!(ask, Ask::Result(_));
        let asked = asked::said(body).and_then(|said| checked(said, claim, call_id, is_result));
        let mut bytes = 0;
        let answered = match asked {
            Ok(said) => {
                let named = Named {
                    service,
                    call_id,
                    owner: said.owner,
                };
                bytes = said.content.as_ref().map_or(0, String::len);
                let once = self.seen_once(service, claim, call_id, body);
                match (once, said.content.filter(|_| is_result)) {
                    (Err(refusal), _) => Err(refusal),
                    (Ok(()), Some(content)) => self.result(&named, content, said.is_error).await,
                    (Ok(()), None) => return self.heartbeat(&named).await,
                }
            }
            Err(refusal) => Err(refusal),
        };
        if is_result {
            let label = answered
                .as_ref()
                .map_or_else(|refusal| told(refusal.code), |(label, _)| *label);
            self.telemetry.record_post(&ResultPosted {
                service: &service.name,
                answer: label,
                bytes,
            });
        }
        answered.map(|(_, answer)| answer)
    }

    /// The service that a claim proves.
    fn proven<'c>(&'c self, claim: &Claim<'c>, body: &[u8]) -> Result<&'c Service, Refusal> {
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
        let known = |found: Option<&'c Service>, service: &'c Service| {
            let is_it = service.key.as_ref().is_some_and(|key| key.verify(&signed, now));
            if is_it { Some(service) } else { found }
        };
        let service = self.late.services().iter().fold(None, known);
        service.ok_or(Refusal::of(Code::NotFound))
    }

    /// A signed message is taken as often as it is sent, but never another one under its id.
    fn seen_once(&self, service: &Service, claim: &Claim<'_>, call_id: &[u8], body: &[u8]) -> Result<(), Refusal> {
        let Claim::Signature { id, .. } = claim else {
            return Ok(());
        };
        let name = digest_of([service.name.as_bytes(), id.as_bytes()]);
        let digest = digest_of([call_id, body]);
        if self.seen.get_with(name, || digest) == digest {
            return Ok(());
        }
        Err(Refusal::of(Code::Replayed))
    }

    async fn result(
        &self,
        named: &Named<'_>,
        content: String,
        failed: bool,
    ) -> Result<(&'static str, Response<LedgerBody>), Refusal> {
        Ok(match self.late.post(named, content, failed).await? {
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

    async fn heartbeat(&self, named: &Named<'_>) -> Result<Response<LedgerBody>, Refusal> {
        match self.late.heartbeat(named).await? {
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
}

/// What was said, if it is enough. A signature is over the body alone, so that the body must name the call.
fn checked(said: Said, claim: &Claim<'_>, call_id: &[u8], is_result: bool) -> Result<Said, Refusal> {
    if call_id.len() > ID_BYTES_MAX {
        return Err(Refusal::malformed("the call's id is too long"));
    }
    let named = said.call_id.as_deref();
    let is_signed = matches!(claim, Claim::Signature { .. });
    if named.is_some_and(|named| named != call_id) || (is_signed && named.is_none()) {
        return Err(Refusal::malformed(
            "a signed body must name the call of its path in call_id",
        ));
    }
    if is_result {
        let content = said.content.as_deref();
        check_depth(content.ok_or(Refusal::malformed("content is missing"))?)?;
    }
    Ok(said)
}

/// Refuses a content that common readers of JSON could not read.
fn check_depth(content: &str) -> Result<(), Refusal> {
    let too_deep = deeper_than(content.as_bytes(), CONTENT_DEPTH_MAX);
    too_deep.map_or(Ok(()), |at| Err(Refusal::too_deep(at)))
}

/// The label under which a refusal of a post is counted.
const fn told(code: Code) -> &'static str {
    match code {
        Code::Conflict | Code::Replayed => "conflict",
        Code::AmbiguousCall => "ambiguous_call",
        Code::Expired => "expired",
        Code::NotFound => "unknown",
        Code::Malformed | Code::TooLarge => "malformed",
        Code::Full | Code::Busy | Code::Unavailable => "unavailable",
    }
}
