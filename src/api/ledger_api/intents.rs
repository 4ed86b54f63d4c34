//! Requests about intents: tool services, and callers that run a tool themselves, claim them, report on them and read
//! them.

use http::{HeaderName, HeaderValue, Response, StatusCode, request::Parts};
use utoipa::ToSchema;

use super::{
    LedgerApi,
    intent_answers::{ClaimedView, HeldView, IntentStatusView, ReplayedView, SettledIntentView},
    intent_body::{self, ClaimBody, HeldCancelBody, HeldResultBody, HolderBody, ReadReport},
    operation::LedgerOperation,
    services,
};
use crate::{
    api::{ApiBody, Problem, ProblemCode, json::json_response},
    clock,
    late::{ClaimOutcome, ClaimSubject, HeldIntent, Holder, HolderOutcome, IntentClaim, IntentId, matching::NamedCall},
    ledger::Moment,
    repair::input_hash,
};

/// The header of an answer that contains the result of an earlier run.
const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// Answers a request about intents.
pub(super) async fn answer_holder(
    api: &LedgerApi,
    ask: &LedgerOperation,
    holder: Holder<'_>,
    head: &Parts,
    body: &[u8],
) -> Result<Response<ApiBody>, Problem> {
    // Everything fails closed: a run that no durable record knows could be repeated. A record that is there may be read.
    if !api.late.intents().is_durable() && !matches!(ask, LedgerOperation::Intent(_)) {
        return Err(ProblemCode::NoDurableLedger.into());
    }
    match ask {
        LedgerOperation::Claim => claim_intent(api, holder, head, body).await,
        LedgerOperation::Intent(id) => show_intent(api, holder, id).await,
        LedgerOperation::IntentHeartbeat(id) => {
            let report = intent_body::read_holder_body(body)?;
            send_intent_heartbeat(api, &held(holder, id, &report)?).await
        }
        LedgerOperation::IntentResult(id) => {
            let report = intent_body::read_holder_body(body)?;
            post_intent_result(api, &held(holder, id, &report)?, &report).await
        }
        LedgerOperation::IntentCancel(id) => {
            let report = intent_body::read_holder_body(body)?;
            cancel_intent(api, &held(holder, id, &report)?, report.is_refused).await
        }
        _ => Err(ProblemCode::NoSuchIntent.into()),
    }
}

/// Claims an intent before its tool runs
///
/// The caller, the user, the tool and the canonical input (RFC 8785) name the intent, unless the holder sends an
/// `Idempotency-Key`. A caller may claim for itself if its credential is that of one person. Only the answer 201 permits
/// the run. It is durable, and given to one claim at a time.
#[utoipa::path(post, path = "/ledger/v1/intents", operation_id = "claim_intent", tag = "intents",
    params(
        ("Idempotency-Key" = Option<String>, Header, description = "a key of the service in place of the input",
            min_length = 1, max_length = 255, pattern = "^[!#-~][ -~]*$"),
        ("x-antiphon-intent" = Option<ClaimMode>, Header,
            description = "`new` if the user wants the effect once more. It overrides neither a run in flight nor an unknown outcome"),
    ),
    request_body(content = ClaimBody, description = "1 MiB at most"),
    security(("service_token" = [])),
    responses(
    (status = 201, description = "granted: run the tool, and report its end with the claim", body = ClaimedView),
    (status = 200, description = "the tool ran before: its result", body = ReplayedView<'_>,
        headers(("Idempotent-Replayed" = String, description = "`true`"))),
))]
async fn claim_intent(
    api: &LedgerApi,
    holder: Holder<'_>,
    head: &Parts,
    body: &[u8],
) -> Result<Response<ApiBody>, Problem> {
    let now = clock::unix_time();
    let chosen_key = intent_body::read_chosen_key(&head.headers)?;
    let run_again = intent_body::read_repeat(&head.headers)?;
    let read = intent_body::read_claim_body(body)?;
    let subject = match (holder, &read.call_id, &read.user, &read.tool, &read.input) {
        (Holder::Service(service), Some(call_id), None, ..) => ClaimSubject::Call {
            named: NamedCall {
                service,
                call_id,
                owner: read.owner,
                session: read.session.as_deref(),
                described: read.tool.as_deref().zip(read.input.as_deref().map(input_hash)),
            },
            input: read.input.as_deref(),
        },
        (Holder::Service(service), None, Some(user), Some(tool), Some(input)) if !read.names_conversation() => {
            if !service.on_behalf {
                return Err(ProblemCode::NotOnBehalf.into());
            }
            if !service.runs_tool(tool) {
                return Err(ProblemCode::NoSuchIntent.into());
            }
            ClaimSubject::OnBehalf {
                service,
                user,
                tool,
                input,
            }
        }
        (Holder::Caller(caller), None, None, Some(tool), Some(input)) if !read.names_conversation() => {
            ClaimSubject::Own { caller, tool, input }
        }
        (Holder::Caller(_), ..) => {
            return Err(Problem::malformed("name the effect by tool and input alone"));
        }
        (Holder::Service(_), ..) => {
            let flaw = "name the call by call_id and owner, or the effect by user, tool and input";
            return Err(Problem::malformed(flaw));
        }
    };
    let claim = IntentClaim {
        subject,
        chosen_key: chosen_key.as_deref(),
        tier: read.tier,
        window: read.window,
        lease: read.lease,
        run_again,
        retry_failed: read.retry_failed,
    };
    let outcome = api.late.intents().claim(&claim, now).await;
    let answer = outcome.as_ref().map_or("unavailable", ClaimOutcome::label);
    api.telemetry.record_claim(answer);
    answer_claim(outcome?, now)
}

