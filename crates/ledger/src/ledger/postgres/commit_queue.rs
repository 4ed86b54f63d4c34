//! The commits that wait for a writer. Several writers take from it, and commits of one record stay in their order: one is
//! not taken while an earlier one of the same record is written.
//!
//! Without that order a removal could run before the insert that it follows, and find nothing.

use std::{
    collections::HashSet,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tokio::sync::{Mutex as AsyncMutex, Notify, mpsc, oneshot};

use crate::ledger::{CommitResult, CommitStep, LedgerError, ROWS_MAX, RecordKey, TimedCommit};

/// The most values of a batch, in bytes, unless its only commit is larger.
const BATCH_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Commits that wait for their transaction.
#[derive(Debug)]
pub(super) struct WaitingCommits {
    pub(super) commits: Vec<TimedCommit>,
    pub(super) reply: oneshot::Sender<Result<Vec<CommitResult>, LedgerError>>,
}

impl WaitingCommits {
    fn keys(&self) -> impl Iterator<Item = &RecordKey> {
        let steps = self.commits.iter().flat_map(|commit| &commit.steps);
        steps.map(CommitStep::key)
    }

    /// Returns the number of rows, and of the bytes of their values.
    fn size(&self) -> (usize, usize) {
        let steps = self.commits.iter().flat_map(|commit| &commit.steps);
        steps.fold((0_usize, 0_usize), |(rows, bytes), step| {
            (rows.saturating_add(1), bytes.saturating_add(step.value_bytes()))
        })
    }
}

/// The receiving side of the queue, which all writers share.
#[derive(Debug)]
pub(super) struct CommitQueue {
    waiting: AsyncMutex<Waiting>,
    /// The records of the batches that are written now.
    in_flight: Mutex<HashSet<RecordKey>>,
    /// Notified at the end of each batch.
    ended: Notify,
}

#[derive(Debug)]
struct Waiting {
    requests: mpsc::Receiver<WaitingCommits>,
    /// A request that waits for the end of an earlier batch, before all others.
    first: Option<WaitingCommits>,
}

/// A batch that a writer has taken. Its records are in flight until it is dropped.
#[derive(Debug)]
pub(super) struct TakenBatch<'q> {
    pub(super) requests: Vec<WaitingCommits>,
    keys: HashSet<RecordKey>,
    queue: &'q CommitQueue,
}

impl Drop for TakenBatch<'_> {
    fn drop(&mut self) {
        let mut in_flight = self.queue.lock_in_flight();
        for key in &self.keys {
            in_flight.remove(key);
        }
        drop(in_flight);
        self.queue.ended.notify_waiters();
    }
}

impl CommitQueue {
    pub(super) fn new(requests: mpsc::Receiver<WaitingCommits>) -> Self {
        let waiting = Waiting { requests, first: None };
        Self {
            waiting: AsyncMutex::new(waiting),
            in_flight: Mutex::default(),
            ended: Notify::new(),
        }
    }

