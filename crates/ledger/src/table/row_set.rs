//! The rows of one principal in memory: what reads of the ledger find, and what this process has changed since.

use std::collections::{HashMap, hash_map::Entry};

use antiphon_core::digest::DigestHashBuilder;

use super::StoredRow;
use crate::ledger::{ChangeStamp, MOMENT_MAX, Moment, Record, RecordName};

/// The most rows of one set. A full one loses those that do not count, and keeps the others.
const SET_ROWS_MAX: usize = 65_536;
/// The rows that a full set must be able to lose before it walks over all of them, so that an insert costs little.
const LOST_ROWS_MIN: usize = SET_ROWS_MAX / 16;
/// Bytes that a set and each of its rows count in addition to the bytes of the rows.
const ROW_OVERHEAD_BYTES: usize = 192;

/// A row of a set.
pub trait SetRow: StoredRow {
    /// Returns the time until which the row is stored.
    fn until(&self) -> Moment;

    /// Returns `true` if the row is counted. A full set never drops it.
    fn is_counted(&self) -> bool {
        false
    }
}

/// The change of a row in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetChange<V> {
    /// The row stays as it is.
    Keep,
    /// This is the row now.
    Put(V),
    /// This is the row, with a mark that only memory has. What a read finds in the ledger is newer all the same.
    Mark(V),
    /// There is no row any more. A read that began before finds it until this time at the latest.
    Remove(Moment),
}

/// The rows of one principal.
#[derive(Debug)]
pub struct RowSet<V> {
    rows: HashMap<RecordName, SetEntry<V>, DigestHashBuilder>,
    /// The number of rows that count.
    counted: usize,
    /// The bytes of all rows, and 192 for each and for the set.
    pub(super) bytes: usize,
    /// The time at which the first row expires.
    next_expiry: Moment,
    /// `true` if the ledger has no row that the set lacks, as of its last read.
    is_complete: bool,
    /// The state of the ledger that was read last. `None` if none was read, or if it may have changed at once.
    read_at: Option<ChangeStamp>,
    /// The number of that read.
    last_read: u64,
    /// The number of reads that were begun.
    reads: u64,
    /// A read that a timeout has ended before its last page.
    unfinished: Option<SetRead<V>>,
    /// The number of changes by this process.
    own_changes: u64,
}

/// A row of a set, or its removal by this process: a read that began before may still find it.
#[derive(Debug)]
struct SetEntry<V> {
    row: Option<V>,
    /// The number of the last change by this process. 0 if it was only read.
    changed_by: u64,
    /// The time until which it is stored.
    until: Moment,
}

/// A read of all rows of one principal, page by page.
#[derive(Debug)]
pub(super) struct SetRead<V> {
    number: u64,
    /// The state of the ledger when it began.
    stamp: Option<ChangeStamp>,
    /// The number of changes by this process when it began.
    own_changes: u64,
    /// The place in the ledger after which the next page begins.
    pub(super) after: u64,
    found: Vec<(RecordName, V)>,
    /// `true` if it finds all rows.
    pub(super) is_complete: bool,
}

impl<V: StoredRow> SetRead<V> {
    /// Adds records. Those that this version cannot read count as missing.
    pub(super) fn add<'r>(&mut self, records: impl IntoIterator<Item = &'r Record>) {
        let rows = records.into_iter().filter_map(decode_row);
        self.found.extend(rows);
    }
}

impl<V> Default for RowSet<V> {
    fn default() -> Self {
        Self {
            rows: HashMap::default(),
            counted: 0,
            bytes: ROW_OVERHEAD_BYTES,
            next_expiry: MOMENT_MAX,
            is_complete: false,
            read_at: None,
            last_read: 0,
            reads: 0,
            unfinished: None,
            own_changes: 0,
        }
    }
}

impl<V: SetRow> RowSet<V> {
    /// Returns the row with this name.
    pub fn get(&self, name: &RecordName) -> Option<&V> {
        self.rows.get(name)?.row.as_ref()
    }

    /// Returns the rows with their names.
    pub fn rows(&self) -> impl Iterator<Item = (&RecordName, &V)> {
        let rows = self.rows.iter();
        rows.filter_map(|(name, entry)| Some((name, entry.row.as_ref()?)))
    }

