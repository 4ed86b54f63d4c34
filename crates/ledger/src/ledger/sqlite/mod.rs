//! A ledger in an SQLite file. A commit that was answered with [`CommitOutcome::Done`] is on disk.
//!
//! One thread writes and two threads read. Callers wait for a reply and block no thread of their own. One process owns
//! the file and locks a second file beside it. Other processes may read the store.

mod copy_target;
mod files;
mod first_check;
mod index_check;
mod inspector;
mod reader;
mod rows;
mod schema;
mod shutdown_latch;
mod store_health;
mod table;
mod write_request;
mod writer;

use std::{
    fmt,
    future::ready,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot, watch};

use super::{
    CommitOutcome, CommitResult, CommitStep, Index, Ledger, LedgerError, LedgerFault, LedgerOpenError, LedgerReply,
    LedgerSettings, LedgerSize, Moment, PlacedRecord, ROWS_MAX, Record, RecordKey, RecordKind, TimedCommit, steps,
};
use crate::principal::PrincipalHash;
use first_check::{CheckState, FirstCheck, await_check};
use reader::ReadRequest;
use shutdown_latch::{ShutdownGuard, ShutdownLatch, shutdown_latch};
use store_health::StoreHealth;
use table::{GcScope, RecordTable};
use write_request::{CommitRequest, ReplySender, WriteRequest};
use writer::SqliteWriter;

pub use copy_target::FileCopyTarget;
pub use inspector::LedgerInspector;

/// The requests that may wait for a thread. Further callers wait for room in the queue.
const QUEUED_REQUESTS_MAX: usize = 128;
const READER_THREADS: usize = 2;
/// The timeout of the drop, which waits for the threads to end. Commits that were answered are on disk before that. A
/// stalled disk must not prevent the exit of the process.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// A ledger that stores its records in an SQLite file.
pub struct SqliteLedger {
    path: PathBuf,
    secret: [u8; 32],
    /// The state of the first check, which has the size of the content once that is known.
    check_state: watch::Receiver<CheckState>,
    health: Arc<StoreHealth>,
    /// `None` once the ledger is being dropped. The threads end when the queues are closed.
    write_requests: Option<mpsc::Sender<WriteRequest>>,
    read_requests: Option<mpsc::Sender<ReadRequest>>,
    /// Lets the first check run. Its drop ends the check.
    check_guard: Option<ShutdownGuard>,
    /// Reports that the file is closed and the lock is released.
    closed_latch: ShutdownLatch,
}