/// The value of the header `x-antiphon-intent`.
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
#[expect(
    dead_code,
    reason = "`intent_body::read_repeat` reads the header; this is its schema"
)]
enum ClaimMode {
    New,
}

fn answer_claim(outcome: ClaimOutcome, now: Moment) -> Result<Response<ApiBody>, Problem> {
    match outcome {
        ClaimOutcome::Granted(granted) => Ok(json_response(StatusCode::CREATED, &ClaimedView::of_claim(&granted))),
        ClaimOutcome::Replayed(result) => {
            let mut answer = json_response(StatusCode::OK, &ReplayedView::of_result(&result));
            answer.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
            Ok(answer)
        }
        ClaimOutcome::InFlight {
            intent,
            since,
            lease_until,
            is_own,
        } => {
            let problem = Problem::from_code(ProblemCode::InFlight).about_intent(intent.to_string(), since);
            Err(problem.held_until(lease_until, is_own, now))
        }
        ClaimOutcome::OutcomeUnknown { intent, since } => {
            let problem = Problem::from_code(ProblemCode::OutcomeUnknown);
            Err(problem.about_intent(intent.to_string(), since))
        }
        ClaimOutcome::PayloadMismatch => Err(ProblemCode::PayloadMismatch.into()),
        ClaimOutcome::TierForbids => Err(ProblemCode::TierForbids.into()),
        ClaimOutcome::NotFound => Err(ProblemCode::NoSuchIntent.into()),
        ClaimOutcome::AmbiguousCall => Err(ProblemCode::AmbiguousCall.into()),
        ClaimOutcome::InputUnknown => Err(Problem::malformed(
            "the input of this call is not known yet: send it as input",
        )),
    }
}

/// Returns the state of an intent, with its result
///
/// Services read those of the calls and users that they are configured for, callers read their own.
#[utoipa::path(get, path = "/ledger/v1/intents/{intent}", operation_id = "intent", tag = "intents",
    params(("intent" = String, Path, description = "the `intent` of an answer", pattern = "^int_[0-9a-f]{32}$")),
    security(("service_token" = [])),
    responses(
    (status = 200, description = "the intent", body = IntentStatusView<'_>),
))]
async fn show_intent(api: &LedgerApi, holder: Holder<'_>, id: &[u8]) -> Result<Response<ApiBody>, Problem> {
    let id = read_id(id)?;
    let view = api.late.intents().view(holder, id, clock::unix_time());
    let view = view.await?;
    let view = view.ok_or(ProblemCode::NoSuchIntent)?;
    Ok(json_response(StatusCode::OK, &IntentStatusView::of_intent(&view)))
}

