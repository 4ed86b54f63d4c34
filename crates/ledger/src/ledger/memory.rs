//! A ledger in memory. Its records are lost when the process ends.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    convert::Infallible,
    fmt,
    future::ready,
    sync::{Mutex, MutexGuard, PoisonError},
};

use super::{
    CommitOutcome, CommitStep, Index, Ledger, LedgerError, LedgerReply, LedgerSettings, LedgerSize, Moment,
    PlacedRecord, ROWS_MAX, Record, RecordKey, RecordKind, RecordName,
    steps::{self, RecordStore},
    usage_counter::UsageCounter,
};
use crate::principal::PrincipalHash;

/// A ledger that stores its records in memory.
pub struct MemoryLedger {
    settings: LedgerSettings,
    secret: [u8; 32],
    records: Mutex<MemoryRecords>,
}

impl fmt::Debug for MemoryLedger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryLedger").finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct MemoryRecords {
    records: HashMap<RecordKey, PlacedRecord>,
    /// The names of each principal's records of a kind, in the order of their inserts.
    by_principal: BTreeMap<(RecordKind, PrincipalHash, u64), RecordName>,
    /// The keys of the records under each index, in the order of their inserts.
    by_index: BTreeMap<(RecordKind, Index, u64), RecordKey>,
    by_expiry: BTreeSet<(Moment, RecordKey)>,
    last_place: u64,
    tally: UsageCounter,
    /// The earlier record of each key that the current commit has changed, oldest change first.
    undo_log: Vec<(RecordKey, Option<PlacedRecord>)>,
}

impl MemoryRecords {
    fn live_record(&self, key: &RecordKey, now: Moment) -> Option<&Record> {
        let record = self.records.get(key).map(|(_, record)| record);
        record.filter(|record| record.expires_at > now)
    }

    /// Stores `placed` under `key`, or removes the record if it is `None`. Returns the earlier record.
    fn set_record(&mut self, key: &RecordKey, placed: Option<PlacedRecord>) -> Option<PlacedRecord> {
        // Every index must lose the earlier record first: its place, index and expiry may differ from the new one's.
        let before = self.records.remove(key);
        if let Some((place, record)) = &before {
            self.by_principal.remove(&(key.kind, key.principal, *place));
            if let Some(index) = record.index {
                self.by_index.remove(&(key.kind, index, *place));
            }
            self.by_expiry.remove(&(record.expires_at, *key));
            self.tally.remove_record(key.principal, record.value.len() as u64);
        }
        if let Some((place, record)) = placed {
            self.by_principal.insert((key.kind, key.principal, place), key.name);
            if let Some(index) = record.index {
                self.by_index.insert((key.kind, index, place), *key);
            }
            self.by_expiry.insert((record.expires_at, *key));
            self.tally.add_record(key.principal, record.value.len() as u64);
            self.records.insert(*key, (place, record));
        }
        // No log of counts is needed: the undo log sets the earlier records again, which counts them too.
        self.tally.forget_changes();
        before
    }

    fn set_with_undo(&mut self, key: &RecordKey, placed: Option<PlacedRecord>) {
        let before = self.set_record(key, placed);
        self.undo_log.push((*key, before));
    }

    fn remove_expired(&mut self, now: Moment) -> u64 {
        let mut gone = 0_u64;
        while let Some((_, key)) = self.by_expiry.first().filter(|(at, _)| *at <= now).copied() {
            self.set_record(&key, None);
            gone = gone.saturating_add(1);
        }
        gone
    }

    fn list_records(&self, kind: RecordKind, principal: PrincipalHash, limit: usize, now: Moment) -> Vec<Record> {
        // The map is ordered by place, so that a reverse range yields the latest first.
        let places = (kind, principal, 0)..=(kind, principal, u64::MAX);
        let key = |name: &RecordName| RecordKey {
            kind,
            principal,
            name: *name,
        };
        let names = self.by_principal.range(places).rev().map(|(_, name)| key(name));
        self.latest_records(names, limit, now)
    }

    fn list_after(
        &self,
        kind: RecordKind,
        principal: PrincipalHash,
        after: u64,
        limit: usize,
        now: Moment,
    ) -> Vec<PlacedRecord> {
        let Some(first) = after.checked_add(1) else {
            return Vec::new();
        };
        let places = (kind, principal, first)..=(kind, principal, u64::MAX);
        let record = |((_, _, place), name): (&(RecordKind, PrincipalHash, u64), &RecordName)| {
            let key = RecordKey {
                kind,
                principal,
                name: *name,
            };
            Some((*place, self.live_record(&key, now)?.clone()))
        };
        let found = self.by_principal.range(places).filter_map(record);
        found.take(limit.min(ROWS_MAX)).collect()
    }

    fn list_principals(&self, kind: RecordKind, after: Option<PrincipalHash>, limit: usize) -> Vec<PrincipalHash> {
        let mut found: Vec<PrincipalHash> = Vec::new();
        let mut first = after.map_or(Some([0; 32]), next_hash);
        // Each step skips the rest of one principal's records.
        while let Some(from) = first.filter(|_| found.len() < limit) {
            let mut later = self.by_principal.range((kind, from, 0)..);
            let principal = later.next().map(|((of, principal, _), _)| (*of, *principal));
            let Some((_, principal)) = principal.filter(|(of, _)| *of == kind) else {
                break;
            };
            found.push(principal);
            first = next_hash(principal);
        }
        found
    }

    fn find_by_index(&self, kind: RecordKind, index: Index, limit: usize, now: Moment) -> Vec<Record> {
        let places = (kind, index, 0)..=(kind, index, u64::MAX);
        let keys = self.by_index.range(places).rev().map(|(_, key)| *key);
        self.latest_records(keys, limit, now)
    }

