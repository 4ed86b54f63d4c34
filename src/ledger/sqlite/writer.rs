//! The one thread that writes: all commits that wait go into one transaction, and are answered when it is on the disk.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::{mpsc, oneshot};

use super::{
    failure,
    table::{Rubbish, Table, Walk, tells_damage},
    turn::Turn,
};
use crate::ledger::{LedgerError, LedgerSettings, Moment, Outcome, Step, Usage, steps};

/// Commits in one transaction at most.
const COMMITS_MAX: usize = 128;
/// Bytes of values after which a transaction takes no further commit.
const BYTES_MAX: usize = 32 * 1024 * 1024;
/// What is cleared away between two transactions at most: commits wait that long.
const CLEARED_ROWS: usize = 64;
const CLEARED_BYTES: u64 = 1024 * 1024;

/// Who waits for an answer.
pub(super) type Asker<T> = oneshot::Sender<Result<T, LedgerError>>;

/// What the writer is asked.
pub(super) enum Job {
    Commit(Waiting),
    Clear {
        rubbish: Rubbish,
        now: Moment,
        reply: Asker<u64>,
    },
}

/// One commit.
pub(super) struct Waiting {
    pub(super) steps: Vec<Step>,
    pub(super) now: Moment,
    pub(super) reply: Asker<Outcome>,
}

impl Waiting {
    fn bytes(&self) -> usize {
        let value = |step: &Step| match step {
            Step::Insert { value, .. } | Step::Replace { value, .. } => value.len(),
            Step::Remove { .. } => 0,
        };
        self.steps.iter().map(value).sum()
    }
}

/// A clearing under way.
struct Clearing {
    now: Moment,
    walk: Walk,
    reply: Asker<u64>,
}

/// Why a transaction was not done.
struct Failed {
    error: rusqlite::Error,
    /// Whether all of its steps were.
    at_the_end: bool,
}

/// What the thread owns.
pub(super) struct Writer {
    table: Table,
    settings: LedgerSettings,
    usage: Arc<Mutex<Usage>>,
    clearings: VecDeque<Clearing>,
    /// Indexes are made anew once, and once more by each clearing: what that does not heal costs no more.
    may_mend: bool,
}

impl Writer {
    pub(super) fn new(table: Table, settings: LedgerSettings, usage: Arc<Mutex<Usage>>) -> Self {
        let writer = Self {
            table,
            settings,
            usage,
            clearings: VecDeque::new(),
            may_mend: true,
        };
        writer.publish();
        writer
    }

    /// Works until nobody can ask any more and all that was asked is done, and closes the file when `read` has come.
    pub(super) fn run(mut self, mut jobs: mpsc::Receiver<Job>, read: &Turn) {
        loop {
            let mut next = if self.clearings.is_empty() {
                let Some(job) = jobs.blocking_recv() else { break };
                Some(job)
            } else {
                jobs.try_recv().ok()
            };
            let (mut batch, mut bytes) = (Vec::new(), 0);
            while let Some(job) = next {
                match job {
                    Job::Commit(waiting) => {
                        bytes += waiting.bytes();
                        batch.push(waiting);
                    }
                    Job::Clear { rubbish, now, reply } => {
                        self.may_mend = true;
                        let walk = Walk::over(rubbish);
                        self.clearings.push_back(Clearing { now, walk, reply });
                    }
                }
                let full = batch.len() >= COMMITS_MAX || bytes >= BYTES_MAX;
                next = if full { None } else { jobs.try_recv().ok() };
            }
            self.commit_all(batch);
            self.clear_some();
        }
        read.comes();
        // What is not moved out of the log now is when the file is next opened.
        drop(
            self.table
                .connection
                .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())),
        );
    }

    fn commit_all(&mut self, batch: Vec<Waiting>) {
        if batch.is_empty() {
            return;
        }
        let mut done = self.transact(&batch);
        if done.as_ref().is_err_and(|failed| tells_damage(&failed.error)) && self.mend() {
            done = self.transact(&batch);
        }
        match done {
            Ok(outcomes) => {
                self.publish();
                for (waiting, outcome) in batch.into_iter().zip(outcomes) {
                    // Nobody listens to a reply that was dropped.
                    drop(waiting.reply.send(outcome));
                }
            }
            // One commit that cannot be done is no reason to refuse the others.
            Err(failed) if batch.len() > 1 && !failed.at_the_end => {
                for waiting in batch {
                    self.commit_all(vec![waiting]);
                }
            }
            Err(failed) => {
                for waiting in batch {
                    drop(waiting.reply.send(Err(failure(&failed.error))));
                }
            }
        }
    }

    /// All of it in one transaction; what this gives may be told.
    fn transact(&mut self, batch: &[Waiting]) -> Result<Vec<Result<Outcome, LedgerError>>, Failed> {
        let done = self
            .steps(batch)
            .map_err(|error| (error, false))
            .and_then(|outcomes| self.table.keep_all().map(|()| outcomes).map_err(|error| (error, true)));
        done.map_err(|(error, at_the_end)| {
            self.table.undo_all();
            Failed { error, at_the_end }
        })
    }

    fn steps(&mut self, batch: &[Waiting]) -> rusqlite::Result<Vec<Result<Outcome, LedgerError>>> {
        self.table.begin_all()?;
        let one = |waiting: &Waiting| steps::carry_out(&mut self.table, self.settings, &waiting.steps, waiting.now);
        batch.iter().map(one).collect()
    }

    /// A portion of the clearing that is first.
    fn clear_some(&mut self) {
        let Some(mut clearing) = self.clearings.pop_front() else {
            return;
        };
        if clearing.reply.is_closed() {
            return;
        }
        let mut portion = |table: &mut Table| {
            let cleared = table.clear_some(&mut clearing.walk, clearing.now, CLEARED_ROWS, CLEARED_BYTES);
            cleared.inspect_err(|_| table.undo_all())
        };
        let mut cleared = portion(&mut self.table);
        if cleared.as_ref().is_err_and(tells_damage) && self.mend() {
            cleared = portion(&mut self.table);
        }
        self.publish();
        match cleared {
            Ok(()) if clearing.walk.ended => drop(clearing.reply.send(Ok(clearing.walk.gone))),
            Ok(()) => self.clearings.push_front(clearing),
            Err(error) => drop(clearing.reply.send(Err(failure(&error)))),
        }
    }

    fn mend(&mut self) -> bool {
        if !std::mem::take(&mut self.may_mend) {
            return false;
        }
        let mended = self.table.mend();
        if mended.is_err() {
            self.table.undo_all();
        }
        mended.is_ok()
    }

    fn publish(&self) {
        *self.usage.lock().unwrap_or_else(PoisonError::into_inner) = self.table.usage();
    }
}
