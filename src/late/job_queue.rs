//! The queue of background jobs, bounded in bytes, and the worker that does them.
//!
//! Jobs of different calls run side by side, so that the ledger stores their changes together. Jobs of one call run in
//! their order.

use std::{
    collections::{HashSet, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::future::join_all;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot},
    time::Instant,
};

use super::{
    LateError,
    jobs::{JobSubject, LateJob},
    worker::LateWriter,
};
use crate::{clock, ledger::LedgerError};

/// The limit of the jobs that wait or run, in bytes.
const JOBS_BYTES_MAX: u32 = 64 * 1024 * 1024;
/// Bytes that jobs which a later request repeats must leave to the others.
const RESERVED_BYTES: u32 = JOBS_BYTES_MAX / 4;
/// The most entries of the queue. Each job counts 512 bytes or more, so that the limit in bytes is reached before.
const JOBS_MAX: usize = 256 * 1024;
/// The most jobs that are taken from the queue at once, in which those for the next round are looked for.
const PENDING_MAX: usize = 1024;
/// The most jobs that run side by side. The ledger stores the changes of so many with one wait for the disk.
const SIDE_BY_SIDE_MAX: usize = 64;
/// The time for which a job is retried that fails although others succeed.
const RETRY_TIME_MAX: Duration = Duration::from_secs(70);
/// The pause after a failure: the first, and the longest.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// The handle that queues jobs.
#[derive(Debug)]
pub(super) struct JobQueue {
    jobs: mpsc::Sender<QueueEntry>,
    room: Arc<Semaphore>,
    /// Set when a job was lost, until the queue is less than half full: of many losses only the first is logged.
    is_overflowing: AtomicBool,
}

/// An entry of the queue.
#[derive(Debug)]
enum QueueEntry {
    Job(PendingJob),
    /// Answered once every earlier job is done or lost.
    Flush(oneshot::Sender<()>),
}

/// A job that waits for its turn, or for another attempt.
#[derive(Debug)]
struct PendingJob {
    job: LateJob,
    subjects: Vec<JobSubject>,
    failed_at: Option<Instant>,
    /// Its bytes of the queue's limit.
    room: OwnedSemaphorePermit,
}

/// The end of the queue from which the worker takes jobs.
#[derive(Debug)]
pub(super) struct QueuedJobs {
    jobs: mpsc::Receiver<QueueEntry>,
    room: Arc<Semaphore>,
}

/// The background worker of late results.
#[derive(Debug)]
pub struct LateWorker {
    writer: LateWriter,
    queued: QueuedJobs,
    pending: VecDeque<QueueEntry>,
    /// Set while jobs are lost: of many losses in a row only the first is logged.
    is_losing: bool,
}

/// Makes an empty queue.
pub(super) fn new_queue() -> (JobQueue, QueuedJobs) {
    let (jobs, receiver) = mpsc::channel(JOBS_MAX);
    let room = Arc::new(Semaphore::new(free_bytes(JOBS_BYTES_MAX)));
    let queue = JobQueue {
        jobs,
        room: Arc::clone(&room),
        is_overflowing: AtomicBool::new(false),
    };
    (queue, QueuedJobs { jobs: receiver, room })
}

fn free_bytes(bytes: u32) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

impl JobQueue {
    /// Queues a job. Returns it if there is no room for it.
    pub(super) fn queue_job(&self, job: LateJob) -> Result<(), LateJob> {
        let bytes = u32::try_from(job.byte_len()).unwrap_or(u32::MAX);
        // The next request repeats most notes, but not what was posted or recorded: the last room is for these.
        let reserved = if job.is_repeated() { RESERVED_BYTES } else { 0 };
        let free = self.room.available_permits();
        let has_room = free >= free_bytes(bytes.saturating_add(reserved));
        let room = has_room.then(|| Arc::clone(&self.room).try_acquire_many_owned(bytes).ok());
        let Some(room) = room.flatten() else {
            if !self.is_overflowing.swap(true, Ordering::Relaxed) {
                tracing::warn!("the queue of calls and results for the ledger is full: further ones are lost");
            }
            return Err(job);
        };
        if free > free_bytes(JOBS_BYTES_MAX / 2) {
            self.is_overflowing.store(false, Ordering::Relaxed);
        }
        let pending = PendingJob {
            subjects: job.subjects(),
            job,
            failed_at: None,
            room,
        };
        self.jobs.try_send(QueueEntry::Job(pending)).map_err(|error| {
            let (mpsc::error::TrySendError::Full(entry) | mpsc::error::TrySendError::Closed(entry)) = error;
            match entry {
                QueueEntry::Job(pending) => pending.job,
                // No flush is sent here.
                QueueEntry::Flush(_) => LateJob::Record(Vec::new()),
            }
        })
    }

    /// Waits until every job that was queued before is done or lost.
    pub(super) async fn flush(&self) {
        let (done, told) = oneshot::channel();
        if self.jobs.send(QueueEntry::Flush(done)).await.is_ok() {
            // An error means that the worker has ended: nothing is left to wait for.
            let _ = told.await;
        }
    }
}

