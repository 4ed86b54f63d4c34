//! The callers that read their feed or their list of outstanding results: they learn of a result without a conversation.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;

use super::{LateError, parts::LateParts, records::RecordedCall, update::LateUpdate};
use crate::{
    auth::{Caller, Principal},
    clock,
    digest_cache::{DigestCache, Lifetime},
    ledger::{CommitStep, Moment, RecordKey, RecordKind, RecordName, update_records},
    writer::Subject,
};

/// The time for which a read counts: 7 days.
const READ_VALID_FOR: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// Time between two notes of the same reader, so that a poll costs no write.
const NOTE_INTERVAL: Duration = Duration::from_secs(60 * 60);
/// The most readers in memory. A forgotten one costs a redundant write.
const READERS_MAX: u64 = 100_000;
/// Lifetime of a reader in memory: 24 hours.
const MEMORY_TTL: Duration = Duration::from_secs(24 * 60 * 60);
/// The name of the record. It is constant, since a caller has one.
const NAME: RecordName = [0; 32];

/// The readers. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Readers(Arc<ReadersState>);

/// The state of the readers.
#[derive(Debug)]
pub(super) struct ReadersState {
    parts: Arc<LateParts>,
    /// The last reads that are stored, or on their way to the ledger.
    noted: DigestCache<Principal, Moment>,
}

impl Readers {
    /// Creates the readers over the ledger of `parts`.
    pub(super) fn new(parts: &Arc<LateParts>) -> Self {
        Self(Arc::new(ReadersState {
            parts: Arc::clone(parts),
            noted: DigestCache::new(READERS_MAX, Lifetime::SinceWrite(MEMORY_TTL)),
        }))
    }

    /// Notes that a caller reads its feed or its outstanding results: it learns of them without a conversation. Does not
    /// wait.
    pub fn note_read(&self, caller: Caller) {
        let (principal, now) = (caller.principal(), clock::unix_time());
        let noted = self.0.noted.get(&principal);
        if !self.0.parts.is_used() || noted.is_some_and(|at| now.saturating_sub(at) < NOTE_INTERVAL) {
            return;
        }
        self.0.noted.insert(&principal, now);
        let update = StoreRead { principal, at: now };
        self.0.parts.queue_update(&self.0, update);
    }

    /// Returns `true` if the result of a call reaches the caller without its conversation.
    ///
    /// An effect that cannot be undone must not happen for a session alone. The surfaces are a webhook of the caller, a feed
    /// or a list of outstanding results that the caller has read in the last 7 days, and the next conversation of the same
    /// person.
    pub(super) async fn has_surface(
        &self,
        principal: Principal,
        call: &RecordedCall,
        now: Moment,
    ) -> Result<bool, LateError> {
        let (parts, account) = (&self.0.parts, Principal::from_bytes(call.account));
        if parts.reaches_next(principal, call) || parts.webhooks.iter().any(|webhook| webhook.reaches(account)) {
            return Ok(true);
        }
        self.has_read(principal, now).await
    }

    /// Returns `true` if a caller has read in the last 7 days.
    async fn has_read(&self, principal: Principal, now: Moment) -> Result<bool, LateError> {
        let noted = self.0.noted.get(&principal);
        if noted.is_some_and(|at| now < at.saturating_add(READ_VALID_FOR)) {
            return Ok(true);
        }
        Ok(self.0.parts.read_record(reader_key(principal), now).await?.is_some())
    }
}

/// The storing of the time of a caller's last read.
struct StoreRead {
    principal: Principal,
    at: Moment,
}

impl LateUpdate for StoreRead {
    type Feature = ReadersState;

    fn subjects(&self) -> Vec<Subject> {
        vec![Subject::of_record(&reader_key(self.principal))]
    }

    fn lost_records(&self) -> (RecordKind, usize) {
        (RecordKind::Reader, 1)
    }

    fn is_repeated(&self) -> bool {
        true
    }

    async fn apply(&self, readers: Arc<ReadersState>) -> Result<bool, LateError> {
        let key = reader_key(self.principal);
        let expires_at = self.at.saturating_add(READ_VALID_FOR);
        update_records(&*readers.parts.ledger, [key], |[stored], _| {
            if stored.as_ref().is_some_and(|record| record.expires_at >= expires_at) {
                return (Vec::new(), false);
            }
            let step = CommitStep::put_record(key, stored.as_ref(), Bytes::new(), expires_at);
            (vec![step], true)
        })
        .await
    }

    fn note_lost(&self, readers: &ReadersState) {
        // The next read must be noted.
        readers.noted.remove(&self.principal);
    }
}

const fn reader_key(principal: Principal) -> RecordKey {
    RecordKey::new(RecordKind::Reader, principal, NAME)
}
