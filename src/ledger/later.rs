//! Writes that nobody waits for: done in order, and tried again while the store fails.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::sync::{mpsc, oneshot};

use super::{Ledger, LedgerError, Moment, Step};
use crate::clock;

/// Writes that may wait. More are lost, and counted.
const WAITING_MAX: usize = 4096;
/// Between two tries of one write, at first and at most.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// Where writes are handed in. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Later {
    jobs: mpsc::Sender<Job>,
    lost: Arc<AtomicU64>,
}

#[derive(Debug)]
enum Job {
    Write(Vec<Step>, Moment),
    /// Told once everything before it is done.
    Flush(oneshot::Sender<()>),
}

/// What does the writes: to be run for as long as the process lives.
#[derive(Debug)]
pub struct Writer {
    ledger: Arc<dyn Ledger>,
    jobs: mpsc::Receiver<Job>,
    lost: Arc<AtomicU64>,
}

/// Writes into `ledger` that nobody waits for.
pub fn later(ledger: Arc<dyn Ledger>) -> (Later, Writer) {
    let (sender, receiver) = mpsc::channel(WAITING_MAX);
    let lost = Arc::<AtomicU64>::default();
    let writer = Writer {
        ledger,
        jobs: receiver,
        lost: Arc::clone(&lost),
    };
    (Later { jobs: sender, lost }, writer)
}

impl Later {
    /// Hands in the steps of one commit. What stands in their way counts: then they are dropped.
    pub fn write(&self, steps: Vec<Step>) {
        if !steps.is_empty() && self.jobs.try_send(Job::Write(steps, clock::since_1970())).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until everything that was handed in before is done or lost.
    pub async fn flush(&self) {
        let (done, told) = oneshot::channel();
        if self.jobs.send(Job::Flush(done)).await.is_ok() {
            // An error says that the writer has ended: nothing will be done any more.
            let _ = told.await;
        }
    }

    /// Writes that were lost: too many waited, or the ledger was full or closed.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

impl Writer {
    /// Does what is handed in until nobody can hand in any more.
    pub async fn run(mut self) {
        while let Some(job) = self.jobs.recv().await {
            match job {
                Job::Write(steps, at) => self.write(steps, at).await,
                // Who asked may have gone.
                Job::Flush(done) => drop(done.send(())),
            }
        }
    }

    async fn write(&self, steps: Vec<Step>, at: Moment) {
        let mut pause = BACKOFF.0;
        loop {
            match self.ledger.commit(steps.clone(), at).await {
                Ok(_) => return,
                Err(LedgerError::Store(_)) => {
                    tokio::time::sleep(pause).await;
                    pause = pause.saturating_mul(2).min(BACKOFF.1);
                }
                Err(LedgerError::Full { .. } | LedgerError::TooLarge | LedgerError::Closed) => {
                    self.lost.fetch_add(1, Ordering::Relaxed);
                    return;
                }
            }
        }
    }
}
