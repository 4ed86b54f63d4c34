//! The order in which messages are due, in memory.
//!
//! The times are those of the monotonic clock: a step of the system's clock sends nothing early.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};

use super::receiver_loads::{Admission, ReceiverLoads};
use crate::{clock, ledger::RecordKey};

/// The most messages in memory. Of more, those that are due last stay in the ledger until there is room, or until the
/// first of them is due.
const MESSAGES_MAX: usize = 100_000;
/// The pause before a message is looked at again if too many wait for its receiver. Each look reads the ledger, so those
/// of a receiver that hangs for hours must be rare.
const FULL_PAUSE: Duration = Duration::from_secs(60);

/// A message that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::late) struct DueMessage {
    /// Its key.
    pub(in crate::late) key: RecordKey,
    /// `true` if it has waited for a place at its receiver, and has it.
    pub(in crate::late) has_place: bool,
}

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
    /// The messages that were taken and were not tried yet, with the time from which each could have been.
    untried: HashMap<RecordKey, Instant>,
    loads: ReceiverLoads,
    /// `true` if the last message that was taken had waited for a place.
    was_held: bool,
    /// The messages without room here.
    left_out: Option<LeftOut>,
    /// The time at which the first of those that are being read again was due.
    rereading: Option<Instant>,
    /// The time at which the ledger is read again for messages of other processes.
    next_look: Option<Instant>,
}

/// Messages that stay in the ledger until they are read again.
#[derive(Clone, Copy, Debug)]
struct LeftOut {
    /// The time at which the first of them is due.
    due: Instant,
    /// The time at which they are read again at the latest.
    read_at: Instant,
    /// `true` if the ledger could not be read. Until `read_at`, room for them is no reason to read it.
    is_unread: bool,
}

impl DueQueue {
    /// Schedules a message, in place of its earlier time.
    pub(in crate::late) fn schedule(&self, key: RecordKey, after: Duration) {
        let due = clock::now() + after;
        let mut entries = self.lock_entries();
        entries.loads.release(&key);
        if let Some(earlier) = entries.by_key.insert(key, due) {
            entries.by_time.remove(&(earlier, key));
        }
        entries.by_time.insert((due, key));
        if entries.by_time.len() > MESSAGES_MAX
            && let Some((at, last)) = entries.by_time.pop_last()
        {
            entries.by_key.remove(&last);
            entries.untried.remove(&last);
            let left_out = entries.left_out.get_or_insert(LeftOut {
                due: at,
                read_at: at,
                is_unread: false,
            });
            left_out.due = left_out.due.min(at);
            left_out.read_at = left_out.read_at.min(at);
        }
        drop(entries);
        self.changed.notify_one();
    }

    /// Returns `true` if a message is scheduled, or waits for a place at its receiver.
    pub(in crate::late) fn contains(&self, key: &RecordKey) -> bool {
        let entries = self.lock_entries();
        entries.by_key.contains_key(key) || entries.loads.is_held(key)
    }

    /// Returns `true`, once, if messages were left out, and there is room for them now or the first of them is due, or if
    /// it is time to look for those of other processes.
    pub(in crate::late) fn wants_reload(&self) -> bool {
        let now = clock::now();
        let mut entries = self.lock_entries();
        let has_room = entries.by_time.len() <= MESSAGES_MAX / 2;
        let is_time = |left_out: &mut LeftOut| left_out.read_at <= now || (has_room && !left_out.is_unread);
        let left_out = entries.left_out.take_if(is_time);
        let is_look = entries.next_look.take_if(|look| *look <= now).is_some();
        let wants = is_look || left_out.is_some();
        if wants {
            entries.rereading = left_out.map(|left_out| left_out.due);
        }
        wants
    }

    /// Has the messages read again after a pause: they could not be read now.
    pub(in crate::late) fn reload_after(&self, pause: Duration) {
        let now = clock::now();
        let mut entries = self.lock_entries();
        // The age of what nobody sends counts from its first time.
        let due = entries.rereading.take().unwrap_or(now);
        entries.left_out = Some(LeftOut {
            due: entries.left_out.map_or(due, |left_out| left_out.due.min(due)),
            read_at: now + pause,
            is_unread: true,
        });
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
        entries.loads.release(key);
    }

    /// Removes and returns a message that is due. It counts as untried until [`forget_untried`](Self::forget_untried).
    ///
    /// Messages that have waited for a place and newly due ones come in turn: a backlog for one receiver delays no other.
    pub(in crate::late) fn take_due(&self) -> Option<DueMessage> {
        let now = clock::now();
        let mut entries = self.lock_entries();
        let due = if entries.was_held {
            entries.take_new(now).or_else(|| entries.take_held(now))
        } else {
            entries.take_held(now).or_else(|| entries.take_new(now))
        };
        entries.was_held = due.is_some_and(|due| due.has_place);
        due
    }

    /// Gives a message a place at its receiver, and returns `true`, or has it wait for one.
    pub(in crate::late) fn take_place(&self, key: RecordKey, url: &str) -> bool {
        let admission = self.lock_entries().loads.admit(key, url, clock::now());
        if admission == Admission::Full {
            self.schedule(key, FULL_PAUSE);
        }
        if admission != Admission::Admitted {
            self.forget_untried(&key);
        }
        admission == Admission::Admitted
    }