/// Reports that the tool still runs, and extends the lease by its length
#[utoipa::path(post, path = "/ledger/v1/intents/{intent}/heartbeat", operation_id = "intent_heartbeat", tag = "intents",
    params(("intent" = String, Path, description = "the `intent` of an answer", pattern = "^int_[0-9a-f]{32}$")),
    request_body(content = HolderBody, description = "64 KiB at most"),
    security(("service_token" = [])),
    responses(
    (status = 200, description = "the lease is extended; `cancel_requested` asks the holder to undo the effect",
        body = HeldView),
))]
async fn send_intent_heartbeat(api: &LedgerApi, held: &HeldIntent<'_>) -> Result<Response<ApiBody>, Problem> {
    let outcome = api.late.intents().extend_lease(held, clock::unix_time()).await;
    answer_report(held, outcome?)
}

/// Settles an intent, and the call for which its tool ran
#[utoipa::path(post, path = "/ledger/v1/intents/{intent}/result", operation_id = "intent_result", tag = "intents",
    params(("intent" = String, Path, description = "the `intent` of an answer", pattern = "^int_[0-9a-f]{32}$")),
    request_body(content = HeldResultBody, description = "8 MiB at most"),
    security(("service_token" = [])),
    responses(
    (status = 200, description = "stored; also for the same result again", body = SettledIntentView),
))]
async fn post_intent_result(
    api: &LedgerApi,
    held: &HeldIntent<'_>,
    report: &ReadReport,
) -> Result<Response<ApiBody>, Problem> {
    let content = report
        .content
        .clone()
        .ok_or_else(|| Problem::malformed("content is missing"))?;
    services::check_depth(&content)?;
    let posting = api
        .late
        .intents()
        .post_result(held, content, report.is_error, clock::unix_time());
    match posting.await? {
        HolderOutcome::Accepted { state, is_new, .. } => Ok(json_response(
            StatusCode::OK,
            &SettledIntentView {
                intent: held.id.to_string(),
                state: state.label(),
                first: is_new,
            },
        )),
        refused => answer_report(held, refused),
    }
}

/// Reports that the tool did not run, or that its effect was undone
///
/// The intent may then be claimed again. With `refused` the holder declines a requested cancel, and goes on.
#[utoipa::path(post, path = "/ledger/v1/intents/{intent}/cancel", operation_id = "cancel_intent", tag = "intents",
    params(("intent" = String, Path, description = "the `intent` of an answer", pattern = "^int_[0-9a-f]{32}$")),
    request_body(content = HeldCancelBody, description = "64 KiB at most"),
    security(("service_token" = [])),
    responses(
    (status = 200, description = "noted", body = HeldView),
))]
async fn cancel_intent(api: &LedgerApi, held: &HeldIntent<'_>, is_refused: bool) -> Result<Response<ApiBody>, Problem> {
    let outcome = api.late.intents().cancel(held, is_refused, clock::unix_time()).await;
    answer_report(held, outcome?)
}

fn answer_report(held: &HeldIntent<'_>, outcome: HolderOutcome) -> Result<Response<ApiBody>, Problem> {
    match outcome {
        HolderOutcome::Accepted { state, lease_until, .. } => Ok(json_response(
            StatusCode::OK,
            &HeldView {
                intent: held.id.to_string(),
                state: state.label(),
                lease_until: state.is_in_flight().then_some(lease_until.as_secs()),
            },
        )),
        HolderOutcome::StaleClaim => Err(ProblemCode::StaleClaim.into()),
        HolderOutcome::Conflict => Err(ProblemCode::Conflict.into()),
        HolderOutcome::Cancelled => Err(ProblemCode::Expired.into()),
        HolderOutcome::NotFound => Err(ProblemCode::NoSuchIntent.into()),
    }
}

fn read_id(id: &[u8]) -> Result<IntentId, Problem> {
    let id = std::str::from_utf8(id).ok().and_then(|id| id.parse().ok());
    id.ok_or_else(|| ProblemCode::NoSuchIntent.into())
}

fn held<'h>(holder: Holder<'h>, id: &[u8], report: &'h ReadReport) -> Result<HeldIntent<'h>, Problem> {
    Ok(HeldIntent {
        holder,
        id: read_id(id)?,
        claim: &report.claim,
    })
}
