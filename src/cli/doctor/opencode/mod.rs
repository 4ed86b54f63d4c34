//! Sessions of opencode, which are in one database. Nothing is written to it, nor beside it.

mod snapshot;
mod stored_session;

use std::{path::Path, time::Duration};

use rusqlite::Connection;

pub(super) use self::snapshot::is_database;
use self::{
    snapshot::DatabaseSnapshot,
    stored_session::{StoredSession, read_stored},
};
use super::reading::{SessionReading, UnreadFile};

/// Sessions of one database that are read.
const SESSIONS_MAX: usize = 100_000;

/// The name of the database, and the begin of the names of others that opencode makes for its test versions.
const NAME: &str = "opencode";
const ENDING: &str = ".db";

/// Returns `true` if a file of this name is opencode's database.
pub(super) fn has_database_name(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let stem = name.strip_suffix(ENDING);
    stem.is_some_and(|stem| stem == NAME || stem.strip_prefix(NAME).is_some_and(|rest| rest.starts_with('-')))
}

/// A database of opencode as it was at one moment.
#[derive(Debug)]
pub(super) struct SessionDatabase {
    snapshot: DatabaseSnapshot,
    sessions: Vec<StoredSession>,
}

impl SessionDatabase {
    /// Reads the list of sessions. Fails with the reason.
    pub(super) fn open(path: &Path) -> Result<Self, String> {
        let snapshot = DatabaseSnapshot::take(path)?;
        let sessions = list_sessions(&snapshot.connection).map_err(|error| describe_error(&error))?;
        snapshot.check_unchanged()?;
        match sessions {
            Some(sessions) => Ok(Self { snapshot, sessions }),
            None => Err("not read: it is a database, but not one of opencode that this version knows".to_owned()),
        }
    }

    /// Returns id and time of the last write of each session.
    pub(super) fn sessions(&self) -> impl Iterator<Item = (&str, Duration)> {
        self.sessions
            .iter()
            .map(|session| (session.id.as_str(), session.modified))
    }

    /// Reads a session.
    pub(super) fn read_session(&self, id: &str) -> Result<SessionReading, UnreadFile> {
        let fault = |told: String| UnreadFile::Fault(told);
        let session = self.sessions.iter().find(|session| session.id == id);
        let session = session.ok_or_else(|| fault("it has no such session".to_owned()))?;
        let report = read_stored(&self.snapshot.connection, session).map_err(|error| fault(describe_error(&error)))?;
        self.snapshot.check_unchanged().map_err(fault)?;
        if report.messages == 0 && report.findings.is_empty() {
            return Err(UnreadFile::NoContent);
        }
        Ok(SessionReading {
            report,
            modified: session.modified,
            is_compressed: false,
        })
    }
}

/// Lists the sessions. `None` if the database has other tables.
fn list_sessions(connection: &Connection) -> rusqlite::Result<Option<Vec<StoredSession>>> {
    if !has_tables(connection)? {
        return Ok(None);
    }
    let mut query =
        connection.prepare("SELECT id, version, time_updated, revert FROM session ORDER BY time_updated DESC")?;
    let mut rows = query.query([])?;
    let mut sessions = Vec::new();
    while let Some(row) = rows.next()? {
        if sessions.len() >= SESSIONS_MAX {
            break;
        }
        let updated: i64 = row.get(2)?;
        let revert: Option<String> = row.get(3)?;
        sessions.push(StoredSession {
            id: row.get(0)?,
            version: row.get(1)?,
            modified: Duration::from_millis(u64::try_from(updated).unwrap_or_default()),
            reverted_from: revert.and_then(|revert| stored_session::reverted_message(&revert)),
        });
    }
    Ok(Some(sessions))
}

/// Returns `true` if the tables have the columns that are read. A view of such a name could compute anything.
fn has_tables(connection: &Connection) -> rusqlite::Result<bool> {
    const WANTED: [(&str, &[&str]); 3] = [
        ("session", &["id", "version", "time_updated", "revert"]),
        ("message", &["id", "session_id", "time_created", "data"]),
        ("part", &["id", "message_id", "session_id", "data"]),
    ];
    let mut query = connection.prepare(
        "SELECT count(*) FROM sqlite_schema AS known, pragma_table_xinfo(known.name) AS member \
         WHERE known.type = 'table' AND known.sql NOT LIKE 'CREATE VIRTUAL%' AND known.name = ?1 \
         AND member.name = ?2 AND member.hidden = 0",
    )?;
    for (table, columns) in WANTED {
        for column in columns {
            let found: i64 = query.query_row([table, column], |row| row.get(0))?;
            if found != 1 {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// Says why a database cannot be read, and what to do.
fn describe_error(error: &rusqlite::Error) -> String {
    use rusqlite::ErrorCode;

    match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => "not read: it is no database".to_owned(),
        Some(ErrorCode::DatabaseCorrupt) => {
            "not read: the database is damaged; sqlite3 FILE .recover reads what is left of it".to_owned()
        }
        Some(ErrorCode::DiskFull) => {
            "not read: no room for a private copy in the folder for temporary files".to_owned()
        }
        // Other texts of SQLite may quote what they have met.
        Some(code) => format!("not read: the database cannot be read ({code:?})"),
        None => "not read: a column of the database has a type that this version does not know".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_database_is_known_by_its_name() {
        for (name, is_known) in [
            ("opencode.db", true),
            ("opencode-dev.db", true),
            ("opencode.db-wal", false),
            ("opencodex.db", false),
            ("session.db", false),
        ] {
            assert_eq!(has_database_name(Path::new(name)), is_known, "{name}");
        }
    }
}
