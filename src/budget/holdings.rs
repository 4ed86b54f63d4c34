//! The table of bodies in memory: bytes of each, order of those that wait, and the choice of the one to give up.
//!
//! Pure but for the wakers that it keeps: the caller waits, wakes and reads the clock.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    task::Waker,
    time::Duration,
};

use tokio::time::Instant;

use super::BudgetClient;

/// Size up to which a body uses the part that large ones leave free: 256 KiB.
const SMALL_BYTES_MAX: u64 = 256 * 1024;
/// The part of the memory that only small bodies use: one sixteenth.
const SMALL_PART: u64 = 16;

/// Pause before another body is given up, if one was not enough.
pub(super) const EVICTION_PAUSE: Duration = Duration::from_secs(1);

/// Number of a body, in the order of their first bytes.
pub(super) type HoldId = u64;

/// Bodies in memory.
#[derive(Debug)]
pub(super) struct Holdings {
    bytes_max: u64,
    bytes: u64,
    next_id: HoldId,
    holds: BTreeMap<HoldId, Hold>,
    /// Small and large bodies that wait, oldest first.
    waiting_small: BTreeSet<HoldId>,
    waiting_large: BTreeSet<HoldId>,
    /// Bodies that were given up, and are not released yet.
    evicted: usize,
    /// Time before which no further body is given up.
    next_eviction_at: Option<Instant>,
    /// Address space that bodies have reserved.
    reserved: u64,
}

/// One body.
#[derive(Debug)]
struct Hold {
    client: BudgetClient,
    bytes: u64,
    /// `true` for a body that is large by its claimed length, however little of it has come.
    is_large: bool,
    /// `true` until the whole body has been read. After that it is never given up.
    is_reading: bool,
    is_evicted: bool,
    reserved: u64,
    waker: Option<Waker>,
}

/// Outcome of [`Holdings::try_take`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Take {
    Taken,
    Waiting,
    Evicted,
}

/// Outcome of [`Holdings::evict_for`].
#[derive(Debug)]
pub(super) enum Eviction {
    /// Another body was given up. Its task must be woken.
    Other(Waker),
    /// The body that waits gives up itself.
    Waiter,
    /// Nobody for now.
    Nobody,
}

impl Holdings {
    pub(super) const fn new(bytes_max: u64) -> Self {
        Self {
            bytes_max,
            bytes: 0,
            next_id: 0,
            holds: BTreeMap::new(),
            waiting_small: BTreeSet::new(),
            waiting_large: BTreeSet::new(),
            evicted: 0,
            next_eviction_at: None,
            reserved: 0,
        }
    }

    /// Adds a body without any bytes. `claimed` is the length that its client claims.
    pub(super) fn open(&mut self, client: BudgetClient, claimed: Option<u64>) -> HoldId {
        let id = self.next_id;
        self.next_id = id.wrapping_add(1);
        self.holds.insert(
            id,
            Hold {
                client,
                bytes: 0,
                is_large: claimed.is_some_and(|claimed| claimed > SMALL_BYTES_MAX),
                is_reading: true,
                is_evicted: false,
                reserved: 0,
                waker: None,
            },
        );
        id
    }

    /// Takes `bytes` more for a body that is being read, if they are free and no older body waits for them.
    pub(super) fn try_take(&mut self, id: HoldId, bytes: u64) -> Take {
        let Some(hold) = self.holds.get_mut(&id) else {
            return Take::Evicted;
        };
        if hold.is_evicted {
            return Take::Evicted;
        }
        let is_small = !hold.is_large && hold.bytes.saturating_add(bytes) <= SMALL_BYTES_MAX;
        // Large bodies leave a part free, so that they cannot delay small ones of other clients.
        let (limit, waiting) = if is_small {
            (self.bytes_max, &mut self.waiting_small)
        } else {
            (self.bytes_max - self.bytes_max / SMALL_PART, &mut self.waiting_large)
        };
        let is_first = waiting.first().is_none_or(|first| *first >= id);
        if is_first && self.bytes.saturating_add(bytes) <= limit {
            waiting.remove(&id);
            hold.bytes = hold.bytes.saturating_add(bytes);
            self.bytes = self.bytes.saturating_add(bytes);
            return Take::Taken;
        }
        waiting.insert(id);
        Take::Waiting
    }

    /// Counts `bytes` more of a body, whether or not they are free.
    pub(super) fn add(&mut self, id: HoldId, bytes: u64) {
        if let Some(hold) = self.holds.get_mut(&id) {
            hold.bytes = hold.bytes.saturating_add(bytes);
            self.bytes = self.bytes.saturating_add(bytes);
        }
    }

