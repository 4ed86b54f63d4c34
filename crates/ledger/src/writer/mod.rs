//! The background writer: the changes of a ledger that requests leave behind.
//!
//! There is one writer over a ledger, and every feature queues its [`Update`]s there. These rules hold for all of them:
//!
//! * Updates with a common [`Subject`] are done in the order in which they were queued, all others side by side.
//! * While the store fails, updates wait and are retried, after pauses that grow to 5 seconds. The first write that succeeds
//!   ends the pauses of all.
//! * An update is lost if the ledger has no room for it, or if it fails for five minutes while others succeed. A full queue
//!   loses what matters least. Each lost record is counted.
//! * The queue is bounded in updates and bytes. [`Writer::finish`] waits until it is empty.

mod failures;
mod loss_order;
mod queue;
mod record_steps;
mod shared_queue;
mod task;

use std::{
    error::Error,
    fmt,
    future::Future,
    pin::Pin,
    sync::{Arc, atomic::Ordering},
};

use tokio::{
    sync::oneshot,
    time::{Instant, timeout_at},
};

use crate::{
    clock,
    ledger::{CommitResult, CommitStep, Contended, LedgerError, RecordKey, RecordKind, RecordName, TimedCommit},
};
pub use queue::Added;
use record_steps::RecordSteps;
use shared_queue::SharedQueue;
pub use task::{WriterTask, writer};

/// Counts what a ledger did not do.
pub trait LedgerCounter: fmt::Debug + Send + Sync {
    /// Counts a lost write of a record of this kind.
    fn count_lost_write(&self, kind: RecordKind);

    /// Counts a read that failed or came too late.
    fn count_missed_read(&self);

    /// Counts a write that came too late for the request that waited for it.
    fn count_late_write(&self);
}

/// A thing that updates are about: a record, or any other one that a name identifies.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Subject {
    /// `None` for what is no record.
    kind: Option<RecordKind>,
    owner: [u8; 32],
    name: RecordName,
}

impl Subject {
    /// Returns the subject of a record.
    pub const fn of_record(key: &RecordKey) -> Self {
        Self {
            kind: Some(key.kind),
            owner: key.principal,
            name: key.name,
        }
    }

    /// Returns the subject of everything with this name, whoever owns it.
    pub const fn of_name(name: RecordName) -> Self {
        Self {
            kind: None,
            owner: [0; 32],
            name,
        }
    }
}

impl fmt::Debug for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // It identifies a caller or a call, so a log does not show it.
        f.write_str("Subject")
    }
}

/// The size of an update.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UpdateSize {
    /// The most rows that it writes.
    pub rows: usize,
    /// Its bytes in memory.
    pub bytes: usize,
}

/// The way in which the writer does an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteTrack {
    /// Its commits are known without a read, and an answer may wait for them. They share a call of the ledger with others
    /// of this track, for which the store gets 5 seconds.
    Awaited,
    /// It reads before it commits. Up to 64 are done side by side.
    Reading,
    /// Its commits are known without a read, and nothing waits for them. They share a call of the ledger with others of this
    /// track.
    Behind,
}

/// A change of the ledger that a request leaves behind.
pub trait Update: fmt::Debug + Send + Sync {
    /// Returns the way in which it is done.
    fn track(&self) -> WriteTrack;

    /// Returns what it is about.
    fn subjects(&self) -> Vec<Subject>;

    /// Returns its size.
    fn size(&self) -> UpdateSize;

    /// Returns the kind of the records that are lost with it, and their number.
    fn lost_records(&self) -> (RecordKind, usize);

    /// Returns `true` if a later request of the conversation queues it again, so that its loss costs little.
    fn is_repeated(&self) -> bool {
        false
    }

    /// Begins a try. No other update of its subjects is under way.
    fn begin(self: Arc<Self>) -> Work;

