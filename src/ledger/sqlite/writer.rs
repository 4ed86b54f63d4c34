//! The writer thread. All waiting commits go into one transaction, and are answered when it is on disk.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::{mpsc, oneshot};

use super::{
    shutdown_latch::ShutdownLatch,
    store_error,
    table::{GcScope, GcWalk, RecordTable, is_corruption},
};
use crate::ledger::{CommitOutcome, CommitStep, LedgerError, LedgerSettings, LedgerSize, Moment, steps};

/// The most commits in one transaction.
const COMMITS_MAX: usize = 128;
/// Bytes of values after which a transaction takes no further commit.
const TRANSACTION_BYTES_MAX: usize = 32 * 1024 * 1024;
/// The limits of one portion of a removal. Waiting commits are delayed by one portion at most.
const REMOVAL_ROWS_MAX: usize = 64;
const REMOVAL_BYTES_MAX: u64 = 1024 * 1024;

/// The channel for the reply to one request.
pub(super) type ReplySender<T> = oneshot::Sender<Result<T, LedgerError>>;

/// A request to the writer thread.
pub(super) enum WriteRequest {
    Commit(CommitRequest),
    Clear {
        scope: GcScope,
        now: Moment,
        reply: ReplySender<u64>,
    },
}

/// A commit that waits for its transaction.
pub(super) struct CommitRequest {
    pub(super) steps: Vec<CommitStep>,
    pub(super) now: Moment,
    pub(super) reply: ReplySender<CommitOutcome>,
}

impl CommitRequest {
    fn value_bytes(&self) -> usize {
        let value = |step: &CommitStep| match step {
            CommitStep::Insert { value, .. } | CommitStep::Replace { value, .. } => value.len(),
            CommitStep::Remove { .. } => 0,
        };
        self.steps.iter().map(value).sum()
    }
}

/// A removal that is in progress.
struct GcRun {
    now: Moment,
    walk: GcWalk,
    reply: ReplySender<u64>,
}

/// The error of a transaction.
struct TransactionError {
    error: rusqlite::Error,
    /// `true` if every step succeeded and the final `COMMIT` failed.
    is_commit_error: bool,
}

/// The state of the writer thread.
pub(super) struct SqliteWriter {
    table: RecordTable,
    settings: LedgerSettings,
    usage: Arc<Mutex<LedgerSize>>,
    gc_runs: VecDeque<GcRun>,
    /// Set while a rebuild of the indexes is allowed: once per process, and once more for each removal. A rebuild reads
    /// the whole table, and a second one in a row would not repair what the first did not.
    may_rebuild_indexes: bool,
}

impl SqliteWriter {
    pub(super) fn new(table: RecordTable, settings: LedgerSettings, usage: Arc<Mutex<LedgerSize>>) -> Self {
        let writer = Self {
            table,
            settings,
            usage,
            gc_runs: VecDeque::new(),
            may_rebuild_indexes: true,
        };
        writer.publish_usage();
        writer
    }

