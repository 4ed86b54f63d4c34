//! The writer of the journal: all pins that wait go into one round of commits, which the ledger stores together.
//!
//! It retries for as long as the store fails. Only a row or a caller that the ledger has no room for is given up.

use std::{
    sync::{Arc, PoisonError, Weak},
    time::Duration,
};

use futures_util::future::join_all;
use tokio::time::timeout;

use super::{CachedRow, journal::PinWrite};
use crate::{
    auth::Caller,
    clock,
    ledger::{CommitOutcome, CommitStep, Ledger, LedgerError, Record, RecordKind},
    recall::{PinnedRow, RecallStore, RecallStoreState},
    table::VerifiedCallers,
};

/// The timeout of one commit. It may be carried out later all the same, and is then found by the next attempt.
const COMMIT_TIMEOUT: Duration = Duration::from_secs(5);
/// The pause after a failure: the first, and the longest.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// The outcome of one commit of several pins.
enum BatchOutcome {
    Written,
    /// The store failed.
    Failed,
    /// One of the pins prevents the others, and it is not known which.
    Divided(Vec<PinWrite>),
}

impl RecallStore {
    /// Writes pinned results to the ledger until all other handles are dropped. A second writer ends at once.
    pub async fn write_pins(self) {
        let woken = self
            .0
            .pinned
            .woken
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        // The task must not keep the store alive.
        let handle = Arc::downgrade(&self.0);
        drop(self);
        let Some(mut woken) = woken else { return };
        let mut pause = BACKOFF.0;
        while let Some(store) = handle.upgrade() {
            let (batches, new_callers) = {
                let mut journal = store.pinned.lock_journal();
                (journal.take_batches(store.expires_at()), journal.take_callers())
            };
            let (ledger, callers) = (Arc::clone(&store.ledger), store.callers.clone());
            drop(store);
            if batches.is_empty() && new_callers.is_empty() {
                drop((ledger, callers));
                if woken.recv().await.is_none() {
                    return;
                }
                continue;
            }
            let writes = batches.into_iter().map(|batch| write_batch(&handle, &*ledger, batch));
            let new_callers = new_callers.into_iter();
            let new_callers = new_callers.map(|caller| store_caller(&handle, &callers, caller));
            // Side by side: the ledger stores all of them with one wait for the disk.
            let (written, stored) = tokio::join!(join_all(writes), join_all(new_callers));
            let all_written = written.into_iter().chain(stored).all(|written| written);
            drop((ledger, callers));
            let Some(store) = handle.upgrade() else { return };
            if all_written {
                store.pinned.note_success();
            }
            drop(store);
            if all_written {
                pause = BACKOFF.0;
            } else {
                tokio::time::sleep(pause).await;
                pause = pause.saturating_mul(2).min(BACKOFF.1);
            }
        }
    }

    /// Waits until the ledger has every pinned result, apart from those of requests that no provider has answered yet
    /// and whose caller is not verified.
    pub async fn flush_pins(&self) {
        let pins = &self.0.pinned;
        loop {
            let mut written = std::pin::pin!(pins.written.notified());
            written.as_mut().enable();
            if !pins.lock_journal().has_unwritten() {
                return;
            }
            written.await;
        }
    }
}

/// Stores a caller. Returns `false` if the store failed.
async fn store_caller(handle: &Weak<RecallStoreState>, callers: &VerifiedCallers, caller: Caller) -> bool {
    let done = timeout(COMMIT_TIMEOUT, callers.store_verified(caller)).await;
    let failure = match done.unwrap_or_else(|_| Err(late_commit())) {
        // Without room for it the caller is given up: a repetition would delay the pins of all others.
        Ok(()) | Err(LedgerError::Full { .. } | LedgerError::TooLarge) => None,
        Err(error) => Some(error),
    };
    if let Some(store) = handle.upgrade() {
        store.pinned.lock_journal().end_caller(caller, failure.is_none());
        match &failure {
            Some(error) => store.pinned.note_failure(error),
            // Given up: a later process will not look for the pins of this caller.
            None if !callers.is_known_stored(caller) => store.write_behind.count_lost(RecordKind::Principal),
            None => {}
        }
        store.pinned.written.notify_waiters();
    }
    failure.is_none()
}

