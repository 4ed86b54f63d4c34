//! The background worker of late results, and the handle that queues its jobs.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::{sync::oneshot, time::Instant};

use super::{
    LateError,
    job_queue::{JobQueue, NoRoom, PendingJob, RETRY_PAUSE, RoundJob},
    jobs::{LateJob, call_subject},
    worker::LateWriter,
};
use crate::{
    clock,
    ledger::{LedgerError, QueueReceiver, QueueSender, worker_queue},
};

/// The most jobs that run side by side. The ledger stores the changes of so many with one wait for the disk.
const SIDE_BY_SIDE_MAX: usize = 64;
/// The most jobs that are tried at once while the store fails.
const PROBES: usize = 4;
/// Longest time that a request about a call waits for what is queued about it.
const CALL_WAIT_MAX: Duration = Duration::from_secs(1);

/// A handle for queueing jobs.
#[derive(Debug)]
pub(super) struct JobSender(QueueSender<JobQueue>);

/// The worker that does the jobs. It runs for as long as the process.
#[derive(Debug)]
pub struct LateWorker {
    writer: LateWriter,
    jobs: QueueReceiver<JobQueue>,
    /// The last time at which a job surely wrote to the store.
    last_stored_at: Option<Instant>,
    /// Set while jobs are lost: of many losses in a row only the first is logged.
    is_losing: bool,
}

/// A job that was queued.
#[derive(Debug)]
pub struct QueuedJob(oneshot::Receiver<()>);

impl QueuedJob {
    /// Waits until the job is done or lost.
    pub async fn wait_for_end(self) {
        // An error means that the worker has ended: nothing is left to wait for.
        drop(self.0.await);
    }
}

/// Makes an empty queue.
pub(super) fn job_queue() -> (JobSender, QueueReceiver<JobQueue>) {
    let (sender, receiver) = worker_queue();
    (JobSender(sender), receiver)
}

impl JobSender {
    /// Queues a job. Returns it if there is no room for it.
    pub(super) fn queue_job(&self, job: LateJob) -> Result<QueuedJob, LateJob> {
        let added = self.0.lock().add(job);
        let ended = added.map_err(|NoRoom { job, is_first }| {
            if is_first && job.is_repeated() {
                tracing::warn!(
                    "the queue of calls and results for the ledger is nearly full: notes of received results are lost"
                );
            } else if is_first {
                tracing::warn!("the queue of calls and results for the ledger is full: further ones are lost");
            }
            job
        })?;
        self.0.wake_worker();
        Ok(QueuedJob(ended))
    }

    /// Waits until every job that was queued before is done or lost.
    pub(super) async fn flush(&self) {
        self.0.flush().await;
    }

    /// Waits until the jobs about the calls of this id are done or lost, for a second at most.
    ///
    /// A client has the id of a call with the end of its answer, which waits for a slow ledger for a moment only.
    pub(super) async fn await_call(&self, call_id: &[u8]) {
        let subject = call_subject(call_id);
        let done = self.0.wait_until(|queue| !queue.has_jobs_about(&subject));
        drop(tokio::time::timeout(CALL_WAIT_MAX, done).await);
    }

    /// Retries every failed job now.
    pub(super) fn retry_now(&self) {
        self.0.lock().end_pauses(clock::now());
        self.0.wake_worker();
    }
}

impl LateWorker {
    /// Creates the worker of a queue.
    pub(super) const fn new(writer: LateWriter, jobs: QueueReceiver<JobQueue>) -> Self {
        Self {
            writer,
            jobs,
            last_stored_at: None,
            is_losing: false,
        }
    }

