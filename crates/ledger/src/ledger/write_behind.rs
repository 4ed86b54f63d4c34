//! Background writes, which no request waits for. All that wait go into one commit, and are retried while the store
//! fails.

use std::{fmt, sync::Arc, time::Duration};

use tokio::{sync::Notify, time::Instant};

use super::{
    CommitOutcome, CommitResult, CommitStep, Ledger, LedgerError, RecordKind, TimedCommit,
    worker_queue::{QueueReceiver, QueueSender, worker_queue},
    write_queue::{RecordWrite, WriteQueue},
};
use crate::clock;

/// The time for which a write is retried that fails although the store accepts others.
const ALONE_TIME_MAX: Duration = Duration::from_secs(5 * 60);
/// The pause after a failure: the first, and the longest.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// Counts what a ledger did not do.
pub trait LedgerCounter: fmt::Debug + Send + Sync {
    /// Counts a lost write of a record of this kind.
    fn count_lost_write(&self, kind: RecordKind);

    /// Counts a read that failed or came too late.
    fn count_missed_read(&self);
}

/// A handle for queueing background writes. It is cheap to clone.
#[derive(Clone, Debug)]
pub struct WriteBehind {
    queue: QueueSender<WriteQueue>,
    losses: Arc<dyn LedgerCounter>,
    /// Ends a pause of the worker.
    end_pause: Arc<Notify>,
}

/// The worker that does the writes. It runs until all handles are dropped and the queue is empty.
#[derive(Debug)]
pub struct WriteBehindWorker {
    ledger: Arc<dyn Ledger>,
    queue: QueueReceiver<WriteQueue>,
    losses: Arc<dyn LedgerCounter>,
    /// Ends a pause.
    end_pause: Arc<Notify>,
    /// The last time at which the store did a write.
    last_stored_at: Option<Instant>,
    /// Set while writes fail: of many failures in a row only the first is logged.
    is_failing: bool,
}

/// The end of one try of a write.
enum TryEnd {
    Stored,
    /// The ledger has no room for it, or is closed.
    Refused,
    /// The store failed.
    Failed,
}

/// Returns a handle for background writes into `ledger`, and the worker that does them.
///
/// While the store fails, writes wait in a bounded queue. A full queue loses what matters least. A write is also lost
/// if the ledger is full or closed, or if it fails for five minutes while others succeed.
pub fn write_behind(ledger: Arc<dyn Ledger>, losses: impl LedgerCounter + 'static) -> (WriteBehind, WriteBehindWorker) {
    let losses: Arc<dyn LedgerCounter> = Arc::new(losses);
    let (queue, receiver) = worker_queue();
    let end_pause = Arc::new(Notify::new());
    let worker = WriteBehindWorker {
        ledger,
        queue: receiver,
        losses: Arc::clone(&losses),
        end_pause: Arc::clone(&end_pause),
        last_stored_at: None,
        is_failing: false,
    };
    let handle = WriteBehind {
        queue,
        losses,
        end_pause,
    };
    (handle, worker)
}

impl WriteBehind {
    /// Queues a step. It is dropped if it conflicts: the existing record stays.
    pub fn queue_write(&self, step: CommitStep) {
        self.queue_writes(vec![step]);
    }

    /// Queues steps as one job. Each is dropped if it conflicts: the existing record stays.
    ///
    /// Steps of one record that follow each other wait together, and a full queue loses all of them.
    pub fn queue_writes(&self, steps: Vec<CommitStep>) {
        if steps.is_empty() {
            return;
        }
        let now = clock::unix_time();
        let mut lost = Vec::new();
        let is_new_overflow = {
            let mut queue = self.queue.lock();
            let mut steps = steps.into_iter().peekable();
            while let Some(first) = steps.next() {
                let key = *first.key();
                let mut write = vec![first];
                while let Some(next) = steps.next_if(|next| *next.key() == key) {
                    write.push(next);
                }
                queue.add_write(write, now, &mut |kind| lost.push(kind));
            }
            !lost.is_empty() && queue.note_overflow()
        };
        // One warning for each lost write would flood the log.
        if let Some(kind) = lost.first().filter(|_| is_new_overflow) {
            tracing::warn!(
                kind = kind.label(),
                "the queue of background writes to the ledger is full: the writes that matter least are lost"
            );
        }
        for kind in lost {
            self.count_lost(kind);
        }
        self.queue.wake_worker();
    }

    /// Counts a write that was lost.
    pub fn count_lost(&self, kind: RecordKind) {
        self.losses.count_lost_write(kind);
    }

