//! Whether the indexes say what the table says. Looked at when a store is opened: a search that went astray would find
//! nothing under a key that has a record, and put in a second.

use std::hash::{DefaultHasher, Hasher as _};

use rusqlite::{Connection, Row, types::ValueRef};

/// What of each row stands in indexes; [`Index::cells`] are counted from here.
const OF_TABLE: &str = "SELECT kind, principal, name, idx, expires_at, place FROM records NOT INDEXED";

struct Index {
    /// Its entries in its own order, and nothing of the table.
    entries: &'static str,
    /// What an entry is made of.
    cells: &'static [usize],
    /// Whether it leaves out rows without an index.
    partial: bool,
}

const INDEXES: [Index; 4] = [
    Index {
        entries: "SELECT NULL, NULL, NULL, NULL, expires_at, place FROM records INDEXED BY by_expiry",
        cells: &[4, 5],
        partial: false,
    },
    Index {
        entries: "SELECT kind, NULL, NULL, idx, NULL, place FROM records INDEXED BY by_index WHERE idx IS NOT NULL",
        cells: &[0, 3, 5],
        partial: true,
    },
    Index {
        entries: "SELECT kind, principal, name, NULL, NULL, place FROM records INDEXED BY by_key",
        cells: &[0, 1, 2, 5],
        partial: false,
    },
    Index {
        entries: "SELECT kind, principal, NULL, NULL, NULL, place FROM records INDEXED BY by_principal",
        cells: &[0, 1, 5],
        partial: false,
    },
];

/// Whether all of them do.
pub(super) fn are_sound(connection: &Connection) -> rusqlite::Result<bool> {
    let mut entry = Vec::new();
    let mut wanted = [0_u64; INDEXES.len()];
    let mut statement = connection.prepare(OF_TABLE)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let indexed = !matches!(row.get_ref(3)?, ValueRef::Null);
        for (index, sum) in INDEXES.iter().zip(&mut wanted) {
            if indexed || !index.partial {
                write(row, index.cells, &mut entry)?;
                *sum = sum.wrapping_add(hash(&entry));
            }
        }
    }
    for (index, wanted) in INDEXES.iter().zip(wanted) {
        if sum_in_order(connection, index)? != Some(wanted) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The sum of all entries; none where they are out of order.
fn sum_in_order(connection: &Connection, index: &Index) -> rusqlite::Result<Option<u64>> {
    let (mut sum, mut entry, mut before) = (0_u64, Vec::new(), Vec::new());
    let mut statement = connection.prepare(index.entries)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        write(row, index.cells, &mut entry)?;
        if entry <= before {
            return Ok(None);
        }
        sum = sum.wrapping_add(hash(&entry));
        std::mem::swap(&mut entry, &mut before);
    }
    Ok(Some(sum))
}

/// Writes an entry so that entries are in order as their bytes are.
fn write(row: &Row<'_>, cells: &[usize], entry: &mut Vec<u8>) -> rusqlite::Result<()> {
    entry.clear();
    for cell in cells {
        match row.get_ref(*cell)? {
            ValueRef::Integer(number) => entry.extend((number ^ i64::MIN).to_be_bytes()),
            ValueRef::Blob(bytes) => entry.extend(bytes),
            // Nothing else is ever written.
            ValueRef::Null | ValueRef::Real(_) | ValueRef::Text(_) => entry.push(0),
        }
    }
    Ok(())
}

fn hash(entry: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(entry);
    hasher.finish()
}
