//! Surfaces: the ways by which a caller learns of a result when no conversation waits for it any more.
//!
//! An effect that cannot be undone must not happen for a session alone. The surfaces are a webhook of the caller, a feed or a
//! list of outstanding results that the caller has read in the last 7 days, and the next conversation of the same person.

use std::time::Duration;

use bytes::Bytes;

use super::{LateError, LateStore, carry_over, records::RecordedCall, update::LateUpdate};
use crate::{
    auth::{Caller, Principal},
    clock,
    ledger::{CommitStep, Moment, RecordKey, RecordKind, RecordName, update_records},
    writer::Subject,
};

/// The time for which a read counts: 7 days.
const READ_VALID_FOR: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// Time between two notes of the same reader, so that a poll costs no write.
const NOTE_INTERVAL: Duration = Duration::from_secs(60 * 60);
/// The name of the record. It is constant, since a caller has one.
const NAME: RecordName = [0; 32];

impl LateStore {
    /// Notes that a caller reads its feed or its outstanding results: it learns of them without a conversation.
    /// Does not wait.
    pub fn note_read(&self, caller: Caller) {
        let (principal, now) = (caller.principal(), clock::unix_time());
        let noted = self.0.readers.get(&principal);
        if noted.is_some_and(|at| now.saturating_sub(at) < NOTE_INTERVAL) {
            return;
        }
        self.0.readers.insert(&principal, now);
        self.queue_update(StoreRead { principal, at: now });
    }
}

/// The storing of the time of a caller's last read.
struct StoreRead {
    principal: Principal,
    at: Moment,
}

impl LateUpdate for StoreRead {
    fn subjects(&self) -> Vec<Subject> {
        vec![Subject::of_name(*self.principal.as_bytes())]
    }

    fn lost_records(&self) -> (RecordKind, usize) {
        (RecordKind::Reader, 1)
    }

    fn is_repeated(&self) -> bool {
        true
    }

    async fn apply(&self, late: &LateStore) -> Result<bool, LateError> {
        let key = reader_key(self.principal);
        let expires_at = self.at.saturating_add(READ_VALID_FOR);
        update_records(&*late.0.ledger, [key], |[stored], _| {
            if stored.as_ref().is_some_and(|record| record.expires_at >= expires_at) {
                return (Vec::new(), false);
            }
            let step = CommitStep::put_record(key, stored.as_ref(), Bytes::new(), expires_at);
            (vec![step], false)
        })
        .await
    }
}

/// Returns `true` if the result of a call reaches the caller without its conversation.
pub(super) async fn has_surface(
    late: &LateStore,
    principal: Principal,
    call: &RecordedCall,
    now: Moment,
) -> Result<bool, LateError> {
    let account = Principal::from_bytes(call.account);
    if carry_over::reaches(late, principal, call) {
        return Ok(true);
    }
    if late.0.webhooks.iter().any(|webhook| webhook.reaches(account)) {
        return Ok(true);
    }
    let noted = late.0.readers.get(&principal);
    if noted.is_some_and(|at| now < at.saturating_add(READ_VALID_FOR)) {
        return Ok(true);
    }
    let record = late.0.ledger.read(vec![reader_key(principal)], now).await?;
    Ok(record.into_iter().flatten().next().is_some())
}

const fn reader_key(principal: Principal) -> RecordKey {
    RecordKey::new(RecordKind::Reader, principal, NAME)
}
