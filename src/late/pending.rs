//! How many results wait for each principal, in memory: asked with every exchange.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use moka::sync::Cache;

use crate::{
    auth::Principal,
    ledger::{Moment, Name, Record},
};

/// Principals that are remembered; another is read anew from the ledger.
const PRINCIPALS_MAX: u64 = 100_000;

/// Results of one principal that are remembered to have gone.
const GONE_MAX: usize = 4096;

/// What waits, by principal.
#[derive(Clone, Debug)]
pub(super) struct Pending(Cache<Principal, Arc<Mutex<Known>>>);

/// What is known of one principal.
#[derive(Debug, Default)]
struct Known {
    is_loaded: bool,
    /// Until when each of them is kept.
    waiting: HashMap<Name, Moment>,
    /// Those that went: what comes behind that was read, or written, before. A result that went never waits again.
    gone: HashSet<Name>,
}

impl Default for Pending {
    fn default() -> Self {
        Self(Cache::new(PRINCIPALS_MAX))
    }
}

impl Pending {
    /// How many wait for anybody who is remembered.
    pub(super) fn total(&self) -> usize {
        self.0.iter().map(|(_, known)| lock(&known).waiting.len()).sum()
    }

    /// Whether the ledger must be read for this principal. From now on changes are noted.
    pub(super) fn wants(&self, principal: Principal) -> bool {
        let known = self.0.get_with(principal, Arc::default);
        let is_loaded = lock(&known).is_loaded;
        !is_loaded
    }

    /// Notes what the ledger had. What came or went meanwhile is newer.
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

    pub(super) fn add(&self, principal: Principal, name: Name, until: Moment) {
        self.of(principal, |known| {
            if !known.gone.contains(&name) {
                known.waiting.insert(name, until);
            }
        });
    }

    pub(super) fn remove(&self, principal: Principal, name: Name) {
        self.of(principal, |known| {
            known.waiting.remove(&name);
            if known.is_loaded && known.gone.len() >= GONE_MAX {
                known.gone.clear();
            }
            known.gone.insert(name);
        });
    }

    /// Whether this one waits.
    pub(super) fn has(&self, principal: Principal, name: &Name) -> bool {
        let known = self.0.get(&principal);
        known.is_some_and(|known| lock(&known).waiting.contains_key(name))
    }

    /// Those of these that wait.
    pub(super) fn among(&self, principal: Principal, is_one: impl Fn(&Name) -> bool) -> Vec<Name> {
        let Some(known) = self.0.get(&principal) else {
            return Vec::new();
        };
        let known = lock(&known);
        known.waiting.keys().filter(|name| is_one(name)).copied().collect()
    }

    pub(super) fn count(&self, principal: Principal, now: Moment) -> usize {
        let Some(known) = self.0.get(&principal) else { return 0 };
        let mut known = lock(&known);
        known.waiting.retain(|_, until| *until > now);
        known.waiting.len()
    }

    /// Of a principal that nobody has asked for, the ledger knows all.
    fn of(&self, principal: Principal, change: impl FnOnce(&mut Known)) {
        if let Some(known) = self.0.get(&principal) {
            change(&mut lock(&known));
        }
    }
}

fn lock(known: &Mutex<Known>) -> MutexGuard<'_, Known> {
    known.lock().unwrap_or_else(PoisonError::into_inner)
}
