//! The queue of background jobs, bounded in bytes. Jobs of one subject run in their order, all others side by side.
//!
//! The queue itself waits for nothing. The worker takes rounds of jobs out of it, and puts back what is to be retried.

use std::{
    collections::{BTreeMap, HashSet},
    time::Duration,
};

use tokio::{sync::oneshot, time::Instant};

use super::jobs::{JobSubject, LateJob, NewCall};
use crate::ledger::{ROWS_MAX, WriteFailures};

/// The limit of the jobs that wait or run, in bytes.
const JOBS_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Bytes that jobs which a later request repeats must leave to the others.
const RESERVED_BYTES: usize = JOBS_BYTES_MAX / 4;
/// The most jobs that are examined for one round.
const LOOKAHEAD_MAX: usize = 1024;
/// The pause before a failed job is retried: the first, and the longest. Each failure doubles it.
pub(super) const RETRY_PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// The time for which a job is retried that fails although others succeed.
const RETRY_TIME_MAX: Duration = Duration::from_secs(70);

/// A job that waits for its round, or for a retry.
#[derive(Debug)]
pub(super) struct PendingJob {
    pub(super) job: LateJob,
    place: u64,
    subjects: Vec<JobSubject>,
    bytes: usize,
    failures: WriteFailures,
    /// Set by the first failure.
    pause: Option<RetryPause>,
    /// Tells the receiver that the job is done or lost.
    end: oneshot::Sender<()>,
}

/// The pause of a job that has failed.
#[derive(Clone, Copy, Debug)]
struct RetryPause {
    length: Duration,
    ends_at: Instant,
}

impl PendingJob {
    /// Notes a failed attempt. `worked_at` is the last time at which the store did another job.
    ///
    /// Returns `false` if the job is to be given up: it has failed for 70 seconds while others succeeded. While the
    /// store fails for all, jobs wait.
    pub(super) fn note_failure(&mut self, now: Instant, worked_at: Option<Instant>) -> bool {
        let doubled = |pause: RetryPause| pause.length.saturating_mul(2).min(RETRY_PAUSE.1);
        let length = self.pause.map_or(RETRY_PAUSE.0, doubled);
        self.pause = Some(RetryPause {
            length,
            ends_at: now + length,
        });
        self.failures.note(now, worked_at) < RETRY_TIME_MAX
    }

    /// Returns `true` if the job may run with others in one commit: it has not failed yet.
    const fn may_share(&self) -> bool {
        self.pause.is_none()
    }
}

/// Jobs that one attempt does: a single one, or the records of several turns in one commit.
#[derive(Debug)]
pub(super) struct RoundJob {
    first: PendingJob,
    /// Further jobs that record calls, if the first does.
    others: Vec<PendingJob>,
    /// Calls that these jobs record.
    call_count: usize,
}

impl RoundJob {
    fn new(first: PendingJob) -> Self {
        let call_count = first.job.recorded_calls().map_or(0, <[NewCall]>::len);
        Self {
            first,
            others: Vec::new(),
            call_count,
        }
    }

    /// Returns `true` if the other job can be one commit with these: all of them record calls, as a busy proxy does for
    /// many turns at once.
    fn can_share(&self, other: &PendingJob) -> bool {
        let records_calls = self.first.job.recorded_calls().is_some();
        let more = other.job.recorded_calls().map(<[NewCall]>::len);
        let fits = more.is_some_and(|more| self.call_count + more <= ROWS_MAX);
        records_calls && fits && self.first.may_share() && other.may_share()
    }

    fn add(&mut self, job: PendingJob) {
        self.call_count += job.job.recorded_calls().map_or(0, <[NewCall]>::len);
        self.others.push(job);
    }

    /// Returns the job, unless there are several.
    pub(super) const fn single_job(&self) -> Option<&LateJob> {
        if self.others.is_empty() {
            Some(&self.first.job)
        } else {
            None
        }
    }

    /// Returns `true` if the jobs have written to the store when they are done.
    pub(super) const fn surely_writes(&self) -> bool {
        self.first.job.surely_writes()
    }

    /// Returns the calls that the jobs record.
    pub(super) fn recorded_calls(&self) -> Vec<&NewCall> {
        let jobs = std::iter::once(&self.first).chain(&self.others);
        jobs.flat_map(|job| job.job.recorded_calls().unwrap_or_default())
            .collect()
    }

    /// Returns the jobs.
    pub(super) fn into_jobs(self) -> impl Iterator<Item = PendingJob> {
        std::iter::once(self.first).chain(self.others)
    }
}

/// The jobs that wait, oldest first.
#[derive(Debug)]
pub(super) struct JobQueue {
    bytes_max: usize,
    waiting: BTreeMap<u64, PendingJob>,
    /// The bytes of all jobs, including those that the worker has taken.
    bytes: usize,
    next_place: u64,
    /// Set by the first loss, until the queue is less than half full.
    is_overflowing: bool,
}