    /// Waits until every write that was queued before is stored or lost.
    pub async fn flush(&self) {
        self.queue.flush().await;
    }

    /// Retries failed writes at once, and waits until every write that was queued before is stored or lost.
    pub async fn finish(&self) {
        self.end_pause.notify_one();
        self.flush().await;
    }
}

impl WriteBehindWorker {
    /// Does the queued writes until all handles of the queue are dropped and it is empty.
    pub async fn run(mut self) {
        let mut pause = BACKOFF.0;
        // The end of a batch of which nothing was stored. The next batch comes after it, until the end of the queue:
        // the fault may lie with these writes, and later ones must not wait for them.
        let mut failed_until = None;
        loop {
            let after = failed_until.take();
            let batch = self.queue.lock().take_batch(after);
            let Some(last) = batch.last().map(RecordWrite::position) else {
                if after.is_none() && !self.queue.wait_for_change().await {
                    return;
                }
                continue;
            };
            let commits: Vec<TimedCommit> = batch.iter().flat_map(RecordWrite::commits).collect();
            let done = self.ledger.commit_each(commits).await;
            let store_works = self.end_batch(batch, done, after.is_none());
            self.queue.publish_ended();
            if store_works {
                pause = BACKOFF.0;
                continue;
            }
            failed_until = Some(last);
            tokio::select! {
                () = tokio::time::sleep(pause) => pause = pause.saturating_mul(2).min(BACKOFF.1),
                () = self.end_pause.notified() => {}
            }
        }
    }

    /// Ends the writes of a batch, or puts them back. Returns `false` if the store failed for all.
    ///
    /// `is_front` is `true` if no write waits before them.
    fn end_batch(
        &mut self,
        batch: Vec<RecordWrite>,
        done: Result<Vec<CommitResult>, LedgerError>,
        is_front: bool,
    ) -> bool {
        let (results, error) = match done {
            Ok(results) => (results, None),
            Err(error) => (Vec::new(), Some(error)),
        };
        let errors = error
            .iter()
            .chain(results.iter().filter_map(|result| result.as_ref().err()));
        // A full ledger is no failure of the store: its errors are counted, and so are the lost writes.
        let failure = errors
            .into_iter()
            .find(|error| matches!(error, LedgerError::Store(_) | LedgerError::Closed));
        // The end of the failures shows only in a batch with the writes that failed.
        if failure.is_some() || is_front {
            self.note_failure(failure);
        }
        let now = clock::now();
        // A conflict writes nothing, and a full disk still reads.
        if results.iter().any(|result| matches!(result, Ok(CommitOutcome::Done))) {
            self.last_stored_at = Some(now);
        }
        let mut store_works = false;
        let mut results = results.iter();
        for mut write in batch {
            let end = match &error {
                Some(error) => TryEnd::of_error(error),
                None => TryEnd::of_results(results.by_ref().take(write.step_count())),
            };
            let is_failed = matches!(end, TryEnd::Failed);
            store_works |= !is_failed;
            // The store works, so a write that goes on failing is at fault itself.
            if is_failed && write.failures().note(now, self.last_stored_at) < ALONE_TIME_MAX {
                self.queue.lock().put_back(write);
                continue;
            }
            self.queue.lock().end_write(&write);
            if !matches!(end, TryEnd::Stored) {
                self.losses.count_lost_write(write.kind());
            }
        }
        store_works
    }

    /// Logs the first of several failures, and their end.
    fn note_failure(&mut self, failure: Option<&LedgerError>) {
        let was_failing = std::mem::replace(&mut self.is_failing, failure.is_some());
        match failure {
            Some(error) if !was_failing => {
                tracing::warn!(%error, "background writes to the ledger failed: they wait and are retried");
            }
            None if was_failing => tracing::warn!("background writes to the ledger work again"),
            _ => {}
        }
    }
}

impl TryEnd {
    const fn of_error(error: &LedgerError) -> Self {
        match error {
            LedgerError::Store(_) => Self::Failed,
            // A full ledger or an oversized value fails in the same way again.
            LedgerError::Full { .. } | LedgerError::TooLarge | LedgerError::Closed => Self::Refused,
        }
    }

    /// Returns the worst end of one write's steps. A conflict is no failure: the existing record stays.
    fn of_results<'r>(results: impl Iterator<Item = &'r CommitResult>) -> Self {
        let mut end = Self::Stored;
        for error in results.filter_map(|result| result.as_ref().err()) {
            end = Self::of_error(error);
            if matches!(end, Self::Failed) {
                break;
            }
        }
        end
    }
}
