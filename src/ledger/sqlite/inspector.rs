//! The inspection of a whole store for operators: its rows, and which of them are damaged.
//!
//! It is read-only, and another process may use the store at the same time.

use std::{fmt, ops::ControlFlow, path::Path};

use rusqlite::{Connection, Row};

use super::{
    rows::{self, StoredRow, select},
    schema, store_error,
};
use crate::ledger::{LedgerError, LedgerOpenError, Moment, Record, RecordKey, RecordKind, columns::kind_from_number};

/// The most problems that SQLite's own check reports.
const FILE_PROBLEMS_MAX: u8 = 50;

/// A store under inspection.
#[derive(Debug)]
pub struct LedgerInspector {
    connection: Connection,
}

/// The rows of one kind in a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KindTotal {
    /// The kind, or `None` if the number of the kind is damaged.
    pub kind: Option<RecordKind>,
    /// The number of rows.
    pub records: u64,
    /// The length of their values in bytes.
    pub bytes: u64,
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

    /// Calls `show` with every row after the place `after`, in the order of inserts, until it breaks. `None` begins with
    /// the first row.
    ///
    /// Reads each value and compares the row with its checksum. A row that differs comes without its record.
    pub fn for_each_row<E: From<LedgerError>>(
        &self,
        after: Option<i64>,
        mut show: impl FnMut(InspectedRow, Option<Record>) -> Result<ControlFlow<()>, E>,
    ) -> Result<(), E> {
        let failed = |error: rusqlite::Error| store_error(&error);
        // Without an index: a damaged one could hide rows.
        let mut statement = self
            .connection
            .prepare(select!("NOT INDEXED WHERE place > ?1 ORDER BY place"))
            .map_err(failed)?;
        // No row has the lowest place that a number can have.
        let mut rows = statement.query([after.unwrap_or(i64::MIN)]).map_err(failed)?;
        while let Some(row) = rows.next().map_err(failed)? {
            let (row, record) = inspect_row(row).map_err(failed)?;
            if show(row, record)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Returns the record of a key. `None` if there is none, or if it is damaged.
    pub fn find_record(&self, key: &RecordKey) -> Result<Option<Record>, LedgerError> {
        let found = rows::find_by_key(&self.connection, key).map_err(|error| store_error(&error))?;
        Ok(found.and_then(|found| found.record))
    }

    /// Returns the totals of each kind in the whole store. Reads no value and compares no checksum.
    pub fn kind_totals(&self) -> Result<Vec<KindTotal>, LedgerError> {
        let ask = || {
            let mut statement = self.connection.prepare(
                "SELECT kind, count(*), coalesce(sum(length(value)), 0) FROM records NOT INDEXED GROUP BY kind",
            )?;
            let total = |row: &Row<'_>| {
                let number = |at: usize| Ok::<_, rusqlite::Error>(rows::cell_number(row.get_ref(at)?));
                Ok(KindTotal {
                    kind: number(0)?.and_then(kind_from_number),
                    records: number(1)?.unwrap_or_default(),
                    bytes: number(2)?.unwrap_or_default(),
                })
            };
            statement
                .query_map([], total)?
                .collect::<rusqlite::Result<Vec<KindTotal>>>()
        };
        ask().map_err(|error| store_error(&error))
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

fn inspect_row(row: &Row<'_>) -> rusqlite::Result<(InspectedRow, Option<Record>)> {
    // A damaged row may contain any type: it is shown with zeros, and must not end the inspection.
    let found = StoredRow::read_row(row)?;
    let number = |at: usize| Ok::<_, rusqlite::Error>(rows::cell_number(row.get_ref(at)?));
    let moment = |at: usize| number(at).map(|nanoseconds| Moment::from_nanos(nanoseconds.unwrap_or_default()));
    let short =
        |at: usize| Ok::<_, rusqlite::Error>(HashPrefix::from_bytes(row.get_ref(at)?.as_blob().unwrap_or_default()));
    let inspected = InspectedRow {
        place: found.place,
        is_sound: found.record.is_some(),
        kind: number(1)?.and_then(kind_from_number),
        principal: short(2)?,
        name: short(3)?,
        bytes: row.get_ref(5)?.as_blob().unwrap_or_default().len() as u64,
        made_at: moment(7)?,
        expires_at: moment(8)?,
    };
    Ok((inspected, found.record))
}