    /// Returns the number of rows that count.
    pub const fn counted(&self) -> usize {
        self.counted
    }

    /// Returns the rows with these names, and the names about which the set knows nothing.
    pub(super) fn find(&self, names: &[RecordName]) -> (HashMap<RecordName, V>, Vec<RecordName>) {
        let found = names.iter().filter_map(|name| Some((*name, self.get(name)?.clone())));
        let is_known = |name: &&RecordName| self.is_complete || self.rows.contains_key(*name);
        let missing = names.iter().filter(|name| !is_known(name)).copied();
        (found.collect(), missing.collect())
    }

    /// Returns `true` if there may be rows.
    pub(super) fn may_have_rows(&self) -> bool {
        !self.is_complete || self.rows().next().is_some()
    }

    /// Returns `true` if this state of the ledger was read.
    pub(super) fn was_read_at(&self, stamp: ChangeStamp) -> bool {
        self.read_at == Some(stamp)
    }

    /// Begins to read the set, or goes on with a read that a timeout has ended. Returns `None` if the set is known.
    ///
    /// `stamp` is the state of the ledger now. With `is_fresh` the set is read anew.
    pub(super) fn begin_read(&mut self, stamp: Option<ChangeStamp>, is_fresh: bool) -> Option<SetRead<V>> {
        if !is_fresh && stamp.is_some() && self.read_at == stamp {
            return None;
        }
        let unfinished = self.unfinished.take().filter(|_| !is_fresh);
        if let Some(unfinished) = unfinished.filter(|unfinished| stamp.is_some() && unfinished.stamp == stamp) {
            return Some(unfinished);
        }
        self.reads = self.reads.wrapping_add(1);
        Some(SetRead {
            number: self.reads,
            stamp,
            own_changes: self.own_changes,
            after: 0,
            found: Vec::new(),
            is_complete: true,
        })
    }

    /// Keeps a read that has not ended, for the next request.
    pub(super) fn keep_unfinished(&mut self, read: SetRead<V>) {
        let is_further = |other: &SetRead<V>| other.after >= read.after;
        if !self.unfinished.as_ref().is_some_and(is_further) {
            self.unfinished = Some(read);
        }
    }

    /// Changes a row.
    pub(super) fn change_row(&mut self, name: RecordName, change: impl FnOnce(Option<&V>) -> SetChange<V>) {
        let (until, row, is_own_change) = match change(self.get(&name)) {
            SetChange::Keep => return,
            SetChange::Put(row) => (row.until(), Some(row), true),
            SetChange::Mark(row) => (row.until(), Some(row), false),
            SetChange::Remove(until) => (until, None, true),
        };
        self.own_changes = self.own_changes.wrapping_add(u64::from(is_own_change));
        let changed_before = self.rows.get(&name).map_or(0, |entry| entry.changed_by);
        let changed_by = if is_own_change {
            self.own_changes
        } else {
            changed_before
        };
        self.remove(&name);
        self.insert(name, SetEntry { row, changed_by, until });
    }

    /// Inserts a row that was read, unless this process knows of a later change.
    pub(super) fn insert_read(&mut self, name: RecordName, row: V) {
        let entry = SetEntry {
            until: row.until(),
            row: Some(row),
            changed_by: 0,
        };
        self.insert(name, entry);
    }

    /// Ends a read: its rows replace the others, unless a read that began later has done so. What this process has changed since
    /// the read began is newer, and stays.
    pub(super) fn end_read(&mut self, read: SetRead<V>) {
        if self.last_read > read.number {
            return;
        }
        (self.last_read, self.read_at) = (read.number, read.stamp);
        let mut before = std::mem::take(&mut self.rows);
        (self.is_complete, self.bytes) = (read.is_complete, ROW_OVERHEAD_BYTES);
        (self.counted, self.next_expiry) = (0, MOMENT_MAX);
        let newer = before.extract_if(|_, entry| entry.changed_by > read.own_changes);
        for (name, entry) in newer.collect::<Vec<_>>() {
            self.insert(name, entry);
        }
        for (name, found) in read.found {
            let known = before.remove(&name).and_then(|entry| entry.row);
            let row = match known {
                Some(known) => known.merged(found),
                None => found,
            };
            self.insert_read(name, row);
        }
    }

