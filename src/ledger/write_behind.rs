//! Background writes, which no request waits for. They are done in order and retried while the store fails.

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

use super::{CommitStep, Ledger, LedgerError, Moment};
use crate::clock;

/// The length of the queue. Further writes are lost, and counted.
const QUEUED_WRITES_MAX: usize = 4096;
/// The pause between two attempts at one write: the first, and the longest.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// The retry limit of one write. The writes behind it wait, and it may be the only one that fails.
const RETRY_TIME_MAX: Duration = Duration::from_secs(5 * 60);

/// A handle for queueing background writes. It is cheap to clone.
#[derive(Clone, Debug)]
pub struct WriteBehind {
    jobs: mpsc::Sender<WriteBehindJob>,
    lost: Arc<AtomicU64>,
    /// Set when a write was lost, until the queue is less than half full: of many losses only the first is logged.
    is_overflowing: Arc<AtomicBool>,
}

#[derive(Debug)]
enum WriteBehindJob {
    Write(Vec<CommitStep>, Moment),
    /// Answered once every earlier write is done or lost.
    Flush(oneshot::Sender<()>),
}

/// The worker that does the writes. It runs for as long as the process.
#[derive(Debug)]
pub struct WriteBehindWorker {
    ledger: Arc<dyn Ledger>,
    jobs: mpsc::Receiver<WriteBehindJob>,
    lost: Arc<AtomicU64>,
    /// Set while attempts fail: of many failures in a row only the first is logged.
    is_failing: bool,
}

/// Returns a handle for background writes into `ledger`, and the worker that does them.
pub fn write_behind(ledger: Arc<dyn Ledger>) -> (WriteBehind, WriteBehindWorker) {
    write_behind_counting(ledger, Arc::default())
}

/// Does the same as [`later`], and counts lost writes in `lost`.
///
/// A write is lost if the queue is full or the store fails for more than five minutes. It is also lost if the ledger is
/// full or closed.
pub fn write_behind_counting(ledger: Arc<dyn Ledger>, lost: Arc<AtomicU64>) -> (WriteBehind, WriteBehindWorker) {
    let (sender, receiver) = mpsc::channel(QUEUED_WRITES_MAX);
    let writer = WriteBehindWorker {
        ledger,
        jobs: receiver,
        lost: Arc::clone(&lost),
        is_failing: false,
    };
    let later = WriteBehind {
        jobs: sender,
        lost,
        is_overflowing: Arc::default(),
    };
    (later, writer)
}

impl WriteBehind {
    /// Queues the steps of one commit. They are dropped if the commit conflicts: the existing record stays.
    pub fn queue_write(&self, steps: Vec<CommitStep>) {
        if steps.is_empty() {
            return;
        }
        match self.jobs.try_send(WriteBehindJob::Write(steps, clock::unix_time())) {
            // One warning for each lost write would flood the log, so it is armed again only below half of the limit.
            Ok(()) if self.jobs.capacity() > QUEUED_WRITES_MAX / 2 => {
                self.is_overflowing.store(false, Ordering::Relaxed)
            }
            Ok(()) => {}
            Err(error) => {
                self.lost.fetch_add(1, Ordering::Relaxed);
                if matches!(error, TrySendError::Full(_)) && !self.is_overflowing.swap(true, Ordering::Relaxed) {
                    tracing::warn!("too many writes wait for the ledger: further background writes are lost");
                }
            }
        }
    }

    /// Waits until every write that was queued before is done or lost.
    pub async fn flush(&self) {
        let (done, told) = oneshot::channel();
        if self.jobs.send(WriteBehindJob::Flush(done)).await.is_ok() {
            // An error means that the worker has ended: nothing is left to wait for.
            let _ = told.await;
        }
    }
}

impl WriteBehindWorker {
    /// Does the queued writes until all handles are dropped and the queue is empty.
    pub async fn run(mut self) {
        while let Some(job) = self.jobs.recv().await {
            match job {
                WriteBehindJob::Write(steps, at) => self.write_with_retry(steps, at).await,
                // The caller of `flush` may have given up on a timeout.
                WriteBehindJob::Flush(done) => drop(done.send(())),
            }
        }
    }

    async fn write_with_retry(&mut self, steps: Vec<CommitStep>, at: Moment) {
        // `at` is the time of queueing, so that a late write is judged against expiry as of then.
        let until = clock::now() + RETRY_TIME_MAX;
        let mut pause = BACKOFF.0;
        loop {
            let Err(error) = self.ledger.commit(steps.clone(), at).await else {
                return self.note_success();
            };
            // A full ledger or an oversized value fails in the same way again. Only the store itself recovers.
            let again = matches!(error, LedgerError::Store(_)) && clock::now() < until;
            if matches!(error, LedgerError::Store(_) | LedgerError::Closed) {
                self.note_failure(&error);
            }
            if !again {
                self.lost.fetch_add(1, Ordering::Relaxed);
                return;
            }
            tokio::time::sleep_until(until.min(clock::now() + pause)).await;
            pause = pause.saturating_mul(2).min(BACKOFF.1);
        }
    }

    fn note_failure(&mut self, error: &LedgerError) {
        if !std::mem::replace(&mut self.is_failing, true) {
            tracing::warn!(%error, "background writes to the ledger failed; each is retried for up to five minutes");
        }
    }

    fn note_success(&mut self) {
        if std::mem::take(&mut self.is_failing) {
            let lost = self.lost.load(Ordering::Relaxed);
            tracing::warn!(lost, "background writes to the ledger work again");
        }
    }
}