    /// Does the queued jobs until all handles of the queue are dropped and it is empty.
    pub async fn run(mut self) {
        let (mut store_works, mut pause) = (true, RETRY_PAUSE.0);
        loop {
            let side_by_side = if store_works { SIDE_BY_SIDE_MAX } else { PROBES };
            let round = self.jobs.lock().take_round(clock::now(), side_by_side);
            if round.is_empty() {
                if self.wait_for_jobs().await {
                    continue;
                }
                return;
            }
            let results = join_all(round.iter().map(|jobs| self.try_round_job(jobs))).await;
            let store_worked = std::mem::replace(&mut store_works, self.end_round(round, results));
            self.jobs.publish_ended();
            if !store_works {
                self.wait_for_store(pause).await;
                pause = pause.saturating_mul(2).min(RETRY_PAUSE.1);
            } else if !store_worked {
                pause = RETRY_PAUSE.0;
                self.jobs.lock().end_pauses(clock::now());
            }
        }
    }

    /// Waits for a new job or the next retry. Returns `false` at the end of the queue.
    async fn wait_for_jobs(&mut self) -> bool {
        let next_retry = self.jobs.lock().next_retry();
        let Some(at) = next_retry else {
            return self.jobs.wait_for_change().await;
        };
        tokio::select! {
            () = tokio::time::sleep_until(at) => {}
            may_come = self.jobs.wait_for_change() => if !may_come {
                // No job comes any more: those that wait for a retry are left.
                tokio::time::sleep_until(at).await;
            }
        }
        true
    }

    /// Waits for `pause` while the store fails. A new job ends the wait, since the fault may lie with the others.
    async fn wait_for_store(&mut self, pause: Duration) {
        let until = clock::now() + pause;
        // A stream of new jobs must not try the store without any pause.
        tokio::time::sleep(RETRY_PAUSE.0.min(pause)).await;
        // At the end of the queue no job comes any more.
        let woken = async {
            if !self.jobs.wait_for_change().await {
                std::future::pending::<()>().await;
            }
        };
        drop(tokio::time::timeout_at(until, woken).await);
    }

    /// Does jobs once. Returns `true` if they surely wrote to the store.
    async fn try_round_job(&self, jobs: &RoundJob) -> Result<bool, LateError> {
        match jobs.single_job() {
            Some(job) => self.writer.try_job(job).await,
            None => self.writer.record_calls(&jobs.recorded_calls()).await,
        }
    }

    /// Ends the jobs of a round, or puts them back. Returns `false` if the store failed for all.
    fn end_round(&mut self, round: Vec<RoundJob>, results: Vec<Result<bool, LateError>>) -> bool {
        let now = clock::now();
        let store_failed =
            |result: &Result<bool, LateError>| matches!(result, Err(LateError::Ledger(LedgerError::Store(_))));
        let store_works = !results.iter().all(store_failed);
        // A full disk still reads, so a job that only reads proves nothing.
        if results.iter().any(|result| matches!(result, Ok(true))) {
            self.last_stored_at = Some(now);
        }
        for (jobs, result) in round.into_iter().zip(results) {
            let is_single = jobs.single_job().is_some();
            for pending in jobs.into_jobs() {
                match &result {
                    Ok(_) => {
                        self.is_losing = false;
                        drop(self.jobs.lock().end_job(pending));
                    }
                    Err(error) => self.end_failed(pending, error, is_single, now),
                }
            }
        }
        store_works
    }

    /// Puts a failed job back, or gives it up.
    fn end_failed(&mut self, mut pending: PendingJob, error: &LateError, is_single: bool, now: Instant) {
        let may_recover = match error {
            // The fault may lie with another job of the commit: each is retried alone.
            _ if !is_single => pending.note_failure(now, None),
            LateError::Ledger(LedgerError::Store(_)) | LateError::Busy => {
                pending.note_failure(now, self.last_stored_at)
            }
            // These do not go away with time: the ledger is full or closed, or the record is too large.
            LateError::Ledger(_) | LateError::Random(_) | LateError::ClockStep => false,
        };
        if may_recover {
            return self.jobs.lock().put_back(pending);
        }
        if !std::mem::replace(&mut self.is_losing, true) {
            tracing::warn!(%error, "failed to write a tool call or its delivery to the ledger: the write is lost");
        }
        let job = self.jobs.lock().end_job(pending);
        self.writer.note_lost(&job);
    }
}
