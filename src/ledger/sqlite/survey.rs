//! The inspection of a whole store for operators: its rows, and which of them are damaged.
//!
//! It is read-only, and another process may use the store at the same time.

use std::{fmt, path::Path};

use rusqlite::{Connection, Row};

use super::{
    failure,
    rows::{self, Found, select},
    schema,
};
use crate::ledger::{Kind, LedgerError, Moment, OpenError};

/// The most problems that SQLite's own check reports.
const FLAWS_MAX: u8 = 50;

/// A store under inspection.
#[derive(Debug)]
pub struct Survey {
    connection: Connection,
}

/// A row without its content. Any field may be wrong in a damaged row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The place in the order of inserts, which is the SQLite rowid.
    pub place: i64,
    /// `true` if the row matches its checksum.
    pub sound: bool,
    /// The kind, or `None` if the number of the kind is damaged.
    pub kind: Option<Kind>,
    /// The first bytes of the principal.
    pub principal: Short,
    /// The first bytes of the name.
    pub name: Short,
    /// The length of the value in bytes.
    pub bytes: u64,
    /// The time of the insert.
    pub made_at: Moment,
    /// The time from which the record no longer exists.
    pub expires_at: Moment,
}

/// The first four bytes of a hash, enough to tell one from another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Short([u8; 4]);

impl Short {
    /// Takes the first four bytes. Fewer bytes give zeros.
    pub fn of(bytes: &[u8]) -> Self {
        Self(bytes.first_chunk().copied().unwrap_or_default())
    }
}

impl fmt::Display for Short {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl Survey {
    /// Opens the existing store at `path`.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        schema::open_to_read(path).map(|connection| Self { connection })
    }

    /// Calls `show` with every row, in the order of inserts. Reads each value and compares the row with its checksum.
    pub fn each<E: From<LedgerError>>(&self, mut show: impl FnMut(Entry) -> Result<(), E>) -> Result<(), E> {
        let failed = |error: rusqlite::Error| failure(&error);
        // Without an index: a damaged one could hide rows.
        let mut statement = self
            .connection
            .prepare(select!("NOT INDEXED ORDER BY place"))
            .map_err(failed)?;
        let mut rows = statement.query([]).map_err(failed)?;
        while let Some(row) = rows.next().map_err(failed)? {
            show(entry(row).map_err(failed)?)?;
        }
        Ok(())
    }

    /// Returns the problems that SQLite's own check of the whole file finds, at most 50.
    pub fn flaws(&self) -> Result<Vec<String>, LedgerError> {
        let ask = || {
            let mut statement = self
                .connection
                .prepare(&format!("PRAGMA integrity_check({FLAWS_MAX})"))?;
            let lines = statement.query_map([], |row| row.get::<_, String>(0))?;
            lines.collect::<rusqlite::Result<Vec<String>>>()
        };
        let mut lines = ask().map_err(|error| failure(&error))?;
        // SQLite answers `ok` if it found nothing.
        lines.retain(|line| line != "ok");
        Ok(lines)
    }
}

fn entry(row: &Row<'_>) -> rusqlite::Result<Entry> {
    // A damaged row may contain any type: it is shown with zeros, and must not end the inspection.
    let found = Found::of(row)?;
    let number = |at: usize| Ok::<_, rusqlite::Error>(row.get_ref(at)?.as_i64().unwrap_or_default());
    let moment = |at: usize| Ok::<_, rusqlite::Error>(Moment::from_nanos(number(at)?.try_into().unwrap_or_default()));
    let short = |at: usize| Ok::<_, rusqlite::Error>(Short::of(row.get_ref(at)?.as_blob().unwrap_or_default()));
    Ok(Entry {
        place: found.place,
        sound: found.record.is_some(),
        kind: number(1)?.try_into().ok().and_then(rows::kind_of),
        principal: short(2)?,
        name: short(3)?,
        bytes: row.get_ref(5)?.as_blob().unwrap_or_default().len() as u64,
        made_at: moment(7)?,
        expires_at: moment(8)?,
    })
}
