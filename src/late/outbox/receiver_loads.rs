//! The messages in flight to each receiver, and those that wait for a place there. Pure: time is a parameter.
//!
//! Every receiver has places of its own, so that one that hangs takes none of the others'.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use tokio::time::Instant;

use crate::ledger::RecordKey;

/// The places of one receiver: the most messages in flight to it.
const RECEIVER_MAX: usize = 8;
/// The number of messages in flight from which on a receiver gets one at a time. Receivers come from the
/// configuration, so their number is bounded.
const IN_FLIGHT_MAX: usize = 64;
/// The bytes of their bodies from which on a receiver gets one at a time.
const IN_FLIGHT_BYTES_MAX: usize = 64 * 1024 * 1024;
/// The most messages that wait for the places of one receiver.
const HELD_MAX: usize = 10_000;

/// The loads of all receivers.
#[derive(Debug, Default)]
pub(super) struct ReceiverLoads {
    by_url: HashMap<Arc<str>, ReceiverLoad>,
    sending: HashMap<RecordKey, Sending>,
    /// The receiver of each message that waits for a place, and its turn.
    held: HashMap<RecordKey, (Arc<str>, u64)>,
    last_turn: u64,
    /// The bytes of all bodies in flight.
    bytes: usize,
}

#[derive(Debug)]
struct ReceiverLoad {
    in_flight: usize,
    /// The messages that wait for a place, by their turn.
    held: BTreeMap<u64, RecordKey>,
    /// The time at which a try began or ended last.
    moved_at: Instant,
}

/// A message in flight.
#[derive(Debug)]
struct Sending {
    url: Arc<str>,
    bytes: usize,
}

/// The outcome of asking for a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::late) enum Admission {
    /// It may be sent.
    Admitted,
    /// It waits until its receiver has a free place.
    Held,
    /// Too many wait for this receiver already.
    Full,
}

impl ReceiverLoads {
    /// Gives a message a place at its receiver, or has it wait for one. What waits there already comes first.
    pub(super) fn admit(&mut self, key: RecordKey, url: &str, now: Instant) -> Admission {
        let is_sending = self.sending.contains_key(&key);
        let url = self.receiver(url, now);
        let load = self.by_url.get(&url);
        let is_first = load.is_some_and(|load| load.held.is_empty() && self.has_place(load));
        if is_first && !is_sending {
            self.start(key, url, now);
            return Admission::Admitted;
        }
        self.release(&key);
        if self.by_url.get(&url).is_some_and(|load| load.held.len() >= HELD_MAX) {
            return Admission::Full;
        }
        self.last_turn = self.last_turn.saturating_add(1);
        if let Some(load) = self.by_url.get_mut(&url) {
            load.held.insert(self.last_turn, key);
            self.held.insert(key, (url, self.last_turn));
        }
        Admission::Held
    }

    /// Gives a place to the next message that waits for one, and returns it. Of several receivers with free places, the one
    /// with the fewest messages in flight comes first.
    pub(super) fn take_held(&mut self, now: Instant) -> Option<RecordKey> {
        let (_, turn, key) = self.held_with_place().min()?;
        let (url, _) = self.held.remove(&key)?;
        if let Some(load) = self.by_url.get_mut(&url) {
            load.held.remove(&turn);
        }
        self.start(key, url, now);
        Some(key)
    }

    /// Returns `true` if a message that waits for a place can have one now.
    pub(super) fn has_held_with_place(&self) -> bool {
        self.held_with_place().next().is_some()
    }

    /// Returns `true` if a message waits for a place.
    pub(super) fn is_held(&self, key: &RecordKey) -> bool {
        self.held.contains_key(key)
    }

    /// Removes a message from those that wait for a place.
    pub(super) fn release(&mut self, key: &RecordKey) {
        let Some((url, turn)) = self.held.remove(key) else {
            return;
        };
        if let Some(load) = self.by_url.get_mut(&url) {
            load.held.remove(&turn);
        }
        self.forget_idle(&url);
    }

    /// Counts the body of a message that has a place.
    pub(super) fn add_bytes(&mut self, key: &RecordKey, bytes: usize) {
        if let Some(sending) = self.sending.get_mut(key) {
            sending.bytes = sending.bytes.saturating_add(bytes);
            self.bytes = self.bytes.saturating_add(bytes);
        }
    }

    /// Frees the place of a message.
    pub(super) fn end(&mut self, key: &RecordKey, now: Instant) {
        let Some(Sending { url, bytes }) = self.sending.remove(key) else {
            return;
        };
        self.bytes = self.bytes.saturating_sub(bytes);
        if let Some(load) = self.by_url.get_mut(&url) {
            load.in_flight = load.in_flight.saturating_sub(1);
            load.moved_at = now;
        }
        self.forget_idle(&url);
    }

    /// Returns the number of messages that wait for places of receivers to which no try has begun or ended after `since`.
    pub(super) fn stalled_count(&self, since: Instant) -> usize {
        let stalled = self.by_url.values().filter(|load| load.moved_at <= since);
        stalled.map(|load| load.held.len()).sum()
    }

    /// Returns the first of the messages that wait for each receiver with a free place, with the load and the turn of each.
    fn held_with_place(&self) -> impl Iterator<Item = (usize, u64, RecordKey)> {
        let with_place = self.by_url.values().filter(|load| self.has_place(load));
        with_place.filter_map(|load| {
            // An earlier try of the same message ends first.
            let next = load.held.iter().find(|(_, key)| !self.sending.contains_key(key));
            next.map(|(turn, key)| (load.in_flight, *turn, *key))
        })
    }

