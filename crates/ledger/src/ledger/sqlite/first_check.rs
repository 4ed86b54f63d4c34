//! The first check of a store: its indexes are compared with the table, and its records are counted.
//!
//! It reads every row, so it runs on the writer thread when the store is open already. Until it has succeeded, every
//! read and every write waits. A damaged index could hide a record: a write would then add a second one under its key,
//! and a caller of a read would take "no record" for a fact. No read can tell such a gap from a true one without the
//! check, so none is answered before.
//!
//! Callers bound their wait with their own timeouts, as with a slow disk, and the same follows. A request whose 250 ms
//! (5 s with a call that may have an answer) are over takes the records for unknown, never for absent. A head that has
//! waited so long for its pins is sent, and they are written after it. Posts of tool services wait for 30 s.

use std::{sync::Arc, time::Duration};

use tokio::sync::{
    mpsc::{self, error::TryRecvError},
    watch,
};

use super::{
    shutdown_latch::ShutdownLatch,
    store_health::{StoreHealth, WriteHealth},
    table::{RecordTable, is_corruption},
    write_request::WriteRequest,
};
use crate::ledger::{LedgerError, LedgerSize};

/// The pause after a failure: the first, and the longest.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// The pause after a check that found damage. The next one reads much of the file again, and finds the same, unless the
/// disk failed: SQLite calls a read that fails with EIO damage, too.
const DAMAGE_PAUSE: Duration = Duration::from_secs(60);
/// The longest time until a request that comes during a pause is answered.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// The steps of SQLite's machine between two looks at the closing of the ledger: a hundred rows or so, and ten pages. A
/// slow disk must read them within the timeout of the close.
const STEPS_PER_LOOK: i32 = 1000;

/// The progress of the first check.
#[derive(Clone, Debug)]
pub(super) enum CheckState {
    /// It has not ended yet.
    Running,
    /// It has failed for this reason.
    Failed(Box<str>),
    /// It has succeeded, and the content has this size now.
    Passed(LedgerSize),
}

impl CheckState {
    /// Returns the present size, or the error of the check. `None` while it runs.
    fn outcome(&self) -> Option<Result<LedgerSize, LedgerError>> {
        match self {
            Self::Running => None,
            Self::Failed(reason) => Some(Err(LedgerError::Store((&**reason).into()))),
            Self::Passed(size) => Some(Ok(*size)),
        }
    }
}

/// Waits for the end of the first check, and returns the present size of the content.
pub(super) async fn await_check(state: &watch::Receiver<CheckState>) -> Result<LedgerSize, LedgerError> {
    // Looked at first: a scrape of the metrics polls this once, and must not be told to come again.
    let known = state.borrow().outcome();
    if let Some(outcome) = known {
        return outcome;
    }
    let mut state = state.clone();
    let ended = state.wait_for(|state| state.outcome().is_some()).await;
    // Without a writer no check ends.
    ended
        .ok()
        .and_then(|state| state.outcome())
        .unwrap_or(Err(LedgerError::Closed))
}

/// The first check of a store. Its state has the size of the content from then on.
pub(super) struct FirstCheck {
    state: watch::Sender<CheckState>,
    health: Arc<StoreHealth>,
    /// Opens when the check must end, because the ledger is closed.
    closing: Arc<ShutdownLatch>,
}

impl FirstCheck {
    /// Prepares the check. Returns it with its state.
    pub(super) fn new(health: Arc<StoreHealth>, closing: ShutdownLatch) -> (Self, watch::Receiver<CheckState>) {
        let (state, receiver) = watch::channel(CheckState::Running);
        let check = Self {
            state,
            health,
            closing: Arc::new(closing),
        };
        (check, receiver)
    }

    /// Publishes the size of the content.
    pub(super) fn publish_size(&self, size: LedgerSize) {
        self.state.send_replace(CheckState::Passed(size));
    }

    /// Checks the store until that succeeds. The requests that wait for a check that fails get its error.
    ///
    /// Returns `false` if the ledger was closed before.
    pub(super) fn pass_store(&self, table: &mut RecordTable, jobs: &mut mpsc::Receiver<WriteRequest>) -> bool {
        let (mut pause, mut is_first) = (BACKOFF.0, true);
        loop {
            let Err(error) = self.check_once(table) else {
                self.health.note_write(WriteHealth::Stored);
                self.publish_size(table.usage());
                return true;
            };
            if self.closing.is_open() {
                return false;
            }
            self.note_failure(&error, is_first);
            is_first = false;
            let is_damaged = is_corruption(&error);
            if self.refuse_until(if is_damaged { DAMAGE_PAUSE } else { pause }, &error, jobs) {
                return false;
            }
            pause = pause.saturating_mul(2).min(BACKOFF.1);
            // Callers do not wait for the next check of a damaged file: it takes long, and will hardly succeed.
            if !is_damaged {
                self.state.send_replace(CheckState::Running);
            }
        }
    }

    /// Answers all requests of the next `pause` with an error. Returns `true` if the ledger was closed meanwhile.
    fn refuse_until(
        &self,
        pause: Duration,
        error: &rusqlite::Error,
        requests: &mut mpsc::Receiver<WriteRequest>,
    ) -> bool {
        let mut left = pause;
        loop {
            loop {
                match requests.try_recv() {
                    Ok(request) => request.refuse(error),
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => return true,
                }
            }
            if left.is_zero() {
                return false;
            }
            let wait = left.min(LOOK_INTERVAL);
            if self.closing.wait_timeout(wait) {
                return true;
            }
            left = left.saturating_sub(wait);
        }
    }

