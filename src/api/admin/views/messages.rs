//! Messages as the admin API shows them.

use serde::Serialize;
use utoipa::ToSchema;

use super::{late_results::format_cursor, rfc3339_date};
use crate::late::{ListedMessage, Page};

/// One page of messages.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::api::admin) struct MessagesPage {
    /// The messages
    messages: Vec<MessageView>,
    /// The cursor of the next page, if there is one
    next: Option<String>,
}

/// A message that no receiver has accepted yet.
#[derive(Debug, Serialize, ToSchema)]
struct MessageView {
    /// The id: `webhook-id` of every try
    message: String,
    /// The type
    event: &'static str,
    /// The webhook; none for a cancel, which goes to the `cancel_url` of its tool
    webhook: Option<String>,
    /// `waiting`, or `dead` if it is not tried any more
    state: &'static str,
    /// The failed tries
    tries: u32,
    /// The time of the event
    since: String,
    /// The time of the next try
    next_try: Option<String>,
}

/// Returns the page as it is shown.
pub(in crate::api::admin) fn messages_page(page: Page<ListedMessage>) -> MessagesPage {
    let view = |message: ListedMessage| MessageView {
        message: message.id,
        event: message.event,
        webhook: message.webhook,
        state: if message.is_dead { "dead" } else { "waiting" },
        tries: message.tries,
        since: rfc3339_date(message.made_at),
        next_try: (!message.is_dead).then(|| rfc3339_date(message.due_at)),
    };
    MessagesPage {
        messages: page.rows.into_iter().map(view).collect(),
        next: page.next.map(format_cursor),
    }
}