    fn has_place(&self, load: &ReceiverLoad) -> bool {
        let is_crowded = self.sending.len() >= IN_FLIGHT_MAX || self.bytes >= IN_FLIGHT_BYTES_MAX;
        load.in_flight < if is_crowded { 1 } else { RECEIVER_MAX }
    }

    fn start(&mut self, key: RecordKey, url: Arc<str>, now: Instant) {
        if let Some(load) = self.by_url.get_mut(&url) {
            load.in_flight = load.in_flight.saturating_add(1);
            load.moved_at = now;
        }
        self.sending.insert(key, Sending { url, bytes: 0 });
    }

    fn receiver(&mut self, url: &str, now: Instant) -> Arc<str> {
        if let Some((url, _)) = self.by_url.get_key_value(url) {
            return Arc::clone(url);
        }
        let (url, held) = (Arc::<str>::from(url), BTreeMap::new());
        let load = ReceiverLoad {
            in_flight: 0,
            held,
            moved_at: now,
        };
        self.by_url.insert(Arc::clone(&url), load);
        url
    }

    fn forget_idle(&mut self, url: &Arc<str>) {
        let load = self.by_url.get(url);
        if load.is_some_and(|load| load.in_flight == 0 && load.held.is_empty()) {
            self.by_url.remove(url);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{auth::Principal, clock, ledger::RecordKind};

    fn key(number: usize) -> RecordKey {
        let mut name = [0; 32];
        name[..8].copy_from_slice(&number.to_be_bytes());
        RecordKey::new(RecordKind::Outgoing, Principal::NONE, name)
    }

    #[tokio::test]
    async fn each_receiver_has_places_of_its_own_and_one_however_many_there_are() {
        let (mut loads, now) = (ReceiverLoads::default(), clock::now());
        let url = |receiver: usize| format!("http://127.0.0.1:{receiver}");
        for receiver in 0..IN_FLIGHT_MAX / RECEIVER_MAX {
            for number in 0..RECEIVER_MAX + 2 {
                let admission = loads.admit(key(receiver * 100 + number), &url(receiver), now);
                assert_eq!(admission == Admission::Admitted, number < RECEIVER_MAX);
            }
        }
        // All places of all receivers are taken, and a further receiver gets one.
        assert_eq!(loads.admit(key(9_000), &url(99), now), Admission::Admitted);
        assert_eq!(loads.admit(key(9_001), &url(99), now), Admission::Held);
        assert_eq!(loads.take_held(now), None);
        loads.end(&key(9_000), now);
        assert_eq!(loads.take_held(now), Some(key(9_001)));
        // The first that waits for the receiver whose message has ended, now that few enough are in flight.
        loads.end(&key(9_001), now);
        loads.end(&key(305), now);
        assert!(loads.has_held_with_place());
        assert_eq!(loads.take_held(now), Some(key(308)));
        assert_eq!(loads.take_held(now), None);
    }

    #[tokio::test]
    async fn what_waits_comes_in_turn_and_after_an_earlier_try_of_the_same_message() {
        let (mut loads, now) = (ReceiverLoads::default(), clock::now());
        for number in 0..RECEIVER_MAX {
            loads.admit(key(number), "a", now);
        }
        for number in [0, 20, 21, 22] {
            assert_eq!(loads.admit(key(number), "a", now), Admission::Held);
        }
        loads.release(&key(20));
        assert!(!loads.is_held(&key(20)) && loads.is_held(&key(21)));
        loads.end(&key(1), now);
        assert_eq!(loads.admit(key(30), "a", now), Admission::Held, "others were first");
        assert_eq!(loads.take_held(now), Some(key(21)));
        loads.end(&key(0), now);
        assert_eq!(loads.take_held(now), Some(key(0)));
        loads.end(&key(2), now);
        assert_eq!(loads.take_held(now), Some(key(22)));
    }

    #[tokio::test]
    async fn large_bodies_leave_one_slot_to_each_receiver() {
        let (mut loads, now) = (ReceiverLoads::default(), clock::now());
        for (number, admission) in [(1, Admission::Admitted), (2, Admission::Held)] {
            assert_eq!(loads.admit(key(number), "a", now), admission);
            loads.add_bytes(&key(number), IN_FLIGHT_BYTES_MAX);
        }
        assert_eq!(loads.admit(key(3), "b", now), Admission::Admitted);
        loads.end(&key(1), now);
        assert_eq!(loads.take_held(now), Some(key(2)));
        loads.end(&key(2), now);
        loads.end(&key(3), now);
        assert!(loads.by_url.is_empty() && loads.bytes == 0);
    }

    #[tokio::test]
    async fn messages_are_stalled_if_no_try_to_their_receiver_begins_or_ends() {
        let (mut loads, now) = (ReceiverLoads::default(), clock::now());
        for number in 0..=RECEIVER_MAX {
            loads.admit(key(number), "a", now);
        }
        let later = now + Duration::from_secs(30);
        assert_eq!(loads.stalled_count(later - Duration::from_secs(30)), 1);
        loads.admit(key(50), "a", later);
        loads.end(&key(1), later);
        assert_eq!(loads.stalled_count(now), 0);
        assert_eq!(loads.stalled_count(later), 2);
    }
}
