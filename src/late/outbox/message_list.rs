//! The messages that are to be sent, for operators.

use super::{Outbox, pause_after};
use crate::{
    late::{
        LateError,
        page::{ListCursor, Page, PageScan},
        records::{EventKind, OutgoingRecord, Purpose, message_id},
    },
    ledger::{Index, Moment, ROWS_MAX, Record, RecordKind, retry_conflicts},
    table::{RecordValue, Stored},
};

/// The prefix of a written id.
const ID_PREFIX: &str = "msg_";

/// A message, without its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedMessage {
    /// The id: `webhook-id` of every try.
    pub id: String,
    /// The name of the webhook. `None` for a cancel, which goes to the `cancel_url` of its tool.
    pub webhook: Option<String>,
    /// The type of the message.
    pub event: &'static str,
    /// The time of its event.
    pub made_at: Moment,
    /// The time of the next try.
    pub due_at: Moment,
    /// The number of failed tries.
    pub tries: u32,
    /// `true` if it was given up.
    pub is_dead: bool,
}

impl Outbox {
    /// Returns `true` if there may be messages: a tool can undo its calls, or there is a webhook.
    pub fn is_used(&self) -> bool {
        self.0.parts.has_cancels || !self.0.parts.webhooks.is_empty()
    }

    /// Returns one page of the messages of every caller.
    pub async fn list(
        &self,
        after: Option<ListCursor>,
        limit: usize,
        now: Moment,
    ) -> Result<Page<ListedMessage>, LateError> {
        PageScan::of_everyone(
            &*self.0.parts.ledger,
            (RecordKind::Outgoing, ROWS_MAX),
            after,
            limit,
            now,
        )
        .list_records(|record| listed(&record))
        .await
    }

    /// Has a message sent at once, also one that was given up. Returns `false` if there is none with this id.
    pub async fn resend(&self, id: &str, now: Moment) -> Result<bool, LateError> {
        let Some(index) = read_index(id) else { return Ok(false) };
        retry_conflicts(|| async {
            let messages = &self.0.parts.messages;
            let Some(Stored { record, value: message }) = messages.find(index, 1, now).await?.pop() else {
                return Ok(Some(false));
            };
            let again = OutgoingRecord {
                due_at: now,
                give_up_at: message.give_up_at.max(now.saturating_add(pause_after(1))),
                is_dead: false,
                ..message
            };
            let is_done = messages.replace(&record, &again, now).await?;
            Ok(is_done.then(|| {
                self.due().schedule(record.key, std::time::Duration::ZERO);
                true
            }))
        })
        .await
    }
}

fn listed(record: &Record) -> Option<ListedMessage> {
    let message = OutgoingRecord::decode(&record.value)?;
    let (webhook, event) = match message.purpose {
        Purpose::Cancel { .. } => (None, EventKind::Cancel),
        Purpose::Event { webhook, kind, .. } => (Some(webhook), kind),
    };
    Some(ListedMessage {
        id: message_id(&record.key, message.made_at),
        webhook,
        event: event.label(),
        made_at: message.made_at,
        due_at: message.due_at,
        tries: message.tries,
        is_dead: message.is_dead,
    })
}

/// Reads the index in an id.
fn read_index(id: &str) -> Option<Index> {
    let (digits, _) = id.strip_prefix(ID_PREFIX)?.split_once('_')?;
    let is_hex = digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let number = u128::from_str_radix(digits, 16).ok().filter(|_| is_hex)?;
    Some(number.to_be_bytes())
}