    /// Gives back `bytes` of a body.
    pub(super) fn give_back(&mut self, id: HoldId, bytes: u64) {
        if let Some(hold) = self.holds.get_mut(&id) {
            let bytes = bytes.min(hold.bytes);
            hold.bytes -= bytes;
            self.bytes = self.bytes.saturating_sub(bytes);
        }
    }

    /// Notes that the whole body has been read. Returns `false` if it was given up.
    pub(super) fn end_reading(&mut self, id: HoldId) -> bool {
        self.stop_waiting(id);
        match self.holds.get_mut(&id) {
            Some(hold) if !hold.is_evicted => {
                hold.is_reading = false;
                hold.waker = None;
                true
            }
            _ => false,
        }
    }

    /// Removes a body with its bytes.
    pub(super) fn release(&mut self, id: HoldId) {
        self.stop_waiting(id);
        if let Some(hold) = self.holds.remove(&id) {
            self.bytes = self.bytes.saturating_sub(hold.bytes);
            self.reserved = self.reserved.saturating_sub(hold.reserved);
            self.evicted = self.evicted.saturating_sub(usize::from(hold.is_evicted));
        }
    }

    /// Notes that a body does not wait any more.
    pub(super) fn stop_waiting(&mut self, id: HoldId) {
        self.waiting_small.remove(&id);
        self.waiting_large.remove(&id);
    }

    /// Sets the waker of a body that waits, or that must notice when it is given up. Returns `true` if it was given up.
    pub(super) fn watch(&mut self, id: HoldId, waker: &Waker) -> bool {
        let Some(hold) = self.holds.get_mut(&id) else {
            return true;
        };
        if !hold.waker.as_ref().is_some_and(|known| known.will_wake(waker)) {
            hold.waker = Some(waker.clone());
        }
        hold.is_evicted
    }

    /// Returns the wakers of the bodies that may continue now: the oldest small one and the oldest large one.
    pub(super) fn next_wakers(&self) -> [Option<Waker>; 2] {
        let waker = |first: Option<&HoldId>| self.holds.get(first?)?.waker.clone();
        [waker(self.waiting_small.first()), waker(self.waiting_large.first())]
    }

    /// Chooses a body to give up for `waiter`, which has waited for too long: the youngest body of the client that holds
    /// the most, among those that are still being read.
    ///
    /// At most one a second is given up, and none before the last one was released: its memory may suffice.
    pub(super) fn evict_for(&mut self, waiter: HoldId, now: Instant) -> Eviction {
        let is_reading = |hold: &Hold| hold.is_reading && hold.bytes > 0;
        if !self.holds.values().any(is_reading) {
            // Bodies that were read hold all of it, for as long as their providers take.
            return Eviction::Waiter;
        }
        if self.evicted > 0 || self.next_eviction_at.is_some_and(|at| now < at) {
            return Eviction::Nobody;
        }
        let mut held: HashMap<BudgetClient, u64> = HashMap::new();
        for hold in self.holds.values() {
            let own = held.entry(hold.client).or_default();
            *own = own.saturating_add(hold.bytes);
        }
        let reading = self.holds.iter_mut().filter(|(_, hold)| is_reading(hold));
        let youngest = reading.max_by_key(|(id, hold)| (held.get(&hold.client).copied(), **id));
        let Some((_, hold)) = youngest.filter(|(id, _)| **id != waiter) else {
            return Eviction::Waiter;
        };
        hold.is_evicted = true;
        self.evicted = 1;
        self.next_eviction_at = Some(now + EVICTION_PAUSE);
        // Without a waker it is being polled, and will see it.
        hold.waker.clone().map_or(Eviction::Nobody, Eviction::Other)
    }

    /// Reserves address space for a body, beside the bytes that it has. Returns `false` if all bodies together reserve
    /// twice the memory already: a claim costs its client nothing.
    pub(super) fn reserve(&mut self, id: HoldId, bytes: u64) -> bool {
        let wanted = self.reserved.saturating_add(bytes);
        let Some(hold) = self
            .holds
            .get_mut(&id)
            .filter(|_| wanted <= self.bytes_max.saturating_mul(2))
        else {
            return false;
        };
        hold.reserved = hold.reserved.saturating_add(bytes);
        self.reserved = wanted;
        true
    }

