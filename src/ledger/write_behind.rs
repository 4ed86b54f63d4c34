//! Background writes, which no request waits for. They are done in order and retried while the store fails.
//!
//! Each kind of jobs has a queue and a worker of its own.

use std::{
    future::Future,
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

/// The length of a queue. Further writes are lost, and counted.
const QUEUED_WRITES_MAX: usize = 4096;
/// The most jobs that are taken from a queue at once.
const MERGED_JOBS_MAX: usize = 256;
/// The pause between two attempts at one write: the first, and the longest.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// The writer of one kind of jobs, and what follows from their failures.
pub trait BackgroundWriter: Send + Sync {
    /// A job.
    type Job: Send + Sync;
    /// The error of one attempt.
    type Error: Send;
    /// The retry limit of one job. The jobs behind it wait, and it may be the only one that fails.
    const RETRY_TIME_MAX: Duration;

    /// Does a job once.
    fn try_job(&self, job: &Self::Job) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Adds a job to the one before it, so that both cost one commit. Returns it if they cannot be one job.
    fn merge_jobs(_first: &mut Self::Job, next: Self::Job) -> Result<(), Self::Job> {
        Err(next)
    }

    /// Notes a failed attempt. Returns `true` if another attempt may succeed.
    fn note_failure(&mut self, error: &Self::Error) -> bool;

    /// Notes the end of a job: it is done, or lost with the error of its last attempt.
    fn end_job(&mut self, job: &Self::Job, done: Result<(), Self::Error>);
}

/// An entry of a queue.
#[derive(Debug)]
pub enum QueuedJob<J> {
    /// A job.
    Write(J),
    /// Answered once every earlier job is done or lost.
    Flush(oneshot::Sender<()>),
}

/// The worker that does the jobs of one queue. It runs for as long as the process.
#[derive(Debug)]
pub struct QueueWorker<W: BackgroundWriter> {
    writer: W,
    jobs: mpsc::Receiver<QueuedJob<W::Job>>,
}

/// Makes a bounded queue of jobs.
pub fn job_queue<J>() -> (mpsc::Sender<QueuedJob<J>>, mpsc::Receiver<QueuedJob<J>>) {
    mpsc::channel(QUEUED_WRITES_MAX)
}

/// Waits until every job that was queued before is done or lost.
pub async fn flush_queue<J>(jobs: &mpsc::Sender<QueuedJob<J>>) {
    let (done, told) = oneshot::channel();
    if jobs.send(QueuedJob::Flush(done)).await.is_ok() {
        // An error means that the worker has ended: nothing is left to wait for.
        let _ = told.await;
    }
}

impl<W: BackgroundWriter> QueueWorker<W> {
    /// Creates the worker of a queue.
    pub const fn new(writer: W, jobs: mpsc::Receiver<QueuedJob<W::Job>>) -> Self {
        Self { writer, jobs }
    }

    /// Does the queued jobs until all handles of the queue are dropped and it is empty.
    pub async fn run(mut self) {
        let mut queued = Vec::with_capacity(MERGED_JOBS_MAX);
        while self.jobs.recv_many(&mut queued, MERGED_JOBS_MAX).await > 0 {
            let mut merged: Option<W::Job> = None;
            for job in queued.drain(..) {
                match job {
                    QueuedJob::Write(job) => {
                        let rest = match &mut merged {
                            Some(first) => W::merge_jobs(first, job).err(),
                            None => Some(job),
                        };
                        // A job that cannot be merged begins the next one.
                        if let Some(rest) = rest
                            && let Some(job) = merged.replace(rest)
                        {
                            self.write_with_retry(&job).await;
                        }
                    }
                    QueuedJob::Flush(done) => {
                        if let Some(job) = merged.take() {
                            self.write_with_retry(&job).await;
                        }
                        // The task that waits for the flush may have given up on a timeout.
                        let _ = done.send(());
                    }
                }
            }
            if let Some(job) = merged.take() {
                self.write_with_retry(&job).await;
            }
        }
    }

    async fn write_with_retry(&mut self, job: &W::Job) {
        let until = clock::now() + W::RETRY_TIME_MAX;
        let mut pause = BACKOFF.0;
        loop {
            let done = self.writer.try_job(job).await;
            let again = done.as_ref().is_err_and(|error| self.writer.note_failure(error));
            if !again || clock::now() >= until {
                return self.writer.end_job(job, done);
            }
            tokio::time::sleep_until(until.min(clock::now() + pause)).await;
            pause = pause.saturating_mul(2).min(BACKOFF.1);
        }
    }
}

/// A handle for queueing background commits. It is cheap to clone.
#[derive(Clone, Debug)]
pub struct WriteBehind {
    jobs: mpsc::Sender<QueuedJob<QueuedCommit>>,
    lost: Arc<AtomicU64>,
    /// Set when a write was lost, until the queue is less than half full: of many losses only the first is logged.
    is_overflowing: Arc<AtomicBool>,
}

/// The step of a commit, and the time of queueing: a late write is judged against expiry as of then.
type QueuedCommit = (CommitStep, Moment);

/// The writer of background commits.
#[derive(Debug)]
pub struct CommitWriter {
    ledger: Arc<dyn Ledger>,
    lost: Arc<AtomicU64>,
    /// Set while attempts fail: of many failures in a row only the first is logged.
    is_failing: bool,
}

/// The worker that does background commits.
pub type WriteBehindWorker = QueueWorker<CommitWriter>;

/// Returns a handle for background writes into `ledger`, and the worker that does them. Counts lost writes in `lost`.
///
/// A write is lost if the queue is full or the store fails for more than five minutes. It is also lost if the ledger is
/// full or closed.
pub fn write_behind(ledger: Arc<dyn Ledger>, lost: Arc<AtomicU64>) -> (WriteBehind, WriteBehindWorker) {
    let (jobs, receiver) = job_queue();
    let writer = CommitWriter {
        ledger,
        lost: Arc::clone(&lost),
        is_failing: false,
    };
    let later = WriteBehind {
        jobs,
        lost,
        is_overflowing: Arc::default(),
    };
    (later, QueueWorker::new(writer, receiver))
}

impl WriteBehind {
    /// Queues a commit of one step. It is dropped if it conflicts: the existing record stays.
    pub fn queue_write(&self, step: CommitStep) {
        match self.jobs.try_send(QueuedJob::Write((step, clock::unix_time()))) {
            // One warning for each lost write would flood the log, so it is armed again only below half of the limit.
            Ok(()) if self.jobs.capacity() > QUEUED_WRITES_MAX / 2 => {
                self.is_overflowing.store(false, Ordering::Relaxed);
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

    /// Counts a write that was lost before it was queued.
    pub fn count_lost(&self) {
        self.lost.fetch_add(1, Ordering::Relaxed);
    }

    /// Waits until every write that was queued before is done or lost.
    pub async fn flush(&self) {
        flush_queue(&self.jobs).await;
    }
}

impl BackgroundWriter for CommitWriter {
    type Job = QueuedCommit;
    type Error = LedgerError;
    const RETRY_TIME_MAX: Duration = Duration::from_secs(5 * 60);

    async fn try_job(&self, (step, at): &QueuedCommit) -> Result<(), LedgerError> {
        self.ledger.commit(vec![step.clone()], *at).await.map(drop)
    }

    fn note_failure(&mut self, error: &LedgerError) -> bool {
        let is_failure = matches!(error, LedgerError::Store(_) | LedgerError::Closed);
        if is_failure && !std::mem::replace(&mut self.is_failing, true) {
            tracing::warn!(%error, "background writes to the ledger failed; each is retried for up to five minutes");
        }
        // A full ledger or an oversized value fails in the same way again. Only the store itself recovers.
        matches!(error, LedgerError::Store(_))
    }

    fn end_job(&mut self, _: &QueuedCommit, done: Result<(), LedgerError>) {
        if done.is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        } else if std::mem::take(&mut self.is_failing) {
            let lost = self.lost.load(Ordering::Relaxed);
            tracing::warn!(lost, "background writes to the ledger work again");
        }
    }
}
