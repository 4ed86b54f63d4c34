//! Links to the task page: their owner makes and revokes them.

use std::time::Duration;

use http::{Response, StatusCode};
use utoipa::ToSchema;

use super::{
    PAGE_PATH,
    views::{MadeLinkView, RevokedLinkView},
};
use crate::{
    api::ledger_api::{
        LedgerApi,
        delivery_id::{format_delivery_id, parse_delivery_id},
        request_body::{read_duration, read_object},
    },
    api::{ApiBody, Problem, ProblemCode, json::json_response},
    auth::Caller,
    clock,
    late::{LINK_TTL_MAX, TaskLink},
    wire::json::JsonKind,
};

/// The shortest lifetime of a link.
const TTL_MIN: Duration = Duration::from_secs(60);

/// The settings of a new link; unknown members are ignored.
#[derive(ToSchema)]
#[schema(as = TaskLinkRequest)]
#[expect(dead_code, reason = "`read_ttl` reads the bytes; this is their schema")]
pub(in crate::api::ledger_api) struct TaskLinkBody {
    /// The lifetime of the link, from 1 minute to 1 hour
    #[schema(pattern = "^([1-9]m|[1-5][0-9]m|60m|1h)$", default = "1h", example = "30m")]
    ttl: Option<String>,
}

/// Makes a link to the task page of the caller
///
/// The caller must be one person. The link opens the list of its tasks and acknowledges results, and nothing else. The
/// secret follows `#` in `url`. Of more than 32 links of one caller the oldest are revoked.
#[utoipa::path(post, path = "/ledger/v1/tasks/links", operation_id = "make_task_link", tag = "tasks",
    request_body(content = TaskLinkBody, description = "64 KiB at most; may be empty"),
    responses(
    (status = 201, description = "the link", body = MadeLinkView),
))]
pub(in crate::api::ledger_api) async fn make_task_link(
    api: &LedgerApi,
    owner: Caller,
    body: &[u8],
) -> Result<Response<ApiBody>, Problem> {
    let ttl = read_ttl(body)?;
    let tasks = api.late.tasks();
    if !tasks.may_have_link(owner) {
        return Err(ProblemCode::SeveralPeople.into());
    }
    let link = TaskLink {
        owner,
        may_resolve: false,
        expires_at: clock::unix_time() + ttl,
    };
    let made = tasks.make_link(link).await?;
    let made = made.ok_or(ProblemCode::Full)?;
    let view = MadeLinkView {
        link: format_delivery_id(&made.link),
        url: format!("{PAGE_PATH}#{}", made.secret.reveal()),
        expires_at: link.expires_at.as_secs(),
    };
    Ok(json_response(StatusCode::CREATED, &view))
}

/// Revokes a link of the caller
#[utoipa::path(delete, path = "/ledger/v1/tasks/links/{link}", operation_id = "revoke_task_link", tag = "tasks",
    params(("link" = String, Path, description = "the `link` of the answer that made it", pattern = "^[0-9a-f]{64}$")),
    responses(
    (status = 200, description = "the link opens nothing any more", body = RevokedLinkView),
))]
pub(in crate::api::ledger_api) async fn revoke_task_link(
    api: &LedgerApi,
    owner: Caller,
    link: &[u8],
) -> Result<Response<ApiBody>, Problem> {
    let unknown = Problem::from_code(ProblemCode::NotFound);
    let Some(link) = parse_delivery_id(link) else {
        return Err(unknown);
    };
    if api.late.tasks().revoke_link(Some(owner), link).await? {
        Ok(json_response(StatusCode::OK, &RevokedLinkView { revoked: true }))
    } else {
        Err(unknown)
    }
}

/// Reads the lifetime of a link.
fn read_ttl(body: &[u8]) -> Result<Duration, Problem> {
    const TTL: &str = "ttl must be a duration from \"1m\" to \"1h\"";
    if body.trim_ascii().is_empty() {
        return Ok(LINK_TTL_MAX);
    }
    let json = read_object(body)?;
    let span = json.root_span().ok().and_then(|root| json.member(root, "ttl"));
    match span.filter(|span| json.kind(*span) != JsonKind::Null) {
        Some(span) => read_duration(&json, span, (TTL_MIN, LINK_TTL_MAX), TTL),
        None => Ok(LINK_TTL_MAX),
    }
}
