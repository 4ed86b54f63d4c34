//! The writer thread. All waiting commits go into one transaction, and are answered when it is on disk.

use std::{collections::VecDeque, sync::Arc};

use tokio::sync::mpsc;

use super::{
    first_check::FirstCheck,
    shutdown_latch::ShutdownLatch,
    store_error,
    store_health::{RunningTrial, StoreHealth, WriteHealth},
    table::{GcWalk, RecordTable, is_corruption},
    write_request::{CommitRequest, ReplySender, WriteRequest},
};
use crate::ledger::{CommitOutcome, CommitResult, LedgerError, LedgerSettings, Moment, TimedCommit, steps};

/// The most requests in one transaction.
const REQUESTS_MAX: usize = 128;
/// Bytes of values after which a transaction takes no further commit.
const TRANSACTION_BYTES_MAX: usize = 32 * 1024 * 1024;
/// The most transactions that fail before the rest of a request is not divided any further.
const FAILURES_MAX: usize = 32;
/// The limits of one portion of a removal. Waiting commits are delayed by one portion at most.
const REMOVAL_ROWS_MAX: usize = 64;
const REMOVAL_BYTES_MAX: u64 = 1024 * 1024;

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
    first_check: FirstCheck,
    health: Arc<StoreHealth>,
    gc_runs: VecDeque<GcRun>,
    /// Set while a rebuild of the indexes is allowed: once per process, and once more for each removal. A rebuild reads
    /// the whole table, and a second one in a row would not repair what the first did not.
    may_rebuild_indexes: bool,
}

impl SqliteWriter {
    pub(super) fn new(
        table: RecordTable,
        settings: LedgerSettings,
        first_check: FirstCheck,
        health: Arc<StoreHealth>,
    ) -> Self {
        Self {
            table,
            settings,
            first_check,
            health,
            gc_runs: VecDeque::new(),
            may_rebuild_indexes: true,
        }
    }

