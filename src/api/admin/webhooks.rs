//! `/admin/v1/webhooks`: operators list the messages that are to be sent, and have one sent again.

#![expect(unused_qualifications, reason = "the macros expand to full paths")]

use serde::Serialize;
use utoipa::{IntoParams, ToSchema};

use super::{
    request::{AdminRequest, AdminResponse, BAD_CURSOR, ROWS_DEFAULT, not_found, read_ledger, shown, take_limit},
    views::{
        late_results::parse_cursor,
        messages::{MessagesPage, messages_page},
    },
};
use crate::clock;

/// The query of `/admin/v1/webhooks`.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "the handler takes each parameter; this is their schema")]
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
))]
pub(super) async fn list_messages(request: AdminRequest) -> AdminResponse {
    let mut query = request.query();
    let limit = take_limit(&mut query, ROWS_DEFAULT)?;
    let after = query.take("after", BAD_CURSOR, parse_cursor)?;
    let list = request.parts.late.outbox().list(after, limit, clock::unix_time());
    shown(&messages_page(read_ledger("list messages", list).await?))
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
))]
pub(super) async fn resend_message(request: AdminRequest) -> AdminResponse {
    let message = request.id(0).to_owned();
    let resending = request.parts.late.outbox().resend(&message, clock::unix_time());
    if read_ledger("resend a message", resending).await? {
        shown(&ResentView { message })
    } else {
        Err(not_found(
            "no such message: its receiver has it, or it was removed; GET /admin/v1/webhooks lists them",
        ))
    }
}
