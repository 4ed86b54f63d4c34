//! Cancels of calls: an owner asks for one, and the service of the tool reports its end.

use http::{Response, StatusCode};
use serde::Serialize;
use utoipa::{ToSchema, openapi::schema::Object};

use super::{LedgerApi, request_body::CancelBody};
use crate::{
    api::{
        ApiBody, Problem, ProblemCode,
        json::{json_response, name_schema},
    },
    auth::Caller,
    late::{CancelOutcome, LateError, matching::NamedCall, records::RecordedCallState},
};

/// The state of a call after a request about its cancel.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = CancelState)]
pub(super) struct CancelView {
    #[schema(schema_with = state_schema)]
    state: &'static str,
}

fn state_schema() -> Object {
    let states = [
        RecordedCallState::CancelRequested,
        RecordedCallState::Cancelled,
        RecordedCallState::CancelRefused,
    ];
    name_schema("The state of the call", states.map(RecordedCallState::label))
}

/// Asks for a cancel, or reports its end
///
/// The owner of a call asks its tool to undo it: a signed request goes to the tool's `cancel_url`, again and again until
/// the service has it. The service reports that the effect was undone, or with `refused` that it will not be. A result
/// that comes first is the truth: the call is not cancelled.
#[utoipa::path(post, path = "/ledger/v1/calls/{call_id}/cancel", operation_id = "cancel", tag = "services",
    params(("call_id" = String, Path, description = "the call id, as for a result",
        min_length = 1, max_length = 1024, pattern = "^(?!\\.{1,2}(;|$))[^/\\\\%\\x00-\\x1f\\x7f]+$",
        example = "toolu_01A09q90qw90lq917835lq9")),
    request_body(content = CancelBody, description = "64 KiB at most; may be empty. Callers send none"),
    security(("service_token" = []), ("webhook_id" = [], "webhook_timestamp" = [], "webhook_signature" = [])),
    responses(
    (status = 200, description = "the service's report is stored", body = CancelView),
    (status = 202, description = "the owner's request is stored, and the service is asked", body = CancelView),
))]
pub(super) async fn request_cancel(api: &LedgerApi, caller: Caller, id: &[u8]) -> Result<Response<ApiBody>, Problem> {
    answer(api.late.cancels().request(caller, id).await, StatusCode::ACCEPTED)
}

/// Answers the report of a service.
pub(super) async fn confirm_cancel(
    api: &LedgerApi,
    named: &NamedCall<'_>,
    is_refused: bool,
) -> Result<Response<ApiBody>, Problem> {
    answer(api.late.cancels().confirm(named, is_refused).await, StatusCode::OK)
}

fn answer(outcome: Result<CancelOutcome, LateError>, status: StatusCode) -> Result<Response<ApiBody>, Problem> {
    let code = match outcome? {
        CancelOutcome::State(state) => return Ok(json_response(status, &CancelView { state: state.label() })),
        CancelOutcome::Ended => ProblemCode::Conflict,
        CancelOutcome::NotUndoable => ProblemCode::NotUndoable,
        CancelOutcome::Ambiguous => ProblemCode::AmbiguousCall,
        CancelOutcome::Unknown => ProblemCode::NotFound,
    };
    Err(Problem::from_code(code))
}