    /// Ends a try whose work was commits. An error is that of all of them: it is not known which were applied.
    fn end_commits(&self, results: Result<&[CommitResult], &LedgerError>) -> TryEnd {
        TryEnd::of_results(results)
    }

    /// Notes that it is lost. Its records are counted already.
    fn note_lost(&self) {}
}

/// The future of an update that reads before it commits. Returns `true` if it surely wrote to the store: many find that
/// nothing is to be written.
pub type Change = Pin<Box<dyn Future<Output = Result<bool, UpdateError>> + Send>>;

/// The work of one try.
pub enum Work {
    /// Nothing is to be written.
    Nothing,
    /// Commits that are done in order, each on its own.
    Commits(Vec<TimedCommit>),
    /// A read, and what follows from it.
    Change(Change),
}

impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Work")
    }
}

/// The error of an update that reads before it commits.
#[derive(Debug, thiserror::Error)]
pub enum UpdateError {
    /// The ledger failed.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// Other writers were first in each try. It is retried.
    #[error(transparent)]
    Contended(#[from] Contended),
    /// The error does not go away with time: the update is lost.
    #[error(transparent)]
    Final(Box<dyn Error + Send + Sync>),
}

/// The end of one try of an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TryEnd {
    /// The ledger has what it is to have.
    Done,
    /// More is to be written, at once.
    Again,
    /// The store failed: the update is retried.
    Failed,
    /// The ledger has no room for it, or is closed: the update is lost.
    Refused,
}

impl TryEnd {
    /// Returns the end that an error means.
    pub const fn of_error(error: &LedgerError) -> Self {
        match error {
            LedgerError::Store(_) => Self::Failed,
            // A full ledger or an oversized value fails in the same way again.
            LedgerError::Full { .. } | LedgerError::TooLarge | LedgerError::Closed => Self::Refused,
        }
    }

    /// Returns the worst end of several commits. A conflict is no failure: the existing record stays.
    pub fn of_results(results: Result<&[CommitResult], &LedgerError>) -> Self {
        let results = match results {
            Ok(results) => results,
            Err(error) => return Self::of_error(error),
        };
        let mut end = Self::Done;
        for error in results.iter().filter_map(|result| result.as_ref().err()) {
            end = Self::of_error(error);
            if end == Self::Failed {
                break;
            }
        }
        end
    }
}

/// The end of a queued update, which can be awaited.
#[derive(Debug)]
pub struct UpdateEnd(oneshot::Receiver<()>);

impl UpdateEnd {
    /// Waits until the update is done or lost.
    pub async fn wait_for_end(self) {
        // An error means that the update was lost, or that the writer has ended.
        drop(self.0.await);
    }
}

/// The handle that queues updates. It is cheap to clone.
#[derive(Clone, Debug)]
pub struct Writer {
    queue: SharedQueue,
    counter: Arc<dyn LedgerCounter>,
}

impl Writer {
    /// Queues a step that needs no read. It is dropped if it conflicts: the existing record stays.
    pub fn queue_write(&self, step: CommitStep) {
        self.queue_writes(vec![step]);
    }

    /// Queues steps that need no read, in their order. Each is dropped if it conflicts: the existing record stays.
    ///
    /// Steps of one record that follow each other are one update: a full queue loses all of them.
    pub fn queue_writes(&self, steps: Vec<CommitStep>) {
        if !steps.is_empty() {
            self.note_added(self.add_writes(steps));
        }
    }

    /// Adds steps to the queue, as [`queue_writes`](Self::queue_writes). The updates that are lost for them are told of it by
    /// [`note_added`](Self::note_added), for which the caller must have no lock.
    pub fn add_writes(&self, steps: Vec<CommitStep>) -> Added {
        self.add_all(RecordSteps::of_steps(steps, clock::unix_time()))
    }

    /// Queues an update. Does not wait.
    pub fn queue(&self, update: impl Update + 'static) {
        self.queue_all([update]);
    }

