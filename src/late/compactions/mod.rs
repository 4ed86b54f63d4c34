//! Calls that a compaction has removed from the history of their lane. Their results still belong to the conversation.

mod noted_calls;

pub use noted_calls::NotedCall;

use std::sync::Arc;

use tokio::time::Instant;

use super::{LateError, parts::LateParts, records::retention::longest_retention, update::LateUpdate};
use crate::{
    auth::{Caller, Principal},
    digest_cache::{DigestCache, EntryChange, Lifetime},
    ledger::{ChangeStamp, CommitStep, LedgerChanges, RecordKey, RecordKind, Unread, update_records},
    session::LaneId,
    writer::{Subject, UpdateEnd},
};
use noted_calls::{CALL_BYTES, decode_calls, encode_calls, merge_calls};

/// The calls of a lane that compactions may have removed, in the order of their history.
#[derive(Clone, Debug, Default)]
struct NotedCalls {
    calls: Arc<[NotedCall]>,
    /// The state of the ledger that these include.
    read_at: Option<ChangeStamp>,
}

/// Memory for the noted calls of all lanes. A forgotten lane is read from the ledger again.
const MEMORY_BYTES: u64 = 32 * 1024 * 1024;
/// Bytes that a lane counts in addition to its calls.
const LANE_BYTES: usize = 256;

/// The calls that compactions have removed. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Compactions(Arc<CompactionsState>);

/// The state of the compactions.
#[derive(Debug)]
pub(super) struct CompactionsState {
    parts: Arc<LateParts>,
    /// The changes of other processes, by which the memory knows that it is out of date.
    changes: LedgerChanges,
    noted: DigestCache<(Principal, LaneId), NotedCalls>,
}

impl Compactions {
    /// Creates the memory over the ledger of `parts`.
    pub(super) fn new(parts: &Arc<LateParts>) -> Self {
        let weigh = |noted: &NotedCalls| noted.calls.len().saturating_mul(CALL_BYTES).saturating_add(LANE_BYTES);
        Self(Arc::new(CompactionsState {
            parts: Arc::clone(parts),
            changes: parts.ledger.changes(),
            noted: DigestCache::with_byte_limit(MEMORY_BYTES, Lifetime::Unlimited, weigh),
        }))
    }

    /// Notes the calls of a history that its client compacts, or lets the provider compact. Does not wait.
    ///
    /// A call whose history goes on uncompacted may be noted too: it stands in that history, and is found there.
    /// Returns the end of their write, or `None` if they were noted before.
    pub fn note_calls(&self, caller: Caller, lane: LaneId, calls: &[NotedCall]) -> Option<UpdateEnd> {
        // Clients with one key may choose the same session names.
        let is_known = !caller.is_shared() && self.0.parts.callers.is_verified_in_memory(caller);
        if !self.0.parts.is_used() || calls.is_empty() || !is_known {
            return None;
        }
        let (principal, mut is_changed) = (caller.principal(), false);
        // In memory first: the next request of the lane may come before the write.
        self.change(principal, lane, |known| {
            let merged = merge_calls(&known.calls, calls);
            is_changed = merged != known.calls;
            is_changed.then_some(NotedCalls { calls: merged, ..known })
        });
        if !is_changed {
            return None;
        }
        self.0.parts.record_owners.note(RecordKind::CompactedCalls, principal);
        let update = StoreCompacted {
            principal,
            lane,
            calls: calls.into(),
        };
        self.0.parts.queue_with_end(&self.0, update)
    }

    /// Returns the lane's calls that a compaction may have removed.
    pub async fn find_calls(&self, caller: Caller, lane: LaneId, by: Instant) -> Result<Arc<[NotedCall]>, Unread> {
        let principal = caller.principal();
        if caller.is_shared() {
            return Ok(Arc::default());
        }
        let known = self.0.noted.get(&(principal, lane)).unwrap_or_default();
        // Before the read, so that a change during it is not taken for one that was read.
        let stamp = self.0.changes.stamp(principal);
        let parts = &self.0.parts;
        let may_have = || parts.record_owners.may_have(RecordKind::CompactedCalls, principal);
        if stamp.is_some() && known.read_at == stamp || !may_have() {
            return Ok(known.calls);
        }
        let records = parts.read_by(vec![lane_key(principal, lane)], by).await?;
        let stored = records.iter().flatten().map(|record| decode_calls(&record.value));
        let stored: Vec<NotedCall> = stored.flatten().flatten().collect();
        self.change(principal, lane, |known| {
            Some(NotedCalls {
                // Those in memory are newer.
                calls: merge_calls(&stored, &known.calls),
                read_at: stamp,
            })
        });
        Ok(self.0.noted.get(&(principal, lane)).unwrap_or_default().calls)
    }

    fn change(&self, principal: Principal, lane: LaneId, change: impl FnOnce(NotedCalls) -> Option<NotedCalls>) {
        self.0.noted.change(&(principal, lane), |known| {
            change(known.unwrap_or_default()).map_or(EntryChange::Keep, EntryChange::Put)
        });
    }
}

/// The adding of calls to the record of their lane.
struct StoreCompacted {
    principal: Principal,
    lane: LaneId,
    calls: Box<[NotedCall]>,
}

impl LateUpdate for StoreCompacted {
    type Feature = CompactionsState;

    fn subjects(&self) -> Vec<Subject> {
        vec![Subject::of_name(*self.lane.as_bytes())]
    }

    fn lost_records(&self) -> (RecordKind, usize) {
        (RecordKind::CompactedCalls, 1)
    }

    fn text_bytes(&self) -> usize {
        size_of_val(&*self.calls)
    }

    fn is_repeated(&self) -> bool {
        false
    }

    async fn apply(&self, compactions: Arc<CompactionsState>) -> Result<bool, LateError> {
        let key = lane_key(self.principal, self.lane);
        update_records(&*compactions.parts.ledger, [key], |[standing], now| {
            let stored = standing.as_ref().and_then(|record| decode_calls(&record.value));
            let value = encode_calls(&merge_calls(&stored.unwrap_or_default(), &self.calls));
            // As long as any of their results may wait.
            let expires_at = longest_retention(now, compactions.parts.settings.ttl);
            let expires_at = standing
                .as_ref()
                .map_or(expires_at, |record| record.expires_at.max(expires_at));
            let step = CommitStep::put_record(key, standing.as_ref(), value, expires_at);
            (vec![step], true)
        })
        .await
    }

    fn note_lost(&self, compactions: &CompactionsState) {
        // The next compaction must note its calls.
        compactions.noted.remove(&(self.principal, self.lane));
    }
}

fn lane_key(principal: Principal, lane: LaneId) -> RecordKey {
    RecordKey::new(RecordKind::CompactedCalls, principal, *lane.as_bytes())
}
