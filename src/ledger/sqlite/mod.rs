//! A ledger in an SQLite file. A commit that was answered with [`Outcome::Done`] is on disk.
//!
//! One thread writes and two threads read. Callers wait for a reply and block no thread of their own. One process owns
//! the file and locks a second file beside it. Other processes may read the store.

mod files;
mod indexes;
mod reader;
mod rows;
mod schema;
mod survey;
mod table;
mod turn;
mod writer;

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::Duration,
};

use tokio::sync::{mpsc, oneshot};

use super::{
    Index, Key, Kind, Ledger, LedgerError, LedgerSettings, Moment, OpenError, Outcome, ROWS_MAX, Record, Reply, Step,
    Usage, steps,
};
use crate::session::PrincipalHash;
use reader::Question;
use table::{Rubbish, Table};
use turn::{Turn, turn};
use writer::{Asker, Job, Waiting, Writer};

pub use survey::{Entry, Short, Survey};

/// The requests that may wait for a thread. Further callers wait for room in the queue.
const QUEUE: usize = 128;
const READERS: usize = 2;
/// The timeout of the drop, which waits for the threads to end. Commits that were answered are on disk before that. A
/// stalled disk must not prevent the exit of the process.
const FAREWELL: Duration = Duration::from_secs(2);

/// A ledger that stores its records in an SQLite file.
pub struct SqliteLedger {
    path: PathBuf,
    secret: [u8; 32],
    usage: Arc<Mutex<Usage>>,
    /// `None` once the ledger is being dropped. The threads end when the queues are closed.
    jobs: Option<mpsc::Sender<Job>>,
    questions: Option<mpsc::Sender<Question>>,
    /// Reports that the file is closed and the lock is released.
    closed: Turn,
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
    /// Blocks the thread: it reads every row to compute the size.
    pub fn open(path: &Path, settings: LedgerSettings, new_secret: [u8; 32]) -> Result<Self, OpenError> {
        let held = schema::open(path, new_secret)?;
        let path = held.path;
        let table = Table::new(held.connection).map_err(|error| schema::failed(&path, &error))?;
        let usage = Arc::new(Mutex::default());
        let writer = Writer::new(table, settings, Arc::clone(&usage));
        let (jobs, asked) = mpsc::channel(QUEUE);
        let (questions, questioned) = mpsc::channel(QUEUE);
        let ((open, closed), (reading, read)) = (turn(), turn());
        let ledger = Self {
            path,
            secret: held.secret,
            usage,
            jobs: Some(jobs),
            questions: Some(questions),
            closed,
        };
        // Declared after the ledger, so dropped before it if a thread fails to start. The writer waits for this drop.
        let reading = reading;
        let path = &ledger.path;
        let of_system = |error: std::io::Error| files::unusable(path, error.to_string());
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
        for _ in 0..READERS {
            let connection = schema::open_to_read(path)?;
            let (questioned, reading) = (Arc::clone(&questioned), reading.clone());
            let read = move || {
                reader::run(&connection, &questioned);
                drop(connection);
                drop(reading);
            };
            named("ledger-reader").spawn(read).map_err(of_system)?;
        }
        Ok(ledger)
    }

    fn clear_of(&self, rubbish: Rubbish, now: Moment) -> Reply<'_, u64> {
        let clear = move |reply| Job::Clear { rubbish, now, reply };
        Box::pin(ask(self.jobs.as_ref(), clear))
    }
}

/// Sends a request to a thread and waits for the reply. Fails with [`LedgerError::Closed`] if the thread has ended.
async fn ask<J, T>(threads: Option<&mpsc::Sender<J>>, job: impl FnOnce(Asker<T>) -> J) -> Result<T, LedgerError> {
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
fn failure(error: &rusqlite::Error) -> LedgerError {
    LedgerError::Store(error.to_string().into())
}

impl Ledger for SqliteLedger {
    fn commit(&self, steps: Vec<Step>, now: Moment) -> Reply<'_, Outcome> {
        Box::pin(async move {
            // Checked here, so that an oversized commit costs the writer nothing.
            steps::within_bounds(&steps)?;
            ask(self.jobs.as_ref(), |reply| Job::Commit(Waiting { steps, now, reply })).await
        })
    }

    fn read(&self, keys: Vec<Key>, now: Moment) -> Reply<'_, Vec<Option<Record>>> {
        Box::pin(async move {
            if keys.len() > ROWS_MAX {
                return Err(LedgerError::TooLarge);
            }
            ask(self.questions.as_ref(), |reply| Question::Read { keys, now, reply }).await
        })
    }

    fn list(&self, kind: Kind, principal: PrincipalHash, limit: usize, now: Moment) -> Reply<'_, Vec<Record>> {
        let limit = limit.min(ROWS_MAX);
        Box::pin(ask(self.questions.as_ref(), move |reply| Question::List {
            kind,
            principal,
            limit,
            now,
            reply,
        }))
    }

    fn find(&self, kind: Kind, index: Index, limit: usize, now: Moment) -> Reply<'_, Vec<Record>> {
        let limit = limit.min(ROWS_MAX);
        Box::pin(ask(self.questions.as_ref(), move |reply| Question::Find {
            kind,
            index,
            limit,
            now,
            reply,
        }))
    }

    fn expire(&self, now: Moment) -> Reply<'_, u64> {
        self.clear_of(Rubbish::Expired, now)
    }

    fn clear(&self, now: Moment) -> Reply<'_, u64> {
        self.clear_of(Rubbish::ExpiredOrDamaged, now)
    }

    fn usage(&self) -> Reply<'_, Usage> {
        // The writer publishes the size after each transaction, so this never waits.
        let usage = *self.usage.lock().unwrap_or_else(PoisonError::into_inner);
        Box::pin(std::future::ready(Ok(usage)))
    }

    fn secret(&self) -> [u8; 32] {
        self.secret
    }

    fn survives_restart(&self) -> bool {
        true
    }
}

impl Drop for SqliteLedger {
    /// Waits up to two seconds until all requests are done and the write-ahead log is in the file.
    fn drop(&mut self) {
        // The threads end once their queues are closed.
        self.questions = None;
        self.jobs = None;
        if !self.closed.comes_within(FAREWELL) {
            tracing::warn!(
                path = %self.path.display(),
                "timeout while closing the ledger: the disk is slow; all answered commits are on disk"
            );
        }
    }
}
