//! Records as rows, each with a checksum over all that it says.
//!
//! SQLite protects no content: a flipped bit in a value is handed out as it stands. So nothing leaves a row before its
//! checksum was compared, its key, times and place among what is summed.

use blake3::Hasher;
use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension as _, Row, Rows, types::ValueRef};

use crate::{
    ledger::{Index, Key, Kind, MOMENT_MAX, Moment, Record},
    session::PrincipalHash,
};

/// The columns of a row, as [`Found::of`] wants them.
macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT place, kind, principal, name, idx, value, version, made_at, expires_at, checksum FROM records ",
            $rest
        )
    };
}
pub(super) use select;

/// What stands first in every sum: another layout has another.
const LAYOUT: u8 = 1;

/// A row: its place, and its record if it is sound.
pub(super) struct Found {
    /// The rowid: lists are in this order.
    pub(super) place: i64,
    /// None where the row is damaged.
    pub(super) record: Option<Record>,
}

impl Found {
    /// Reads a row of [`select!`].
    pub(super) fn of(row: &Row<'_>) -> rusqlite::Result<Self> {
        let place = row.get_ref(0)?.as_i64().unwrap_or_default();
        Ok(Self {
            place,
            record: sound(row, place)?,
        })
    }

    /// The record, if it is sound and has not expired.
    pub(super) fn living(self, now: Moment) -> Option<Record> {
        self.record.filter(|record| record.expires_at > now)
    }
}

/// The row that the index names for a key. It may be damaged, or be another's where the index is.
pub(super) fn by_key(connection: &Connection, key: &Key) -> rusqlite::Result<Option<Found>> {
    let mut statement = connection.prepare_cached(select!(
        "INDEXED BY by_key WHERE kind = ?1 AND principal = ?2 AND name = ?3"
    ))?;
    let found = statement.query_row((key.kind as u8, key.principal, key.name), Found::of);
    let found = found.optional()?;
    Ok(found.map(|found| Found {
        place: found.place,
        record: found.record.filter(|record| record.key == *key),
    }))
}

/// The row at a place, as the table itself has it.
pub(super) fn by_place(connection: &Connection, place: i64) -> rusqlite::Result<Option<Found>> {
    let mut statement = connection.prepare_cached(select!("NOT INDEXED WHERE place = ?1"))?;
    statement.query_row([place], Found::of).optional()
}

/// The first `limit` records of rows, latest first, as a list from the earliest on.
pub(super) fn collect(
    mut rows: Rows<'_>,
    limit: usize,
    now: Moment,
    is_it: impl Fn(&Record) -> bool,
) -> rusqlite::Result<Vec<Record>> {
    let mut records = Vec::new();
    while records.len() < limit {
        let Some(row) = rows.next()? else { break };
        // An index that is damaged leads to rows of others.
        records.extend(Found::of(row)?.living(now).filter(&is_it));
    }
    records.reverse();
    Ok(records)
}

/// The record of a row; none where anything of it is not as it was written.
fn sound(row: &Row<'_>, place: i64) -> rusqlite::Result<Option<Record>> {
    let cell = |at: usize| row.get_ref(at);
    let index = match cell(4)? {
        ValueRef::Null => None,
        cell => match blob::<16>(cell) {
            Some(index) => Some(index),
            None => return Ok(None),
        },
    };
    let value = cell(5)?;
    let key = || {
        Some(Key {
            kind: kind_of(number(cell(1).ok()?)?)?,
            principal: blob(cell(2).ok()?)?,
            name: blob(cell(3).ok()?)?,
        })
    };
    let (Some(key), ValueRef::Blob(value)) = (key(), value) else {
        return Ok(None);
    };
    let (version, made_at, expires_at) = (number(cell(6)?), number(cell(7)?), number(cell(8)?));
    let (Some(version), Some(made_at), Some(expires_at)) = (version, made_at, expires_at) else {
        return Ok(None);
    };
    let checksum = cell(9)?;
    let mut record = Record {
        key,
        index,
        value: Bytes::new(),
        version,
        made_at: Moment::from_nanos(made_at),
        expires_at: Moment::from_nanos(expires_at),
    };
    if blob(checksum) != Some(sum(place, &record, value)) {
        return Ok(None);
    }
    record.value = Bytes::copy_from_slice(value);
    Ok(Some(record))
}

fn number(cell: ValueRef<'_>) -> Option<u64> {
    cell.as_i64().ok().and_then(|number| u64::try_from(number).ok())
}

fn blob<const LENGTH: usize>(cell: ValueRef<'_>) -> Option<[u8; LENGTH]> {
    match cell {
        ValueRef::Blob(bytes) => bytes.try_into().ok(),
        _ => None,
    }
}

/// The kind of this number.
pub(super) fn kind_of(number: u64) -> Option<Kind> {
    Kind::ALL.into_iter().find(|kind| *kind as u64 == number)
}

/// A moment as it stands in a row.
pub(super) fn nanoseconds(moment: Moment) -> i64 {
    i64::try_from(moment.min(MOMENT_MAX).as_nanos()).unwrap_or(i64::MAX)
}

/// A version as it stands in a row.
pub(super) fn version(record: &Record) -> i64 {
    i64::try_from(record.version).unwrap_or(i64::MAX)
}

/// The checksum of a record at its place. `value` is its value.
pub(super) fn sum(place: i64, record: &Record, value: &[u8]) -> [u8; 32] {
    let Key { kind, principal, name } = record.key;
    let principal: PrincipalHash = principal;
    let index: Index = record.index.unwrap_or_default();
    let mut hash = Hasher::new();
    hash.update(&[LAYOUT, kind as u8, u8::from(record.index.is_some())]);
    hash.update(&place.to_le_bytes());
    hash.update(&principal).update(&name).update(&index);
    hash.update(&record.version.to_le_bytes());
    hash.update(&nanoseconds(record.made_at).to_le_bytes());
    hash.update(&nanoseconds(record.expires_at).to_le_bytes());
    // Everything before it has one length, so the value needs none of its own.
    hash.update(value);
    hash.finalize().into()
}