    /// Makes the first check, and then handles requests until the queue is closed and all removals are done.
    ///
    /// Then waits until `read` reports the end of the readers, and closes the file.
    pub(super) fn run(mut self, mut jobs: mpsc::Receiver<WriteRequest>, read: &ShutdownLatch) {
        if self.first_check.pass_store(&mut self.table, &mut jobs) {
            self.handle_requests(&mut jobs);
        }
        // The callers of requests that still wait learn that the ledger is closed.
        drop(jobs);
        read.wait();
        // A failed checkpoint loses nothing: SQLite moves the rest of the log when the file is next opened.
        drop(
            self.table
                .connection
                .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())),
        );
    }

    fn handle_requests(&mut self, jobs: &mut mpsc::Receiver<WriteRequest>) {
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
                    WriteRequest::Trial { trial, reply } => self.run_trial(trial, reply),
                }
                let full = batch.len() >= REQUESTS_MAX || bytes >= TRANSACTION_BYTES_MAX;
                next = if full { None } else { jobs.try_recv().ok() };
            }
            self.commit_batch(batch);
            self.run_gc_portion();
        }
    }

    fn commit_batch(&mut self, batch: Vec<CommitRequest>) {
        if batch.is_empty() {
            return;
        }
        let commits = || batch.iter().flat_map(|waiting| &waiting.commits);
        let mut done = self.try_transaction(commits());
        if done.as_ref().is_err_and(|failed| is_corruption(&failed.error)) && self.rebuild_indexes() {
            done = self.try_transaction(commits());
        }
        match done {
            Ok(results) => {
                self.publish_usage();
                self.note_health(&results);
                let mut results = results.into_iter();
                for waiting in batch {
                    let own = results.by_ref().take(waiting.commits.len()).collect();
                    // A caller that hit its timeout has dropped the receiver.
                    drop(waiting.reply.send(Ok(own)));
                }
            }
            // One bad commit must not fail the others, so each request gets transactions of its own. After a failed
            // `COMMIT` the state on disk is unknown: a second try could report a conflict with the batch's own
            // records.
            Err(failed) if batch.len() > 1 && !failed.is_commit_error => {
                for waiting in batch {
                    self.commit_batch(vec![waiting]);
                }
            }
            Err(failed) if !failed.is_commit_error => {
                for waiting in batch {
                    let mut results = Vec::with_capacity(waiting.commits.len());
                    self.commit_halves(&waiting.commits, &failed, &mut 0, &mut results);
                    self.publish_usage();
                    self.note_health(&results);
                    drop(waiting.reply.send(Ok(results)));
                }
            }
            Err(failed) => {
                self.health.note_write(WriteHealth::Failed);
                for waiting in batch {
                    drop(waiting.reply.send(Err(store_error(&failed.error))));
                }
            }
        }
    }

    /// Divides commits whose transaction has failed, until those that fail are alone.
    fn commit_halves(
        &mut self,
        commits: &[TimedCommit],
        failed: &TransactionError,
        failures: &mut usize,
        results: &mut Vec<CommitResult>,
    ) {
        *failures += 1;
        // A store that fails altogether must not be tried once for each commit.
        if commits.len() < 2 || failed.is_commit_error || *failures > FAILURES_MAX {
            results.extend(commits.iter().map(|_| Err(store_error(&failed.error))));
            return;
        }
        let (first, second) = commits.split_at(commits.len() / 2);
        for half in [first, second] {
            match self.try_transaction(half.iter()) {
                Ok(done) => results.extend(done),
                Err(failed) => self.commit_halves(half, &failed, failures, results),
            }
        }
    }

    /// Applies commits in one transaction. Returned results are on disk and may be sent.
    fn try_transaction<'c>(
        &mut self,
        commits: impl Iterator<Item = &'c TimedCommit>,
    ) -> Result<Vec<CommitResult>, TransactionError> {
        let failed = |is_commit_error| move |error| TransactionError { error, is_commit_error };
        let applied = self.apply_commits(commits).map_err(failed(false));
        let done = applied.and_then(|results| {
            self.table.commit_transaction().map_err(failed(true))?;
            Ok(results)
        });
        if done.is_err() {
            self.table.roll_back_transaction();
        }
        done
    }

    fn apply_commits<'c>(
        &mut self,
        commits: impl Iterator<Item = &'c TimedCommit>,
    ) -> rusqlite::Result<Vec<CommitResult>> {
        self.table.begin_transaction()?;
        let apply = |commit: &TimedCommit| match steps::check_bounds(&commit.steps) {
            Ok(()) => steps::commit_steps(&mut self.table, self.settings, &commit.steps, commit.now),
            Err(too_large) => Ok(Err(too_large)),
        };
        commits.map(apply).collect()
    }

    /// Does one portion of the oldest removal.
    fn run_gc_portion(&mut self) {
        let Some(mut clearing) = self.gc_runs.pop_front() else {
            return;
        };
        // The reply is not wanted any more, so the removal ends here. Its earlier portions stay removed.
        if clearing.reply.is_closed() {
            return;
        }
        let removed_before = clearing.walk.removed;
        let mut portion = |table: &mut RecordTable| {
            let cleared = table.remove_portion(&mut clearing.walk, clearing.now, REMOVAL_ROWS_MAX, REMOVAL_BYTES_MAX);
            cleared.inspect_err(|_| table.roll_back_transaction())
        };
        let mut cleared = portion(&mut self.table);
        if cleared.as_ref().is_err_and(is_corruption) && self.rebuild_indexes() {
            cleared = portion(&mut self.table);
        }
        self.publish_usage();
        if cleared.is_ok() && clearing.walk.removed > removed_before {
            self.note_removal();
        }
        match cleared {
            Ok(()) if clearing.walk.is_done => drop(clearing.reply.send(Ok(clearing.walk.removed))),
            // Removals are done one after the other, each with its own time.
            Ok(()) => self.gc_runs.push_front(clearing),
            Err(error) => {
                self.health.note_write(WriteHealth::Failed);
                drop(clearing.reply.send(Err(store_error(&error))));
            }
        }
    }

    /// Writes one page, and notes the outcome like that of every other write.
    fn run_trial(&mut self, trial: RunningTrial, reply: ReplySender<()>) {
        // The caller has hit its timeout.
        if reply.is_closed() {
            return;
        }
        let tried = self.table.rewrite_version();
        if tried.is_err() {
            self.table.roll_back_transaction();
        }
        self.health.note_write(match tried {
            Ok(()) => WriteHealth::Stored,
            Err(_) => WriteHealth::Failed,
        });
        // Before the reply: whoever gets it may ask again at once.
        drop(trial);
        drop(reply.send(Ok(())));
    }

    fn rebuild_indexes(&mut self) -> bool {
        if !std::mem::take(&mut self.may_rebuild_indexes) {
            return false;
        }
        self.table.rebuild_indexes().is_ok()
    }

    /// Notes the health that the results of a request show.
    fn note_health(&self, results: &[CommitResult]) {
        if let Some(health) = write_health(results) {
            self.health.note_write(health);
        }
    }

    /// Notes that records were removed: the disk works, and there may be room again.
    fn note_removal(&self) {
        if self.table.usage().bytes < self.settings.bytes_max {
            self.health.note_write(WriteHealth::Stored);
        }
    }

    fn publish_usage(&self) {
        self.first_check.publish_size(self.table.usage());
    }
}

/// Returns the health that the results of a request show. `None` if nothing was to be written: a full disk still reads.
fn write_health(results: &[CommitResult]) -> Option<WriteHealth> {
    let has_failed = |result: &CommitResult| matches!(result, Err(LedgerError::Store(_)));
    let has_no_room = |result: &CommitResult| matches!(result, Err(LedgerError::Full { of_principal: false }));
    if results.iter().any(has_failed) {
        Some(WriteHealth::Failed)
    } else if results.iter().any(has_no_room) {
        Some(WriteHealth::Full)
    } else {
        let is_stored = results.iter().any(|result| matches!(result, Ok(CommitOutcome::Done)));
        is_stored.then_some(WriteHealth::Stored)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conflicts_alone_tell_nothing_of_the_disk() {
        let conflict = || Ok(CommitOutcome::Conflict(Vec::new()));
        assert_eq!(write_health(&[conflict()]), None);
        assert_eq!(write_health(&[Err(LedgerError::Full { of_principal: true })]), None);
        let stored = [conflict(), Ok(CommitOutcome::Done)];
        assert_eq!(write_health(&stored), Some(WriteHealth::Stored));
        let full = [conflict(), Err(LedgerError::Full { of_principal: false })];
        assert_eq!(write_health(&full), Some(WriteHealth::Full));
        let failed = [Ok(CommitOutcome::Done), Err(LedgerError::Store("away".into()))];
        assert_eq!(write_health(&failed), Some(WriteHealth::Failed));
    }
}
