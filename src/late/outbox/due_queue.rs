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

/// The most messages in memory. Of more, those that are due last stay in the ledger until there is room, or until the
/// first of them is due.
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
    /// The messages that were due and were not tried yet, with the time at which each was due first.
    untried: HashMap<RecordKey, Instant>,
    /// The time at which the first of the messages without room is due.
    left_out: Option<Instant>,
    /// The time at which the ledger is read again for messages of other processes.
    next_look: Option<Instant>,
}

impl DueQueue {
    /// Schedules a message, in place of its earlier time.
    pub(in crate::late) fn schedule(&self, key: RecordKey, after: Duration) {
        let due = clock::now() + after;
        let mut entries = self.lock_entries();
        if let Some(earlier) = entries.by_key.insert(key, due) {
            entries.by_time.remove(&(earlier, key));
        }
        entries.by_time.insert((due, key));
        if entries.by_time.len() > MESSAGES_MAX
            && let Some((at, last)) = entries.by_time.pop_last()
        {
            entries.by_key.remove(&last);
            entries.untried.remove(&last);
            entries.left_out = Some(entries.left_out.map_or(at, |first| first.min(at)));
        }
        drop(entries);
        self.changed.notify_one();
    }

    /// Returns `true` if a message is scheduled.
    pub(in crate::late) fn contains(&self, key: &RecordKey) -> bool {
        self.lock_entries().by_key.contains_key(key)
    }

    /// Returns `true`, once, if messages were left out, and there is room for them now or the first of them is due, or if
    /// it is time to look for those of other processes.
    pub(in crate::late) fn wants_reload(&self) -> bool {
        let now = clock::now();
        let mut entries = self.lock_entries();
        let has_room = entries.by_time.len() <= MESSAGES_MAX / 2;
        let is_left_out = entries.left_out.take_if(|first| has_room || *first <= now).is_some();
        entries.next_look.take_if(|look| *look <= now).is_some() || is_left_out
    }

    /// Has the messages read again after a pause: they could not be read now.
    pub(in crate::late) fn reload_after(&self, pause: Duration) {
        self.lock_entries().left_out = Some(clock::now() + pause);
    }

    /// Has the messages read again after a pause, since another process may have stored some. An earlier time stays.
    pub(in crate::late) fn look_after(&self, pause: Duration) {
        let look = clock::now() + pause;
        let mut entries = self.lock_entries();
        entries.next_look = Some(entries.next_look.map_or(look, |earlier| earlier.min(look)));
    }

    /// Removes a message.
    pub(in crate::late) fn remove(&self, key: &RecordKey) {
        let mut entries = self.lock_entries();
        if let Some(due) = entries.by_key.remove(key) {
            entries.by_time.remove(&(due, *key));
        }
        entries.untried.remove(key);
    }

    /// Removes and returns up to `limit` messages that are due. Each counts as untried until [`forget_due`](Self::forget_due).
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
            entries.untried.entry(key).or_insert(at);
            due.push(key);
        }
        due
    }

    /// Notes that a message is being tried, or is not to be sent now.
    pub(in crate::late) fn forget_due(&self, key: &RecordKey) {
        self.lock_entries().untried.remove(key);
    }

    /// Returns the number of messages that were due `since` or before, and were not tried.
    ///
    /// The messages without room count as one, however many there are.
    pub(in crate::late) fn overdue(&self, since: Instant) -> usize {
        let entries = self.lock_entries();
        let due = entries.by_time.iter().take_while(|(at, _)| *at <= since);
        let scheduled = due.filter(|(_, key)| !entries.untried.contains_key(key)).count();
        let taken = entries.untried.values().filter(|at| **at <= since).count();
        let left_out = entries.left_out.is_some_and(|first| first <= since);
        scheduled + taken + usize::from(left_out)
    }

    /// Returns the time at which the first message is due, in memory or not.
    pub(in crate::late) fn first_due(&self) -> Option<Instant> {
        let entries = self.lock_entries();
        let first = entries.by_time.first().map(|(at, _)| *at);
        first.into_iter().chain(entries.left_out).chain(entries.next_look).min()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{auth::Principal, ledger::RecordKind};

    fn key(number: usize) -> RecordKey {
        let mut name = [0; 32];
        name[..8].copy_from_slice(&number.to_le_bytes());
        RecordKey::new(RecordKind::Outgoing, Principal::NONE, name)
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_queue_leaves_out_what_is_due_last() {
        let queue = DueQueue::default();
        for number in 0..MESSAGES_MAX {
            queue.schedule(key(number), Duration::from_secs(60));
        }
        assert!(!queue.wants_reload());
        queue.schedule(key(MESSAGES_MAX), Duration::ZERO);
        assert_eq!(queue.take_due(9), [key(MESSAGES_MAX)]);
        assert!(!queue.wants_reload(), "there is no room");
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(queue.take_due(MESSAGES_MAX).len(), MESSAGES_MAX - 1);
        assert!(queue.wants_reload());
        assert!(!queue.wants_reload());
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_left_out_is_read_again_when_it_is_due_even_without_room() {
        let queue = DueQueue::default();
        for number in 0..=MESSAGES_MAX {
            queue.schedule(key(number), Duration::from_secs(60));
        }
        tokio::time::advance(Duration::from_secs(59)).await;
        for number in 0..MESSAGES_MAX {
            queue.schedule(key(number), Duration::from_secs(3_600));
        }
        assert!(!queue.wants_reload());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(queue.first_due(), Some(clock::now()));
        assert!(queue.wants_reload());
        // The ledger was away.
        queue.reload_after(Duration::from_secs(5));
        assert!(!queue.wants_reload());
        tokio::time::advance(Duration::from_secs(5)).await;
        assert!(queue.wants_reload());
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_is_overdue_until_it_is_tried() {
        let queue = DueQueue::default();
        for number in 0..4 {
            queue.schedule(key(number), Duration::ZERO);
        }
        let due = clock::now();
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(queue.overdue(due), 4);
        assert_eq!(queue.take_due(3).len(), 3);
        assert_eq!(queue.overdue(due), 4, "taken is not tried");
        queue.schedule(key(0), Duration::from_secs(60));
        queue.forget_due(&key(1));
        assert_eq!(queue.overdue(due), 3, "one was tried, and one postponed");
        queue.remove(&key(0));
        queue.remove(&key(3));
        assert_eq!(queue.overdue(due), 1);
        assert_eq!(queue.overdue(due - Duration::from_secs(1)), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_has_one_time() {
        let queue = DueQueue::default();
        queue.schedule(key(1), Duration::ZERO);
        queue.schedule(key(1), Duration::from_secs(5));
        assert!(queue.take_due(9).is_empty());
        assert!(queue.contains(&key(1)));
        queue.remove(&key(1));
        assert_eq!(queue.first_due(), None);
    }
}
