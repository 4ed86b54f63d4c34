//! The inspection of a file. It is read-only, and another process may use the file at the same time.

use std::{fs::File, ops::ControlFlow, path::Path};

use rusqlite::{Connection, Row};

use super::{
    files,
    rows::{self, StoredRow, select},
    schema, store_error,
};
use crate::ledger::{
    HashPrefix, InspectedRow, KindTotal, LedgerError, LedgerOpenError, Moment, Record, RecordKey, StoreInspector,
    columns::kind_from_number,
};

/// The most problems that SQLite's own check reports.
const FILE_PROBLEMS_MAX: u8 = 50;

/// A store under inspection.
#[derive(Debug)]
pub struct LedgerInspector {
    connection: Connection,
    secret: [u8; 32],
    /// Keeps other processes out of the store until it is dropped.
    _lock: Option<File>,
}

impl LedgerInspector {
    /// Opens the existing store at `path`.
    pub fn open(path: &Path) -> Result<Self, LedgerOpenError> {
        let (connection, secret) = schema::open_read_only(path)?;
        Ok(Self {
            connection,
            secret,
            _lock: None,
        })
    }

    /// Opens the existing store at `path` for this process alone.
    pub fn open_locked(path: &Path) -> Result<Self, LedgerOpenError> {
        let lock = files::lock_store(&files::canonical_path(path)?)?;
        Ok(Self {
            _lock: Some(lock),
            ..Self::open(path)?
        })
    }
}

impl StoreInspector for LedgerInspector {
    fn for_each_row<E: From<LedgerError>>(
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

    fn find_record(&self, key: &RecordKey) -> Result<Option<Record>, LedgerError> {
        let found = rows::find_by_key(&self.connection, key).map_err(|error| store_error(&error))?;
        Ok(found.and_then(|found| found.record))
    }

    fn kind_totals(&self) -> Result<Vec<KindTotal>, LedgerError> {
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

    fn find_flaws(&self) -> Result<Vec<String>, LedgerError> {
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

    fn secret(&self) -> [u8; 32] {
        self.secret
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
