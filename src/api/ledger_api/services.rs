//! Requests of tool services: authentication, posted results, heartbeats.

use http::{HeaderMap, Response, StatusCode};

use super::{
    LedgerApi,
    answers::{ExtendedView, ParkedView, SettledView, WithdrawnView},
    cancels,
    operation::LedgerOperation,
    request_body::{self, ID_BYTES_MAX, NamedCallBody, ResultBody, ServiceBody},
    single_header,
};
use crate::{
    api::{ApiBody, Problem, ProblemCode, json::json_response},
    auth::{SignedRequest, TokenHash, WebhookKey},
    clock,
    digest::digest_of,
    late::{
        HeartbeatOutcome, PostOutcome, PostTerms, Service, WithdrawOutcome, matching::NamedCall, records::PostRefusal,
    },
    telemetry::events::ResultPosted,
    wire::{CONTENT_DEPTH_MAX, json::deeper_than},
};

/// The longest `webhook-id`, in bytes.
const WEBHOOK_ID_BYTES_MAX: usize = 256;

/// The credential in the head of a service's request.
pub(super) enum ServiceClaim<'h> {
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
pub(super) fn read_claim<'h>(headers: &'h HeaderMap, services: &'h [Service]) -> Result<ServiceClaim<'h>, Problem> {
    let bearer = bearer_token(headers);
    if let Some(token) = bearer {
        let service = find_by_token(token, services);
        return service
            .map(ServiceClaim::Token)
            .ok_or(Problem::from_code(ProblemCode::NotFound));
    }
    let signed = (
        single_header(headers, "webhook-id"),
        single_header(headers, "webhook-timestamp"),
        single_header(headers, "webhook-signature"),
    );
    let known = services.iter().any(|service| service.key.is_some());
    match signed {
        // Without a configured signature key the body would be read for nothing.
        // Nor for a message that is too old or from the future: its signature would not count.
        (Some(id), Some(timestamp), Some(signatures))
            if known && id.len() <= WEBHOOK_ID_BYTES_MAX && WebhookKey::is_timely(timestamp, clock::system_time()) =>
        {
            Ok(ServiceClaim::Signature {
                id,
                timestamp,
                signatures,
            })
        }
        _ => Err(ProblemCode::NotFound.into()),
    }
}

/// Returns `true` if a request has the token of a configured service, or a signature.
pub(super) fn has_credential(headers: &HeaderMap, services: &[Service]) -> bool {
    service_of_token(headers, services).is_some() || headers.contains_key("webhook-signature")
}

/// Returns the configured service whose bearer token a request presents. `None` if it presents none that is known.
///
/// The token of this machine is a caller's in requests that both may send: the runs of `antiphon once` are that caller's.
pub(super) fn service_of_token<'h>(headers: &HeaderMap, services: &'h [Service]) -> Option<&'h Service> {
    find_by_token(bearer_token(headers)?, services).filter(|service| !service.is_local)
}

fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = single_header(headers, "authorization")?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

fn find_by_token<'h>(token: &str, services: &'h [Service]) -> Option<&'h Service> {
    let hash = TokenHash::hash_token(token.as_bytes());
    // Every token is compared, so that the time does not depend on which one matches.
    let known = |found: Option<&'h Service>, service: &'h Service| {
        let is_it = service.token.is_some_and(|token| token.matches(&hash));
        if is_it { Some(service) } else { found }
    };
    services.iter().fold(None, known)
}

/// Answers a request of a service, and records a posted result with its outcome.
pub(super) async fn answer_service(
    api: &LedgerApi,
    ask: &LedgerOperation,
    claim: &ServiceClaim<'_>,
    body: &[u8],
) -> Result<Response<ApiBody>, Problem> {
    let call_id = ask.service_call().ok_or(ProblemCode::NotFound)?;
    let service = verify_claim(api, claim, body)?;
    let is_result = matches!(ask, LedgerOperation::Result(_));
    let checked = request_body::read_service_body(body).and_then(|said| check_body(said, claim, call_id, is_result));
    let mut bytes = 0;
    let source = checked.as_ref().ok().and_then(|said| said.source.clone());
    let answered = match checked {
        Ok(said) => {
            let named = NamedCall {
                service,
                call_id,
                owner: said.owner,
                session: said.session.as_deref(),
                described: said.tool.as_deref().zip(said.input),
            };
            bytes = said.content.as_ref().map_or(0, String::len);
            let once = check_replay(api, service, claim, ask, body);
            // The content of a heartbeat is ignored.
            match (once, said.content.filter(|_| is_result)) {
                (Err(refusal), _) => Err(refusal),
                (Ok(()), Some(content)) => {
                    let terms = PostTerms {
                        replaces: said.replaces,
                        only_if_missing: said.only_if_missing,
                        source: source.as_deref(),
                    };
                    post_result(api, &named, content, said.is_error, terms).await
                }
                (Ok(()), None) if matches!(ask, LedgerOperation::Withdraw(_)) => {
                    return withdraw_result(api, &named).await;
                }
                (Ok(()), None) if matches!(ask, LedgerOperation::Cancel(_)) => {
                    return cancels::confirm_cancel(api, &named, said.is_refused).await;
                }
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
            source: source.as_deref(),
        });
    }
    answered.map(|(_, answer)| answer)
}