    /// Counts the body of a message that has a place.
    pub(in crate::late) fn add_bytes(&self, key: &RecordKey, bytes: usize) {
        self.lock_entries().loads.add_bytes(key, bytes);
    }

    /// Frees the place of a message at its receiver, for the next one.
    pub(in crate::late) fn free_place(&self, key: &RecordKey) {
        self.lock_entries().loads.end(key, clock::now());
        self.changed.notify_one();
    }

    /// Notes that a message is being tried, or is not to be sent now.
    pub(in crate::late) fn forget_untried(&self, key: &RecordKey) {
        self.lock_entries().untried.remove(key);
    }

    /// Returns the number of messages that were due `since` or before, and were not tried.
    ///
    /// A message that waits for a place counts only if no try to its receiver has begun or ended after `since`. Those that
    /// are not in memory, for want of room or since the ledger could not be read, count as one, however many there are.
    pub(in crate::late) fn overdue(&self, since: Instant) -> usize {
        let entries = self.lock_entries();
        let due = entries.by_time.iter().take_while(|(at, _)| *at <= since);
        let scheduled = due.filter(|(_, key)| !entries.untried.contains_key(key)).count();
        let taken = entries.untried.values().filter(|at| **at <= since).count();
        let left_out = entries.left_out.is_some_and(|left_out| left_out.due <= since);
        scheduled + taken + entries.loads.stalled_count(since) + usize::from(left_out)
    }

    /// Returns the time at which the first message is due, in memory or not.
    pub(in crate::late) fn first_due(&self) -> Option<Instant> {
        let entries = self.lock_entries();
        let first = entries.by_time.first().map(|(at, _)| *at);
        let held = entries.loads.has_held_with_place().then(clock::now);
        let left_out = entries.left_out.map(|left_out| left_out.read_at);
        let others = [left_out, entries.next_look, held].into_iter().flatten();
        first.into_iter().chain(others).min()
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

impl Entries {
    /// Takes the first message that is due, whoever its receiver is.
    fn take_new(&mut self, now: Instant) -> Option<DueMessage> {
        let (at, key) = self.by_time.first().copied().filter(|(at, _)| *at <= now)?;
        self.by_time.remove(&(at, key));
        self.by_key.remove(&key);
        self.untried.entry(key).or_insert(at);
        Some(DueMessage { key, has_place: false })
    }

    /// Takes a message that has waited for a place, if there is one now.
    fn take_held(&mut self, now: Instant) -> Option<DueMessage> {
        let key = self.loads.take_held(now)?;
        self.untried.insert(key, now);
        Some(DueMessage { key, has_place: true })
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

    fn take(queue: &DueQueue, limit: usize) -> Vec<RecordKey> {
        let taken = std::iter::from_fn(|| queue.take_due());
        taken.map(|due| due.key).take(limit).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_queue_leaves_out_what_is_due_last() {
        let queue = DueQueue::default();
        for number in 0..MESSAGES_MAX {
            queue.schedule(key(number), Duration::from_secs(60));
        }
        assert!(!queue.wants_reload());
        queue.schedule(key(MESSAGES_MAX), Duration::ZERO);
        assert_eq!(take(&queue, 9), [key(MESSAGES_MAX)]);
        assert!(!queue.wants_reload(), "there is no room");
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(take(&queue, MESSAGES_MAX).len(), MESSAGES_MAX - 1);
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
        assert_eq!(take(&queue, 3).len(), 3);
        assert_eq!(queue.overdue(due), 4, "taken is not tried");
        queue.schedule(key(0), Duration::from_secs(60));
        queue.forget_untried(&key(1));
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
        assert_eq!(queue.take_due(), None);
        assert!(queue.contains(&key(1)));
        queue.remove(&key(1));
        assert_eq!(queue.first_due(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn what_waits_for_its_receiver_and_what_is_newly_due_come_in_turn() {
        let queue = DueQueue::default();
        for number in 0..24 {
            queue.schedule(key(number), Duration::ZERO);
        }
        for number in 0..24 {
            assert_eq!(take(&queue, 1), [key(number)]);
            assert_eq!(queue.take_place(key(number), "a"), number < 8);
        }
        // Nothing is due before a try ends, and nothing is overdue while tries end.
        assert_eq!((queue.first_due(), queue.take_due()), (None, None));
        assert!(queue.contains(&key(20)) && !queue.contains(&key(0)));
        for number in 0..4 {
            tokio::time::advance(Duration::from_secs(20)).await;
            queue.forget_untried(&key(number));
            queue.free_place(&key(number));
            for new in [number * 2, number * 2 + 1] {
                queue.schedule(key(100 + new), Duration::ZERO);
            }
            let taken = queue.take_due().unwrap();
            assert_eq!((taken.key, taken.has_place), (key(8 + number), true));
            assert_eq!(take(&queue, 2), [key(100 + number * 2), key(101 + number * 2)]);
        }
        for number in 4..12 {
            queue.forget_untried(&key(number));
        }
        for number in 0..8 {
            queue.forget_untried(&key(100 + number));
        }
        let now = clock::now();
        assert_eq!(queue.overdue(now - Duration::from_secs(1)), 0);
        // No try has ended for a while.
        assert_eq!(queue.overdue(now), 12);
        // A message that is scheduled anew waits no longer.
        queue.schedule(key(23), Duration::from_secs(9));
        assert_eq!(queue.overdue(now), 11);
    }
}
