//! The calls for which parked results of known owners wait, in memory: the requests of other callers are not searched.
//!
//! A process may die with the answer that contained a call, before it has recorded the call. Then only a request of the
//! owner can show it.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
};

use super::record_names::call_index;
use crate::{
    auth::Owner,
    ledger::{Index, RecordKey},
};

/// Parked results in memory. Further ones wait for the next post of their service.
const RESULTS_MAX: usize = 50_000;

/// The parked results of known owners.
#[derive(Debug, Default)]
pub(super) struct AwaitedTable(Mutex<KnownResults>);

#[derive(Debug, Default)]
struct KnownResults {
    /// The owner of each.
    owners: HashMap<RecordKey, Owner>,
    /// The calls for which they wait, by owner.
    calls: HashMap<Owner, HashMap<RecordKey, Index>>,
}

/// The calls for which parked results of one owner wait.
#[derive(Clone, Debug, Default)]
pub struct AwaitedCalls(BTreeSet<Index>);

impl AwaitedCalls {
    /// Returns `true` if there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns `true` if a parked result waits for a call with this id.
    pub fn has_call(&self, call_id: &[u8]) -> bool {
        self.0.contains(&call_index(call_id))
    }
}

impl AwaitedTable {
    /// Adds the parked result of this record.
    pub(super) fn add(&self, record: RecordKey, owner: Owner, call_id: &[u8]) {
        let mut known = self.lock();
        if known.owners.len() < RESULTS_MAX {
            known.owners.insert(record, owner);
            known
                .calls
                .entry(owner)
                .or_default()
                .insert(record, call_index(call_id));
        }
    }

    /// Removes the parked result of this record, which waits no longer.
    pub(super) fn remove(&self, record: &RecordKey) {
        let mut known = self.lock();
        let Some(owner) = known.owners.remove(record) else {
            return;
        };
        if let Some(calls) = known.calls.get_mut(&owner) {
            calls.remove(record);
            if calls.is_empty() {
                known.calls.remove(&owner);
            }
        }
    }

    /// Returns the calls for which parked results of an owner wait.
    pub(super) fn calls_of(&self, owner: impl FnOnce() -> Owner) -> AwaitedCalls {
        let known = self.lock();
        // The usual case, in which the name of the owner need not be hashed.
        if known.calls.is_empty() {
            return AwaitedCalls::default();
        }
        let calls = known.calls.get(&owner());
        AwaitedCalls(calls.into_iter().flat_map(HashMap::values).copied().collect())
    }

    fn lock(&self) -> MutexGuard<'_, KnownResults> {
        // Each change leaves a valid table, so a panic elsewhere need not spread.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
