//! The writer thread. All waiting commits go into one transaction, and are answered when it is on disk.

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

/// The most commits in one transaction.
const COMMITS_MAX: usize = 128;
/// Bytes of values after which a transaction takes no further commit.
const BYTES_MAX: usize = 32 * 1024 * 1024;
/// The limits of one portion of a removal. Waiting commits are delayed by one portion at most.
const CLEARED_ROWS: usize = 64;
const CLEARED_BYTES: u64 = 1024 * 1024;

/// The channel for the reply to one request.
pub(super) type Asker<T> = oneshot::Sender<Result<T, LedgerError>>;

/// A request to the writer thread.
pub(super) enum Job {
    Commit(Waiting),
    Clear {
        rubbish: Rubbish,
        now: Moment,
        reply: Asker<u64>,
    },
}

/// A commit that waits for its transaction.
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

/// A removal that is in progress.
struct Clearing {
    now: Moment,
    walk: Walk,
    reply: Asker<u64>,
}

/// The error of a transaction.
struct Failed {
    error: rusqlite::Error,
    /// `true` if every step succeeded and the final `COMMIT` failed.
    at_the_end: bool,
}

/// The state of the writer thread.
pub(super) struct Writer {
    table: Table,
    settings: LedgerSettings,
    usage: Arc<Mutex<Usage>>,
    clearings: VecDeque<Clearing>,
    /// Set while a rebuild of the indexes is allowed: once per process, and once more for each removal. A rebuild reads
    /// the whole table, and a second one in a row would not repair what the first did not.
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

    /// Handles requests until the queue is closed and all removals are done.
    ///
    /// Then waits until `read` reports the end of the readers, and closes the file.
    pub(super) fn run(mut self, mut jobs: mpsc::Receiver<Job>, read: &Turn) {
        loop {
            // With a removal in progress the thread must not block: it continues with the next portion.
            let mut next = if self.clearings.is_empty() {
                let Some(job) = jobs.blocking_recv() else { break };
                Some(job)
            } else {
                jobs.try_recv().ok()
            };
            let (mut batch, mut bytes) = (Vec::new(), 0);
            // One disk sync then serves every commit that waits already.
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
        // A failed checkpoint loses nothing: SQLite moves the rest of the log when the file is next opened.
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
                    // A caller that hit its timeout has dropped the receiver.
                    drop(waiting.reply.send(outcome));
                }
            }
            // One bad commit must not fail the others, so each gets a transaction of its own. After a failed `COMMIT`
            // the state on disk is unknown: a second attempt could report a conflict with the batch's own records.
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

    /// Applies the batch in one transaction. Returned outcomes are on disk and may be sent.
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

    /// Does one portion of the oldest removal.
    fn clear_some(&mut self) {
        let Some(mut clearing) = self.clearings.pop_front() else {
            return;
        };
        // The caller gave up, so the removal ends here. Its earlier portions stay removed.
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
            // Removals are done one after the other, each with its own time.
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