    /// Waits for requests, and gathers as many as fit into one batch. Returns `None` once the ledger is dropped.
    ///
    /// Requests whose callers have stopped waiting are left out: they count as never written.
    pub(super) async fn next_batch(&self) -> Option<TakenBatch<'_>> {
        let mut waiting = self.waiting.lock().await;
        // It stays in its place during the wait, so that no later request overtakes it.
        self.wait_until_free(waiting.peek().await?).await;
        let first = waiting.first.take()?;
        let (mut rows, mut bytes) = first.size();
        let mut batch = TakenBatch {
            requests: Vec::new(),
            keys: HashSet::new(),
            queue: self,
        };
        self.add_to(&mut batch, first);
        // The rest of a full queue is for the next writer.
        while rows < ROWS_MAX / 2 && bytes < BATCH_BYTES_MAX {
            let Ok(next) = waiting.requests.try_recv() else { break };
            if next.reply.is_closed() {
                continue;
            }
            if self.is_busy(&next, &batch.keys) {
                waiting.first = Some(next);
                break;
            }
            let (more_rows, more_bytes) = next.size();
            (rows, bytes) = (rows.saturating_add(more_rows), bytes.saturating_add(more_bytes));
            self.add_to(&mut batch, next);
        }
        Some(batch)
    }

    fn add_to(&self, batch: &mut TakenBatch<'_>, request: WaitingCommits) {
        batch.keys.extend(request.keys());
        self.lock_in_flight().extend(request.keys());
        batch.requests.push(request);
    }

    /// Returns `true` if another batch writes one of the records of a request.
    fn is_busy(&self, request: &WaitingCommits, own: &HashSet<RecordKey>) -> bool {
        let in_flight = self.lock_in_flight();
        request.keys().any(|key| in_flight.contains(key) && !own.contains(key))
    }

    async fn wait_until_free(&self, request: &WaitingCommits) {
        loop {
            let mut ended = std::pin::pin!(self.ended.notified());
            // Enabled before the check, so that an end in between is not missed.
            ended.as_mut().enable();
            if !self.is_busy(request, &HashSet::new()) {
                return;
            }
            ended.await;
        }
    }

    fn lock_in_flight(&self) -> MutexGuard<'_, HashSet<RecordKey>> {
        // Each change leaves a valid set, so a panic elsewhere need not spread.
        self.in_flight.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    /// Waits for the next request whose caller still waits for it.
    async fn peek(&mut self) -> Option<&WaitingCommits> {
        while self.first.as_ref().is_none_or(|first| first.reply.is_closed()) {
            self.first = Some(self.requests.recv().await?);
        }
        self.first.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;
    use crate::{ledger::RecordKind, principal::Principal};

    type Answer = oneshot::Receiver<Result<Vec<CommitResult>, LedgerError>>;

    fn removal(names: &[u8]) -> (WaitingCommits, Answer) {
        let key = |name: &u8| RecordKey::new(RecordKind::Call, Principal::NONE, [*name; 32]);
        let steps = names.iter().map(|name| CommitStep::Remove {
            key: key(name),
            version: 1,
        });
        let commit = TimedCommit {
            steps: steps.collect(),
            now: Duration::ZERO,
        };
        let (reply, answer) = oneshot::channel();
        let commits = vec![commit];
        (WaitingCommits { commits, reply }, answer)
    }

    fn names(batch: &TakenBatch<'_>) -> Vec<u8> {
        batch
            .requests
            .iter()
            .flat_map(WaitingCommits::keys)
            .map(|key| key.name[0])
            .collect()
    }

    #[tokio::test(start_paused = true)]
    async fn commits_of_one_record_stay_in_their_order() {
        let (sender, requests) = mpsc::channel(9);
        let queue = CommitQueue::new(requests);
        let (first, _first) = removal(&[1]);
        sender.send(first).await.unwrap();
        let first = queue.next_batch().await.unwrap();
        let mut answers = Vec::new();
        for names in [&[2_u8][..], &[3, 1], &[4]] {
            let (request, answer) = removal(names);
            sender.send(request).await.unwrap();
            answers.push(answer);
        }
        let second = queue.next_batch().await.unwrap();
        assert_eq!(
            names(&second),
            [2],
            "what is behind a request that waits is not taken before it"
        );
        assert!(timeout(Duration::from_secs(9), queue.next_batch()).await.is_err());
        drop(second);
        assert!(timeout(Duration::from_secs(9), queue.next_batch()).await.is_err());
        drop(first);
        assert_eq!(names(&queue.next_batch().await.unwrap()), [3, 1, 4]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_nobody_waits_for_is_left_out() {
        let (sender, requests) = mpsc::channel(9);
        let queue = CommitQueue::new(requests);
        for name in [1, 2, 3] {
            let (request, answer) = removal(&[name]);
            sender.send(request).await.unwrap();
            if name == 2 {
                std::mem::forget(answer);
            }
        }
        drop(sender);
        assert_eq!(names(&queue.next_batch().await.unwrap()), [2]);
        assert!(queue.next_batch().await.is_none());
    }
}