impl LateWorker {
    /// Creates the worker of a queue.
    pub(super) const fn new(writer: LateWriter, queued: QueuedJobs) -> Self {
        Self {
            writer,
            queued,
            pending: VecDeque::new(),
            is_losing: false,
        }
    }

    /// Does the queued jobs until all handles of the queue are dropped and it is empty.
    pub async fn run(mut self) {
        let mut pause = BACKOFF.0;
        while self.fill_pending().await {
            self.answer_flushes();
            let round = take_round(&mut self.pending);
            if round.is_empty() {
                continue;
            }
            let results = join_all(round.iter().map(|pending| self.writer.try_job(&pending.job))).await;
            let has_failed = self.end_round(round, results);
            if has_failed {
                tokio::time::sleep(pause).await;
                pause = pause.saturating_mul(2).min(BACKOFF.1);
            } else {
                pause = BACKOFF.0;
            }
        }
    }

    /// Takes jobs from the queue, and waits for the first. Returns `false` at the end of the queue.
    async fn fill_pending(&mut self) -> bool {
        if self.pending.is_empty() {
            let Some(entry) = self.queued.jobs.recv().await else {
                return false;
            };
            self.pending.push_back(entry);
        }
        while self.pending.len() < PENDING_MAX
            && let Ok(entry) = self.queued.jobs.try_recv()
        {
            self.pending.push_back(entry);
        }
        true
    }

    /// Answers the flushes that no earlier job delays.
    fn answer_flushes(&mut self) {
        while let Some(entry) = self.pending.pop_front() {
            match entry {
                // The task that waits for the flush may have given up on a timeout.
                QueueEntry::Flush(done) => drop(done.send(())),
                job @ QueueEntry::Job(_) => return self.pending.push_front(job),
            }
        }
    }

    /// Ends the jobs of a round, or puts them back in their order. Returns `true` if the store failed for any.
    fn end_round(&mut self, round: Vec<PendingJob>, results: Vec<Result<(), LateError>>) -> bool {
        let is_working = results.iter().any(Result::is_ok);
        // A job that only ever fails alone must not fill the queue.
        let is_crowded = self.queued.room.available_permits() < free_bytes(JOBS_BYTES_MAX / 2);
        let (now, mut failed) = (clock::now(), Vec::new());
        for (mut pending, result) in round.into_iter().zip(results) {
            let Err(error) = result else {
                self.is_losing = false;
                continue;
            };
            let since = *pending.failed_at.get_or_insert(now);
            let is_over = now.duration_since(since) >= RETRY_TIME_MAX;
            let may_recover = match error {
                // While the store fails for all, jobs wait.
                LateError::Ledger(LedgerError::Store(_)) => !is_over || !(is_working || is_crowded),
                LateError::Busy => !is_over,
                // These do not go away with time: the ledger is full or closed, or the record is too large.
                LateError::Ledger(_) => false,
            };
            if may_recover {
                failed.push(pending);
                continue;
            }
            if !std::mem::replace(&mut self.is_losing, true) {
                tracing::warn!(%error, "failed to write a tool call or its delivery to the ledger: the write is lost");
            }
            self.writer.note_lost(&pending.job);
        }
        let has_failed = !failed.is_empty();
        for pending in failed.into_iter().rev() {
            self.pending.push_front(QueueEntry::Job(pending));
        }
        has_failed
    }
}

/// Takes the jobs of the next round: no earlier job that waits is about the same subject.
fn take_round(pending: &mut VecDeque<QueueEntry>) -> Vec<PendingJob> {
    let mut round: Vec<PendingJob> = Vec::new();
    let mut busy: HashSet<JobSubject> = HashSet::new();
    let mut rest = VecDeque::with_capacity(pending.len());
    while let Some(entry) = pending.pop_front() {
        let job = match entry {
            QueueEntry::Job(job) => job,
            // No job behind a flush runs before it is answered.
            QueueEntry::Flush(_) => {
                rest.push_back(entry);
                break;
            }
        };
        let is_free = !job.subjects.iter().any(|subject| busy.contains(subject));
        busy.extend(job.subjects.iter().copied());
        let job = if is_free {
            add_to_round(&mut round, job)
        } else {
            Some(job)
        };
        rest.extend(job.map(QueueEntry::Job));
    }
    rest.append(pending);
    *pending = rest;
    round
}

/// Adds a job to a round. Returns it if there is no room.
fn add_to_round(round: &mut Vec<PendingJob>, job: PendingJob) -> Option<PendingJob> {
    let mut job = job;
    for other in round.iter_mut() {
        // A busy proxy records many turns at once: one commit takes all of them.
        let Err(rest) = other.job.merge_record(job.job) else {
            other.subjects.append(&mut job.subjects);
            other.room.merge(job.room);
            return None;
        };
        job.job = rest;
    }
    if round.len() == SIDE_BY_SIDE_MAX {
        return Some(job);
    }
    round.push(job);
    None
}
