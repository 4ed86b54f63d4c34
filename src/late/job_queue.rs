//! The queue of background jobs, bounded in bytes. Jobs of one subject run in their order, all others side by side.
//!
//! The queue itself waits for nothing. The worker takes rounds of jobs out of it, and puts back what is to be retried.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    time::Duration,
};

use tokio::{sync::oneshot, time::Instant};

use super::jobs::{JobSubject, LateJob, NewCall};
use crate::ledger::{Positions, ROWS_MAX, WriteFailures};

/// The limit of the jobs that wait or run, in bytes.
const JOBS_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Bytes kept free of jobs that a later request would queue again.
const RESERVED_BYTES: usize = JOBS_BYTES_MAX / 4;
/// The most jobs that are examined for one round. Those that are left come first in the next.
const EXAMINED_MAX: usize = 1024;
/// The pause before a failed job is retried: the first, and the longest. Each failure doubles it.
pub(super) const RETRY_PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// The time for which a job is retried that fails although others succeed.
const ALONE_TIME_MAX: Duration = Duration::from_secs(70);

/// A job that waits for its round, or for a retry.
#[derive(Debug)]
pub(super) struct PendingJob {
    pub(super) job: LateJob,
    position: u64,
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
    /// Notes a failed try. `last_stored_at` is the last time at which the store did another job.
    ///
    /// Returns `false` if the job is lost: it has failed for 70 seconds while others succeeded. While the
    /// store fails for all, jobs wait.
    pub(super) fn note_failure(&mut self, now: Instant, last_stored_at: Option<Instant>) -> bool {
        let doubled = |pause: RetryPause| pause.length.saturating_mul(2).min(RETRY_PAUSE.1);
        let length = self.pause.map_or(RETRY_PAUSE.0, doubled);
        self.pause = Some(RetryPause {
            length,
            ends_at: now + length,
        });
        self.failures.note(now, last_stored_at) < ALONE_TIME_MAX
    }

    /// Returns the end of its pause. `None` if it has not failed yet.
    fn pause_end(&self) -> Option<Instant> {
        self.pause.map(|pause| pause.ends_at)
    }

    /// Returns `true` if the job may run with others in one commit: it has not failed yet.
    const fn may_share(&self) -> bool {
        self.pause.is_none()
    }
}

/// Jobs that are tried at once: a single one, or the records of several turns in one commit.
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

/// The jobs that wait.
#[derive(Debug)]
pub(super) struct JobQueue {
    bytes_max: usize,
    /// The jobs by position: oldest first.
    waiting: BTreeMap<u64, PendingJob>,
    /// The positions of each subject's jobs, including those that the worker has taken. Only the oldest of them may run.
    by_subject: HashMap<JobSubject, VecDeque<u64>>,
    /// The jobs that wait for no other: those that have not failed first, then by the end of the pause.
    ready: BTreeSet<(Option<Instant>, u64)>,
    /// The bytes of all jobs, including those that the worker has taken.
    bytes: usize,
    next_position: u64,
    /// Set by the first loss, until the queue is less than half full: of notes that a later request repeats, and of other
    /// jobs.
    is_losing: [bool; 2],
}

/// A job for which a full queue has no room.
#[derive(Debug)]
pub(super) struct NoRoom {
    pub(super) job: LateJob,
    /// `true` for the first of an overflow, which is worth a log line.
    pub(super) is_first: bool,
}

impl Positions for JobQueue {
    fn next_position(&self) -> u64 {
        self.next_position
    }

    fn first_open_position(&self) -> u64 {
        self.waiting
            .first_key_value()
            .map_or(self.next_position, |(position, _)| *position)
    }
}

impl Default for JobQueue {
    fn default() -> Self {
        Self {
            bytes_max: JOBS_BYTES_MAX,
            waiting: BTreeMap::new(),
            by_subject: HashMap::new(),
            ready: BTreeSet::new(),
            bytes: 0,
            next_position: 0,
            is_losing: [false; 2],
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
            let [notes, others] = &mut self.is_losing;
            let is_losing = if job.is_repeated() { notes } else { others };
            let is_first = !std::mem::replace(is_losing, true);
            return Err(NoRoom { job, is_first });
        }
        self.bytes += bytes;
        let (end, ended) = oneshot::channel();
        let mut subjects = job.subjects();
        subjects.sort_unstable();
        subjects.dedup();
        let pending = PendingJob {
            subjects,
            job,
            position: self.next_position,
            bytes,
            failures: WriteFailures::default(),
            pause: None,
            end,
        };
        self.next_position += 1;
        for subject in &pending.subjects {
            self.by_subject.entry(*subject).or_default().push_back(pending.position);
        }
        self.put_back(pending);
        Ok(ended)
    }

