//! The order in which messages are due, in memory.
//!
//! The times are those of the monotonic clock: a step of the system's clock sends nothing early.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};

use crate::{clock, ledger::RecordKey};

/// The most messages in memory. Further ones are sent once the process starts again.
const MESSAGES_MAX: usize = 100_000;

/// The messages by the time at which each is due.
#[derive(Debug, Default)]
pub(in crate::late) struct DueQueue {
    entries: Mutex<Entries>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Entries {
    by_time: BTreeSet<(Instant, RecordKey)>,
    by_key: HashMap<RecordKey, Instant>,
}

impl DueQueue {
    /// Schedules a message, in place of its earlier time.
    pub(in crate::late) fn schedule(&self, key: RecordKey, after: Duration) {
        let due = clock::now() + after;
        let mut entries = self.lock_entries();
        let earlier = entries.by_key.get(&key).copied();
        if earlier.is_none() && entries.by_key.len() >= MESSAGES_MAX {
            return;
        }
        if let Some(earlier) = earlier {
            entries.by_time.remove(&(earlier, key));
        }
        entries.by_key.insert(key, due);
        entries.by_time.insert((due, key));
        drop(entries);
        self.changed.notify_one();
    }

    /// Removes a message.
    pub(in crate::late) fn remove(&self, key: &RecordKey) {
        let mut entries = self.lock_entries();
        if let Some(due) = entries.by_key.remove(key) {
            entries.by_time.remove(&(due, *key));
        }
    }

    /// Removes and returns up to `limit` messages that are due.
    pub(in crate::late) fn take_due(&self, limit: usize) -> Vec<RecordKey> {
        let now = clock::now();
        let mut entries = self.lock_entries();
        let mut due = Vec::new();
        while due.len() < limit
            && let Some((at, key)) = entries.by_time.first().copied()
            && at <= now
        {
            entries.by_time.remove(&(at, key));
            entries.by_key.remove(&key);
            due.push(key);
        }
        due
    }

    /// Returns the time at which the first message is due.
    pub(in crate::late) fn first_due(&self) -> Option<Instant> {
        self.lock_entries().by_time.first().map(|(at, _)| *at)
    }

    /// Waits for a change.
    pub(in crate::late) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Ends a wait for a change.
    pub(in crate::late) fn wake(&self) {
        self.changed.notify_one();
    }

    fn lock_entries(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