    /// Checks the store once. Ends with an error soon after the ledger was closed.
    fn check_once(&self, table: &mut RecordTable) -> rusqlite::Result<()> {
        let closing = Arc::clone(&self.closing);
        let is_closed = move || closing.is_open();
        table.connection.progress_handler(STEPS_PER_LOOK, Some(is_closed))?;
        let checked = table.check_indexes();
        // A later transaction must not be interrupted: writes that wait are done before the ledger is closed.
        table.connection.progress_handler(0, None::<fn() -> bool>)?;
        if checked? {
            tracing::warn!("indexes of the ledger were damaged: rebuilt from its records");
        }
        Ok(())
    }

    fn note_failure(&self, error: &rusqlite::Error, is_first: bool) {
        let is_damaged = is_corruption(error);
        // Of many failures in a row only the first is logged.
        if is_first && is_damaged {
            tracing::error!(%error, "the first check of the ledger failed: its file is damaged");
        } else if is_first {
            tracing::warn!(%error, "the first check of the ledger failed: retrying");
        }
        self.health.note_write(if is_damaged {
            WriteHealth::Damaged
        } else {
            WriteHealth::Unchecked
        });
        let reason = error.to_string().into();
        self.state.send_replace(CheckState::Failed(reason));
    }
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::*;
    use crate::ledger::sqlite::{schema, shutdown_latch::shutdown_latch};

    /// More than the check reads between two looks at the closing of the ledger.
    const ROWS: u64 = 20_000;

    /// Returns the table of a store with many rows. The same key is in two of them if the index of keys is damaged.
    fn filled_table(folder: &tempfile::TempDir, is_damaged: bool) -> RecordTable {
        let path = folder.path().join("ledger.db");
        let connection = schema::open_store(&path, [7; 32]).unwrap().connection;
        let fill = format!(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {ROWS}) \
             INSERT INTO records (kind, principal, name, version, made_at, expires_at, checksum, value) \
             SELECT 1, zeroblob(32), CAST(printf('%032d', i) AS BLOB), 1, 0, 0, zeroblob(32), zeroblob(9) FROM n;"
        );
        connection.execute_batch(&fill).unwrap();
        if is_damaged {
            connection.execute_batch(TWIN_KEY).unwrap();
        }
        RecordTable::new(connection)
    }

    /// Adds a second row of a key. Another index stands in for the unique one, which must have lost the first row.
    const TWIN_KEY: &str = "DROP INDEX by_key; CREATE INDEX by_key ON records (kind, principal, name); \
         INSERT INTO records (kind, principal, name, version, made_at, expires_at, checksum, value) \
         SELECT kind, principal, name, version, made_at, expires_at, checksum, value FROM records WHERE place = 9; \
         CREATE TRIGGER refusal BEFORE DELETE ON records BEGIN SELECT RAISE(FAIL, 'refused'); END";

    fn index_names(connection: &Connection) -> Vec<String> {
        let sql = "SELECT name FROM sqlite_schema WHERE type = 'index' ORDER BY name";
        let mut statement = connection.prepare(sql).unwrap();
        let names = statement.query_map([], |row| row.get(0)).unwrap();
        names.map(Result::unwrap).collect()
    }

    /// A rebuild that fails after the removal of the indexes leaves them, the records and the count as they were.
    #[test]
    fn a_failed_rebuild_is_rolled_back() {
        let folder = tempfile::tempdir().unwrap();
        let mut table = filled_table(&folder, true);
        let names = index_names(&table.connection);
        assert_eq!(names.len(), 4);
        for _ in 0..2 {
            let error = table.rebuild_indexes().unwrap_err();
            assert!(error.to_string().contains("refused"), "{error}");
            assert!(table.connection.is_autocommit());
            assert_eq!(
                (index_names(&table.connection), table.usage().records),
                (names.clone(), 0)
            );
        }
        table.connection.execute_batch("DROP TRIGGER refusal").unwrap();
        table.rebuild_indexes().unwrap();
        assert_eq!((index_names(&table.connection), table.usage().records), (names, ROWS));
        assert!(!table.check_indexes().unwrap());
    }

    /// Runs the check of a table whose ledger is closed already, or never. Returns its result and its last state.
    fn run(table: &mut RecordTable, is_closed: bool) -> (bool, CheckState) {
        let (guard, closing) = shutdown_latch();
        let guard = (!is_closed).then_some(guard);
        let (check, state) = FirstCheck::new(Arc::new(StoreHealth::new("nowhere".as_ref())), closing);
        let (_requests, mut jobs) = mpsc::channel(1);
        let passed = check.pass_store(table, &mut jobs);
        drop(guard);
        let state = state.borrow().clone();
        (passed, state)
    }

    #[test]
    fn the_closing_of_the_ledger_ends_the_check() {
        let folder = tempfile::tempdir().unwrap();
        let mut table = filled_table(&folder, false);
        let (passed, state) = run(&mut table, true);
        assert!(!passed && matches!(state, CheckState::Running), "{state:?}");
        assert_eq!(table.usage().records, 0, "it was not read to its end");
        let (passed, state) = run(&mut table, false);
        assert!(
            passed && matches!(state, CheckState::Passed(size) if size.records == ROWS),
            "{state:?}"
        );
        // Later work is not interrupted.
        table.rebuild_indexes().unwrap();
    }
}
