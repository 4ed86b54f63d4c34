//! Records as columns of a table, for every store in SQL: numbers, and a checksum over all columns.

use blake3::Hasher;

use super::{MOMENT_MAX, Moment, Record, RecordKey, RecordKind};

/// The version of the checksum's input, which is its first byte. A change of the input needs a new version.
const CHECKSUM_LAYOUT: u8 = 1;

/// Returns the kind with this number.
pub(in crate::ledger) fn kind_from_number(number: u64) -> Option<RecordKind> {
    RecordKind::ALL.into_iter().find(|kind| *kind as u64 == number)
}

/// Converts a moment to the nanoseconds that a row stores.
pub(in crate::ledger) fn to_nanoseconds(moment: Moment) -> i64 {
    i64::try_from(moment.min(MOMENT_MAX).as_nanos()).unwrap_or(i64::MAX)
}

/// Converts a record's version to the number that a row stores.
pub(in crate::ledger) fn stored_version(record: &Record) -> i64 {
    i64::try_from(record.version).unwrap_or(i64::MAX)
}

/// Computes the checksum of a record at its place. It hashes `value` instead of the record's own value.
pub(in crate::ledger) fn row_checksum(place: i64, record: &Record, value: &[u8]) -> [u8; 32] {
    let RecordKey { kind, principal, name } = record.key;
    let mut hash = Hasher::new();
    hash.update(&[CHECKSUM_LAYOUT, kind as u8, u8::from(record.index.is_some())]);
    // The place is included, so that a row whose order was changed counts as damaged.
    hash.update(&place.to_le_bytes());
    hash.update(&principal)
        .update(&name)
        .update(&record.index.unwrap_or_default());
    hash.update(&record.version.to_le_bytes());
    hash.update(&to_nanoseconds(record.made_at).to_le_bytes());
    hash.update(&to_nanoseconds(record.expires_at).to_le_bytes());
    // All other inputs have a fixed length, so the value needs no length prefix.
    hash.update(value);
    hash.finalize().into()
}