impl fmt::Debug for SqliteLedger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteLedger")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl SqliteLedger {
    /// Opens the ledger at `path` for this process alone. Creates it with `new_secret` if it does not exist.
    ///
    /// Blocks the thread for a few milliseconds. The records are checked and counted afterwards: until then every read
    /// and write waits, and so does [`Ledger::usage`].
    pub fn open(path: &Path, settings: LedgerSettings, new_secret: [u8; 32]) -> Result<Self, LedgerOpenError> {
        let held = schema::open_store(path, new_secret)?;
        let path = held.path;
        let connections = (0..READER_THREADS).map(|_| Ok(schema::open_read_only(&path)?.0));
        let connections = connections.collect::<Result<Vec<Connection>, LedgerOpenError>>()?;
        let health = Arc::new(StoreHealth::new(&path));
        let (check_guard, closing) = shutdown_latch();
        let (first_check, check_state) = FirstCheck::new(Arc::clone(&health), closing);
        let table = RecordTable::new(held.connection);
        let writer = SqliteWriter::new(table, settings, first_check, Arc::clone(&health));
        let (jobs, asked) = mpsc::channel(QUEUED_REQUESTS_MAX);
        let (questions, questioned) = mpsc::channel(QUEUED_REQUESTS_MAX);
        let ((open, closed), (reading, read)) = (shutdown_latch(), shutdown_latch());
        let ledger = Self {
            path,
            secret: held.secret,
            check_state,
            health,
            write_requests: Some(jobs),
            read_requests: Some(questions),
            check_guard: Some(check_guard),
            closed_latch: closed,
        };
        // Declared after the ledger, so dropped before it if a thread fails to start. The writer waits for this drop.
        let reading = reading;
        let of_system = |error: std::io::Error| files::unusable_error(&ledger.path, error.to_string());
        let named = |name: &str| thread::Builder::new().name(name.to_owned());
        let lock = held.lock;
        let write = move || {
            // The last connection closes the file, so the writer waits for the readers. The lock must cover the close.
            writer.run(asked, &read);
            drop(lock);
            drop(open);
        };
        named("ledger-writer").spawn(write).map_err(of_system)?;
        // Both readers take requests from one queue.
        let questioned = Arc::new(Mutex::new(questioned));
        for connection in connections {
            let (questioned, reading) = (Arc::clone(&questioned), reading.clone());
            let read = move || {
                reader::run_reader(&connection, &questioned);
                drop(connection);
                drop(reading);
            };
            named("ledger-reader").spawn(read).map_err(of_system)?;
        }
        Ok(ledger)
    }

    /// Sends commits to the writer thread.
    async fn send_commits(&self, commits: Vec<TimedCommit>) -> Result<Vec<CommitResult>, LedgerError> {
        let request = |reply| WriteRequest::Commit(CommitRequest { commits, reply });
        send_request(self.write_requests.as_ref(), request).await
    }

    /// Sends `read` to a reader thread, once the indexes are checked.
    fn ask_reader<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> LedgerReply<'_, T> {
        let request = |reply| reader::read_request(reply, read);
        Box::pin(async move {
            await_check(&self.check_state).await?;
            send_request(self.read_requests.as_ref(), request).await
        })
    }

    /// Returns the fault that the last write has shown, or that the folder shows.
    fn noted_fault(&self) -> LedgerReply<'_, Option<LedgerFault>> {
        let (health, path) = (Arc::clone(&self.health), self.path.clone());
        // A reader looks at the folder: on a disk that does not answer, no task of the runtime may block. It reads no
        // record, so it does not wait for the first check.
        let request = |reply| reader::read_request(reply, move |_| Ok(health.find_fault(&path)));
        Box::pin(send_request(self.read_requests.as_ref(), request))
    }

    fn remove_in_scope(&self, scope: GcScope, now: Moment) -> LedgerReply<'_, u64> {
        let clear = move |reply| WriteRequest::Clear { scope, now, reply };
        Box::pin(send_request(self.write_requests.as_ref(), clear))
    }
}

/// Sends a request to a thread and waits for the reply. Fails with [`LedgerError::Closed`] if the thread has ended.
async fn send_request<J, T>(
    threads: Option<&mpsc::Sender<J>>,
    job: impl FnOnce(ReplySender<T>) -> J,
) -> Result<T, LedgerError> {
    let (reply, answer) = oneshot::channel();
    let threads = threads.ok_or(LedgerError::Closed)?;
    threads.send(job(reply)).await.map_err(|_| LedgerError::Closed)?;
    // A sender that was dropped without a reply means that the thread has ended.
    answer.await.unwrap_or(Err(LedgerError::Closed))
}

/// Converts an SQLite error.
///
/// The error becomes text, because several callers may receive the same one. SQLite's messages contain no record
/// content.
fn store_error(error: &rusqlite::Error) -> LedgerError {
    LedgerError::Store(error.to_string().into())
}

