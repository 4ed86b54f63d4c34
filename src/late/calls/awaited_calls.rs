//! The calls for which parked results of known owners wait, in memory: the requests of other callers are not searched.
//!
//! A process may die with the answer that contained a call, before it has recorded the call. Then only a request of the
//! owner can show it.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::{
    auth::{Owner, Principal},
    late::records::call_names::call_index,
    ledger::{Index, RecordKey},
};

/// The most parked results in memory. The upkeep adds further ones once there is room.
const RESULTS_MAX: usize = 50_000;

/// The parked results of known owners.
#[derive(Debug, Default)]
pub(super) struct AwaitedTable(Mutex<ParkedResults>);

#[derive(Debug, Default)]
struct ParkedResults {
    /// The owner of each, and the call for which it waits.
    results: HashMap<RecordKey, (Owner, Index)>,
    /// The calls for which they wait, by owner. Shared with the requests of the owner, so that none copies them.
    calls: HashMap<Owner, Arc<CallCounts>>,
}

/// The number of parked results for each call.
type CallCounts = BTreeMap<Index, usize>;

/// The calls for which parked results of one owner wait.
#[derive(Clone, Debug, Default)]
pub struct AwaitedCalls(Option<Arc<CallCounts>>);

impl AwaitedCalls {
    /// Returns `true` if there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Returns `true` if a parked result waits for a call with this id.
    pub fn has_call(&self, call_id: &[u8]) -> bool {
        let calls = self.0.as_ref();
        calls.is_some_and(|calls| calls.contains_key(&call_index(call_id)))
    }
}

impl AwaitedTable {
    /// Adds the parked result of this record.
    pub(super) fn add(&self, record: RecordKey, owner: Owner, call_id: &[u8]) {
        let entry = (owner, call_index(call_id));
        let mut known = self.lock();
        if known.results.get(&record) == Some(&entry) {
            return;
        }
        known.remove_result(&record);
        if known.results.len() < RESULTS_MAX {
            known.results.insert(record, entry);
            let calls = Arc::make_mut(known.calls.entry(owner).or_default());
            let count = calls.entry(entry.1).or_default();
            *count = count.saturating_add(1);
        }
    }

    /// Removes the parked result of this record, which waits no longer.
    pub(super) fn remove(&self, record: &RecordKey) {
        self.lock().remove_result(record);
    }

    /// Returns the records of a service's parked results.
    pub(super) fn records_of(&self, service: Principal) -> HashSet<RecordKey> {
        let known = self.lock();
        let records = known.results.keys();
        records
            .filter(|record| record.principal == *service.as_bytes())
            .copied()
            .collect()
    }

    /// Returns the calls for which parked results of an owner wait.
    pub(super) fn calls_of(&self, owner: impl FnOnce() -> Owner) -> AwaitedCalls {
        let known = self.lock();
        // The usual case, in which the name of the owner need not be hashed.
        if known.calls.is_empty() {
            return AwaitedCalls::default();
        }
        AwaitedCalls(known.calls.get(&owner()).cloned())
    }

    fn lock(&self) -> MutexGuard<'_, ParkedResults> {
        // Each change leaves a valid table, so a panic elsewhere need not spread.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ParkedResults {
    fn remove_result(&mut self, record: &RecordKey) {
        let Some((owner, call)) = self.results.remove(record) else {
            return;
        };
        let Some(shared) = self.calls.get_mut(&owner) else {
            return;
        };
        let calls = Arc::make_mut(shared);
        if let Some(count) = calls.get_mut(&call) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                calls.remove(&call);
            }
        }
        if calls.is_empty() {
            self.calls.remove(&owner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::RecordKind;

    fn record(service: u8, number: u8) -> RecordKey {
        RecordKey::new(RecordKind::Parked, Principal::from_bytes([service; 32]), [number; 32])
    }

    #[test]
    fn a_call_is_awaited_until_the_last_of_its_results_is_removed() {
        let (table, owner) = (AwaitedTable::default(), Owner::new([7; 16]));
        // The upkeep adds the first one once more.
        for number in [1, 2, 1] {
            table.add(record(1, number), owner, b"toolu_01AaBb9dE3fG7hJ2");
        }
        table.add(record(2, 3), owner, b"toolu_01CcDd9dE3fG7hJ2");
        assert_eq!(table.records_of(Principal::from_bytes([1; 32])).len(), 2);
        let seen_before = table.calls_of(|| owner);
        for (removed, is_awaited) in [(1, true), (1, true), (2, false)] {
            table.remove(&record(1, removed));
            let awaited = table.calls_of(|| owner);
            assert_eq!(awaited.has_call(b"toolu_01AaBb9dE3fG7hJ2"), is_awaited, "{removed}");
            assert!(awaited.has_call(b"toolu_01CcDd9dE3fG7hJ2"));
        }
        assert!(
            seen_before.has_call(b"toolu_01AaBb9dE3fG7hJ2"),
            "a request sees one state"
        );
        table.remove(&record(2, 3));
        assert!(table.calls_of(|| owner).is_empty());
        assert!(table.lock().results.is_empty());
    }

    #[test]
    fn a_result_that_changes_its_owner_is_awaited_by_the_new_one_alone() {
        let (table, owners) = (AwaitedTable::default(), [7, 8].map(|byte| Owner::new([byte; 16])));
        for owner in owners {
            table.add(record(1, 1), owner, b"toolu_01AaBb9dE3fG7hJ2");
        }
        assert!(table.calls_of(|| owners[0]).is_empty());
        assert!(table.calls_of(|| owners[1]).has_call(b"toolu_01AaBb9dE3fG7hJ2"));
    }
}
