//! Results that wait for each principal, in memory: every exchange asks for their number.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use moka::sync::Cache;

use crate::{
    auth::Principal,
    ledger::{Moment, Record, RecordName},
};

/// Principals in memory. An evicted principal is read from the ledger again.
const PRINCIPALS_MAX: u64 = 100_000;

/// Removed results that are remembered for one principal after its load.
const REMOVED_MAX: usize = 4096;

/// Waiting results by principal.
#[derive(Clone, Debug)]
pub(super) struct PendingResults(Cache<Principal, Arc<Mutex<PendingOfPrincipal>>>);

/// Waiting results of one principal.
#[derive(Debug, Default)]
struct PendingOfPrincipal {
    /// `true` once the ledger was read.
    is_loaded: bool,
    /// Waiting results with the time until which each is stored.
    waiting: HashMap<RecordName, Moment>,
    /// Results that were removed. A load or an add that was delayed must not bring them back: a removed result never
    /// waits again.
    removed: HashSet<RecordName>,
}

impl Default for PendingResults {
    fn default() -> Self {
        Self(Cache::new(PRINCIPALS_MAX))
    }
}

impl PendingResults {
    /// Returns the number of waiting results of all principals in memory.
    pub(super) fn total_count(&self) -> usize {
        self.0.iter().map(|(_, known)| lock_known(&known).waiting.len()).sum()
    }

    /// Returns `true` if the ledger must be read for this principal. From now on its changes are tracked.
    pub(super) fn needs_load(&self, principal: Principal) -> bool {
        // Inserted before the read, so that a change during the read is not lost.
        let known = self.0.get_with(principal, Arc::default);
        let is_loaded = lock_known(&known).is_loaded;
        !is_loaded
    }

    /// Adds the records that the ledger returned. Changes since the read began are newer, and win.
    pub(super) fn load(&self, principal: Principal, records: &[Record]) {
        self.update_known(principal, |known| {
            if known.is_loaded {
                return;
            }
            for record in records {
                if !known.removed.contains(&record.key.name) {
                    known.waiting.insert(record.key.name, record.expires_at);
                }
            }
            known.is_loaded = true;
        });
    }

    /// Adds a waiting result.
    pub(super) fn add(&self, principal: Principal, name: RecordName, until: Moment) {
        self.update_known(principal, |known| {
            if !known.removed.contains(&name) {
                known.waiting.insert(name, until);
            }
        });
    }

    /// Removes a result that no longer waits.
    pub(super) fn remove(&self, principal: Principal, name: RecordName) {
        self.update_known(principal, |known| {
            known.waiting.remove(&name);
            // Before the load every removal counts, because the read may still return it.
            if known.is_loaded && known.removed.len() >= REMOVED_MAX {
                known.removed.clear();
            }
            known.removed.insert(name);
        });
    }

    /// Returns `true` if this result waits.
    pub(super) fn contains(&self, principal: Principal, name: &RecordName) -> bool {
        let known = self.0.get(&principal);
        known.is_some_and(|known| lock_known(&known).waiting.contains_key(name))
    }

    /// Returns the names of the waiting results that pass `is_one`.
    pub(super) fn filter_names(&self, principal: Principal, is_one: impl Fn(&RecordName) -> bool) -> Vec<RecordName> {
        let Some(known) = self.0.get(&principal) else {
            return Vec::new();
        };
        let known = lock_known(&known);
        known.waiting.keys().filter(|name| is_one(name)).copied().collect()
    }

    /// Returns the number of waiting results, without those that have expired.
    pub(super) fn count_waiting(&self, principal: Principal, now: Moment) -> usize {
        let Some(known) = self.0.get(&principal) else { return 0 };
        let mut known = lock_known(&known);
        // The ledger does not announce the records that it expires.
        known.waiting.retain(|_, until| *until > now);
        known.waiting.len()
    }

    /// Applies a change if the principal is in memory. For any other, a later load reads the whole state.
    fn update_known(&self, principal: Principal, change: impl FnOnce(&mut PendingOfPrincipal)) {
        if let Some(known) = self.0.get(&principal) {
            change(&mut lock_known(&known));
        }
    }
}

fn lock_known(known: &Mutex<PendingOfPrincipal>) -> MutexGuard<'_, PendingOfPrincipal> {
    // A panic elsewhere leaves these maps usable.
    known.lock().unwrap_or_else(PoisonError::into_inner)
}
