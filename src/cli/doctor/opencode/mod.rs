//! Sessions of opencode, which are in one database. Nothing is written to it, nor beside it.

mod stored_session;

use std::{path::Path, time::Duration};

use self::stored_session::{StoredSession, read_stored};
use super::{
    database::{DatabaseSnapshot, describe_error},
    reading::{SessionReading, UnreadFile},
};

/// The largest database with a log of writes that is copied, in bytes.
const COPIED_BYTES_MAX: u64 = 1 << 30;
/// Sessions of one database that are read.
const SESSIONS_MAX: usize = 100_000;

/// The tables that are read, with their columns.
const TABLES: [(&str, &[&str]); 3] = [
    ("session", &["id", "version", "time_updated", "revert"]),
    ("message", &["id", "session_id", "time_created", "data"]),
    ("part", &["id", "message_id", "session_id", "data"]),
];

/// A database of opencode as it was at one moment.
#[derive(Debug)]
pub(super) struct SessionDatabase {
    snapshot: DatabaseSnapshot,
    sessions: Vec<StoredSession>,
}

impl SessionDatabase {
    /// Reads the list of sessions. Fails with the reason.
    pub(super) fn open(path: &Path) -> Result<Self, String> {
        let snapshot = DatabaseSnapshot::take(path, COPIED_BYTES_MAX)?;
        let sessions = list_sessions(&snapshot).map_err(|error| describe_error(&error))?;
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
            modified: Some(session.modified),
            is_compressed: false,
        })
    }
}

/// Lists the sessions. `None` if the database has other tables.
fn list_sessions(snapshot: &DatabaseSnapshot) -> rusqlite::Result<Option<Vec<StoredSession>>> {
    for (table, columns) in TABLES {
        if !snapshot.has_columns(table, columns)? {
            return Ok(None);
        }
    }
    let connection = &snapshot.connection;
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
