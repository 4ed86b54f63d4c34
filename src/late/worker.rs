//! The worker that writes behind exchanges: it records calls and notes deliveries, one job after the other.

use std::{sync::Weak, time::Duration};

use tokio::sync::{mpsc, oneshot};

use super::{LateError, LateStore, LateStoreInner, changes, posting};
use crate::{
    auth::Principal,
    clock,
    ledger::{CommitOutcome, CommitStep, Index, LedgerError, ROWS_MAX, RecordKey, RecordName},
};

/// The first and the longest pause between two tries of one job.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// Tries of one job. The pauses between them add up to 71 seconds.
const JOB_TRIES_MAX: u32 = 20;

/// A job of the worker.
#[derive(Debug)]
pub(super) enum LateJob {
    /// Records the calls of one turn, and settles results that are parked for them.
    Record(Vec<CallInsert>),
    /// Marks a call as delivered.
    Delivered(Principal, RecordName),
    /// Marks a result as acknowledged.
    Acked(Principal, RecordName),
    /// Reports that every earlier job is done.
    Flush(oneshot::Sender<()>),
}

/// A call that is to be inserted into the ledger.
#[derive(Debug)]
pub(super) struct CallInsert {
    pub(super) key: RecordKey,
    pub(super) index: Index,
    pub(super) insert: CommitStep,
}

/// The background worker of late results.
pub struct LateWorker {
    // Weak, so that the job channel closes when the last handle of the store is dropped.
    late: Weak<LateStoreInner>,
    jobs: mpsc::Receiver<LateJob>,
}

impl std::fmt::Debug for LateWorker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LateWorker").finish_non_exhaustive()
    }
}

impl LateWorker {
    pub(super) const fn new(late: Weak<LateStoreInner>, jobs: mpsc::Receiver<LateJob>) -> Self {
        Self { late, jobs }
    }

    /// Runs jobs until the last handle of the store is dropped.
    pub async fn run(mut self) {
        while let Some(job) = self.jobs.recv().await {
            let Some(inner) = self.late.upgrade() else { return };
            let late = LateStore(inner);
            run_job(&late, job).await;
        }
    }
}

/// Runs a job, and retries it while the ledger fails.
async fn run_job(late: &LateStore, job: LateJob) {
    let mut pause = BACKOFF.0;
    let mut tries = 1;
    let failed = loop {
        match try_job(late, &job).await {
            Ok(()) => break None,
            // The other errors do not go away with time: the ledger is full or closed, or the record is too large.
            Err(LateError::Ledger(LedgerError::Store(_)) | LateError::Busy) if tries < JOB_TRIES_MAX => {
                tokio::time::sleep(pause).await;
                pause = pause.saturating_mul(2).min(BACKOFF.1);
                tries += 1;
            }
            Err(error) => break Some(error),
        }
    };
    if let Some(error) = failed {
        late.0.telemetry.record_late_event("lost");
        tracing::warn!(%error, "failed to write a tool call or its delivery to the ledger: the write is lost");
        if let LateJob::Record(news) = &job {
            // The next request that shows these calls must record them.
            for call in news {
                late.0.recorded.invalidate(&call.key);
            }
        }
    }
    if let LateJob::Flush(done) = job {
        // The task that waits for the flush may have been dropped.
        let _ = done.send(());
    }
}

/// Runs a job once.
async fn try_job(late: &LateStore, job: &LateJob) -> Result<(), LateError> {
    match job {
        LateJob::Record(news) => record_calls(late, news).await,
        LateJob::Delivered(principal, name) => changes::mark_delivered(late, *principal, *name).await,
        LateJob::Acked(principal, name) => changes::acknowledge_call(late, *principal, *name).await.map(drop),
        LateJob::Flush(_) => Ok(()),
    }
}

/// Inserts calls into the ledger, then settles the results that are parked for them.
async fn record_calls(late: &LateStore, news: &[CallInsert]) -> Result<(), LateError> {
    for some in news.chunks(ROWS_MAX) {
        // One commit, so that a crash records either the whole turn or nothing of it.
        let steps = some.iter().map(|call| call.insert.clone()).collect();
        if late.0.ledger.commit(steps, clock::unix_time()).await? == CommitOutcome::Done {
            continue;
        }
        // At least one call is recorded already, which fails the whole batch: insert the calls one by one.
        for call in some {
            // A conflict is no error here: the existing record is of the same call.
            let insert = vec![call.insert.clone()];
            drop(late.0.ledger.commit(insert, clock::unix_time()).await?);
        }
    }
    for call in news {
        posting::settle_parked(late, call.index).await?;
    }
    Ok(())
}