    /// Returns `true` if a job about this subject waits or runs.
    pub(super) fn has_jobs_about(&self, subject: &JobSubject) -> bool {
        self.by_subject.contains_key(subject)
    }

    /// Takes the jobs of the next round: those that no earlier job of the same subject and no pause delays.
    ///
    /// At most `side_by_side` tries. Jobs that have not failed come first, then those whose pause ended first: a few
    /// jobs that go on failing must not be all that is tried.
    pub(super) fn take_round(&mut self, now: Instant, side_by_side: usize) -> Vec<RoundJob> {
        let is_due = |(pause_end, _): &&(Option<Instant>, u64)| pause_end.is_none_or(|end| end <= now);
        let due: Vec<_> = self
            .ready
            .iter()
            .take_while(is_due)
            .take(EXAMINED_MAX)
            .copied()
            .collect();
        let mut round: Vec<RoundJob> = Vec::new();
        for ready in due {
            let Some(pending) = self.waiting.get(&ready.1) else {
                continue;
            };
            let is_full = round.len() >= side_by_side;
            let shared = round.iter_mut().find(|other| other.can_share(pending));
            if shared.is_none() && is_full {
                continue;
            }
            let Some(pending) = self.waiting.remove(&ready.1) else {
                continue;
            };
            self.ready.remove(&ready);
            match shared {
                Some(jobs) => jobs.add(pending),
                None => round.push(RoundJob::new(pending)),
            }
        }
        round
    }

    /// Puts a job back that was taken, at its former position.
    pub(super) fn put_back(&mut self, pending: PendingJob) {
        let position = pending.position;
        self.waiting.insert(position, pending);
        self.note_ready(position);
    }

    /// Ends a job that was taken: it is done, or lost.
    pub(super) fn end_job(&mut self, pending: PendingJob) -> LateJob {
        self.bytes = self.bytes.saturating_sub(pending.bytes);
        if self.bytes <= self.bytes_max / 2 {
            self.is_losing = [false; 2];
        }
        for subject in &pending.subjects {
            let Some(positions) = self.by_subject.get_mut(subject) else {
                continue;
            };
            // A job that was taken is the oldest of all its subjects.
            positions.pop_front();
            match positions.front().copied() {
                Some(next) => self.note_ready(next),
                None => drop(self.by_subject.remove(subject)),
            }
        }
        // An error means that nobody waits for the end.
        let _ = pending.end.send(());
        pending.job
    }

    /// Notes that a waiting job is ready, if no earlier job of the same subject delays it.
    fn note_ready(&mut self, position: u64) {
        let Some(pending) = self.waiting.get(&position) else {
            return;
        };
        let is_oldest = |subject: &JobSubject| {
            let oldest = self.by_subject.get(subject).and_then(VecDeque::front);
            oldest.is_none_or(|oldest| *oldest == position)
        };
        if pending.subjects.iter().all(is_oldest) {
            self.ready.insert((pending.pause_end(), position));
        }
    }

    /// Ends the pauses of all jobs: they are retried in the next rounds.
    pub(super) fn end_pauses(&mut self, now: Instant) {
        let pauses = self.waiting.values_mut().filter_map(|pending| pending.pause.as_mut());
        for pause in pauses {
            // Those that have waited for longer stay before the others.
            pause.ends_at = pause.ends_at.min(now);
        }
        let ready = std::mem::take(&mut self.ready).into_iter();
        let ended = ready.map(|(pause_end, position)| (pause_end.map(|end| end.min(now)), position));
        self.ready = ended.collect();
    }

    /// Returns the time of the next retry.
    pub(super) fn next_retry(&self) -> Option<Instant> {
        self.ready.first().and_then(|(pause_end, _)| *pause_end)
    }
}
