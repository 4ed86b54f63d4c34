//! What nobody waits for, done in order: calls are recorded and meet parked results, and results that went out are noted.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use tokio::sync::{mpsc, oneshot};

use super::{Inner, Late, LateError, entry::State};
use crate::{
    auth::Principal,
    clock,
    ledger::{Index, Key, LedgerError, Name, Outcome, ROWS_MAX, Step},
};

/// Between two tries of one job, at first and at most.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// Tries of one job: the pauses between them come to 71 seconds.
const TRIES: u32 = 20;

/// One thing to do.
#[derive(Debug)]
pub(super) enum Job {
    /// The calls of one turn are recorded; results may be parked for them.
    Record(Vec<Recording>),
    /// The owner has a result.
    Delivered(Principal, Name),
    /// The owner has shown that he has it.
    Acked(Principal, Name),
    /// Told once everything before it is done.
    Flush(oneshot::Sender<()>),
}

/// A call on its way into the ledger.
#[derive(Debug)]
pub(super) struct Recording {
    pub(super) key: Key,
    pub(super) index: Index,
    pub(super) insert: Step,
}

/// Who does it.
pub struct Keeper {
    // Not a handle of its own, so that the jobs end with the last of those.
    late: Weak<Inner>,
    jobs: mpsc::Receiver<Job>,
}

impl std::fmt::Debug for Keeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keeper").finish_non_exhaustive()
    }
}

impl Late {
    pub(super) fn weak(&self) -> Weak<Inner> {
        Arc::downgrade(&self.0)
    }

    async fn delivered_one(&self, principal: Principal, name: Name) -> Result<(), LateError> {
        let delivered = self.change(principal, name, |call| {
            let open = matches!(call.state, State::Open | State::Settled | State::Abandoned);
            open.then(|| call.state = State::Delivered).is_some()
        });
        if let Some((call, true)) = delivered.await?
            && let Some(posted) = call.posted
        {
            let age = clock::since_1970().saturating_sub(posted.posted_at);
            self.0.telemetry.record_late_delivery(age);
        }
        Ok(())
    }

    /// Records all of them at once, so that a process that dies leaves none of a turn behind; where some are recorded
    /// already, each by itself.
    async fn record_now(&self, news: &[Recording]) -> Result<(), LateError> {
        for some in news.chunks(ROWS_MAX) {
            let steps = some.iter().map(|call| call.insert.clone()).collect();
            if self.0.ledger.commit(steps, clock::since_1970()).await? == Outcome::Done {
                continue;
            }
            for call in some {
                // One that stands there already is the same call.
                let insert = vec![call.insert.clone()];
                drop(self.0.ledger.commit(insert, clock::since_1970()).await?);
            }
        }
        for call in news {
            self.meet(call.index).await?;
        }
        Ok(())
    }

    async fn keep_once(&self, job: &Job) -> Result<(), LateError> {
        match job {
            Job::Record(news) => self.record_now(news).await,
            Job::Delivered(principal, name) => self.delivered_one(*principal, *name).await,
            Job::Acked(principal, name) => self.ack_of(*principal, *name).await.map(drop),
            Job::Flush(_) => Ok(()),
        }
    }

    /// Does a job, and tries it again while the ledger fails.
    async fn keep(&self, job: Job) {
        let mut pause = BACKOFF.0;
        let mut tries = 1;
        let failed = loop {
            match self.keep_once(&job).await {
                Ok(()) => break None,
                Err(LateError::Ledger(LedgerError::Store(_)) | LateError::Busy) if tries < TRIES => {
                    tokio::time::sleep(pause).await;
                    pause = pause.saturating_mul(2).min(BACKOFF.1);
                    tries += 1;
                }
                Err(error) => break Some(error),
            }
        };
        if let Some(error) = failed {
            self.0.telemetry.record_late_event("lost");
            tracing::warn!(%error, "the ledger did not take note of a call");
            if let Job::Record(news) = &job {
                // The next request that shows the calls records them.
                for call in news {
                    self.0.recorded.invalidate(&call.key);
                }
            }
        }
        if let Job::Flush(done) = job {
            // Who asked may have gone.
            let _ = done.send(());
        }
    }
}

impl Keeper {
    pub(super) const fn new(late: Weak<Inner>, jobs: mpsc::Receiver<Job>) -> Self {
        Self { late, jobs }
    }

    /// Does what is handed in until nobody can hand in any more.
    pub async fn run(mut self) {
        while let Some(job) = self.jobs.recv().await {
            let Some(inner) = self.late.upgrade() else { return };
            Late(inner).keep(job).await;
        }
    }
}