    /// Handles requests until the queue is closed and all removals are done.
    ///
    /// Then waits until `read` reports the end of the readers, and closes the file.
    pub(super) fn run(mut self, mut jobs: mpsc::Receiver<WriteRequest>, read: &ShutdownLatch) {
        loop {
            // With a removal in progress the thread must not block: it continues with the next portion.
            let mut next = if self.gc_runs.is_empty() {
                let Some(job) = jobs.blocking_recv() else { break };
                Some(job)
            } else {
                jobs.try_recv().ok()
            };
            let (mut batch, mut bytes) = (Vec::new(), 0);
            // One disk sync then serves every commit that waits already.
            while let Some(job) = next {
                match job {
                    WriteRequest::Commit(waiting) => {
                        bytes += waiting.value_bytes();
                        batch.push(waiting);
                    }
                    WriteRequest::Clear { scope, now, reply } => {
                        self.may_rebuild_indexes = true;
                        let walk = GcWalk::new(scope);
                        self.gc_runs.push_back(GcRun { now, walk, reply });
                    }
                }
                let full = batch.len() >= COMMITS_MAX || bytes >= TRANSACTION_BYTES_MAX;
                next = if full { None } else { jobs.try_recv().ok() };
            }
            self.commit_batch(batch);
            self.run_gc_portion();
        }
        read.wait();
        // A failed checkpoint loses nothing: SQLite moves the rest of the log when the file is next opened.
        drop(
            self.table
                .connection
                .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())),
        );
    }

    fn commit_batch(&mut self, batch: Vec<CommitRequest>) {
        if batch.is_empty() {
            return;
        }
        let mut done = self.try_transaction(&batch);
        if done.as_ref().is_err_and(|failed| is_corruption(&failed.error)) && self.rebuild_indexes() {
            done = self.try_transaction(&batch);
        }
        match done {
            Ok(outcomes) => {
                self.publish_usage();
                for (waiting, outcome) in batch.into_iter().zip(outcomes) {
                    // A caller that hit its timeout has dropped the receiver.
                    drop(waiting.reply.send(outcome));
                }
            }
            // One bad commit must not fail the others, so each gets a transaction of its own. After a failed `COMMIT`
            // the state on disk is unknown: a second attempt could report a conflict with the batch's own records.
            Err(failed) if batch.len() > 1 && !failed.is_commit_error => {
                for waiting in batch {
                    self.commit_batch(vec![waiting]);
                }
            }
            Err(failed) => {
                for waiting in batch {
                    drop(waiting.reply.send(Err(store_error(&failed.error))));
                }
            }
        }
    }

    /// Applies the batch in one transaction. Returned outcomes are on disk and may be sent.
    fn try_transaction(
        &mut self,
        batch: &[CommitRequest],
    ) -> Result<Vec<Result<CommitOutcome, LedgerError>>, TransactionError> {
        let failed = |is_commit_error| move |error| TransactionError { error, is_commit_error };
        let applied = self.apply_batch(batch).map_err(failed(false));
        let done = applied.and_then(|outcomes| {
            self.table.commit_transaction().map_err(failed(true))?;
            Ok(outcomes)
        });
        if done.is_err() {
            self.table.roll_back_transaction();
        }
        done
    }

    fn apply_batch(&mut self, batch: &[CommitRequest]) -> rusqlite::Result<Vec<Result<CommitOutcome, LedgerError>>> {
        self.table.begin_transaction()?;
        let one =
            |waiting: &CommitRequest| steps::commit_steps(&mut self.table, self.settings, &waiting.steps, waiting.now);
        batch.iter().map(one).collect()
    }

    /// Does one portion of the oldest removal.
    fn run_gc_portion(&mut self) {
        let Some(mut clearing) = self.gc_runs.pop_front() else {
            return;
        };
        // The caller gave up, so the removal ends here. Its earlier portions stay removed.
        if clearing.reply.is_closed() {
            return;
        }
        let mut portion = |table: &mut RecordTable| {
            let cleared = table.remove_portion(&mut clearing.walk, clearing.now, REMOVAL_ROWS_MAX, REMOVAL_BYTES_MAX);
            cleared.inspect_err(|_| table.roll_back_transaction())
        };
        let mut cleared = portion(&mut self.table);
        if cleared.as_ref().is_err_and(is_corruption) && self.rebuild_indexes() {
            cleared = portion(&mut self.table);
        }
        self.publish_usage();
        match cleared {
            Ok(()) if clearing.walk.is_done => drop(clearing.reply.send(Ok(clearing.walk.removed))),
            // Removals are done one after the other, each with its own time.
            Ok(()) => self.gc_runs.push_front(clearing),
            Err(error) => drop(clearing.reply.send(Err(store_error(&error)))),
        }
    }

    fn rebuild_indexes(&mut self) -> bool {
        if !std::mem::take(&mut self.may_rebuild_indexes) {
            return false;
        }
        let mended = self.table.rebuild_indexes();
        if mended.is_err() {
            self.table.roll_back_transaction();
        }
        mended.is_ok()
    }

    fn publish_usage(&self) {
        *self.usage.lock().unwrap_or_else(PoisonError::into_inner) = self.table.usage();
    }
}