/// A job for which a full queue has no room.
#[derive(Debug)]
pub(super) struct NoRoom {
    pub(super) job: LateJob,
    /// `true` for the first of an overflow, which is worth a log line.
    pub(super) is_first: bool,
}

impl Default for JobQueue {
    fn default() -> Self {
        Self {
            bytes_max: JOBS_BYTES_MAX,
            waiting: BTreeMap::new(),
            bytes: 0,
            next_place: 0,
            is_overflowing: false,
        }
    }
}

impl JobQueue {
    /// Adds a job. The receiver resolves once the job is done or lost.
    pub(super) fn add(&mut self, job: LateJob) -> Result<oneshot::Receiver<()>, NoRoom> {
        let bytes = job.byte_len();
        // The next request repeats most notes, but not what was posted or recorded: the last room is for these.
        let reserved = if job.is_repeated() { RESERVED_BYTES } else { 0 };
        if self.bytes.saturating_add(bytes).saturating_add(reserved) > self.bytes_max {
            let is_first = !std::mem::replace(&mut self.is_overflowing, true);
            return Err(NoRoom { job, is_first });
        }
        self.bytes += bytes;
        let (end, ended) = oneshot::channel();
        let pending = PendingJob {
            subjects: job.subjects(),
            job,
            place: self.next_place,
            bytes,
            failures: WriteFailures::default(),
            pause: None,
            end,
        };
        self.next_place += 1;
        self.put_back(pending);
        Ok(ended)
    }

    /// Takes the jobs of the next round: those that no earlier job of the same subject and no pause delays.
    ///
    /// At most `side_by_side` attempts.
    pub(super) fn take_round(&mut self, now: Instant, side_by_side: usize) -> Vec<RoundJob> {
        let mut busy: HashSet<JobSubject> = HashSet::new();
        let mut due: Vec<(Option<Instant>, u64)> = Vec::new();
        for (place, pending) in self.waiting.iter().take(LOOKAHEAD_MAX) {
            let is_free = !pending.subjects.iter().any(|subject| busy.contains(subject));
            busy.extend(pending.subjects.iter().copied());
            let pause_end = pending.pause.map(|pause| pause.ends_at);
            if is_free && pause_end.is_none_or(|end| end <= now) {
                due.push((pause_end, *place));
            }
        }
        // Those that have not failed come first, then those whose pause ended first: a few jobs that go on failing must
        // not be all that is tried.
        due.sort_unstable();
        let mut round: Vec<RoundJob> = Vec::new();
        for (_, place) in due {
            let Some(pending) = self.waiting.get(&place) else {
                continue;
            };
            let is_full = round.len() >= side_by_side;
            let shared = round.iter_mut().find(|other| other.can_share(pending));
            if shared.is_none() && is_full {
                continue;
            }
            let Some(pending) = self.waiting.remove(&place) else {
                continue;
            };
            match shared {
                Some(jobs) => jobs.add(pending),
                None => round.push(RoundJob::new(pending)),
            }
        }
        round
    }

    /// Puts a job back that was taken, at its former place.
    pub(super) fn put_back(&mut self, pending: PendingJob) {
        self.waiting.insert(pending.place, pending);
    }

    /// Ends a job that was taken: it is done, or lost.
    pub(super) fn end_job(&mut self, pending: PendingJob) -> LateJob {
        self.bytes = self.bytes.saturating_sub(pending.bytes);
        self.is_overflowing &= self.bytes > self.bytes_max / 2;
        // An error means that nobody waits for the end.
        let _ = pending.end.send(());
        pending.job
    }

    /// Ends the pauses of all jobs: they are retried in the next rounds.
    pub(super) fn end_pauses(&mut self, now: Instant) {
        let pauses = self.waiting.values_mut().filter_map(|pending| pending.pause.as_mut());
        for pause in pauses {
            pause.ends_at = now;
        }
    }

    /// Returns the time of the next retry.
    pub(super) fn next_retry(&self) -> Option<Instant> {
        let looked_at = self.waiting.values().take(LOOKAHEAD_MAX);
        let retries = looked_at.filter_map(|pending| pending.pause.map(|pause| pause.ends_at));
        retries.min()
    }

    /// Returns the place of the oldest job that waits, or the next one. Every job before it has ended, unless the
    /// worker has it.
    pub(super) fn first_open_place(&self) -> u64 {
        self.waiting
            .first_key_value()
            .map_or(self.next_place, |(place, _)| *place)
    }

    /// Returns the place of the next job.
    pub(super) const fn next_place(&self) -> u64 {
        self.next_place
    }
}