/// Returns the service that a credential belongs to.
fn verify_claim<'c>(api: &'c LedgerApi, claim: &ServiceClaim<'c>, body: &[u8]) -> Result<&'c Service, Problem> {
    let (id, timestamp, signatures) = match claim {
        ServiceClaim::Token(service) => return Ok(service),
        ServiceClaim::Signature {
            id,
            timestamp,
            signatures,
        } => (*id, *timestamp, *signatures),
    };
    let signed = SignedRequest {
        id,
        timestamp,
        signatures,
        body,
    };
    let now = clock::system_time();
    // As with tokens, every key is tried.
    let known = |found: Option<&'c Service>, service: &'c Service| {
        let is_it = service.key.as_ref().is_some_and(|key| key.is_authentic(&signed, now));
        if is_it { Some(service) } else { found }
    };
    let service = api.late.services().iter().fold(None, known);
    service.ok_or(Problem::from_code(ProblemCode::NotFound))
}

/// Refuses a signed message whose id was used for another message. The same message may be sent again.
fn check_replay(
    api: &LedgerApi,
    service: &Service,
    claim: &ServiceClaim<'_>,
    ask: &LedgerOperation,
    body: &[u8],
) -> Result<(), Problem> {
    let Some(call_id) = ask.service_call() else {
        return Ok(());
    };
    let ServiceClaim::Signature { id, .. } = claim else {
        return Ok(());
    };
    let name = digest_of([service.name.as_bytes(), id.as_bytes()]);
    // The signature does not cover the path, so a message must not be sent again to another operation.
    let digest = digest_of([ask.label().as_bytes(), call_id, body]);
    // One atomic step: of two concurrent messages under one id the second sees the first.
    if api.signed_messages.get_or_insert_with(&name, || digest) == digest {
        return Ok(());
    }
    Err(ProblemCode::Replayed.into())
}

/// Posts the result of a call
///
/// The same result may be posted again, also after it was settled. An id that identifies no single call needs `owner`,
/// and a reusable id such as `call_0` also `session`, or `tool` and `input`.
#[utoipa::path(post, path = "/ledger/v1/calls/{call_id}/result", operation_id = "result", tag = "services",
    params(("call_id" = String, Path,
        description = "the call id, percent-encoded, at most 1024 bytes. Only its letters and digits are compared, so a \
            character that a path cannot have (a slash, a backslash, a percent sign, control characters) may be left out",
        min_length = 1, max_length = 1024, pattern = "^(?!\\.{1,2}(;|$))[^/\\\\%\\x00-\\x1f\\x7f]+$",
        example = "toolu_01A09q90qw90lq917835lq9")),
    request_body(content = ResultBody, description = "8 MiB at most"),
    security(("service_token" = []), ("webhook_id" = [], "webhook_timestamp" = [], "webhook_signature" = [])),
    responses(
    (status = 200, description = "stored with its call; the service can forget it", body = SettledView),
    (status = 202, description = "stored: no such call is recorded yet, or its owner is not certain yet",
        body = ParkedView),
))]
async fn post_result(
    api: &LedgerApi,
    named: &NamedCall<'_>,
    content: String,
    is_error: bool,
    terms: PostTerms<'_>,
) -> Result<(&'static str, Response<ApiBody>), Problem> {
    let posting = api.late.calls().post_result(named, content, is_error, terms);
    posting.await.map_err(Problem::from).and_then(answer_post)
}

/// Returns the answer to a posted result, with its metric label.
fn answer_post(outcome: PostOutcome) -> Result<(&'static str, Response<ApiBody>), Problem> {
    Ok(match outcome {
        PostOutcome::Settled { state, is_new, digest } => {
            let view = SettledView {
                state: state.label(),
                first: is_new,
                digest: blake3::Hash::from_bytes(digest).to_hex().to_string(),
            };
            (
                if is_new { "settled" } else { "repeated" },
                json_response(StatusCode::OK, &view),
            )
        }
        PostOutcome::Parked { until } => (
            "parked",
            json_response(StatusCode::ACCEPTED, &ParkedView::until(until.as_secs())),
        ),
        PostOutcome::Refused(PostRefusal::Conflict) => return Err(ProblemCode::Conflict.into()),
        PostOutcome::Refused(PostRefusal::Ambiguous) => return Err(ProblemCode::AmbiguousCall.into()),
        PostOutcome::Refused(PostRefusal::Expired | PostRefusal::Cancelled | PostRefusal::Unclaimed) => {
            return Err(ProblemCode::Expired.into());
        }
        PostOutcome::Unknown => return Err(ProblemCode::NotFound.into()),
    })
}

