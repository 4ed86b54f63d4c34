//! Calls that a compaction has removed from the history of their lane. Their results still belong to the conversation.

use std::sync::Arc;

use bytes::Bytes;
use moka::ops::compute::Op;
use tokio::time::Instant;

use super::{CHANGE_TRIES_MAX, LateError, LateStore, jobs::LateJob, retention::longest_retention};
use crate::{
    auth::{Caller, Principal},
    clock,
    ledger::{CommitOutcome, CommitStep, RecordKey, RecordKind, RecordName, Unread, read_by},
    session::LaneId,
};

/// The format version of a record.
const VERSION: u8 = 1;
/// Calls of one lane that are stored. The oldest are forgotten first, and their results wait to be read by their owner.
const CALLS_MAX: usize = 512;
const NAME_BYTES: usize = 32;

/// The names of a lane's calls that a compaction may have removed, in the order of their history.
#[derive(Clone, Debug, Default)]
pub(super) struct CompactedCalls {
    names: Arc<[RecordName]>,
    /// `true` if these include what the ledger has.
    is_read: bool,
}

/// Access to the calls that compactions have removed.
#[derive(Clone, Copy, Debug)]
pub struct Compactions<'l>(pub(super) &'l LateStore);

impl Compactions<'_> {
    /// Notes the calls of a history that its client or its provider compacts. Does not wait.
    ///
    /// A call whose history goes on uncompacted may be noted too: it stands in that history, and is found there.
    /// Returns `true` if a write was queued.
    pub fn note_calls(self, caller: Caller, lane: LaneId, calls: &[RecordName]) -> bool {
        if !self.0.is_used() || calls.is_empty() || !self.0.0.callers.is_verified_in_memory(caller) {
            return false;
        }
        let (principal, mut is_changed) = (caller.principal(), false);
        // In memory first: the next request of the lane may come before the write.
        self.change(principal, lane, |known| {
            is_changed = calls.iter().any(|call| !known.names.contains(call));
            is_changed.then(|| CompactedCalls {
                names: merge_names(&known.names, calls),
                ..known
            })
        });
        if is_changed {
            self.0.0.record_owners.note(RecordKind::CompactedCalls, principal);
            self.0.queue_job(LateJob::Compacted(principal, lane, calls.into()));
        }
        is_changed
    }

    /// Returns the names of the lane's calls that a compaction may have removed.
    pub async fn find_calls(self, caller: Caller, lane: LaneId, by: Instant) -> Result<Arc<[RecordName]>, Unread> {
        let principal = caller.principal();
        let known = self.0.0.compacted.get(&(principal, lane)).unwrap_or_default();
        if known.is_read || !self.0.0.record_owners.may_have(RecordKind::CompactedCalls, principal) {
            return Ok(known.names);
        }
        let read = read_by(&*self.0.0.ledger, vec![lane_key(principal, lane)], by).await;
        let records = self.0.count_unread(read)?;
        let stored = records.iter().flatten().map(|record| decode_names(&record.value));
        let stored: Vec<RecordName> = stored.flatten().flatten().collect();
        self.change(principal, lane, |known| {
            Some(CompactedCalls {
                // Those in memory are newer.
                names: merge_names(&stored, &known.names),
                is_read: true,
            })
        });
        Ok(self.0.0.compacted.get(&(principal, lane)).unwrap_or_default().names)
    }

    fn change(self, principal: Principal, lane: LaneId, change: impl FnOnce(CompactedCalls) -> Option<CompactedCalls>) {
        let entry = self.0.0.compacted.entry((principal, lane));
        drop(entry.and_compute_with(|known| {
            let known = known.map_or_else(CompactedCalls::default, moka::Entry::into_value);
            change(known).map_or(Op::Nop, Op::Put)
        }));
    }
}

/// Adds calls to the record of their lane.
pub(super) async fn store_compacted(
    late: &LateStore,
    principal: Principal,
    lane: LaneId,
    calls: &[RecordName],
) -> Result<(), LateError> {
    let key = lane_key(principal, lane);
    for _ in 0..CHANGE_TRIES_MAX {
        let now = clock::unix_time();
        let standing = late.0.ledger.read(vec![key], now).await?.into_iter().next().flatten();
        let stored = standing.as_ref().and_then(|record| decode_names(&record.value));
        let value = encode_names(&merge_names(&stored.unwrap_or_default(), calls));
        // As long as any of their results may wait.
        let expires_at = longest_retention(now, late.0.settings.ttl);
        let step = match standing {
            Some(record) => CommitStep::Replace {
                key,
                version: record.version,
                value,
                expires_at: record.expires_at.max(expires_at),
            },
            None => CommitStep::insert_record(key, value, expires_at),
        };
        // A conflict means that another writer was first: the loop reads the record again.
        if late.0.ledger.commit(vec![step], now).await? == CommitOutcome::Done {
            return Ok(());
        }
    }
    Err(LateError::Busy)
}

fn lane_key(principal: Principal, lane: LaneId) -> RecordKey {
    RecordKey::new(RecordKind::CompactedCalls, principal, *lane.as_bytes())
}

/// Returns the names of both lists, each once, without the oldest above the limit.
fn merge_names(older: &[RecordName], newer: &[RecordName]) -> Arc<[RecordName]> {
    let kept = older.iter().filter(|name| !newer.contains(name));
    let names: Vec<RecordName> = kept.chain(newer).copied().collect();
    let surplus = names.len().saturating_sub(CALLS_MAX);
    names.get(surplus..).unwrap_or_default().into()
}

fn encode_names(names: &[RecordName]) -> Bytes {
    let mut bytes = vec![VERSION];
    bytes.extend(names.iter().flatten());
    bytes.into()
}

/// Decodes the names of a record. Returns `None` for another version.
fn decode_names(bytes: &[u8]) -> Option<Vec<RecordName>> {
    let (VERSION, rest) = bytes.split_first().map(|(version, rest)| (*version, rest))? else {
        return None;
    };
    let (names, rest) = rest.as_chunks::<NAME_BYTES>();
    rest.is_empty().then(|| names.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_names_are_forgotten_first() {
        let name = |number: usize| {
            let mut name = [0; 32];
            name[..8].copy_from_slice(&number.to_le_bytes());
            name
        };
        let older: Vec<RecordName> = (0..CALLS_MAX).map(name).collect();
        let merged = merge_names(&older, &[name(1), name(CALLS_MAX)]);
        assert_eq!(merged.len(), CALLS_MAX);
        assert!(!merged.contains(&name(0)));
        assert_eq!(merged[CALLS_MAX - 2..], [name(1), name(CALLS_MAX)]);
    }

    #[test]
    fn stored_names_are_read_as_a_whole_or_not_at_all() {
        let names = [[1; 32], [2; 32]];
        let bytes = encode_names(&names);
        assert_eq!(decode_names(&bytes), Some(names.to_vec()));
        for bytes in [&bytes[..bytes.len() - 1], &[], &[VERSION + 1]] {
            assert_eq!(decode_names(bytes), None);
        }
    }
}
