//! Messages to tool services and to webhooks: what is to be sent, when, and until when.
//!
//! Each message is a record, so that it survives a restart, and is sent at least once. This folder stores and schedules
//! messages. `cancels` decides what they say.

mod due_queue;
mod receiver_loads;
mod records;

pub(super) use due_queue::{DueMessage, DueQueue};
pub use records::{OutgoingRecord, Purpose};

use std::{sync::Arc, time::Duration};

use super::{
    LateError,
    update::{LateUpdate, queue_update},
};
use crate::{
    auth::Principal,
    clock,
    digest::digest_of,
    ledger::{CommitStep, Index, Ledger, Moment, ROWS_MAX, Record, RecordKey, RecordKind, RecordName, update_records},
    table::TableParts,
    telemetry::Telemetry,
    writer::{Subject, Writer},
};

/// The pause after the first failed try of a message. Each further one doubles it.
const FIRST_PAUSE: Duration = Duration::from_secs(5);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(60 * 60);

/// Returns the key of a message. `name` tells the messages of a principal apart.
pub(super) const fn message_key(principal: Principal, name: RecordName) -> RecordKey {
    RecordKey::new(RecordKind::Outgoing, principal, name)
}

/// The messages that are to be sent: their records, and the order in which they are due. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Outbox(Arc<OutboxState>);

/// The state of the outbox.
#[derive(Debug)]
pub(super) struct OutboxState {
    ledger: Arc<dyn Ledger>,
    writer: Writer,
    telemetry: Telemetry,
    due: DueQueue,
}

impl Outbox {
    /// Creates the outbox over the ledger of `parts`. It knows no message until they are read.
    pub(super) fn new(parts: &TableParts, telemetry: Telemetry) -> Self {
        Self(Arc::new(OutboxState {
            ledger: Arc::clone(parts.ledger()),
            writer: parts.writer().clone(),
            telemetry,
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
        queue_update(&self.0.writer, &self.0.telemetry, &self.0, change);
    }

    /// Stores a message in place of an earlier one of its name, and schedules it.
    pub(super) async fn store_message(&self, key: RecordKey, message: &OutgoingRecord) -> Result<(), LateError> {
        update_records(&*self.0.ledger, [key], |[existing], now| {
            let step = match existing {
                Some(record) => replace_step(&record, message),
                None => insert_step(key, message),
            };
            (vec![step], now)
        })
        .await
        .map(|now| self.due().schedule(key, time_until(message.due_at, now)))
    }

    /// Removes a message, whatever it says. Returns `true` if there was one.
    pub(super) async fn remove_message(&self, key: RecordKey) -> Result<bool, LateError> {
        self.due().remove(&key);
        update_records(&*self.0.ledger, [key], |[stored], _| {
            (stored.iter().map(Record::remove_step).collect(), stored.is_some())
        })
        .await
    }

    /// Returns every stored message that is still to be sent.
    pub(super) async fn waiting_messages(&self) -> Result<Vec<(RecordKey, OutgoingRecord)>, LateError> {
        let (ledger, now) = (&self.0.ledger, clock::unix_time());
        let (mut waiting, mut after) = (Vec::new(), None);
        loop {
            let principals = ledger.list_principals(RecordKind::Outgoing, after, ROWS_MAX).await?;
            let Some(last) = principals.last() else {
                return Ok(waiting);
            };
            after = Some(*last);
            for principal in &principals {
                let mut place = 0;
                loop {
                    let page = ledger
                        .list_after(RecordKind::Outgoing, *principal, place, ROWS_MAX, now)
                        .await?;
                    let Some((last, _)) = page.last() else { break };
                    place = *last;
                    let decoded = page.iter().filter_map(|(_, record)| {
                        let message = OutgoingRecord::decode(&record.value)?;
                        Some((record.key, message))
                    });
                    waiting.extend(decoded.filter(|(_, message)| !message.is_dead));
                }
            }
        }
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

/// Builds the step that inserts a message.
pub(super) fn insert_step(key: RecordKey, message: &OutgoingRecord) -> CommitStep {
    CommitStep::Insert {
        key,
        index: Some(message_index(&key)),
        value: message.encode(),
        expires_at: message.retained_until(),
    }
}

/// Returns the id of a message: the same for every try, and for no other message.
pub(super) fn message_id(key: &RecordKey, made_at: Moment) -> String {
    format!(
        "msg_{:032x}_{}",
        u128::from_be_bytes(message_index(key)),
        made_at.as_nanos()
    )
}

/// Returns the index under which operators find a message.
pub(super) fn message_index(key: &RecordKey) -> Index {
    let hash = digest_of([&b"message"[..], &key.principal, &key.name]);
    let (half, _) = hash.split_at(16);
    half.try_into().unwrap_or_default()
}

/// Builds the step that replaces a message.
pub(super) fn replace_step(record: &Record, message: &OutgoingRecord) -> CommitStep {
    CommitStep::Replace {
        key: record.key,
        version: record.version,
        value: message.encode(),
        expires_at: message.retained_until(),
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