    /// Inserts an entry, unless its name has one.
    fn insert(&mut self, name: RecordName, entry: SetEntry<V>) {
        if self.rows.len() >= SET_ROWS_MAX && self.rows.len() - self.counted >= LOST_ROWS_MIN {
            self.retain(|entry| entry.row.as_ref().is_some_and(SetRow::is_counted));
            self.is_complete = false;
        }
        if let Entry::Vacant(slot) = self.rows.entry(name) {
            self.bytes = self.bytes.saturating_add(entry.byte_len());
            self.counted += usize::from(entry.is_counted());
            self.next_expiry = self.next_expiry.min(entry.until);
            slot.insert(entry);
        }
    }

    fn remove(&mut self, name: &RecordName) {
        if let Some(entry) = self.rows.remove(name) {
            self.bytes = self.bytes.saturating_sub(entry.byte_len());
            self.counted = self.counted.saturating_sub(usize::from(entry.is_counted()));
        }
    }

    /// Forgets the rows that have expired: the ledger does not announce them.
    pub(super) fn forget_expired(&mut self, now: Moment) {
        // Every exchange asks, so the walk over all rows is made only if one has expired.
        if now >= self.next_expiry {
            self.retain(|entry| entry.until > now);
        }
    }

    fn retain(&mut self, stays: impl Fn(&SetEntry<V>) -> bool) {
        self.rows.retain(|_, entry| stays(entry));
        let rows = || self.rows.values();
        self.counted = rows().filter(|entry| entry.is_counted()).count();
        self.bytes = rows()
            .map(SetEntry::byte_len)
            .fold(ROW_OVERHEAD_BYTES, usize::saturating_add);
        self.next_expiry = rows().map(|entry| entry.until).min().unwrap_or(MOMENT_MAX);
    }
}

impl<V: SetRow> SetEntry<V> {
    fn is_counted(&self) -> bool {
        self.row.as_ref().is_some_and(SetRow::is_counted)
    }

    fn byte_len(&self) -> usize {
        let row = self.row.as_ref().map_or(0, StoredRow::byte_len);
        row.saturating_add(ROW_OVERHEAD_BYTES)
    }
}

/// Returns the row of a record with its name. `None` if this version does not know the encoding.
pub(super) fn decode_row<V: StoredRow>(record: &Record) -> Option<(RecordName, V)> {
    Some((record.key.name, V::decode(record)?))
}

