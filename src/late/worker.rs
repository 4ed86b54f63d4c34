//! The writer behind exchanges: it records calls and notes deliveries, one job after the other.

use std::{fmt, sync::Weak, time::Duration};

use super::{LateError, LateStore, LateStoreInner, changes, posting};
use crate::{
    auth::Principal,
    clock,
    ledger::{BackgroundWriter, CommitOutcome, CommitStep, Index, LedgerError, QueueWorker, ROWS_MAX, RecordName},
};

/// A job of the worker.
pub enum LateJob {
    /// Records the calls of one turn, and settles results that are parked for them. Each call is inserted by a step.
    Record(Vec<(Index, CommitStep)>),
    /// Marks a call as answered by its client. The content of the answer, as JSON, is needed only if a posted result
    /// waits.
    Answered(Principal, RecordName, Option<String>),
    /// Marks a call as delivered.
    Delivered(Principal, RecordName),
    /// Marks a result as acknowledged.
    Acked(Principal, RecordName),
}

impl fmt::Debug for LateJob {
    // A job may contain the client's answer, which never reaches a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LateJob")
    }
}

/// The writer of late results.
// Weak, so that the queue closes when the last handle of the store is dropped.
#[derive(Debug)]
pub struct LateWriter(pub(super) Weak<LateStoreInner>);

/// The background worker of late results.
pub type LateWorker = QueueWorker<LateWriter>;

impl BackgroundWriter for LateWriter {
    type Job = LateJob;
    type Error = LateError;
    // The pauses of 20 attempts.
    const RETRY_TIME_MAX: Duration = Duration::from_millis(71_300);

    async fn try_job(&self, job: &LateJob) -> Result<(), LateError> {
        let Some(late) = self.0.upgrade().map(LateStore) else {
            return Ok(());
        };
        match job {
            LateJob::Record(news) => record_calls(&late, news).await,
            LateJob::Answered(principal, name, content) => {
                changes::mark_answered(&late, *principal, *name, content.as_deref()).await
            }
            LateJob::Delivered(principal, name) => changes::mark_delivered(&late, *principal, *name).await,
            LateJob::Acked(principal, name) => changes::acknowledge_call(&late, *principal, *name).await.map(drop),
        }
    }

    fn note_failure(&mut self, error: &LateError) -> bool {
        // The other errors do not go away with time: the ledger is full or closed, or the record is too large.
        matches!(error, LateError::Ledger(LedgerError::Store(_)) | LateError::Busy)
    }

    fn end_job(&mut self, job: &LateJob, done: Result<(), LateError>) {
        if let (Err(error), Some(inner)) = (done, self.0.upgrade()) {
            tracing::warn!(%error, "failed to write a tool call or its delivery to the ledger: the write is lost");
            LateStore(inner).note_lost(job);
        }
    }
}

/// Inserts calls into the ledger, then settles the results that are parked for them.
async fn record_calls(late: &LateStore, news: &[(Index, CommitStep)]) -> Result<(), LateError> {
    for some in news.chunks(ROWS_MAX) {
        // One commit, so that a crash records either the whole turn or nothing of it.
        let steps = some.iter().map(|(_, insert)| insert.clone()).collect();
        if late.0.ledger.commit(steps, clock::unix_time()).await? == CommitOutcome::Done {
            continue;
        }
        // At least one call is recorded already, which fails the whole batch: insert the calls one by one.
        for (_, insert) in some {
            // A conflict is no error here: the existing record is of the same call.
            drop(late.0.ledger.commit(vec![insert.clone()], clock::unix_time()).await?);
        }
    }
    for (index, _) in news {
        posting::settle_parked(late, *index).await?;
    }
    Ok(())
}
