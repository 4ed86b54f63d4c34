//! The task that does the queued updates.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use futures_util::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use tokio::time::{Instant, sleep_until, timeout};

use super::{
    LedgerCounter, TryEnd, UpdateError, Work, WriteTrack, Writer, count_lost_update,
    queue::{PendingUpdate, RETRY_PAUSE, TRACKS},
    shared_queue::{QueueOfTask, shared_queue},
};
use crate::{
    clock,
    ledger::{CommitOutcome, CommitResult, Ledger, LedgerError, TimedCommit},
};

/// The most updates that read, side by side. The ledger stores the changes of so many with one wait for the disk.
const READING_MAX: usize = 64;
/// The most of them while the store fails.
const PROBES: usize = 4;
/// The timeout of commits that answers wait for. They may be carried out later all the same.
const AWAITED_TIMEOUT: Duration = Duration::from_secs(5);
/// The pause between two log lines about lost updates.
const LOSS_LOG_PAUSE: Duration = Duration::from_secs(60);

/// The task. It runs until all handles are dropped and the queue is empty. An update that panics is lost, and no other.
#[derive(Debug)]
pub struct WriterTask {
    ledger: Arc<dyn Ledger>,
    queue: QueueOfTask,
    counter: Arc<dyn LedgerCounter>,
    /// The updates of each track that are under way: batches, or single updates.
    under_way: [usize; TRACKS.len()],
    /// The number of tries that have shown that the store writes.
    successes: u64,
    /// The last time at which the store surely wrote.
    last_stored_at: Option<Instant>,
    /// Set while the store fails.
    outage: Option<Outage>,
    /// Set by the first failure, until no update is left that has failed: of many failures only the first is logged.
    is_reported: bool,
    loss_logged_at: Option<Instant>,
}

/// The state while the store fails.
#[derive(Clone, Copy, Debug)]
struct Outage {
    failed_at: Instant,
    pause: Duration,
    /// The time of the next tries.
    ends_at: Instant,
}

/// Tries that were under way together, and have ended.
struct EndedTries {
    track: WriteTrack,
    /// The successes at their begin.
    successes: u64,
    tries: Tries,
}

enum Tries {
    /// One call of the ledger with the commits of several updates, and their number for each. `None` for one that panicked.
    Batch(
        Vec<(PendingUpdate, Option<usize>)>,
        Result<Vec<CommitResult>, LedgerError>,
    ),
    Single(PendingUpdate, Result<bool, UpdateError>),
}

/// Returns the handle that queues updates of `ledger`, and the task that does them.
pub fn writer(ledger: Arc<dyn Ledger>, counter: impl LedgerCounter + 'static) -> (Writer, WriterTask) {
    let counter: Arc<dyn LedgerCounter> = Arc::new(counter);
    let (queue, of_task) = shared_queue();
    let task = WriterTask {
        ledger,
        queue: of_task,
        counter: Arc::clone(&counter),
        under_way: [0; TRACKS.len()],
        successes: 0,
        last_stored_at: None,
        outage: None,
        is_reported: false,
        loss_logged_at: None,
    };
    (Writer { queue, counter }, task)
}

impl WriterTask {
    /// Does the queued updates until all handles are dropped and the queue is empty.
    pub async fn run(mut self) {
        let mut tries: FuturesUnordered<BoxFuture<'static, EndedTries>> = FuturesUnordered::new();
        let mut has_handles = true;
        let end_pause = Arc::clone(&self.queue.end_pause);
        loop {
            let pause_end = self.begin_tries(&tries);
            if !has_handles && tries.is_empty() && self.queue.lock().is_empty() {
                return;
            }
            tokio::select! {
                Some(ended) = tries.next() => self.end_tries(ended),
                may_come = self.queue.wait_for_updates(), if has_handles => {
                    has_handles = may_come;
                    self.note_new_update();
                    if self.queue.lock().take_losses() {
                        self.queue.publish_ended();
                    }
                }
                () = end_pause.notified() => self.end_pauses(),
                () = sleep_until(pause_end.unwrap_or_else(clock::now)), if pause_end.is_some() => {}
            }
        }
    }

