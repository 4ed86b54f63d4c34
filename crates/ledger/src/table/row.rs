//! One row of a table, and the ways to write it.

use std::time::Duration;

use bytes::Bytes;

use crate::ledger::{CommitStep, FIRST_VERSION, Moment, Record, RecordKey, RecordsStamp};

/// The bytes that an entry counts, with or without a row.
pub(super) const ENTRY_BYTES: usize = 192;

/// A row of a table.
pub trait StoredRow: Clone + Send + Sync + 'static {
    /// Returns the value of the record. `None` if the row is never stored.
    fn encode(&self) -> Option<Bytes>;

    /// Reads a record. `None` if this version does not know the encoding: it counts as missing.
    fn decode(record: &Record) -> Option<Self>;

    /// Returns `true` if no other process changes such a row any more. `is_exclusive` is `true` if no other process uses
    /// the ledger.
    fn is_settled(&self, _is_exclusive: bool) -> bool {
        true
    }

    /// Combines the row in memory with the one that was read. By default the one in memory is newer, and stays.
    #[must_use]
    fn merged(self, _read: Self) -> Self {
        self
    }

    /// Returns the lifetime of the record, if it is shorter than that of the table's records.
    fn lifetime(&self) -> Option<Duration> {
        None
    }

    /// Returns the bytes of the row beside those of its entry, for a limit in bytes.
    fn byte_len(&self) -> usize {
        0
    }
}

/// The change of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowChange<V> {
    /// The row stays as it is.
    Keep,
    /// Memory has this row. Nothing is written.
    Remember(V),
    /// Memory has this row, and it is written in this way if the principal may write.
    Store(V, RowWrite),
}

/// The way in which a row is written, if a record of its name exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowWrite {
    /// It stays.
    Insert,
    /// It is replaced in the version that memory knows. Another one stays.
    ReplaceKnown,
    /// It is replaced in its first version, whichever process has written that.
    ReplaceFirst,
}

impl RowWrite {
    /// Returns the steps that write a record. `version` is the one that memory knows, 0 if there is none.
    pub(super) fn steps(self, key: RecordKey, version: u64, value: Bytes, expires_at: Moment) -> Vec<CommitStep> {
        let replaced = match self {
            Self::Insert => None,
            Self::ReplaceKnown => (version > 0).then_some(version),
            Self::ReplaceFirst => Some(FIRST_VERSION),
        };
        // The record may be missing all the same: its write was lost, or it has expired.
        let insert = CommitStep::insert_record(key, value.clone(), expires_at);
        let replace = replaced.map(|version| CommitStep::Replace {
            key,
            version,
            value,
            expires_at,
        });
        replace.into_iter().chain([insert]).collect()
    }
}

/// Returns the steps that write a record which never changes, as the latest of its principal.
pub(super) fn renewal_steps(key: RecordKey, value: Bytes, expires_at: Moment) -> [CommitStep; 2] {
    let remove = CommitStep::Remove {
        key,
        version: FIRST_VERSION,
    };
    [remove, CommitStep::insert_record(key, value, expires_at)]
}

/// The cached state of one record.
#[derive(Clone, Debug)]
pub(super) struct Entry<V> {
    /// The row. `None` if there is none.
    pub(super) row: Option<V>,
    /// The version of the record, 0 if there is none.
    pub(super) version: u64,
    /// The last read of the record.
    pub(super) seen: Seen,
}

/// The last read of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// It was never read.
    Never,
    /// It was read, but no state was known then, or the changes of its kind are not announced.
    Once,
    /// It was read in this state of the principal's records.
    At(RecordsStamp),
}

impl<V> Default for Entry<V> {
    fn default() -> Self {
        Self {
            row: None,
            version: 0,
            seen: Seen::Never,
        }
    }
}

impl<V: StoredRow> Entry<V> {
    pub(super) fn byte_len(&self) -> usize {
        let row = self.row.as_ref().map_or(0, StoredRow::byte_len);
        row.saturating_add(ENTRY_BYTES)
    }
}