/// Withdraws a posted result that no request contains yet; the call waits again
#[utoipa::path(post, path = "/ledger/v1/calls/{call_id}/withdraw", operation_id = "withdraw", tag = "services",
    params(("call_id" = String, Path, description = "the call id, as for a result",
        min_length = 1, max_length = 1024, pattern = "^(?!\\.{1,2}(;|$))[^/\\\\%\\x00-\\x1f\\x7f]+$",
        example = "toolu_01A09q90qw90lq917835lq9")),
    request_body(content = NamedCallBody, description = "64 KiB at most; may be empty"),
    security(("service_token" = []), ("webhook_id" = [], "webhook_timestamp" = [], "webhook_signature" = [])),
    responses(
    (status = 200, description = "the call waits again", body = WithdrawnView),
))]
async fn withdraw_result(api: &LedgerApi, named: &NamedCall<'_>) -> Result<Response<ApiBody>, Problem> {
    match api.late.calls().withdraw_result(named).await? {
        WithdrawOutcome::Withdrawn => Ok(json_response(StatusCode::OK, &WithdrawnView::OPEN)),
        WithdrawOutcome::Refused => Err(ProblemCode::Conflict.into()),
        WithdrawOutcome::Ambiguous => Err(ProblemCode::AmbiguousCall.into()),
        WithdrawOutcome::Unknown => Err(ProblemCode::NotFound.into()),
    }
}

/// Reports that the tool still runs, and extends the deadline of its call
#[utoipa::path(post, path = "/ledger/v1/calls/{call_id}/heartbeat", operation_id = "heartbeat", tag = "services",
    params(("call_id" = String, Path, description = "the call id, as for a result",
        min_length = 1, max_length = 1024, pattern = "^(?!\\.{1,2}(;|$))[^/\\\\%\\x00-\\x1f\\x7f]+$",
        example = "toolu_01A09q90qw90lq917835lq9")),
    request_body(content = NamedCallBody, description = "64 KiB at most; may be empty"),
    security(("service_token" = []), ("webhook_id" = [], "webhook_timestamp" = [], "webhook_signature" = [])),
    responses(
    (status = 200, description = "the call waits longer", body = ExtendedView),
))]
async fn send_heartbeat(api: &LedgerApi, named: &NamedCall<'_>) -> Result<Response<ApiBody>, Problem> {
    match api.late.calls().extend_deadline(named).await? {
        HeartbeatOutcome::Extended { deadline } => {
            Ok(json_response(StatusCode::OK, &ExtendedView::until(deadline.as_secs())))
        }
        HeartbeatOutcome::Terminal => Err(ProblemCode::Conflict.into()),
        HeartbeatOutcome::Expired => Err(ProblemCode::Expired.into()),
        HeartbeatOutcome::Ambiguous => Err(ProblemCode::AmbiguousCall.into()),
        HeartbeatOutcome::Unknown => Err(ProblemCode::NotFound.into()),
    }
}

/// Checks that a body names the call of its path, and that a result has a readable content.
fn check_body(
    said: ServiceBody,
    claim: &ServiceClaim<'_>,
    call_id: &[u8],
    is_result: bool,
) -> Result<ServiceBody, Problem> {
    if call_id.len() > ID_BYTES_MAX {
        return Err(Problem::malformed("the call id in the path is longer than 1024 bytes"));
    }
    let named = said.call_id.as_deref();
    // The signature covers the body and not the path: without a call id it would be valid for every call.
    let is_signed = matches!(claim, ServiceClaim::Signature { .. });
    if named.is_some_and(|named| named != call_id) || (is_signed && named.is_none()) {
        return Err(Problem::malformed(
            "call_id in the body must equal the call id in the path; a signed body must contain it",
        ));
    }
    if is_result {
        let content = said.content.as_deref();
        check_depth(content.ok_or_else(|| Problem::malformed("content is missing"))?)?;
    }
    Ok(said)
}

/// Refuses a content that is nested too deep for common JSON readers.
pub(super) fn check_depth(content: &str) -> Result<(), Problem> {
    let too_deep = deeper_than(content.as_bytes(), CONTENT_DEPTH_MAX);
    too_deep.map_or(Ok(()), |at| {
        let detail = format!("content is nested more than {CONTENT_DEPTH_MAX} levels deep, from its byte {at} on");
        Err(Problem::malformed(detail))
    })
}

/// Returns the metric label of a refused post.
const fn post_label(code: ProblemCode) -> &'static str {
    match code {
        ProblemCode::Conflict | ProblemCode::Replayed => "conflict",
        ProblemCode::AmbiguousCall => "ambiguous_call",
        ProblemCode::Expired => "expired",
        ProblemCode::Malformed | ProblemCode::TooLarge => "malformed",
        ProblemCode::Full | ProblemCode::Busy | ProblemCode::Unavailable => "unavailable",
        _ => "unknown",
    }
}