    /// Begins the tries that may begin. Returns the time at which others may.
    fn begin_tries(&mut self, tries: &FuturesUnordered<BoxFuture<'static, EndedTries>>) -> Option<Instant> {
        let now = clock::now();
        if let Some(outage) = self.outage.filter(|outage| outage.ends_at > now) {
            return Some(outage.ends_at);
        }
        for track in TRACKS {
            while self.may_begin(track) {
                let Some(begun) = self.begin_try(track, now) else { break };
                if let Some(under_way) = self.under_way.get_mut(track.index()) {
                    *under_way += 1;
                }
                tries.push(begun);
            }
        }
        self.queue.lock().next_retry(now)
    }

    /// Returns `true` if a track has room for one more try.
    fn may_begin(&self, track: WriteTrack) -> bool {
        let limit = match track {
            // One call of the ledger takes all that wait.
            WriteTrack::Awaited | WriteTrack::Behind => 1,
            WriteTrack::Reading if self.outage.is_some() => PROBES,
            WriteTrack::Reading => READING_MAX,
        };
        self.under_way
            .get(track.index())
            .is_some_and(|under_way| *under_way < limit)
    }

    /// Begins the next try of a track.
    fn begin_try(&self, track: WriteTrack, now: Instant) -> Option<BoxFuture<'static, EndedTries>> {
        let successes = self.successes;
        let ended = move |tries| EndedTries {
            track,
            successes,
            tries,
        };
        if track == WriteTrack::Reading {
            let mut queue = self.queue.lock();
            // While the store fails, every second try is that of the latest update: the fault may lie with all that wait for
            // longer.
            let probes_latest = self.outage.is_some() && self.under_way.get(track.index()).is_some_and(|n| n % 2 == 1);
            let latest = if probes_latest { queue.take_latest(track) } else { None };
            let pending = latest.or_else(|| queue.take_one(track, now))?;
            drop(queue);
            let (update, ledger) = (Arc::clone(&pending.update), Arc::clone(&self.ledger));
            let work = AssertUnwindSafe(async move { do_work(&*ledger, update.begin()).await }).catch_unwind();
            let done = async move {
                let done = work
                    .await
                    .unwrap_or_else(|_| Err(UpdateError::Final("it panicked".into())));
                ended(Tries::Single(pending, done))
            };
            return Some(done.boxed());
        }
        let batch = self.queue.lock().take_batch(track, now);
        if batch.is_empty() {
            return None;
        }
        let mut all = Vec::new();
        let begun = batch.into_iter().map(|pending| {
            let update = Arc::clone(&pending.update);
            let work = catch_unwind(AssertUnwindSafe(|| update.begin()));
            let commits = work.ok().map(|work| match work {
                Work::Commits(commits) => commits,
                work @ (Work::Nothing | Work::Change(_)) => {
                    debug_assert!(matches!(work, Work::Nothing), "an update of this track needs no read");
                    Vec::new()
                }
            });
            let count = commits.as_ref().map(Vec::len);
            all.extend(commits.into_iter().flatten());
            (pending, count)
        });
        let begun: Vec<_> = begun.collect();
        let ledger = Arc::clone(&self.ledger);
        let done = async move {
            let results = commit_all(&*ledger, all, track).await;
            ended(Tries::Batch(begun, results))
        };
        Some(done.boxed())
    }

    /// Ends tries: their updates are done, are lost, or are put back.
    fn end_tries(&mut self, ended: EndedTries) {
        if let Some(under_way) = self.under_way.get_mut(ended.track.index()) {
            *under_way = under_way.saturating_sub(1);
        }
        match ended.tries {
            Tries::Batch(batch, results) => self.end_batch(batch, results.as_deref(), ended.successes),
            Tries::Single(pending, result) => self.end_single(pending, result, ended.successes),
        }
        if self.is_reported && !self.queue.lock().has_failed_updates() {
            self.is_reported = false;
            tracing::warn!("background writes to the ledger work again");
        }
        self.queue.publish_ended();
    }

    fn end_batch(
        &mut self,
        batch: Vec<(PendingUpdate, Option<usize>)>,
        results: Result<&[CommitResult], &LedgerError>,
        successes: u64,
    ) {
        let done = results.unwrap_or_default();
        let is_stored = |result: &CommitResult| matches!(result, Ok(CommitOutcome::Done));
        let has_failed = |result: &CommitResult| matches!(result, Err(LedgerError::Store(_)));
        // A conflict writes nothing, and a full disk still reads. But what has failed before and fails no more tells of the
        // store.
        let is_stored = done.iter().any(is_stored);
        let has_recovered = batch.iter().any(|(pending, _)| pending.has_failed()) && !done.iter().any(has_failed);
        self.note_outcome(is_stored, is_stored || (has_recovered && results.is_ok()));
        let mut rest = done;
        for (pending, count) in batch {
            let (own, later) = rest.split_at_checked(count.unwrap_or_default()).unwrap_or((rest, &[]));
            rest = later;
            let of_update = results.map(|_| own);
            let error = own.iter().find_map(|result| result.as_ref().err());
            let error = results.err().or(error);
            let end = match (count, results) {
                (None, _) => TryEnd::Refused,
                (Some(0), Ok(_)) => TryEnd::Done,
                (Some(_), _) => {
                    let end = catch_unwind(AssertUnwindSafe(|| pending.update.end_commits(of_update)));
                    end.unwrap_or(TryEnd::Refused)
                }
            };
            self.end_try(
                pending,
                end,
                error.map(|error| error as &dyn std::fmt::Display),
                successes,
            );
        }
    }

    fn end_single(&mut self, pending: PendingUpdate, result: Result<bool, UpdateError>, successes: u64) {
        let (end, error) = match result {
            Ok(is_stored) => {
                // A full disk still reads, so a success that only reads proves nothing.
                self.note_outcome(is_stored, is_stored || pending.has_failed());
                (TryEnd::Done, None)
            }
            Err(UpdateError::Ledger(error)) => (TryEnd::of_error(&error), Some(UpdateError::Ledger(error))),
            Err(error @ UpdateError::Contended(_)) => {
                // The others have written.
                self.note_outcome(false, true);
                (TryEnd::Failed, Some(error))
            }
            Err(error @ UpdateError::Final(_)) => (TryEnd::Refused, Some(error)),
        };
        let error = error.as_ref().map(|error| error as &dyn std::fmt::Display);
        self.end_try(pending, end, error, successes);
    }

    /// Notes what tries say about the store: it surely wrote, or at least it writes.
    fn note_outcome(&mut self, is_stored: bool, works: bool) {
        let now = clock::now();
        if is_stored {
            self.last_stored_at = Some(now);
        }
        if works {
            self.successes = self.successes.wrapping_add(1);
            if self.outage.take().is_some() {
                self.queue.is_failing.store(false, Ordering::Relaxed);
                self.queue.lock().end_pauses(now);
            }
        }
    }

    /// Ends one try of an update. `successes` is their number at its begin.
    fn end_try(
        &mut self,
        mut pending: PendingUpdate,
        end: TryEnd,
        error: Option<&dyn std::fmt::Display>,
        successes: u64,
    ) {
        match end {
            TryEnd::Done => {
                let update = self.queue.lock().end(pending);
                // Not under the lock of the queue.
                drop(update);
            }
            TryEnd::Again => self.queue.lock().put_back(pending),
            TryEnd::Refused => self.lose(pending, error),
            TryEnd::Failed => {
                let now = clock::now();
                if self.successes == successes {
                    // Nothing has succeeded since: the fault is that of the store.
                    self.note_outage(now);
                }
                let mut queue = self.queue.lock();
                if queue.note_failure(&mut pending, now, self.last_stored_at) {
                    queue.put_back(pending);
                    drop(queue);
                    self.report_failure(error);
                } else {
                    drop(queue);
                    self.lose(pending, error);
                }
            }
        }
    }

    /// Notes that the store fails. Of several tries that fail at once, only the first makes the pause longer.
    fn note_outage(&mut self, now: Instant) {
        let doubled = |outage: Outage| outage.pause.saturating_mul(2).min(RETRY_PAUSE.1);
        let is_noted = self.outage.is_some_and(|outage| outage.ends_at > now);
        if !is_noted {
            let pause = self.outage.map_or(RETRY_PAUSE.0, doubled);
            self.outage = Some(Outage {
                failed_at: now,
                pause,
                ends_at: now + pause,
            });
            self.queue.is_failing.store(true, Ordering::Relaxed);
        }
    }

    /// Notes a new update, which ends a long pause: the fault may lie with the others. A stream of new ones must not try the
    /// store without any pause.
    fn note_new_update(&mut self) {
        if let Some(outage) = &mut self.outage {
            outage.ends_at = outage.ends_at.min(outage.failed_at + RETRY_PAUSE.0);
        }
    }

    /// Ends the pause of the task: all that waits is tried.
    fn end_pauses(&mut self) {
        let now = clock::now();
        if let Some(outage) = &mut self.outage {
            outage.ends_at = outage.ends_at.min(now);
        }
        self.queue.lock().end_pauses(now);
    }

    /// Logs the first of several failures.
    fn report_failure(&mut self, error: Option<&dyn std::fmt::Display>) {
        if !std::mem::replace(&mut self.is_reported, true) {
            let error = error.map(tracing::field::display);
            tracing::warn!(
                error,
                "background writes to the ledger failed: they wait and are retried"
            );
        }
    }

    /// Gives an update up.
    fn lose(&mut self, pending: PendingUpdate, error: Option<&dyn std::fmt::Display>) {
        let update = self.queue.lock().end(pending);
        count_lost_update(&*self.counter, &*update);
        let now = clock::now();
        let is_due = |at: Instant| now.duration_since(at) >= LOSS_LOG_PAUSE;
        // With a full ledger every update is lost.
        if self.loss_logged_at.is_none_or(is_due) {
            self.loss_logged_at = Some(now);
            let (kind, error) = (update.lost_records().0.label(), error.map(tracing::field::display));
            tracing::warn!(
                kind,
                error,
                "a background write to the ledger failed for good: it is lost"
            );
        }
    }
}

/// Does the work of an update that reads. Returns `true` if it surely wrote to the store.
async fn do_work(ledger: &dyn Ledger, work: Work) -> Result<bool, UpdateError> {
    match work {
        Work::Nothing => Ok(false),
        Work::Change(change) => change.await,
        Work::Commits(commits) => {
            let results = ledger.commit_each(commits).await?;
            let mut is_stored = false;
            for result in results {
                is_stored |= result? == CommitOutcome::Done;
            }
            Ok(is_stored)
        }
    }
}

/// Does the commits of a batch in one call of the ledger.
async fn commit_all(
    ledger: &dyn Ledger,
    commits: Vec<TimedCommit>,
    track: WriteTrack,
) -> Result<Vec<CommitResult>, LedgerError> {
    if commits.is_empty() {
        return Ok(Vec::new());
    }
    let committed = ledger.commit_each(commits);
    if track != WriteTrack::Awaited {
        return committed.await;
    }
    let done = timeout(AWAITED_TIMEOUT, committed).await;
    done.unwrap_or_else(|_| Err(LedgerError::Store("no answer within 5 seconds".into())))
}
