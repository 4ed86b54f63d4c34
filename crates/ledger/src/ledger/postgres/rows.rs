//! Rows of the table, read with their checksum and written as arrays.

use bytes::Bytes;
use tokio_postgres::{
    Row,
    types::{ToSql, Type},
};

use super::error::PostgresError;
use crate::ledger::{
    Moment, PlacedRecord, Record, RecordKey,
    columns::{kind_from_number, row_checksum, stored_version, to_nanoseconds},
};

/// Builds a query for the columns that [`TableRow`] reads.
macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT r.place, r.kind, r.principal, r.name, r.idx, r.value, r.version, r.made_at, r.expires_at, r.checksum \
             FROM antiphon_records r ",
            $rest
        )
    };
}
pub(super) use select;

/// A parameter of a statement, with its type: no statement is prepared before, which would cost a round trip.
pub(super) type Parameter<'p> = (&'p (dyn ToSql + Sync), Type);

/// A row that was read.
#[derive(Debug)]
pub(super) struct TableRow {
    pub(super) key: RecordKey,
    pub(super) place: i64,
    pub(super) value_bytes: u64,
    /// The record, or `None` if the row is damaged.
    pub(super) record: Option<Record>,
}

impl TableRow {
    /// Reads a row of [`select!`]. `None` if even its key cannot be read: a later version of Antiphon wrote it.
    pub(super) fn read(row: &Row) -> Result<Option<Self>, PostgresError> {
        let (place, kind): (i64, i16) = (row.try_get(0)?, row.try_get(1)?);
        let (principal, name): (&[u8], &[u8]) = (row.try_get(2)?, row.try_get(3)?);
        let kind = u64::try_from(kind).ok().and_then(kind_from_number);
        let (Some(kind), Ok(principal), Ok(name)) = (kind, principal.try_into(), name.try_into()) else {
            return Ok(None);
        };
        let key = RecordKey { kind, principal, name };
        let value: &[u8] = row.try_get(5)?;
        Ok(Some(Self {
            key,
            place,
            value_bytes: value.len() as u64,
            record: decode(row, key, place, value)?,
        }))
    }

    /// Returns the record and its place, if it is sound and has not expired.
    pub(super) fn into_live(self, now: Moment) -> Option<PlacedRecord> {
        let place = u64::try_from(self.place).ok()?;
        let record = self.record.filter(|record| record.expires_at > now)?;
        Some((place, record))
    }
}

/// Decodes a record. `None` if a column differs from what was written.
fn decode(row: &Row, key: RecordKey, place: i64, value: &[u8]) -> Result<Option<Record>, PostgresError> {
    let index: Option<&[u8]> = row.try_get(4)?;
    let numbers: [i64; 3] = [row.try_get(6)?, row.try_get(7)?, row.try_get(8)?];
    let checksum: &[u8] = row.try_get(9)?;
    let [Ok(version), Ok(made_at), Ok(expires_at)] = numbers.map(u64::try_from) else {
        return Ok(None);
    };
    let index = match index.map(TryInto::try_into) {
        None => None,
        Some(Ok(index)) => Some(index),
        Some(Err(_)) => return Ok(None),
    };
    let mut record = Record {
        key,
        index,
        value: Bytes::new(),
        version,
        made_at: Moment::from_nanos(made_at),
        expires_at: Moment::from_nanos(expires_at),
    };
    if row_checksum(place, &record, value) != checksum {
        return Ok(None);
    }
    record.value = Bytes::copy_from_slice(value);
    Ok(Some(record))
}

/// Keys as arrays: one for each column.
#[derive(Debug, Default)]
pub(super) struct KeyArrays<'k> {
    kinds: Vec<i16>,
    principals: Vec<&'k [u8]>,
    names: Vec<&'k [u8]>,
}

impl<'k> KeyArrays<'k> {
    /// Returns the arrays of these keys, in their order.
    pub(super) fn of_keys(keys: impl IntoIterator<Item = &'k RecordKey>) -> Self {
        let mut arrays = Self::default();
        for key in keys {
            arrays.kinds.push(i16::from(key.kind as u8));
            arrays.principals.push(&key.principal);
            arrays.names.push(&key.name);
        }
        arrays
    }

    /// Returns the parameters: `$1` to `$3`.
    pub(super) fn parameters(&self) -> Vec<Parameter<'_>> {
        vec![
            (&self.kinds, Type::INT2_ARRAY),
            (&self.principals, Type::BYTEA_ARRAY),
            (&self.names, Type::BYTEA_ARRAY),
        ]
    }
}

/// Rows as arrays: one for each column.
#[derive(Debug)]
pub(super) struct RowArrays<'r> {
    keys: KeyArrays<'r>,
    places: Vec<i64>,
    indexes: Vec<Option<&'r [u8]>>,
    values: Vec<&'r [u8]>,
    versions: Vec<i64>,
    made: Vec<i64>,
    expire: Vec<i64>,
    checksums: Vec<Vec<u8>>,
}

impl<'r> RowArrays<'r> {
    /// Returns the arrays of these records, each at its place, in their order.
    pub(super) fn of_records(records: &'r [(i64, Record)]) -> Self {
        let column = |read: &dyn Fn(&Record) -> i64| records.iter().map(|(_, record)| read(record)).collect();
        Self {
            keys: KeyArrays::of_keys(records.iter().map(|(_, record)| &record.key)),
            places: records.iter().map(|(place, _)| *place).collect(),
            indexes: records
                .iter()
                .map(|(_, record)| record.index.as_ref().map(|index| &index[..]))
                .collect(),
            values: records.iter().map(|(_, record)| &record.value[..]).collect(),
            versions: column(&stored_version),
            made: column(&|record| to_nanoseconds(record.made_at)),
            expire: column(&|record| to_nanoseconds(record.expires_at)),
            checksums: records
                .iter()
                .map(|(place, record)| row_checksum(*place, record, &record.value).to_vec())
                .collect(),
        }
    }

    /// Returns the parameters: `$1` to `$3` are the key, then place, index, value, version, times and checksum.
    pub(super) fn parameters(&self) -> Vec<Parameter<'_>> {
        let mut all = self.keys.parameters();
        all.extend([
            (&self.places as &(dyn ToSql + Sync), Type::INT8_ARRAY),
            (&self.indexes, Type::BYTEA_ARRAY),
            (&self.values, Type::BYTEA_ARRAY),
            (&self.versions, Type::INT8_ARRAY),
            (&self.made, Type::INT8_ARRAY),
            (&self.expire, Type::INT8_ARRAY),
            (&self.checksums, Type::BYTEA_ARRAY),
        ]);
        all
    }
}
