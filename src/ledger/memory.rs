//! A ledger in memory. Its records are lost when the process ends.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    convert::Infallible,
    fmt,
    future::ready,
    sync::{Mutex, MutexGuard, PoisonError},
};

use super::{
    Index, Key, Kind, Ledger, LedgerError, LedgerSettings, Moment, Name, Outcome, ROWS_MAX, Record, Reply, Step, Usage,
    steps::{self, Shelf},
    tally::Tally,
};
use crate::session::PrincipalHash;

/// A ledger that stores its records in memory.
pub struct MemoryLedger {
    settings: LedgerSettings,
    secret: [u8; 32],
    kept: Mutex<Kept>,
}

impl fmt::Debug for MemoryLedger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryLedger").finish_non_exhaustive()
    }
}

/// A record, with its place in the order of inserts.
type Placed = (u64, Record);

#[derive(Debug, Default)]
struct Kept {
    records: HashMap<Key, Placed>,
    /// The names of each principal's records of a kind, in the order of their inserts.
    of_principals: BTreeMap<(Kind, PrincipalHash, u64), Name>,
    /// The keys of the records under each index, in the order of their inserts.
    of_indexes: BTreeMap<(Kind, Index, u64), Key>,
    by_expiry: BTreeSet<(Moment, Key)>,
    next: u64,
    tally: Tally,
    /// The earlier record of each key that the current commit has changed, oldest change first.
    undo: Vec<(Key, Option<Placed>)>,
}

impl Kept {
    fn living(&self, key: &Key, now: Moment) -> Option<&Record> {
        let record = self.records.get(key).map(|(_, record)| record);
        record.filter(|record| record.expires_at > now)
    }

    /// Stores `placed` under `key`, or removes the record if it is `None`. Returns the earlier record.
    fn set(&mut self, key: &Key, placed: Option<Placed>) -> Option<Placed> {
        // Every index must lose the earlier record first: its place, index and expiry may differ from the new one's.
        let before = self.records.remove(key);
        if let Some((place, record)) = &before {
            self.of_principals.remove(&(key.kind, key.principal, *place));
            if let Some(index) = record.index {
                self.of_indexes.remove(&(key.kind, index, *place));
            }
            self.by_expiry.remove(&(record.expires_at, *key));
            self.tally.go(key.principal, record.value.len() as u64);
        }
        if let Some((place, record)) = placed {
            self.of_principals.insert((key.kind, key.principal, place), key.name);
            if let Some(index) = record.index {
                self.of_indexes.insert((key.kind, index, place), *key);
            }
            self.by_expiry.insert((record.expires_at, *key));
            self.tally.come(key.principal, record.value.len() as u64);
            self.records.insert(*key, (place, record));
        }
        // No log of counts is needed: the undo log sets the earlier records again, which counts them too.
        self.tally.settle();
        before
    }

    fn change(&mut self, key: &Key, placed: Option<Placed>) {
        let before = self.set(key, placed);
        self.undo.push((*key, before));
    }

    fn clear(&mut self, now: Moment) -> u64 {
        let mut gone = 0_u64;
        while let Some((_, key)) = self.by_expiry.first().filter(|(at, _)| *at <= now).copied() {
            self.set(&key, None);
            gone = gone.saturating_add(1);
        }
        gone
    }

    fn list(&self, kind: Kind, principal: PrincipalHash, limit: usize, now: Moment) -> Vec<Record> {
        // The map is ordered by place, so that a reverse range yields the latest first.
        let places = (kind, principal, 0)..=(kind, principal, u64::MAX);
        let key = |name: &Name| Key {
            kind,
            principal,
            name: *name,
        };
        let names = self.of_principals.range(places).rev().map(|(_, name)| key(name));
        self.latest(names, limit, now)
    }

    fn find(&self, kind: Kind, index: Index, limit: usize, now: Moment) -> Vec<Record> {
        let places = (kind, index, 0)..=(kind, index, u64::MAX);
        let keys = self.of_indexes.range(places).rev().map(|(_, key)| *key);
        self.latest(keys, limit, now)
    }

