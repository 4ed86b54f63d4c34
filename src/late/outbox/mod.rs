//! Messages to tool services and to webhooks: what is to be sent, when, and until when.
//!
//! Each message is a record, so that it survives a restart, and is sent at least once. This folder stores and schedules
//! messages. `cancels` and `events` decide what they say.

mod due_queue;
mod message_list;
mod receiver_loads;

pub(super) use due_queue::{DueMessage, DueQueue};
pub use message_list::ListedMessage;

use std::{sync::Arc, time::Duration};

use super::{LateError, parts::LateParts, records::OutgoingRecord, update::LateUpdate};
use crate::{
    clock,
    ledger::{Moment, Record, RecordKey, RecordKind, update_records},
    table::Stored,
    writer::Subject,
};

/// The pause after the first failed try of a message. Each further one doubles it.
const FIRST_PAUSE: Duration = Duration::from_secs(5);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(60 * 60);

/// The messages that are to be sent: their records, and the order in which they are due. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Outbox(Arc<OutboxState>);

/// The state of the outbox.
#[derive(Debug)]
pub(super) struct OutboxState {
    parts: Arc<LateParts>,
    due: DueQueue,
}

impl Outbox {
    /// Creates the outbox over the ledger of `parts`. It knows no message until they are read.
    pub(super) fn new(parts: &Arc<LateParts>) -> Self {
        Self(Arc::new(OutboxState {
            parts: Arc::clone(parts),
            due: DueQueue::default(),
        }))
    }

    /// Returns the order of messages.
    pub(super) fn due(&self) -> &DueQueue {
        &self.0.due
    }

    /// Queues the storing of a message, or its removal. Does not wait.
    pub(super) fn queue_change(&self, key: RecordKey, message: Option<OutgoingRecord>) {
        let change = MessageChange { key, message };
        self.0.parts.queue_update(&self.0, change);
    }

    /// Stores a message in place of an earlier one of its name, and schedules it.
    pub(super) async fn store_message(&self, key: RecordKey, message: &OutgoingRecord) -> Result<(), LateError> {
        update_records(&*self.0.parts.ledger, [key], |[existing], now| {
            let messages = &self.0.parts.messages;
            let step = match existing {
                Some(record) => messages.replace_step(&record, message),
                None => messages.insert_step(key, message, now),
            };
            (vec![step], now)
        })
        .await
        .map(|now| self.due().schedule(key, time_until(message.due_at, now)))
    }

    /// Removes a message, whatever it says. Returns `true` if there was one.
    pub(super) async fn remove_message(&self, key: RecordKey) -> Result<bool, LateError> {
        self.due().remove(&key);
        update_records(&*self.0.parts.ledger, [key], |[stored], _| {
            (stored.iter().map(Record::remove_step).collect(), stored.is_some())
        })
        .await
    }

    /// Returns every stored message that is still to be sent.
    pub(super) async fn waiting_messages(&self) -> Result<Vec<(RecordKey, OutgoingRecord)>, LateError> {
        let mut waiting = Vec::new();
        let take = |message: Stored<OutgoingRecord>| {
            if !message.value.is_dead {
                waiting.push((message.record.key, message.value));
            }
        };
        self.0.parts.messages.read_everyone(clock::unix_time(), take).await?;
        Ok(waiting)
    }
}

/// The storing or the removal of a message.
struct MessageChange {
    key: RecordKey,
    /// The message. `None` removes it.
    message: Option<OutgoingRecord>,
}

impl LateUpdate for MessageChange {
    type Feature = OutboxState;

    fn subjects(&self) -> Vec<Subject> {
        vec![Subject::of_name(self.key.name)]
    }

    fn lost_records(&self) -> (RecordKind, usize) {
        (RecordKind::Outgoing, 1)
    }

    fn is_repeated(&self) -> bool {
        false
    }

    async fn apply(&self, outbox: Arc<OutboxState>) -> Result<bool, LateError> {
        let outbox = Outbox(outbox);
        match &self.message {
            Some(message) => outbox.store_message(self.key, message).await.map(|()| true),
            None => outbox.remove_message(self.key).await,
        }
    }
}

/// Returns the time until `due_at`, as of `now`.
pub(super) const fn time_until(due_at: Moment, now: Moment) -> Duration {
    due_at.saturating_sub(now)
}

/// Returns the pause after so many failed tries.
pub(super) fn pause_after(tries: u32) -> Duration {
    let factor = 1_u32.checked_shl(tries.saturating_sub(1)).unwrap_or(u32::MAX);
    FIRST_PAUSE.saturating_mul(factor).min(LONGEST_PAUSE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_from_five_seconds_to_an_hour() {
        let seconds = [0, 1, 2, 3, 10, 11, 32, 33, u32::MAX].map(|tries| pause_after(tries).as_secs());
        assert_eq!(seconds, [5, 5, 10, 20, 2560, 3600, 3600, 3600, 3600]);
    }
}
