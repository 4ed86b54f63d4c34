//! Results that wait for each principal, in memory: every exchange asks for their number.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use moka::sync::Cache;

use crate::{
    auth::Principal,
    ledger::{Moment, Name, Record},
};

/// Principals in memory. An evicted principal is read from the ledger again.
const PRINCIPALS_MAX: u64 = 100_000;

/// Removed results that are remembered for one principal after its load.
const GONE_MAX: usize = 4096;

/// Waiting results by principal.
#[derive(Clone, Debug)]
pub(super) struct Pending(Cache<Principal, Arc<Mutex<Known>>>);

/// Waiting results of one principal.
#[derive(Debug, Default)]
struct Known {
    /// `true` once the ledger was read.
    is_loaded: bool,
    /// Waiting results with the time until which each is stored.
    waiting: HashMap<Name, Moment>,
    /// Results that were removed. A load or an add that was delayed must not bring them back: a removed result never
    /// waits again.
    gone: HashSet<Name>,
}

impl Default for Pending {
    fn default() -> Self {
        Self(Cache::new(PRINCIPALS_MAX))
    }
}

impl Pending {
    /// Returns the number of waiting results of all principals in memory.
    pub(super) fn total(&self) -> usize {
        self.0.iter().map(|(_, known)| lock(&known).waiting.len()).sum()
    }

    /// Returns `true` if the ledger must be read for this principal. From now on its changes are tracked.
    pub(super) fn wants(&self, principal: Principal) -> bool {
        // Inserted before the read, so that a change during the read is not lost.
        let known = self.0.get_with(principal, Arc::default);
        let is_loaded = lock(&known).is_loaded;
        !is_loaded
    }

    /// Adds the records that the ledger returned. Changes since the read began are newer, and win.
    pub(super) fn load(&self, principal: Principal, records: &[Record]) {
        self.of(principal, |known| {
            if known.is_loaded {
                return;
            }
            for record in records {
                if !known.gone.contains(&record.key.name) {
                    known.waiting.insert(record.key.name, record.expires_at);
                }
            }
            known.is_loaded = true;
        });
    }

    /// Adds a waiting result.
    pub(super) fn add(&self, principal: Principal, name: Name, until: Moment) {
        self.of(principal, |known| {
            if !known.gone.contains(&name) {
                known.waiting.insert(name, until);
            }
        });
    }

    /// Removes a result that no longer waits.
    pub(super) fn remove(&self, principal: Principal, name: Name) {
        self.of(principal, |known| {
            known.waiting.remove(&name);
            // Before the load every removal counts, because the read may still return it.
            if known.is_loaded && known.gone.len() >= GONE_MAX {
                known.gone.clear();
            }
            known.gone.insert(name);
        });
    }

    /// Returns `true` if this result waits.
    pub(super) fn has(&self, principal: Principal, name: &Name) -> bool {
        let known = self.0.get(&principal);
        known.is_some_and(|known| lock(&known).waiting.contains_key(name))
    }

    /// Returns the names of the waiting results that pass `is_one`.
    pub(super) fn among(&self, principal: Principal, is_one: impl Fn(&Name) -> bool) -> Vec<Name> {
        let Some(known) = self.0.get(&principal) else {
            return Vec::new();
        };
        let known = lock(&known);
        known.waiting.keys().filter(|name| is_one(name)).copied().collect()
    }

    /// Returns the number of waiting results, without those that have expired.
    pub(super) fn count(&self, principal: Principal, now: Moment) -> usize {
        let Some(known) = self.0.get(&principal) else { return 0 };
        let mut known = lock(&known);
        // The ledger does not announce the records that it expires.
        known.waiting.retain(|_, until| *until > now);
        known.waiting.len()
    }

    /// Applies a change if the principal is in memory. For any other, a later load reads the whole state.
    fn of(&self, principal: Principal, change: impl FnOnce(&mut Known)) {
        if let Some(known) = self.0.get(&principal) {
            change(&mut lock(&known));
        }
    }
}

fn lock(known: &Mutex<Known>) -> MutexGuard<'_, Known> {
    // A panic elsewhere leaves these maps usable.
    known.lock().unwrap_or_else(PoisonError::into_inner)
}
