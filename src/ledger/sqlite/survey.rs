//! A look over a whole store, for people: what stands in it, and what of that is damaged. It changes nothing, and the
//! store may be in use.

use std::{fmt, path::Path};

use rusqlite::{Connection, Row};

use super::{
    failure,
    rows::{self, Found, select},
    schema,
};
use crate::ledger::{Kind, LedgerError, Moment, OpenError};

/// What SQLite's own check tells at most.
const FLAWS_MAX: u8 = 50;

/// A store that is looked at.
#[derive(Debug)]
pub struct Survey {
    connection: Connection,
}

/// A row, without what it says. Where it is damaged, anything may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its place in the order; SQLite's rowid.
    pub place: i64,
    /// Whether it is as it was written.
    pub sound: bool,
    /// What it is; none where that is damaged.
    pub kind: Option<Kind>,
    /// The beginning of its principal.
    pub principal: Short,
    /// The beginning of its name.
    pub name: Short,
    /// Bytes of its value.
    pub bytes: u64,
    /// When it was put in.
    pub made_at: Moment,
    /// From when on it is gone.
    pub expires_at: Moment,
}

/// The beginning of a hash, enough to tell one from another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Short([u8; 4]);

impl Short {
    /// The beginning of these bytes.
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
    /// Opens the store at `path`, which must be there.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        schema::open_to_read(path).map(|connection| Self { connection })
    }

    /// Shows every row, in the order in which they were put in. What it says is read, and compared with its checksum.
    pub fn each<E: From<LedgerError>>(&self, mut show: impl FnMut(Entry) -> Result<(), E>) -> Result<(), E> {
        let failed = |error: rusqlite::Error| failure(&error);
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

    /// What SQLite's own check of the whole file finds.
    pub fn flaws(&self) -> Result<Vec<String>, LedgerError> {
        let ask = || {
            let mut statement = self
                .connection
                .prepare(&format!("PRAGMA integrity_check({FLAWS_MAX})"))?;
            let lines = statement.query_map([], |row| row.get::<_, String>(0))?;
            lines.collect::<rusqlite::Result<Vec<String>>>()
        };
        let mut lines = ask().map_err(|error| failure(&error))?;
        lines.retain(|line| line != "ok");
        Ok(lines)
    }
}

fn entry(row: &Row<'_>) -> rusqlite::Result<Entry> {
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
