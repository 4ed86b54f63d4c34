//! Sessions of opencode, which are in one database. Nothing is written to it, nor beside it.

mod row_finder;
mod stored_session;

use std::{path::Path, time::Duration};

use rusqlite::Params;

use self::{
    row_finder::RowFinder,
    stored_session::{StoredSession, read_stored},
};
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
    /// Sessions that are not in the list, because there are too many.
    left_out: u64,
    rows: RowFinder,
}

impl SessionDatabase {
    /// Reads the list of sessions. Fails with the reason.
    pub(super) fn open(path: &Path) -> Result<Self, String> {
        let snapshot = DatabaseSnapshot::take(path, COPIED_BYTES_MAX)?;
        let sessions = list_sessions(&snapshot).map_err(|error| describe_error(&error))?;
        snapshot.check_unchanged()?;
        match sessions {
            Some(sessions) => Ok(Self {
                left_out: count_left_out(&snapshot, sessions.len()).map_err(|error| describe_error(&error))?,
                snapshot,
                sessions,
                rows: RowFinder::default(),
            }),
            None => Err("not read: it is a database, but not one of opencode that this version knows".to_owned()),
        }
    }

    /// Returns id and time of the last write of each session.
    pub(super) fn sessions(&self) -> impl Iterator<Item = (&str, Duration)> {
        self.sessions
            .iter()
            .map(|session| (session.id.as_str(), session.modified))
    }

    /// Says that there are more sessions than are read, and how to read the others. `None` if all are in the list.
    pub(super) fn describe_left_out(&self) -> Option<String> {
        let listed = self.sessions.len();
        (self.left_out > 0).then(|| {
            format!(
                "{} more sessions are in it, and the newest {listed} are read: name one of the others by its whole id",
                self.left_out
            )
        })
    }

    /// Adds a session to the list that has no room for it, if the database has it.
    pub(super) fn add_left_out(&mut self, id: &str) -> Result<(), String> {
        if self.left_out == 0 || self.sessions.iter().any(|session| session.id == id) {
            return Ok(());
        }
        let found = query_sessions(&self.snapshot, "WHERE id = ?1", [id], 1);
        self.sessions.extend(found.map_err(|error| describe_error(&error))?);
        Ok(())
    }

    /// Reads a session.
    pub(super) fn read_session(&self, id: &str) -> Result<SessionReading, UnreadFile> {
        let fault = |told: String| UnreadFile::Fault(told);
        let session = self.sessions.iter().find(|session| session.id == id);
        let session = session.ok_or_else(|| fault("it has no such session".to_owned()))?;
        let report = read_stored(&self.snapshot.connection, &self.rows, session);
        let report = report.map_err(|error| fault(describe_error(&error)))?;
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
    query_sessions(snapshot, "ORDER BY time_updated DESC", [], SESSIONS_MAX).map(Some)
}

/// Returns the number of sessions beside those of the list.
fn count_left_out(snapshot: &DatabaseSnapshot, listed: usize) -> rusqlite::Result<u64> {
    let count = snapshot
        .connection
        .query_row("SELECT count(*) FROM session", [], |row| row.get::<_, i64>(0))?;
    let listed = u64::try_from(listed).unwrap_or(u64::MAX);
    Ok(u64::try_from(count).unwrap_or_default().saturating_sub(listed))
}

/// Returns sessions, by the end of a query.
fn query_sessions(
    snapshot: &DatabaseSnapshot,
    which: &str,
    given: impl Params,
    most: usize,
) -> rusqlite::Result<Vec<StoredSession>> {
    let columns = "SELECT id, version, time_updated, revert FROM session";
    let mut query = snapshot.connection.prepare(&format!("{columns} {which}"))?;
    let mut rows = query.query(given)?;
    let mut sessions = Vec::new();
    while let Some(row) = rows.next()? {
        if sessions.len() >= most {
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
    Ok(sessions)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLES: &str = "CREATE TABLE session (id TEXT PRIMARY KEY, version TEXT, time_updated INTEGER, revert TEXT);
        CREATE TABLE message (id TEXT PRIMARY KEY, session_id TEXT, time_created INTEGER, data TEXT);
        CREATE TABLE part (id TEXT PRIMARY KEY, message_id TEXT, session_id TEXT, data TEXT);
        WITH RECURSIVE row(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM row WHERE n < 100001)
            INSERT INTO session SELECT 'ses_' || n, '1.18.33', n, NULL FROM row;
        INSERT INTO message VALUES ('msg_1', 'ses_1', 1, '{\"role\":\"user\"}'), ('msg_2', 'ses_7', 1, '{}'),
            ('msg_3', NULL, 1, '{}'), ('msg_4', 7, 1, '{}');
        INSERT INTO part VALUES
            ('prt_2', 'msg_1', 'ses_1', '{\"type\":\"tool\",\"callID\":\"a\",\"state\":{\"status\":\"running\"}}'),
            ('prt_1', 'msg_1', 'ses_1', '{\"type\":'), ('prt_3', 'msg_2', 'ses_7', '{}');";

    /// A list that has no room for a session is told, and the session is found by its id, with an index or without.
    #[test]
    fn sessions_beyond_the_list_are_told_and_found_by_their_id() {
        let folder = tempfile::tempdir().unwrap();
        for index in [
            "",
            "CREATE INDEX of_part ON part (session_id); CREATE INDEX of_message ON message (session_id);",
        ] {
            let path = folder.path().join(format!("opencode-{}.db", index.len()));
            let made = rusqlite::Connection::open(&path).unwrap();
            made.execute_batch(&format!("{TABLES}{index}")).unwrap();
            drop(made);
            let mut database = SessionDatabase::open(&path).unwrap();
            let told = database.describe_left_out().unwrap();
            assert!(told.starts_with("2 more sessions"), "{told}");
            assert!(database.read_session("ses_1").is_err());
            database.add_left_out("ses_1").unwrap();
            let report = database.read_session("ses_1").unwrap().report;
            let found = report
                .findings
                .iter()
                .map(|finding| (finding.code.label(), finding.line));
            assert_eq!(
                found.collect::<Vec<_>>(),
                [("torn_record", 2), ("open_call", 1)],
                "{index}"
            );
        }
    }
}
