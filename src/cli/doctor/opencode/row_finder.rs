//! The rows of a session, also in a table without an index on the id of the session.
//!
//! A database that was restored may have lost its indexes. Then each session would need a walk over the whole table. One
//! walk for all of them keeps the number of each row, and the rows are read by these.

use std::{cell::OnceCell, collections::HashMap};

use rusqlite::Connection;

/// A table whose rows belong to sessions.
#[derive(Clone, Copy, Debug)]
pub(super) enum StoredTable {
    Message,
    Part,
}

impl StoredTable {
    const fn name(self) -> &'static str {
        match self {
            Self::Message => "message",
            Self::Part => "part",
        }
    }
}

/// Most bytes for the numbers of rows and the ids of sessions. A larger table is walked for each session.
const NUMBERS_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Bytes of the number of a row, in a list with room for more.
const ROW_BYTES: usize = 16;
/// Bytes that a session takes beside its id.
const SESSION_BYTES: usize = 128;

/// The rows of each session. Empty if the table has an index, or too many rows.
type RowsBySession = HashMap<String, Vec<i64>>;

/// Finds the rows of sessions. What it needs is read once for each table.
#[derive(Debug, Default)]
pub(super) struct RowFinder {
    messages: OnceCell<Option<RowsBySession>>,
    parts: OnceCell<Option<RowsBySession>>,
}

/// The rows of one session: a condition of a query, and the value that it is given.
#[derive(Debug)]
pub(super) enum SessionRowSet {
    /// All with this id of a session.
    Id(String),
    /// Those with these numbers, as a list in JSON.
    Numbers(String),
}

impl SessionRowSet {
    /// Returns the condition, whose first value is [`SessionRowSet::given`].
    pub(super) const fn condition(&self) -> &'static str {
        match self {
            Self::Id(_) => "session_id = ?1",
            Self::Numbers(_) => "rowid IN (SELECT value FROM json_each(?1))",
        }
    }

    /// Returns the value.
    pub(super) fn given(&self) -> &str {
        match self {
            Self::Id(text) | Self::Numbers(text) => text,
        }
    }
}

impl RowFinder {
    /// Returns the rows of a session.
    pub(super) fn rows_of(
        &self,
        connection: &Connection,
        table: StoredTable,
        session: &str,
    ) -> rusqlite::Result<SessionRowSet> {
        let cell = match table {
            StoredTable::Message => &self.messages,
            StoredTable::Part => &self.parts,
        };
        if cell.get().is_none() {
            // Nobody else fills it: a connection belongs to one thread.
            drop(cell.set(read_rows(connection, table)?));
        }
        let Some(rows) = cell.get().and_then(Option::as_ref) else {
            return Ok(SessionRowSet::Id(session.to_owned()));
        };
        let rows = rows.get(session).map(Vec::as_slice).unwrap_or_default();
        let numbers: Vec<String> = rows.iter().map(i64::to_string).collect();
        Ok(SessionRowSet::Numbers(format!("[{}]", numbers.join(","))))
    }
}

/// Reads the numbers of all rows by session. `None` if there is an index, or too many rows.
fn read_rows(connection: &Connection, table: StoredTable) -> rusqlite::Result<Option<RowsBySession>> {
    let indexes: i64 = connection.query_row(
        "SELECT count(*) FROM pragma_index_list(?1) AS known, pragma_index_info(known.name) AS member \
         WHERE known.partial = 0 AND member.seqno = 0 AND member.name = 'session_id'",
        [table.name()],
        |row| row.get(0),
    )?;
    if indexes > 0 {
        return Ok(None);
    }
    let mut query = connection.prepare(&format!("SELECT rowid, session_id FROM {}", table.name()))?;
    let (mut found, mut rows, mut bytes) = (RowsBySession::new(), query.query([])?, 0_usize);
    while let Some(row) = rows.next()? {
        // A row that belongs to no session is no row of any.
        let Ok(session) = row.get_ref(1)?.as_str() else {
            continue;
        };
        let number = row.get(0)?;
        bytes = bytes.saturating_add(ROW_BYTES);
        if let Some(numbers) = found.get_mut(session) {
            numbers.push(number);
        } else {
            bytes = bytes.saturating_add(SESSION_BYTES).saturating_add(session.len());
            found.insert(session.to_owned(), vec![number]);
        }
        if bytes > NUMBERS_BYTES_MAX {
            return Ok(None);
        }
    }
    Ok(Some(found))
}