    /// Queues updates in their order. Does not wait.
    pub fn queue_all<U: Update + 'static>(&self, updates: impl IntoIterator<Item = U>) {
        let updates = updates.into_iter().map(|update| Arc::new(update) as Arc<dyn Update>);
        self.note_added(self.add_all(updates));
    }

    /// Queues an update whose end somebody may wait for. Returns `None` if it is lost at once, for want of room.
    pub fn queue_with_end(&self, update: impl Update + 'static) -> Option<UpdateEnd> {
        let (end, ended) = oneshot::channel();
        let added = self.queue.lock().add(Arc::new(update), Some(end));
        let is_queued = added.is_queued;
        self.note_added(added);
        is_queued.then_some(UpdateEnd(ended))
    }

    /// Returns `true` if an update about this subject waits or is under way.
    pub fn is_about(&self, subject: &Subject) -> bool {
        self.queue.lock().is_about(subject)
    }

    /// Waits until no update about this subject waits or is under way. Returns `false` at the deadline.
    pub async fn await_subject(&self, subject: &Subject, deadline: Instant) -> bool {
        self.await_end(deadline, || !self.is_about(subject)).await
    }

    /// Waits until `is_met` holds, which is checked whenever updates have ended or failed. Returns `false` at the deadline.
    pub async fn await_end(&self, deadline: Instant, is_met: impl Fn() -> bool) -> bool {
        timeout_at(deadline, self.queue.wait_until(is_met)).await.is_ok()
    }

    /// Notes that requests wait no longer for this generation of a subject, whose updates go on.
    pub fn note_late(&self, subject: &Subject, generation: u64) {
        self.queue.lock().note_late(subject, generation);
    }

    /// Returns `true` if requests wait no longer for this generation of a subject.
    pub fn is_late(&self, subject: &Subject, generation: u64) -> bool {
        self.queue.lock().is_late(subject, generation)
    }

    /// Returns `true` while the store fails.
    pub fn is_failing(&self) -> bool {
        self.queue.is_failing.load(Ordering::Relaxed)
    }

    /// Waits until every update that was queued before is done or lost.
    pub async fn flush(&self) {
        let position = self.queue.lock().next_position();
        self.queue
            .wait_until(|| self.queue.lock().first_open_position() >= position)
            .await;
    }

    /// Retries what has failed at once, and waits until nothing is queued any more.
    pub async fn finish(&self) {
        self.queue.lock().end_pauses(clock::now());
        self.queue.end_pause.notify_one();
        self.queue.wait_until(|| self.queue.lock().is_empty()).await;
    }

    /// Counts a record that is lost.
    pub fn count_lost(&self, kind: RecordKind) {
        self.counter.count_lost_write(kind);
    }

    fn add_all(&self, updates: impl Iterator<Item = Arc<dyn Update>>) -> Added {
        let mut added = Added::default();
        let mut queue = self.queue.lock();
        for update in updates {
            added.join(queue.add(update, None));
        }
        added
    }

    /// Tells the updates that are lost, and wakes the task.
    pub fn note_added(&self, added: Added) {
        if !added.is_queued && added.lost.is_empty() {
            return;
        }
        // One warning for each lost update would flood the log.
        if let Some(lost) = added.lost.first().filter(|_| added.is_new_overflow) {
            tracing::warn!(
                kind = lost.lost_records().0.label(),
                "the queue of background writes to the ledger is full: the writes that matter least are lost"
            );
        }
        // Not under the lock of the queue: an update may have a lock of its own.
        let has_losses = !added.lost.is_empty();
        for lost in added.lost {
            count_lost_update(&*self.counter, &*lost);
        }
        if has_losses {
            self.queue.lock().note_losses();
        }
        self.queue.wake_task();
    }
}

/// Counts the records of a lost update, and tells it.
fn count_lost_update(counter: &dyn LedgerCounter, update: &dyn Update) {
    let (kind, records) = update.lost_records();
    for _ in 0..records {
        counter.count_lost_write(kind);
    }
    update.note_lost();
}