impl Ledger for SqliteLedger {
    fn commit(&self, steps: Vec<CommitStep>, now: Moment) -> LedgerReply<'_, CommitOutcome> {
        Box::pin(async move {
            // Checked here, so that an oversized commit costs the writer nothing.
            steps::check_bounds(&steps)?;
            let results = self.send_commits(vec![TimedCommit { steps, now }]).await?;
            results.into_iter().next().unwrap_or(Err(LedgerError::Closed))
        })
    }

    fn commit_each(&self, commits: Vec<TimedCommit>) -> LedgerReply<'_, Vec<CommitResult>> {
        let steps = commits.iter().map(|commit| commit.steps.len());
        if steps.fold(0, usize::saturating_add) > ROWS_MAX {
            return Box::pin(ready(Err(LedgerError::TooLarge)));
        }
        Box::pin(self.send_commits(commits))
    }

    fn read(&self, keys: Vec<RecordKey>, now: Moment) -> LedgerReply<'_, Vec<Option<Record>>> {
        if keys.len() > ROWS_MAX {
            return Box::pin(ready(Err(LedgerError::TooLarge)));
        }
        self.ask_reader(move |connection| reader::read_keys(connection, &keys, now))
    }

    fn list_records(
        &self,
        kind: RecordKind,
        principal: PrincipalHash,
        limit: usize,
        now: Moment,
    ) -> LedgerReply<'_, Vec<Record>> {
        let limit = limit.min(ROWS_MAX);
        self.ask_reader(move |connection| reader::list_records(connection, kind, principal, limit, now))
    }

    fn list_after(
        &self,
        kind: RecordKind,
        principal: PrincipalHash,
        after: u64,
        limit: usize,
        now: Moment,
    ) -> LedgerReply<'_, Vec<PlacedRecord>> {
        let limit = limit.min(ROWS_MAX);
        self.ask_reader(move |connection| reader::list_after(connection, kind, principal, after, limit, now))
    }

    fn list_principals(
        &self,
        kind: RecordKind,
        after: Option<PrincipalHash>,
        limit: usize,
    ) -> LedgerReply<'_, Vec<PrincipalHash>> {
        self.ask_reader(move |connection| reader::list_principals(connection, kind, after, limit))
    }

    fn find_by_index(&self, kind: RecordKind, index: Index, limit: usize, now: Moment) -> LedgerReply<'_, Vec<Record>> {
        let limit = limit.min(ROWS_MAX);
        self.ask_reader(move |connection| reader::find_by_index(connection, kind, index, limit, now))
    }

    fn remove_expired(&self, now: Moment) -> LedgerReply<'_, u64> {
        self.remove_in_scope(GcScope::Expired, now)
    }

    fn remove_unusable(&self, now: Moment) -> LedgerReply<'_, u64> {
        self.remove_in_scope(GcScope::ExpiredOrDamaged, now)
    }

    fn usage(&self) -> LedgerReply<'_, LedgerSize> {
        // The writer publishes the size after each transaction, so this waits for the first check only.
        Box::pin(await_check(&self.check_state))
    }

    fn find_fault(&self) -> LedgerReply<'_, Option<LedgerFault>> {
        Box::pin(async move {
            let fault = self.noted_fault().await?;
            // Without a failed write there is nothing to try: the check writes nothing to a good store.
            let trial = if fault == Some(LedgerFault::WriteFailed) {
                self.health.begin_trial()
            } else {
                None
            };
            let Some(trial) = trial else { return Ok(fault) };
            let request = |reply| WriteRequest::Trial { trial, reply };
            send_request(self.write_requests.as_ref(), request).await?;
            self.noted_fault().await
        })
    }

    fn secret(&self) -> [u8; 32] {
        self.secret
    }

    fn survives_restart(&self) -> bool {
        true
    }

    fn is_exclusive(&self) -> bool {
        true
    }
}

impl Drop for SqliteLedger {
    /// Waits up to two seconds until all requests are done and the write-ahead log is in the file.
    fn drop(&mut self) {
        // The threads end once their queues are closed.
        self.read_requests = None;
        let queue = self.write_requests.take();
        // Commits that wait for the first check have the timeout below for it. Without any, it ends at once.
        if queue.is_some_and(|queue| queue.capacity() == queue.max_capacity()) {
            self.check_guard = None;
        }
        if !self.closed_latch.wait_timeout(CLOSE_TIMEOUT) {
            tracing::warn!(
                path = %self.path.display(),
                "timeout while closing the ledger: the disk is slow; all answered commits are on disk"
            );
        }
    }
}
