//! A ledger in an SQLite file: what was answered with [`Outcome::Done`] is on the disk.
//!
//! One thread writes, two read; whoever asks waits for an answer and blocks no thread of his own. The file belongs to
//! one process, which holds a lock beside it; others may read.

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

/// What may wait for a thread; whoever comes then waits to be let in.
const QUEUE: usize = 128;
const READERS: usize = 2;
/// How long who drops a ledger waits for its threads. What was answered is on the disk before that; a disk that stalls
/// must not keep the process from its end.
const FAREWELL: Duration = Duration::from_secs(2);

/// Records in a file.
pub struct SqliteLedger {
    path: PathBuf,
    secret: [u8; 32],
    usage: Arc<Mutex<Usage>>,
    /// Taken when the ledger is dropped: the threads end when nobody can ask.
    jobs: Option<mpsc::Sender<Job>>,
    questions: Option<mpsc::Sender<Question>>,
    /// Comes when the file is closed and its lock is given up.
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
    /// Opens the ledger at `path` for this process alone, and makes it with `new_secret` if it is not there. Blocks: it
    /// counts what is there.
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
        // Dropped before the ledger where this fails: the writer waits for it.
        let reading = reading;
        let path = &ledger.path;
        let of_system = |error: std::io::Error| files::unusable(path, error.to_string());
        let named = |name: &str| thread::Builder::new().name(name.to_owned());
        let lock = held.lock;
        let write = move || {
            // The last connection is the one that closes the file, and nobody else may have it before.
            writer.run(asked, &read);
            drop(lock);
            drop(open);
        };
        named("ledger-writer").spawn(write).map_err(of_system)?;
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

/// Asks a thread, and waits for what it answers.
async fn ask<J, T>(threads: Option<&mpsc::Sender<J>>, job: impl FnOnce(Asker<T>) -> J) -> Result<T, LedgerError> {
    let (reply, answer) = oneshot::channel();
    let threads = threads.ok_or(LedgerError::Closed)?;
    threads.send(job(reply)).await.map_err(|_| LedgerError::Closed)?;
    answer.await.unwrap_or(Err(LedgerError::Closed))
}

/// What SQLite's error is to those who asked. Several may be told of one, so it is told by its text; SQLite's texts hold
/// nothing of what records say.
fn failure(error: &rusqlite::Error) -> LedgerError {
    LedgerError::Store(error.to_string().into())
}

impl Ledger for SqliteLedger {
    fn commit(&self, steps: Vec<Step>, now: Moment) -> Reply<'_, Outcome> {
        Box::pin(async move {
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
    /// Waits until what was asked is done and the log is moved into the file, within two seconds.
    fn drop(&mut self) {
        self.questions = None;
        self.jobs = None;
        if !self.closed.comes_within(FAREWELL) {
            tracing::warn!(
                path = %self.path.display(),
                "the disk is slow: the ledger is left without being closed; what was answered is kept"
            );
        }
    }
}
