//! Records as table rows, each with a checksum over all its columns.
//!
//! SQLite does not protect content: a flipped bit in a value is returned as is. Every row that is read is therefore
//! compared with its checksum, which also covers its key, times and place.

use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension as _, Row, Rows, types::ValueRef};

use crate::ledger::{
    Moment, Record, RecordKey,
    columns::{kind_from_number, row_checksum, stored_version, to_nanoseconds},
};

/// Builds a query for the columns that [`StoredRow`] reads.
macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT place, kind, principal, name, idx, value, version, made_at, expires_at, checksum FROM records ",
            $rest
        )
    };
}
pub(super) use select;

/// A row that was read.
pub(super) struct StoredRow {
    /// The rowid. Lists are in this order.
    pub(super) place: i64,
    /// The record, or `None` if the row is damaged.
    pub(super) record: Option<Record>,
}

impl StoredRow {
    /// Reads a row of [`select!`].
    pub(super) fn read_row(row: &Row<'_>) -> rusqlite::Result<Self> {
        let place = row.get_ref(0)?.as_i64().unwrap_or_default();
        Ok(Self {
            place,
            record: decode_sound(row, place),
        })
    }

    /// Returns the record if it is sound and has not expired.
    pub(super) fn into_live(self, now: Moment) -> Option<Record> {
        self.record.filter(|record| record.expires_at > now)
    }
}

/// Inserts a record at a place.
pub(super) fn insert_row(connection: &Connection, place: i64, record: &Record) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached(
        "INSERT INTO records (place, kind, principal, name, idx, value, version, made_at, expires_at, checksum) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
    )?;
    statement.execute((
        place,
        record.key.kind as u8,
        record.key.principal,
        record.key.name,
        record.index,
        &record.value[..],
        stored_version(record),
        to_nanoseconds(record.made_at),
        to_nanoseconds(record.expires_at),
        row_checksum(place, record, &record.value),
    ))?;
    Ok(())
}

/// Finds the row that the index names for a key.
///
/// Its record is `None` if the row is damaged, or if the damaged index names the row of another key.
pub(super) fn find_by_key(connection: &Connection, key: &RecordKey) -> rusqlite::Result<Option<StoredRow>> {
    let mut statement = connection.prepare_cached(select!(
        "INDEXED BY by_key WHERE kind = ?1 AND principal = ?2 AND name = ?3"
    ))?;
    let found = statement.query_row((key.kind as u8, key.principal, key.name), StoredRow::read_row);
    let found = found.optional()?;
    Ok(found.map(|found| StoredRow {
        place: found.place,
        record: found.record.filter(|record| record.key == *key),
    }))
}

/// Finds the row at a place without any index.
pub(super) fn find_by_place(connection: &Connection, place: i64) -> rusqlite::Result<Option<StoredRow>> {
    let mut statement = connection.prepare_cached(select!("NOT INDEXED WHERE place = ?1"))?;
    statement.query_row([place], StoredRow::read_row).optional()
}

/// Returns the first `limit` live records of `rows`, in reverse order: rows come latest first.
pub(super) fn collect_records(
    mut rows: Rows<'_>,
    limit: usize,
    now: Moment,
    is_it: impl Fn(&Record) -> bool,
) -> rusqlite::Result<Vec<Record>> {
    let mut records = Vec::new();
    while records.len() < limit {
        let Some(row) = rows.next()? else { break };
        // A damaged index may lead to rows of other principals, which must never be returned.
        records.extend(StoredRow::read_row(row)?.into_live(now).filter(&is_it));
    }
    records.reverse();
    Ok(records)
}

/// Decodes the record of a row. `None` if any column differs from what was written.
fn decode_sound(row: &Row<'_>, place: i64) -> Option<Record> {
    let cell = |at: usize| row.get_ref(at).ok();
    let ValueRef::Blob(value) = cell(5)? else { return None };
    let mut record = Record {
        key: RecordKey {
            kind: kind_from_number(cell_number(cell(1)?)?)?,
            principal: cell_blob(cell(2)?)?,
            name: cell_blob(cell(3)?)?,
        },
        index: match cell(4)? {
            ValueRef::Null => None,
            index => Some(cell_blob(index)?),
        },
        value: Bytes::new(),
        version: cell_number(cell(6)?)?,
        made_at: Moment::from_nanos(cell_number(cell(7)?)?),
        expires_at: Moment::from_nanos(cell_number(cell(8)?)?),
    };
    if cell_blob(cell(9)?) != Some(row_checksum(place, &record, value)) {
        return None;
    }
    // Copied after the check only: a damaged value may be large.
    record.value = Bytes::copy_from_slice(value);
    Some(record)
}

/// Reads a number. `None` if the cell is damaged.
pub(super) fn cell_number(cell: ValueRef<'_>) -> Option<u64> {
    cell.as_i64().ok().and_then(|number| u64::try_from(number).ok())
}

/// Reads bytes of fixed length. `None` if the cell is damaged.
pub(super) fn cell_blob<const LENGTH: usize>(cell: ValueRef<'_>) -> Option<[u8; LENGTH]> {
    match cell {
        ValueRef::Blob(bytes) => bytes.try_into().ok(),
        _ => None,
    }
}