/// Writes the pins of one caller. Returns `false` if the store failed.
async fn write_batch(handle: &Weak<RecallStoreState>, ledger: &dyn Ledger, batch: Vec<PinWrite>) -> bool {
    let rest = match commit_batch(handle, ledger, batch).await {
        BatchOutcome::Written => return true,
        BatchOutcome::Failed => return false,
        BatchOutcome::Divided(rest) => rest,
    };
    let mut all_written = true;
    for write in rest {
        // A single one is never divided again.
        all_written &= matches!(commit_batch(handle, ledger, vec![write]).await, BatchOutcome::Written);
    }
    all_written
}

/// Commits several pins at once, and tells the journal the outcome.
async fn commit_batch(handle: &Weak<RecallStoreState>, ledger: &dyn Ledger, batch: Vec<PinWrite>) -> BatchOutcome {
    let steps: Vec<CommitStep> = batch.iter().flat_map(|write| write.steps.iter().cloned()).collect();
    let done = timeout(COMMIT_TIMEOUT, ledger.commit(steps, clock::unix_time())).await;
    let Some(store) = handle.upgrade() else {
        return BatchOutcome::Failed;
    };
    let outcome = note_outcome(&store, batch, done.unwrap_or_else(|_| Err(late_commit())));
    store.pinned.written.notify_waiters();
    outcome
}

/// Returns the error of a commit that took longer than [`COMMIT_TIMEOUT`].
fn late_commit() -> LedgerError {
    LedgerError::Store("no answer within 5 seconds".into())
}

fn note_outcome(
    store: &RecallStoreState,
    batch: Vec<PinWrite>,
    done: Result<CommitOutcome, LedgerError>,
) -> BatchOutcome {
    let pins = &store.pinned;
    let mut journal = pins.lock_journal();
    match done {
        Ok(CommitOutcome::Done) => {
            for write in &batch {
                let settled = journal.finish_write(write);
                pins.keep_settled(settled);
            }
            BatchOutcome::Written
        }
        Ok(CommitOutcome::Conflict(records)) => {
            drop(journal);
            note_conflict(store, batch, records)
        }
        Err(LedgerError::Full { .. } | LedgerError::TooLarge) if batch.len() > 1 => BatchOutcome::Divided(batch),
        Err(LedgerError::Full { .. } | LedgerError::TooLarge) => {
            for write in &batch {
                // The result stays in memory, as long as there is room.
                if let Some(row) = journal.forget_entry(&write.key) {
                    pins.rows.insert(&write.key, CachedRow { row, is_stored: false });
                }
                store.write_behind.count_lost(write.key.kind);
            }
            BatchOutcome::Written
        }
        Err(error) => {
            for write in &batch {
                journal.doubt_write(write);
            }
            drop(journal);
            pins.note_failure(&error);
            BatchOutcome::Failed
        }
    }
}

/// Corrects what the journal knows about the rows that have prevented a commit.
fn note_conflict(store: &RecallStoreState, batch: Vec<PinWrite>, records: Vec<Option<Record>>) -> BatchOutcome {
    let pins = &store.pinned;
    let mut records = records.into_iter();
    // A pin has one or two steps.
    let found: Vec<Option<Record>> = batch
        .iter()
        .map(|write| records.by_ref().take(write.steps.len()).fold(None, Option::or))
        .collect();
    // A record that is missing is not told apart from a step that was possible.
    let is_known = batch.len() == 1 || found.iter().any(Option::is_some);
    if !is_known {
        return BatchOutcome::Divided(batch);
    }
    let mut journal = pins.lock_journal();
    for (write, found) in batch.iter().zip(&found) {
        if found.is_none() && batch.len() > 1 {
            journal.release_write(write);
            continue;
        }
        let other = found.as_ref().and_then(|record| PinnedRow::decode(&record.value));
        let decided = journal.find_decision(&write.key);
        let is_other = |row: &PinnedRow| decided.is_some_and(|decided| decided.result != row.result);
        if let Some(row) = other.filter(is_other).filter(|_| !store.ledger.is_exclusive()) {
            // Another process was first, and its result stays. One that a provider has accepted meanwhile stays here.
            let own = journal.forget_entry(&write.key).filter(|own| own.is_committed);
            let row = own.unwrap_or(row);
            if row.is_committed {
                pins.rows.insert(&write.key, CachedRow { row, is_stored: true });
            } else {
                // It may still be rolled back: only the requests that wait get it.
                pins.overruled.insert(&write.key, row.result);
            }
            continue;
        }
        let settled = journal.correct_write(write, found.as_ref());
        pins.keep_settled(settled);
    }
    BatchOutcome::Written
}
