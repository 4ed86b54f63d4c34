//! The requests of the task page, with the secret of its link: the list, acknowledgements, and unknown outcomes.

use http::{Response, StatusCode};
use utoipa::ToSchema;

use super::views::{TaskListView, TaskStateView, TaskView};
use crate::{
    api::ledger_api::{
        LedgerApi, answers::AckedView, delivery_id::parse_delivery_id, request_body::read_object,
        task_cursor::write_cursor,
    },
    api::{ApiBody, Problem, ProblemCode, json::json_response},
    late::{Resolution, ResolveOutcome, TaskCursor, TaskLink, TaskState},
};

/// Lists the tasks of a link's owner: what runs, waits, was cancelled, or has an unknown outcome
#[utoipa::path(get, path = "/ledger/v1/tasks/list", operation_id = "list_tasks", tag = "tasks", params(
    ("after" = Option<String>, Query, description = "the value of `next` from the page before",
        pattern = "^(calls|intents):[0-9]{1,19}$"),
), security(("task_link" = [])), responses(
    (status = 200, description = "a page of tasks, which may be empty and still have a next one", body = TaskListView),
))]
pub(in crate::api::ledger_api) async fn list_tasks(
    api: &LedgerApi,
    link: &TaskLink,
    after: TaskCursor,
) -> Result<Response<ApiBody>, Problem> {
    let page = api.late.tasks().list(link.owner, after).await?;
    let views = page
        .rows
        .into_iter()
        .map(|task| TaskView::of_task(task, link.may_resolve));
    let view = TaskListView {
        tasks: views.collect(),
        next: page.next.map(write_cursor),
        link_expires_at: link.expires_at.as_secs(),
    };
    Ok(json_response(StatusCode::OK, &view))
}

/// Acknowledges the result of a task, so that it no longer waits
#[utoipa::path(post, path = "/ledger/v1/tasks/{task}/ack", operation_id = "ack_task", tag = "tasks", params(
    ("task" = String, Path, description = "the `task` of a listed one", pattern = "^call_[0-9a-f]{64}$"),
), security(("task_link" = [])), responses(
    (status = 200, description = "the result is acknowledged", body = AckedView),
))]
pub(in crate::api::ledger_api) async fn ack_task(
    api: &LedgerApi,
    link: &TaskLink,
    task: &[u8],
) -> Result<Response<ApiBody>, Problem> {
    let name = task.strip_prefix(b"call_").and_then(parse_delivery_id);
    let name = name.ok_or(ProblemCode::NotFound)?;
    if api.late.calls().ack_result(link.owner, name).await? {
        Ok(json_response(StatusCode::OK, &AckedView::ACKED))
    } else {
        Err(ProblemCode::NotFound.into())
    }
}

/// The outcome of a task that was unknown; unknown members are ignored.
#[derive(ToSchema)]
#[schema(as = TaskOutcome)]
#[expect(dead_code, reason = "`read_outcome` reads the bytes; this is their schema")]
pub(in crate::api::ledger_api) struct OutcomeBody {
    outcome: OutcomeName,
}

/// `done` if the effect has happened, `not_run` if it has not: then the tool may run again
#[derive(ToSchema)]
#[schema(as = TaskOutcomeName, rename_all = "snake_case")]
#[expect(dead_code, reason = "`read_outcome` reads the bytes; this is their schema")]
enum OutcomeName {
    Done,
    NotRun,
}

/// Reports the outcome of a task that is unknown
///
/// Only a link that an operator made may do that: `antiphon tasks link`. API keys make links that read and acknowledge.
#[utoipa::path(post, path = "/ledger/v1/tasks/{task}/resolve", operation_id = "resolve_task", tag = "tasks", params(
    ("task" = String, Path, description = "the `task` of one whose outcome is unknown", pattern = "^int_[0-9a-f]{32}$"),
), security(("task_link" = [])), request_body(content = OutcomeBody, description = "64 KiB at most"), responses(
    (status = 200, description = "the outcome is stored", body = TaskStateView),
))]
pub(in crate::api::ledger_api) async fn resolve_task(
    api: &LedgerApi,
    link: &TaskLink,
    task: &[u8],
    body: &[u8],
) -> Result<Response<ApiBody>, Problem> {
    let resolution = read_outcome(body)?;
    if !link.may_resolve {
        return Err(ProblemCode::ReadOnlyLink.into());
    }
    let unknown = Problem::from_code(ProblemCode::NotFound);
    let id = std::str::from_utf8(task).ok().and_then(|task| task.parse().ok());
    let Some(id) = id else {
        return Err(unknown);
    };
    match api.late.intents().resolve_own(link.owner, id, resolution).await? {
        ResolveOutcome::Resolved(state) => {
            // A warning, so that the decision of a human is logged at most levels.
            tracing::warn!(intent = %id, state = state.label(), "a person resolved the unknown outcome of an intent");
            let state = TaskState::of_intent(state).label();
            Ok(json_response(StatusCode::OK, &TaskStateView { state }))
        }
        ResolveOutcome::NotUnknown(_) => Err(ProblemCode::Conflict.into()),
        ResolveOutcome::NotFound => Err(unknown),
    }
}

fn read_outcome(body: &[u8]) -> Result<Resolution, Problem> {
    let json = read_object(body)?;
    let outcome = json.root_span().ok().and_then(|root| json.member(root, "outcome"));
    match outcome.map(|outcome| json.bytes(outcome)) {
        Some(b"\"done\"") => Ok(Resolution::Done),
        Some(b"\"not_run\"") => Ok(Resolution::NotRun),
        _ => Err(Problem::malformed("outcome must be \"done\" or \"not_run\"")),
    }
}