#[cfg(test)]
pub(super) mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::{ledger::LedgerChanges, principal::Principal};

    /// A row that counts if it is odd.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(in crate::table) struct OddOrEven(pub(in crate::table) u8);

    impl StoredRow for OddOrEven {
        fn encode(&self) -> Option<Bytes> {
            Some(Bytes::copy_from_slice(&[self.0]))
        }

        fn decode(record: &Record) -> Option<Self> {
            record.value.first().copied().map(Self)
        }

        fn merged(self, read: Self) -> Self {
            read
        }
    }

    impl SetRow for OddOrEven {
        fn until(&self) -> Moment {
            MOMENT_MAX
        }

        fn is_counted(&self) -> bool {
            self.0 % 2 == 1
        }
    }

    fn stamp() -> Option<ChangeStamp> {
        LedgerChanges::none().stamp(Principal::from_bytes([7; 32]))
    }

    fn begin(set: &mut RowSet<OddOrEven>, stamp: Option<ChangeStamp>) -> SetRead<OddOrEven> {
        set.begin_read(stamp, false).unwrap()
    }

    fn found(numbers: &[u8]) -> Vec<(RecordName, OddOrEven)> {
        numbers
            .iter()
            .map(|number| ([*number; 32], OddOrEven(*number)))
            .collect()
    }

    /// Returns the rows, and the number of those that count.
    fn known(set: &RowSet<OddOrEven>) -> (Vec<u8>, usize) {
        let mut rows: Vec<u8> = set.rows().map(|(_, row)| row.0).collect();
        rows.sort_unstable();
        let counted = rows.iter().filter(|number| *number % 2 == 1).count();
        assert_eq!(set.counted(), counted);
        (rows, counted)
    }

    #[test]
    fn a_read_goes_on_where_a_timeout_has_ended_it() {
        let mut set = RowSet::default();
        let mut read = begin(&mut set, stamp());
        (read.found, read.after) = (found(&[1, 2]), 2);
        set.keep_unfinished(read);
        let mut read = begin(&mut set, stamp());
        assert_eq!(read.after, 2);
        read.found.extend(found(&[3]));
        set.end_read(read);
        assert_eq!(known(&set), (vec![1, 2, 3], 2));
        assert!(set.begin_read(stamp(), false).is_none());
        // While changes may be missed, nothing that was read before counts.
        let mut read = begin(&mut set, None);
        read.after = 1;
        set.keep_unfinished(read);
        assert_eq!(begin(&mut set, None).after, 0);
    }

    #[test]
    fn a_slow_read_does_not_replace_a_later_one() {
        let mut set = RowSet::default();
        let (mut slow, mut quick) = (begin(&mut set, None), begin(&mut set, None));
        slow.found = found(&[1]);
        quick.found = found(&[1, 2]);
        set.end_read(quick);
        set.end_read(slow);
        assert_eq!(known(&set), (vec![1, 2], 1));
    }

    #[test]
    fn own_changes_are_newer_than_a_read_that_began_before_them() {
        let mut set = RowSet::default();
        let mut read = begin(&mut set, stamp());
        read.found = found(&[1, 2, 3]);
        let change = |set: &mut RowSet<_>, number: u8, change| set.change_row([number; 32], |_| change);
        change(&mut set, 1, SetChange::Remove(MOMENT_MAX));
        change(&mut set, 2, SetChange::Put(OddOrEven(5)));
        change(&mut set, 4, SetChange::Put(OddOrEven(4)));
        change(&mut set, 3, SetChange::Keep);
        set.end_read(read);
        assert_eq!(known(&set), (vec![3, 4, 5], 2));
        change(&mut set, 1, SetChange::Put(OddOrEven(1)));
        assert_eq!(known(&set), (vec![1, 3, 4, 5], 3));
        // The next read is newer than all of them, also if a mark is set during it.
        let mut read = set.begin_read(stamp(), true).unwrap();
        change(&mut set, 2, SetChange::Mark(OddOrEven(7)));
        read.found = found(&[2]);
        set.end_read(read);
        assert_eq!(known(&set), (vec![2], 0));
    }

    fn name(number: usize) -> RecordName {
        let mut name = [7; 32];
        name[..8].copy_from_slice(&number.to_le_bytes());
        name
    }

    #[test]
    fn a_full_set_keeps_what_counts() {
        let mut set = RowSet::default();
        for number in 0..SET_ROWS_MAX {
            set.insert_read(name(number), OddOrEven(number.to_le_bytes()[0]));
        }
        let bytes_before = set.bytes;
        set.change_row(name(SET_ROWS_MAX), |_| SetChange::Put(OddOrEven(0)));
        let kept = SET_ROWS_MAX / 2;
        assert_eq!((set.rows.len(), set.counted, set.is_complete), (kept + 1, kept, false));
        assert!(set.bytes < bytes_before);
    }

    #[test]
    fn a_full_set_of_rows_that_count_loses_the_others_not_one_by_one() {
        let mut set = RowSet::default();
        for number in 0..SET_ROWS_MAX {
            set.insert_read(name(number), OddOrEven(1));
        }
        let others = (SET_ROWS_MAX..).take(LOST_ROWS_MIN);
        for number in others {
            set.insert_read(name(number), OddOrEven(0));
        }
        assert_eq!(set.rows.len(), SET_ROWS_MAX + LOST_ROWS_MIN);
        set.insert_read(name(0), OddOrEven(1));
        assert_eq!((set.rows.len(), set.counted), (SET_ROWS_MAX, SET_ROWS_MAX));
    }
}
