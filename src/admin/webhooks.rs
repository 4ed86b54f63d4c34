//! `/admin/v1/webhooks`: operators list the messages that are to be sent, and have one sent again.

#![expect(unused_qualifications, reason = "the macros expand to full paths")]

use axum::{
    Json,
    extract::{Path, State},
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{
    AdminState,
    pages::{BAD_CURSOR, ROWS_DEFAULT, bad_query, check_limit, not_found, read_ledger},
    problem::QueryParams,
    views::{
        late_results::parse_cursor,
        messages::{MessagesPage, messages_page},
    },
};
use crate::{
    api::{Problem, problem::ProblemView},
    clock,
    late::Messages,
};

/// The query of `/admin/v1/webhooks`.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct MessagesQuery {
    /// Limit of rows
    #[param(minimum = 1, maximum = 500, default = 50)]
    limit: Option<usize>,
    /// The value of `next` from the page before
    #[param(pattern = "^[0-9a-f]{64}-[0-9]{1,19}$")]
    after: Option<String>,
}

/// Lists the messages to webhooks and tool services that no receiver has accepted yet
#[utoipa::path(get, path = "/admin/v1/webhooks", tag = "watch", params(MessagesQuery), responses(
    (status = 200, description = "by caller, then the oldest first; never content", body = MessagesPage),
    (status = 400, description = "a query parameter is invalid", body = ProblemView<'_>, content_type = "application/problem+json"),
    (status = 401, description = "the token is missing or wrong", body = ProblemView<'_>, content_type = "application/problem+json"),
    (status = 429, description = "too many wrong tokens from this address", body = ProblemView<'_>, content_type = "application/problem+json"),
    (status = 503, description = "the ledger failed, or did not answer within 3 s", body = ProblemView<'_>, content_type = "application/problem+json"),
))]
pub(super) async fn list_messages(
    State(parts): State<AdminState>,
    QueryParams(query): QueryParams<MessagesQuery>,
) -> Result<Json<MessagesPage>, Problem> {
    let limit = check_limit(query.limit, ROWS_DEFAULT)?;
    let cursor = |text: &str| parse_cursor(text).ok_or_else(|| bad_query(BAD_CURSOR));
    let after = query.after.as_deref().map(cursor).transpose()?;
    let list = Messages::of_store(&parts.late).list(after, limit, clock::unix_time());
    let page = read_ledger("list messages", list).await?;
    Ok(Json(messages_page(page)))
}

/// A message that is sent again.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ResentView {
    /// The id
    message: String,
}

/// Has a message sent at once, also one that was given up
#[utoipa::path(post, path = "/admin/v1/webhooks/{message}/resend", tag = "operate",
    params(("message" = String, Path, description = "the id of the message", pattern = "^msg_[0-9a-f]{32}_[0-9]{1,20}$")),
    responses(
    (status = 200, description = "the message is sent", body = ResentView),
    (status = 401, description = "the token is missing or wrong", body = ProblemView<'_>, content_type = "application/problem+json"),
    (status = 404, description = "no such message: its receiver has it, or it was removed", body = ProblemView<'_>, content_type = "application/problem+json"),
    (status = 429, description = "too many wrong tokens from this address", body = ProblemView<'_>, content_type = "application/problem+json"),
    (status = 503, description = "the ledger failed, or did not answer within 3 s", body = ProblemView<'_>, content_type = "application/problem+json"),
))]
pub(super) async fn resend_message(
    State(parts): State<AdminState>,
    Path(message): Path<String>,
) -> Result<Json<ResentView>, Problem> {
    let resending = Messages::of_store(&parts.late).resend(&message, clock::unix_time());
    if read_ledger("resend a message", resending).await? {
        Ok(Json(ResentView { message }))
    } else {
        Err(not_found(
            "no such message: its receiver has it, or it was removed; GET /admin/v1/webhooks lists them",
        ))
    }
}
