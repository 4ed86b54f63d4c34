//! The check of the indexes against the table, done when a store is opened.
//!
//! A damaged index may hide an existing record. An insert would then add a second record under the same key.

use std::hash::{DefaultHasher, Hasher as _};

use rusqlite::{Connection, Row, types::ValueRef};

/// Reads every column that any index contains. `IndexCheck::cells` are positions in this list.
const TABLE_ENTRIES: &str = "SELECT kind, principal, name, idx, expires_at, place FROM records NOT INDEXED";

struct IndexCheck {
    /// Reads the index entries in index order, without reading the table.
    entries_sql: &'static str,
    /// The columns that make up an entry.
    columns: &'static [usize],
}

/// The column of index values. The index of it leaves out records without one.
const INDEX_VALUE: usize = 3;

const INDEX_CHECKS: [IndexCheck; 4] = [
    IndexCheck {
        entries_sql: "SELECT NULL, NULL, NULL, NULL, expires_at, place FROM records INDEXED BY by_expiry",
        columns: &[4, 5],
    },
    IndexCheck {
        entries_sql: "SELECT kind, NULL, NULL, idx, NULL, place FROM records INDEXED BY by_index WHERE idx IS NOT NULL",
        columns: &[0, INDEX_VALUE, 5],
    },
    IndexCheck {
        entries_sql: "SELECT kind, principal, name, NULL, NULL, place FROM records INDEXED BY by_key",
        columns: &[0, 1, 2, 5],
    },
    IndexCheck {
        entries_sql: "SELECT kind, principal, NULL, NULL, NULL, place FROM records INDEXED BY by_principal",
        columns: &[0, 1, 5],
    },
];

/// Returns `true` if every index contains exactly the entries that the table implies.
pub(super) fn all_match_table(connection: &Connection) -> rusqlite::Result<bool> {
    // Sums do not depend on the order of rows, so that the table is read once and nothing is sorted.
    let mut entry = Vec::new();
    let mut wanted = [0_u64; INDEX_CHECKS.len()];
    let mut statement = connection.prepare(TABLE_ENTRIES)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let indexed = !matches!(row.get_ref(INDEX_VALUE)?, ValueRef::Null);
        for (index, sum) in INDEX_CHECKS.iter().zip(&mut wanted) {
            if indexed || !index.columns.contains(&INDEX_VALUE) {
                encode_entry(row, index.columns, &mut entry)?;
                *sum = sum.wrapping_add(hash_entry(&entry));
            }
        }
    }
    for (index, wanted) in INDEX_CHECKS.iter().zip(wanted) {
        if sum_if_ordered(connection, index)? != Some(wanted) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns the sum of the hashes of all entries. `None` if the entries are out of order.
fn sum_if_ordered(connection: &Connection, index: &IndexCheck) -> rusqlite::Result<Option<u64>> {
    let (mut sum, mut entry, mut before) = (0_u64, Vec::new(), Vec::new());
    let mut statement = connection.prepare(index.entries_sql)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        encode_entry(row, index.columns, &mut entry)?;
        // A search in an index without order misses entries, even if all of them are there.
        if entry <= before {
            return Ok(None);
        }
        sum = sum.wrapping_add(hash_entry(&entry));
        std::mem::swap(&mut entry, &mut before);
    }
    Ok(Some(sum))
}

/// Encodes an entry so that the order of the bytes is the order of the entries.
fn encode_entry(row: &Row<'_>, cells: &[usize], entry: &mut Vec<u8>) -> rusqlite::Result<()> {
    entry.clear();
    for cell in cells {
        match row.get_ref(*cell)? {
            // The flipped sign bit makes negative numbers sort before positive ones.
            ValueRef::Integer(number) => entry.extend((number ^ i64::MIN).to_be_bytes()),
            ValueRef::Blob(bytes) => entry.extend(bytes),
            // Antiphon never writes other types into these columns.
            ValueRef::Null | ValueRef::Real(_) | ValueRef::Text(_) => entry.push(0),
        }
    }
    Ok(())
}

fn hash_entry(entry: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(entry);
    hasher.finish()
}
