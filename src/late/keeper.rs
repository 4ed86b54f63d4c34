//! What nobody waits for, done in order: recorded calls meet parked results, and results that went out are noted.

use std::sync::{Arc, Weak};

use tokio::sync::{mpsc, oneshot};

use super::{Inner, Late, LateError, entry::State};
use crate::{
    auth::Principal,
    clock,
    ledger::{Index, Name},
};

/// One thing to do.
#[derive(Debug)]
pub(super) enum Job {
    /// A call was recorded under this index: a result may be parked for it.
    Meet(Index),
    /// The owner has a result.
    Delivered(Principal, Name),
    /// The owner has shown that he has it.
    Acked(Principal, Name),
    /// The conversation went on without the call.
    Abandoned(Principal, Name),
    /// Told once everything before it is done.
    Flush(oneshot::Sender<()>),
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
            self.0.telemetry.late_delivered(age);
        }
        Ok(())
    }

    async fn abandoned_one(&self, principal: Principal, name: Name) -> Result<(), LateError> {
        let abandoned = self.change(principal, name, |call| {
            (call.state == State::Open)
                .then(|| call.state = State::Abandoned)
                .is_some()
        });
        abandoned.await.map(drop)
    }

    async fn keep(&self, job: Job) {
        // What was recorded before must be there.
        self.0.later.flush().await;
        let done = match job {
            Job::Meet(index) => self.meet(index).await,
            Job::Delivered(principal, name) => self.delivered_one(principal, name).await,
            Job::Acked(principal, name) => self.ack(principal, name).await.map(drop),
            Job::Abandoned(principal, name) => self.abandoned_one(principal, name).await,
            // Who asked may have gone.
            Job::Flush(done) => {
                let _ = done.send(());
                Ok(())
            }
        };
        if let Err(error) = done {
            self.0.telemetry.late_event("lost");
            tracing::warn!(%error, "the ledger did not take note of a call");
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