    /// Returns the bytes of all bodies.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the limit of bytes.
    pub(super) const fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// Returns the number of bodies that wait.
    pub(super) fn waiting(&self) -> usize {
        self.waiting_small.len().saturating_add(self.waiting_large.len())
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;
    use crate::clock;

    const MIB: u64 = 1024 * 1024;

    fn client(last: u8) -> BudgetClient {
        BudgetClient::Address(IpAddr::from([192, 0, 2, last]))
    }

    /// Returns the bodies that were given up, in the order of their numbers.
    fn given_up(table: &Holdings) -> Vec<HoldId> {
        let evicted = table.holds.iter().filter(|(_, hold)| hold.is_evicted);
        evicted.map(|(id, _)| *id).collect()
    }

    #[tokio::test]
    async fn the_youngest_body_of_the_largest_holder_is_given_up() {
        let mut table = Holdings::new(64 * MIB);
        let mut read = |owner: u8, bytes: u64| {
            let id = table.open(client(owner), None);
            assert_eq!(table.try_take(id, bytes), Take::Taken);
            id
        };
        let (first, second) = (read(1, 10 * MIB), read(1, 15 * MIB));
        let large = read(2, 20 * MIB);
        let young = read(3, MIB);
        assert_eq!(table.try_take(young, 15 * MIB), Take::Waiting);
        let now = clock::now();
        table.evict_for(young, now);
        assert_eq!(given_up(&table), [second], "client 1 holds 25 MiB");
        // One at a time: its memory may suffice.
        table.evict_for(young, now);
        assert_eq!(given_up(&table), [second]);
        assert_eq!(table.try_take(second, 1), Take::Evicted);
        table.release(second);
        assert_eq!(table.try_take(young, 10 * MIB), Take::Taken);
        // And one a second.
        assert!(matches!(table.evict_for(first, now), Eviction::Nobody));
        assert!(matches!(table.evict_for(first, now + EVICTION_PAUSE), Eviction::Nobody));
        assert_eq!(given_up(&table), [large]);
    }

    #[tokio::test]
    async fn a_body_that_was_read_is_never_given_up() {
        let mut table = Holdings::new(10 * MIB);
        let (read, reading) = (table.open(client(1), None), table.open(client(2), None));
        assert_eq!(table.try_take(read, 9 * MIB), Take::Taken);
        assert!(table.end_reading(read));
        assert_eq!(table.try_take(reading, 1024), Take::Taken);
        assert_eq!(table.try_take(reading, MIB), Take::Waiting);
        assert!(matches!(table.evict_for(reading, clock::now()), Eviction::Waiter));
        table.release(reading);
        let new = table.open(client(2), None);
        assert_eq!(table.try_take(new, 2 * MIB), Take::Waiting);
        // It has no bytes yet, and nobody else can be given up.
        assert!(matches!(table.evict_for(new, clock::now()), Eviction::Waiter));
    }

    #[test]
    fn address_space_is_reserved_up_to_twice_the_memory() {
        let mut table = Holdings::new(10 * MIB);
        let (first, second) = (table.open(client(1), None), table.open(client(2), None));
        assert!(table.reserve(first, 16 * MIB));
        assert!(!table.reserve(second, 5 * MIB));
        assert!(table.reserve(second, 4 * MIB));
        table.release(first);
        assert!(table.reserve(second, 16 * MIB));
    }

    #[test]
    fn large_bodies_leave_a_part_to_small_ones() {
        let mut table = Holdings::new(32 * MIB);
        let (large, small) = (table.open(client(1), None), table.open(client(2), None));
        assert_eq!(table.try_take(large, 30 * MIB), Take::Taken);
        assert_eq!(table.try_take(large, MIB), Take::Waiting);
        let begun = table.open(client(1), Some(MIB));
        assert_eq!(table.try_take(begun, 64 * 1024), Take::Waiting);
        assert_eq!(table.try_take(small, 64 * 1024), Take::Taken);
        assert_eq!(table.waiting(), 2);
    }

    #[test]
    fn the_oldest_that_waits_comes_first() {
        let mut table = Holdings::new(32 * MIB);
        let bodies: Vec<_> = (0..3).map(|owner| table.open(client(owner), None)).collect();
        assert_eq!(table.try_take(bodies[0], 29 * MIB), Take::Taken);
        assert_eq!(table.try_take(bodies[1], 2 * MIB), Take::Waiting);
        // It would fit, but then the older one might never.
        assert_eq!(table.try_take(bodies[2], MIB), Take::Waiting);
        table.release(bodies[0]);
        assert_eq!(table.try_take(bodies[2], MIB), Take::Waiting);
        assert_eq!(table.try_take(bodies[1], 2 * MIB), Take::Taken);
        assert_eq!(table.try_take(bodies[2], MIB), Take::Taken);
    }

    #[test]
    fn every_byte_is_given_back() {
        let mut table = Holdings::new(32 * MIB);
        let body = table.open(client(1), None);
        assert_eq!(table.try_take(body, 5 * MIB), Take::Taken);
        table.add(body, 40 * MIB);
        table.give_back(body, MIB);
        assert_eq!(table.bytes(), 44 * MIB);
        table.release(body);
        assert_eq!((table.bytes(), table.holds.len(), table.waiting()), (0, 0, 0));
    }
}
