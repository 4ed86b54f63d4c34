//! The inspection of a whole store for operators: its rows, and which of them are damaged.
//!
//! It is read-only, and another process may use the store at the same time.

use std::{fmt, path::Path};

use rusqlite::{Connection, Row};

use super::{
    rows::{self, StoredRow, select},
    schema, store_error,
};
use crate::ledger::{LedgerError, LedgerOpenError, Moment, RecordKind};

/// The most problems that SQLite's own check reports.
const FILE_PROBLEMS_MAX: u8 = 50;

/// A store under inspection.
#[derive(Debug)]
pub struct LedgerInspector {
    connection: Connection,
}

/// A row without its content. Any field may be wrong in a damaged row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InspectedRow {
    /// The place in the order of inserts, which is the SQLite rowid.
    pub place: i64,
    /// `true` if the row matches its checksum.
    pub is_sound: bool,
    /// The kind, or `None` if the number of the kind is damaged.
    pub kind: Option<RecordKind>,
    /// The first bytes of the principal.
    pub principal: HashPrefix,
    /// The first bytes of the name.
    pub name: HashPrefix,
    /// The length of the value in bytes.
    pub bytes: u64,
    /// The time of the insert.
    pub made_at: Moment,
    /// The time from which the record no longer exists.
    pub expires_at: Moment,
}

/// The first four bytes of a hash, enough to tell one from another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct HashPrefix([u8; 4]);

impl HashPrefix {
    /// Takes the first four bytes. Fewer bytes give zeros.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        Self(bytes.first_chunk().copied().unwrap_or_default())
    }
}

impl fmt::Display for HashPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl LedgerInspector {
    /// Opens the existing store at `path`.
    pub fn open(path: &Path) -> Result<Self, LedgerOpenError> {
        schema::open_read_only(path).map(|connection| Self { connection })
    }

    /// Calls `show` with every row, in the order of inserts. Reads each value and compares the row with its checksum.
    pub fn for_each_row<E: From<LedgerError>>(
        &self,
        mut show: impl FnMut(InspectedRow) -> Result<(), E>,
    ) -> Result<(), E> {
        let failed = |error: rusqlite::Error| store_error(&error);
        // Without an index: a damaged one could hide rows.
        let mut statement = self
            .connection
            .prepare(select!("NOT INDEXED ORDER BY place"))
            .map_err(failed)?;
        let mut rows = statement.query([]).map_err(failed)?;
        while let Some(row) = rows.next().map_err(failed)? {
            show(inspect_row(row).map_err(failed)?)?;
        }
        Ok(())
    }

    /// Returns the problems that SQLite's own check of the whole file finds, at most 50.
    pub fn file_problems(&self) -> Result<Vec<String>, LedgerError> {
        let ask = || {
            let mut statement = self
                .connection
                .prepare(&format!("PRAGMA integrity_check({FILE_PROBLEMS_MAX})"))?;
            let lines = statement.query_map([], |row| row.get::<_, String>(0))?;
            lines.collect::<rusqlite::Result<Vec<String>>>()
        };
        let mut lines = ask().map_err(|error| store_error(&error))?;
        // SQLite answers `ok` if it found nothing.
        lines.retain(|line| line != "ok");
        Ok(lines)
    }
}

fn inspect_row(row: &Row<'_>) -> rusqlite::Result<InspectedRow> {
    // A damaged row may contain any type: it is shown with zeros, and must not end the inspection.
    let found = StoredRow::read_row(row)?;
    let number = |at: usize| Ok::<_, rusqlite::Error>(rows::cell_number(row.get_ref(at)?));
    let moment = |at: usize| number(at).map(|nanoseconds| Moment::from_nanos(nanoseconds.unwrap_or_default()));
    let short =
        |at: usize| Ok::<_, rusqlite::Error>(HashPrefix::from_bytes(row.get_ref(at)?.as_blob().unwrap_or_default()));
    Ok(InspectedRow {
        place: found.place,
        is_sound: found.record.is_some(),
        kind: number(1)?.and_then(rows::kind_from_number),
        principal: short(2)?,
        name: short(3)?,
        bytes: row.get_ref(5)?.as_blob().unwrap_or_default().len() as u64,
        made_at: moment(7)?,
        expires_at: moment(8)?,
    })
}
