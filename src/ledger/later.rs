//! Writes that nobody waits for: done in order, and tried again while the store fails.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::sync::{
    mpsc::{self, error::TrySendError},
    oneshot,
};

use super::{Ledger, LedgerError, Moment, Step};
use crate::clock;

/// Writes that may wait. More are lost, and counted.
const WAITING_MAX: usize = 4096;
/// Between two tries of one write, at first and at most.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// How long one write is tried: those behind it wait, and it may be the only one that fails.
const TRIED_MAX: Duration = Duration::from_secs(5 * 60);

/// Where writes are handed in. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Later {
    jobs: mpsc::Sender<Job>,
    lost: Arc<AtomicU64>,
    /// Whether writes were lost since there was room for half of what may wait: of many only the first is told.
    crowded: Arc<AtomicBool>,
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
    /// Whether the last try failed: of many failures in a row only the first is told.
    failing: bool,
}

/// Writes into `ledger` that nobody waits for.
pub fn later(ledger: Arc<dyn Ledger>) -> (Later, Writer) {
    later_counting(ledger, Arc::default())
}

/// As [`later`]. In `lost` are counted the writes that were lost: too many waited, the store failed for too long, or the
/// ledger was full or closed.
pub fn later_counting(ledger: Arc<dyn Ledger>, lost: Arc<AtomicU64>) -> (Later, Writer) {
    let (sender, receiver) = mpsc::channel(WAITING_MAX);
    let writer = Writer {
        ledger,
        jobs: receiver,
        lost: Arc::clone(&lost),
        failing: false,
    };
    let later = Later {
        jobs: sender,
        lost,
        crowded: Arc::default(),
    };
    (later, writer)
}

impl Later {
    /// Hands in the steps of one commit. What stands in their way counts: then they are dropped.
    pub fn write(&self, steps: Vec<Step>) {
        if steps.is_empty() {
            return;
        }
        match self.jobs.try_send(Job::Write(steps, clock::since_1970())) {
            Ok(()) if self.jobs.capacity() > WAITING_MAX / 2 => self.crowded.store(false, Ordering::Relaxed),
            Ok(()) => {}
            Err(error) => {
                self.lost.fetch_add(1, Ordering::Relaxed);
                if matches!(error, TrySendError::Full(_)) && !self.crowded.swap(true, Ordering::Relaxed) {
                    tracing::warn!("too many writes wait for the ledger: those that come now are lost");
                }
            }
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

    async fn write(&mut self, steps: Vec<Step>, at: Moment) {
        let until = clock::now() + TRIED_MAX;
        let mut pause = BACKOFF.0;
        loop {
            let Err(error) = self.ledger.commit(steps.clone(), at).await else {
                return self.works();
            };
            let again = matches!(error, LedgerError::Store(_)) && clock::now() < until;
            if matches!(error, LedgerError::Store(_) | LedgerError::Closed) {
                self.fails(&error);
            }
            if !again {
                self.lost.fetch_add(1, Ordering::Relaxed);
                return;
            }
            tokio::time::sleep_until(until.min(clock::now() + pause)).await;
            pause = pause.saturating_mul(2).min(BACKOFF.1);
        }
    }

    fn fails(&mut self, error: &LedgerError) {
        if !std::mem::replace(&mut self.failing, true) {
            tracing::warn!(%error, "background writes into the ledger fail; each is tried for five minutes at most");
        }
    }

    fn works(&mut self) {
        if std::mem::take(&mut self.failing) {
            let lost = self.lost.load(Ordering::Relaxed);
            tracing::warn!(lost, "background writes into the ledger are done again");
        }
    }
}
