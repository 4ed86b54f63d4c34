//! The records that a batch of commits may change, in memory: it is decided here, and written by its difference.
//!
//! Pure. The rows of all keys are locked and loaded before, so that the decisions of [`steps`](crate::ledger::steps) hold
//! until the transaction ends.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    convert::Infallible,
};

use super::rows::TableRow;
use crate::{
    ledger::{LedgerSize, Moment, Record, RecordKey, steps::RecordStore, usage_counter::UsageCounter},
    principal::PrincipalHash,
};

/// The records of a batch.
#[derive(Debug)]
pub(super) struct LoadedRecords {
    records: HashMap<RecordKey, HeldRecord>,
    /// The keys with a row in the table.
    stored: BTreeSet<RecordKey>,
    changed: BTreeSet<RecordKey>,
    /// Free places in the order of inserts, the next one last.
    places: Vec<i64>,
    /// The places that the current commit has taken.
    taken: Vec<i64>,
    counter: UsageCounter,
    size_before: LedgerSize,
    bytes_before: HashMap<PrincipalHash, u64>,
    undo_log: Vec<(RecordKey, Option<HeldRecord>)>,
    /// `true` once a commit needs the room of expired records.
    wants_room: bool,
}

/// A record at its place. The record is `None` if its row is damaged.
#[derive(Clone, Debug)]
struct HeldRecord {
    place: i64,
    value_bytes: u64,
    record: Option<Record>,
}

/// The difference between the table and the records after a batch.
#[derive(Debug, Default)]
pub(super) struct TableChange {
    /// The keys of rows to delete, in their order.
    pub(super) deleted: Vec<RecordKey>,
    /// The rows to write over existing ones, in the order of their keys, each with its place.
    pub(super) replaced: Vec<(i64, Record)>,
    /// The rows to add, in the order of their keys, each with its place.
    pub(super) added: Vec<(i64, Record)>,
    /// The change of each principal's bytes.
    pub(super) bytes: BTreeMap<PrincipalHash, i64>,
    /// The change of all bytes.
    pub(super) total_bytes: i64,
    /// The change of the number of records.
    pub(super) total_records: i64,
}

impl TableChange {
    /// Returns `true` if nothing is to be written.
    pub(super) fn is_empty(&self) -> bool {
        self.deleted.is_empty() && self.replaced.is_empty() && self.added.is_empty()
    }
}

impl LoadedRecords {
    /// Holds the loaded rows. `places` are as many free places as there are inserts, in ascending order.
    pub(super) fn new(
        rows: Vec<TableRow>,
        size: LedgerSize,
        bytes: HashMap<PrincipalHash, u64>,
        mut places: Vec<i64>,
    ) -> Self {
        places.reverse();
        let stored = rows.iter().map(|row| row.key).collect();
        let held = |row: TableRow| {
            let held = HeldRecord {
                place: row.place,
                value_bytes: row.value_bytes,
                record: row.record,
            };
            (row.key, held)
        };
        Self {
            records: rows.into_iter().map(held).collect(),
            stored,
            changed: BTreeSet::new(),
            places,
            taken: Vec::new(),
            counter: UsageCounter::of_sizes(size, bytes.clone()),
            size_before: size,
            bytes_before: bytes,
            undo_log: Vec::new(),
            wants_room: false,
        }
    }

    /// Returns `true` if a commit needed the room of expired records.
    pub(super) const fn wants_room(&self) -> bool {
        self.wants_room
    }

    /// Returns what is to be written.
    pub(super) fn into_change(mut self) -> TableChange {
        let mut change = TableChange::default();
        for key in std::mem::take(&mut self.changed) {
            let held = self.records.remove(&key);
            let record = held.and_then(|held| Some((held.place, held.record?)));
            match (record, self.stored.contains(&key)) {
                (Some(placed), true) => change.replaced.push(placed),
                (Some(placed), false) => change.added.push(placed),
                (None, true) => change.deleted.push(key),
                (None, false) => {}
            }
        }
        let difference = |after: u64, before: u64| {
            let size = i64::try_from(after.abs_diff(before)).unwrap_or(i64::MAX);
            if after < before { -size } else { size }
        };
        let usage = self.counter.usage();
        change.total_bytes = difference(usage.bytes, self.size_before.bytes);
        change.total_records = difference(usage.records, self.size_before.records);
        for (principal, before) in self.bytes_before {
            let after = self.counter.principal_bytes(&principal);
            if after != before {
                change.bytes.insert(principal, difference(after, before));
            }
        }
        change
    }

    fn set_record(&mut self, key: RecordKey, held: Option<HeldRecord>) -> Option<HeldRecord> {
        let before = self.records.remove(&key);
        if let Some(before) = &before {
            self.counter.remove_record(key.principal, before.value_bytes);
        }
        if let Some(held) = held {
            self.counter.add_record(key.principal, held.value_bytes);
            self.records.insert(key, held);
        }
        // The undo log sets the earlier records again, which counts them too.
        self.counter.forget_changes();
        self.changed.insert(key);
        before
    }

    fn set_with_undo(&mut self, key: RecordKey, held: Option<HeldRecord>) {
        let before = self.set_record(key, held);
        self.undo_log.push((key, before));
    }
}

impl HeldRecord {
    fn new(place: i64, record: Record) -> Self {
        Self {
            place,
            value_bytes: record.value.len() as u64,
            record: Some(record),
        }
    }
}

impl RecordStore for LoadedRecords {
    type Error = Infallible;

    fn begin_commit(&mut self) -> Result<(), Infallible> {
        self.taken.clear();
        self.undo_log.clear();
        Ok(())
    }

    fn keep_changes(&mut self) -> Result<(), Infallible> {
        self.taken.clear();
        self.undo_log.clear();
        Ok(())
    }

    fn undo_changes(&mut self) -> Result<(), Infallible> {
        while let Some((key, before)) = self.undo_log.pop() {
            self.set_record(key, before);
        }
        self.places.extend(self.taken.drain(..).rev());
        Ok(())
    }

    fn find_live(&mut self, key: &RecordKey, now: Moment) -> Result<Option<Record>, Infallible> {
        let record = self.records.get(key).and_then(|held| held.record.as_ref());
        Ok(record.filter(|record| record.expires_at > now).cloned())
    }

    fn insert_record(&mut self, record: Record) -> Result<(), Infallible> {
        // There is one for each insert. Without one the row would be refused by the table, and the batch fail.
        let place = self.places.pop().unwrap_or_default();
        self.taken.push(place);
        self.set_with_undo(record.key, Some(HeldRecord::new(place, record)));
        Ok(())
    }

    fn replace_record(&mut self, record: Record) -> Result<(), Infallible> {
        if let Some(place) = self.records.get(&record.key).map(|held| held.place) {
            self.set_with_undo(record.key, Some(HeldRecord::new(place, record)));
        }
        Ok(())
    }

    fn remove_record(&mut self, key: &RecordKey) -> Result<(), Infallible> {
        self.set_with_undo(*key, None);
        Ok(())
    }

    fn clear_expired(&mut self, _: Moment) -> Result<(), Infallible> {
        // Most expired records are not loaded: the caller removes them, and tries once more.
        self.wants_room = true;
        Ok(())
    }

    fn usage_counter(&self) -> &UsageCounter {
        &self.counter
    }
}