    /// Returns the first `limit` live records of `keys`, in reverse order: keys come latest first.
    fn latest_records(&self, keys: impl Iterator<Item = RecordKey>, limit: usize, now: Moment) -> Vec<Record> {
        let living = keys.filter_map(|key| self.live_record(&key, now));
        let mut found: Vec<Record> = living.take(limit.min(ROWS_MAX)).cloned().collect();
        found.reverse();
        found
    }
}

/// Returns the hash that follows this one in their order. `None` after the last.
fn next_hash(mut hash: PrincipalHash) -> Option<PrincipalHash> {
    for byte in hash.iter_mut().rev() {
        *byte = byte.wrapping_add(1);
        if *byte != 0 {
            return Some(hash);
        }
    }
    None
}

impl RecordStore for MemoryRecords {
    type Error = Infallible;

    fn begin_commit(&mut self) -> Result<(), Infallible> {
        self.undo_log.clear();
        Ok(())
    }

    fn keep_changes(&mut self) -> Result<(), Infallible> {
        self.undo_log.clear();
        Ok(())
    }

    fn undo_changes(&mut self) -> Result<(), Infallible> {
        // Newest change first: one key may have changed several times in a commit.
        while let Some((key, before)) = self.undo_log.pop() {
            self.set_record(&key, before);
        }
        Ok(())
    }

    fn find_live(&mut self, key: &RecordKey, now: Moment) -> Result<Option<Record>, Infallible> {
        Ok(Self::live_record(self, key, now).cloned())
    }

    fn insert_record(&mut self, record: Record) -> Result<(), Infallible> {
        // The first is 1: lists begin after 0.
        self.last_place = self.last_place.saturating_add(1);
        let place = self.last_place;
        let key = record.key;
        self.set_with_undo(&key, Some((place, record)));
        Ok(())
    }

    fn replace_record(&mut self, record: Record) -> Result<(), Infallible> {
        let key = record.key;
        if let Some(place) = self.records.get(&key).map(|(place, _)| *place) {
            self.set_with_undo(&key, Some((place, record)));
        }
        Ok(())
    }

    fn remove_record(&mut self, key: &RecordKey) -> Result<(), Infallible> {
        self.set_with_undo(key, None);
        Ok(())
    }

    fn clear_expired(&mut self, now: Moment) -> Result<(), Infallible> {
        self.remove_expired(now);
        Ok(())
    }

    fn usage_counter(&self) -> &UsageCounter {
        &self.tally
    }
}

impl MemoryLedger {
    /// Makes an empty ledger with this secret key.
    pub fn new(settings: LedgerSettings, secret: [u8; 32]) -> Self {
        Self {
            settings,
            secret,
            records: Mutex::default(),
        }
    }

    fn lock_records(&self) -> MutexGuard<'_, MemoryRecords> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn commit_now(&self, steps: &[CommitStep], now: Moment) -> Result<CommitOutcome, LedgerError> {
        steps::check_bounds(steps)?;
        let Ok(outcome) = steps::commit_steps(&mut *self.lock_records(), self.settings, steps, now);
        outcome
    }
}

impl Ledger for MemoryLedger {
    fn commit(&self, steps: Vec<CommitStep>, now: Moment) -> LedgerReply<'_, CommitOutcome> {
        Box::pin(ready(self.commit_now(&steps, now)))
    }

    fn read(&self, keys: Vec<RecordKey>, now: Moment) -> LedgerReply<'_, Vec<Option<Record>>> {
        if keys.len() > ROWS_MAX {
            return Box::pin(ready(Err(LedgerError::TooLarge)));
        }
        // One lock for all keys: they are read from the same state.
        let kept = self.lock_records();
        let found = keys.iter().map(|key| kept.live_record(key, now).cloned()).collect();
        Box::pin(ready(Ok(found)))
    }

    fn list_records(
        &self,
        kind: RecordKind,
        principal: PrincipalHash,
        limit: usize,
        now: Moment,
    ) -> LedgerReply<'_, Vec<Record>> {
        let found = self.lock_records().list_records(kind, principal, limit, now);
        Box::pin(ready(Ok(found)))
    }

    fn find_by_index(&self, kind: RecordKind, index: Index, limit: usize, now: Moment) -> LedgerReply<'_, Vec<Record>> {
        let found = self.lock_records().find_by_index(kind, index, limit, now);
        Box::pin(ready(Ok(found)))
    }

    fn list_after(
        &self,
        kind: RecordKind,
        principal: PrincipalHash,
        after: u64,
        limit: usize,
        now: Moment,
    ) -> LedgerReply<'_, Vec<PlacedRecord>> {
        let found = self.lock_records().list_after(kind, principal, after, limit, now);
        Box::pin(ready(Ok(found)))
    }

    fn list_principals(
        &self,
        kind: RecordKind,
        after: Option<PrincipalHash>,
        limit: usize,
    ) -> LedgerReply<'_, Vec<PrincipalHash>> {
        let found = self.lock_records().list_principals(kind, after, limit);
        Box::pin(ready(Ok(found)))
    }

    fn remove_unusable(&self, now: Moment) -> LedgerReply<'_, u64> {
        let gone = self.lock_records().remove_expired(now);
        Box::pin(ready(Ok(gone)))
    }

    fn usage(&self) -> LedgerReply<'_, LedgerSize> {
        let usage = self.lock_records().tally.usage();
        Box::pin(ready(Ok(usage)))
    }

    fn secret(&self) -> [u8; 32] {
        self.secret
    }

    fn survives_restart(&self) -> bool {
        false
    }

    fn is_exclusive(&self) -> bool {
        true
    }
}
