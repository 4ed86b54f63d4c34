//! A ledger in memory: gone with its process.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    future::ready,
    sync::{Mutex, MutexGuard, PoisonError},
};

use super::{
    Index, Key, Kind, Ledger, LedgerError, LedgerSettings, Moment, Outcome, RECORD_BYTES, ROWS_MAX, Record, Reply,
    Step, Usage, VALUE_BYTES_MAX,
};
use crate::session::PrincipalHash;

/// Records in memory.
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

#[derive(Clone, Debug, Default)]
struct Kept {
    records: HashMap<Key, Record>,
    /// The keys in the order in which they were put in.
    order: BTreeMap<u64, Key>,
    places: HashMap<Key, u64>,
    next: u64,
    bytes: u64,
    of_principals: HashMap<PrincipalHash, u64>,
}

impl Kept {
    fn living(&self, key: &Key, now: Moment) -> Option<&Record> {
        self.records.get(key).filter(|record| record.expires_at > now)
    }

    fn put(&mut self, record: Record) {
        self.take(&record.key);
        let size = RECORD_BYTES.saturating_add(record.value.len() as u64);
        self.bytes = self.bytes.saturating_add(size);
        let own = self.of_principals.entry(record.key.principal).or_default();
        *own = own.saturating_add(size);
        self.order.insert(self.next, record.key);
        self.places.insert(record.key, self.next);
        self.next = self.next.saturating_add(1);
        self.records.insert(record.key, record);
    }

    fn take(&mut self, key: &Key) {
        let Some(record) = self.records.remove(key) else { return };
        let size = RECORD_BYTES.saturating_add(record.value.len() as u64);
        self.bytes = self.bytes.saturating_sub(size);
        if let Some(own) = self.of_principals.get_mut(&key.principal) {
            *own = own.saturating_sub(size);
            if *own == 0 {
                self.of_principals.remove(&key.principal);
            }
        }
        if let Some(place) = self.places.remove(key) {
            self.order.remove(&place);
        }
    }

    fn replace(&mut self, key: &Key, change: impl FnOnce(&mut Record)) {
        let Some(record) = self.records.get_mut(key) else {
            return;
        };
        let before = record.value.len() as u64;
        change(record);
        let after = record.value.len() as u64;
        self.bytes = self.bytes.saturating_sub(before).saturating_add(after);
        if let Some(own) = self.of_principals.get_mut(&key.principal) {
            *own = own.saturating_sub(before).saturating_add(after);
        }
    }

    fn clear(&mut self, now: Moment) -> u64 {
        let gone: Vec<Key> = self
            .records
            .values()
            .filter(|record| record.expires_at <= now)
            .map(|record| record.key)
            .collect();
        for key in &gone {
            self.take(key);
        }
        gone.len() as u64
    }

    /// Does all of the steps, or says which of them could not be done.
    fn apply(&mut self, steps: &[Step], now: Moment) -> Result<(), Vec<Option<Record>>> {
        let mut standing = Vec::with_capacity(steps.len());
        let mut conflict = false;
        for step in steps {
            let found = self.living(step.key(), now).cloned();
            let wrong = match step {
                Step::Insert { .. } => found.is_some(),
                Step::Replace { version, .. } | Step::Remove { version, .. } => {
                    found.as_ref().is_none_or(|record| record.version != *version)
                }
            };
            conflict |= wrong;
            if !wrong {
                self.step(step, now);
            }
            standing.push(found.filter(|_| wrong));
        }
        if conflict { Err(standing) } else { Ok(()) }
    }

    fn step(&mut self, step: &Step, now: Moment) {
        match step {
            Step::Insert {
                key,
                index,
                value,
                expires_at,
            } => self.put(Record {
                key: *key,
                index: *index,
                value: value.clone(),
                version: 1,
                made_at: now,
                expires_at: *expires_at,
            }),
            Step::Replace {
                key, value, expires_at, ..
            } => self.replace(key, |record| {
                record.value = value.clone();
                record.version = record.version.saturating_add(1);
                record.expires_at = *expires_at;
            }),
            Step::Remove { key, .. } => self.take(key),
        }
    }

    fn latest(&self, limit: usize, is_it: impl Fn(&Record) -> bool) -> Vec<Record> {
        let in_order = self.order.values().rev().filter_map(|key| self.records.get(key));
        let mut found: Vec<Record> = in_order
            .filter(|record| is_it(record))
            .take(limit.min(ROWS_MAX))
            .cloned()
            .collect();
        found.reverse();
        found
    }
}

impl MemoryLedger {
    /// An empty ledger with this secret key.
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
        let too_long = |step: &Step| match step {
            Step::Insert { value, .. } | Step::Replace { value, .. } => value.len() > VALUE_BYTES_MAX,
            Step::Remove { .. } => false,
        };
        if steps.len() > ROWS_MAX || steps.iter().any(too_long) {
            return Err(LedgerError::TooLarge);
        }
        let mut kept = self.lock();
        kept.clear(now);
        let mut tried = kept.clone();
        if let Err(standing) = tried.apply(steps, now) {
            return Ok(Outcome::Conflict(standing));
        }
        let grew = |principal: &PrincipalHash| {
            let of = |kept: &Kept| kept.of_principals.get(principal).copied().unwrap_or_default();
            of(&tried) > self.settings.principal_bytes_max && of(&tried) > of(&kept)
        };
        if steps.iter().any(|step| grew(&step.key().principal)) {
            return Err(LedgerError::Full { of_principal: true });
        }
        if tried.bytes > self.settings.bytes_max && tried.bytes > kept.bytes {
            return Err(LedgerError::Full { of_principal: false });
        }
        *kept = tried;
        Ok(Outcome::Done)
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
        let kept = self.lock();
        let found = keys.iter().map(|key| kept.living(key, now).cloned()).collect();
        Box::pin(ready(Ok(found)))
    }

    fn list(&self, kind: Kind, principal: PrincipalHash, limit: usize, now: Moment) -> Reply<'_, Vec<Record>> {
        let found = self.lock().latest(limit, |record| {
            record.key.kind == kind && record.key.principal == principal && record.expires_at > now
        });
        Box::pin(ready(Ok(found)))
    }

    fn find(&self, kind: Kind, index: Index, limit: usize, now: Moment) -> Reply<'_, Vec<Record>> {
        let found = self.lock().latest(limit, |record| {
            record.key.kind == kind && record.index == Some(index) && record.expires_at > now
        });
        Box::pin(ready(Ok(found)))
    }

    fn clear(&self, now: Moment) -> Reply<'_, u64> {
        let gone = self.lock().clear(now);
        Box::pin(ready(Ok(gone)))
    }

    fn usage(&self) -> Reply<'_, Usage> {
        let kept = self.lock();
        let usage = Usage {
            records: kept.records.len() as u64,
            bytes: kept.bytes,
        };
        Box::pin(ready(Ok(usage)))
    }

    fn secret(&self) -> [u8; 32] {
        self.secret
    }

    fn survives_restart(&self) -> bool {
        false
    }
}
