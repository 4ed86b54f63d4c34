//! Parked results whose matches settle at a known time.

use std::{
    collections::{BTreeSet, HashSet},
    sync::{Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Notify;

use crate::ledger::{Index, Moment};

/// Entries of a queue. Further results settle once the process starts again.
const QUEUED_MAX: usize = 100_000;

/// Indexes of parked results, by the time at which their matches settle.
#[derive(Debug, Default)]
pub(super) struct MatchQueue {
    entries: Mutex<BTreeSet<(Moment, Index)>>,
    changed: Notify,
}

impl MatchQueue {
    /// Adds an index.
    pub(super) fn add(&self, index: Index, certain_at: Moment) {
        let mut entries = self.lock_entries();
        if entries.len() < QUEUED_MAX && entries.insert((certain_at, index)) {
            self.changed.notify_one();
        }
    }

    /// Removes and returns the indexes that are due.
    pub(super) fn take_due(&self, now: Moment) -> Vec<Index> {
        let mut entries = self.lock_entries();
        let not_due = entries.split_off(&(now, [u8::MAX; 16]));
        let due = std::mem::replace(&mut *entries, not_due);
        due.into_iter().map(|(_, index)| index).collect()
    }

    /// Returns the indexes of the results whose match settles by itself.
    pub(super) fn queued_indexes(&self) -> HashSet<Index> {
        self.lock_entries().iter().map(|(_, index)| *index).collect()
    }

    /// Returns the time of the first index.
    pub(super) fn first_due(&self) -> Option<Moment> {
        self.lock_entries().first().map(|(certain_at, _)| *certain_at)
    }

    /// Waits for a new index.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    fn lock_entries(&self) -> MutexGuard<'_, BTreeSet<(Moment, Index)>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