    /// Returns the first `limit` live records of `keys`, in reverse order: keys come latest first.
    fn latest(&self, keys: impl Iterator<Item = Key>, limit: usize, now: Moment) -> Vec<Record> {
        let living = keys.filter_map(|key| self.living(&key, now));
        let mut found: Vec<Record> = living.take(limit.min(ROWS_MAX)).cloned().collect();
        found.reverse();
        found
    }
}

impl Shelf for Kept {
    type Error = Infallible;

    fn begin(&mut self) -> Result<(), Infallible> {
        self.undo.clear();
        Ok(())
    }

    fn keep(&mut self) -> Result<(), Infallible> {
        self.undo.clear();
        Ok(())
    }

    fn undo(&mut self) -> Result<(), Infallible> {
        // Newest change first: one key may have changed several times in a commit.
        while let Some((key, before)) = self.undo.pop() {
            self.set(&key, before);
        }
        Ok(())
    }

    fn living(&mut self, key: &Key, now: Moment) -> Result<Option<Record>, Infallible> {
        Ok(Self::living(self, key, now).cloned())
    }

    fn put(&mut self, record: Record) -> Result<(), Infallible> {
        let place = self.next;
        self.next = self.next.saturating_add(1);
        let key = record.key;
        self.change(&key, Some((place, record)));
        Ok(())
    }

    fn replace(&mut self, record: Record) -> Result<(), Infallible> {
        let key = record.key;
        if let Some(place) = self.records.get(&key).map(|(place, _)| *place) {
            self.change(&key, Some((place, record)));
        }
        Ok(())
    }

    fn take(&mut self, key: &Key) -> Result<(), Infallible> {
        self.change(key, None);
        Ok(())
    }

    fn clear_expired(&mut self, now: Moment) -> Result<(), Infallible> {
        self.clear(now);
        Ok(())
    }

    fn tally(&self) -> &Tally {
        &self.tally
    }
}

impl MemoryLedger {
    /// Makes an empty ledger with this secret key.
    pub fn new(settings: LedgerSettings, secret: [u8; 32]) -> Self {
        Self {
            settings,
            secret,
            kept: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn commit_now(&self, steps: &[Step], now: Moment) -> Result<Outcome, LedgerError> {
        steps::within_bounds(steps)?;
        let Ok(outcome) = steps::carry_out(&mut *self.lock(), self.settings, steps, now);
        outcome
    }
}

impl Ledger for MemoryLedger {
    fn commit(&self, steps: Vec<Step>, now: Moment) -> Reply<'_, Outcome> {
        Box::pin(ready(self.commit_now(&steps, now)))
    }

    fn read(&self, keys: Vec<Key>, now: Moment) -> Reply<'_, Vec<Option<Record>>> {
        if keys.len() > ROWS_MAX {
            return Box::pin(ready(Err(LedgerError::TooLarge)));
        }
        // One lock for all keys: they are read from the same state.
        let kept = self.lock();
        let found = keys.iter().map(|key| kept.living(key, now).cloned()).collect();
        Box::pin(ready(Ok(found)))
    }

    fn list(&self, kind: Kind, principal: PrincipalHash, limit: usize, now: Moment) -> Reply<'_, Vec<Record>> {
        let found = self.lock().list(kind, principal, limit, now);
        Box::pin(ready(Ok(found)))
    }

    fn find(&self, kind: Kind, index: Index, limit: usize, now: Moment) -> Reply<'_, Vec<Record>> {
        let found = self.lock().find(kind, index, limit, now);
        Box::pin(ready(Ok(found)))
    }

    fn clear(&self, now: Moment) -> Reply<'_, u64> {
        let gone = self.lock().clear(now);
        Box::pin(ready(Ok(gone)))
    }

    fn usage(&self) -> Reply<'_, Usage> {
        let usage = self.lock().tally.usage();
        Box::pin(ready(Ok(usage)))
    }

    fn secret(&self) -> [u8; 32] {
        self.secret
    }

    fn survives_restart(&self) -> bool {
        false
    }
}
