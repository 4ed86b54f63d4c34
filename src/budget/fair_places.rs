//! A limited number of places, shared fairly by clients. Pure: the caller waits and wakes.

use std::collections::{HashMap, VecDeque};

use super::BudgetClient;

/// Places, and the clients that wait for one. `W` is the handle by which a waiting client is told.
#[derive(Debug)]
pub(super) struct FairPlaces<W> {
    places_max: usize,
    waiting_max: usize,
    taken: usize,
    taken_by: HashMap<BudgetClient, usize>,
    waiting: VecDeque<(BudgetClient, W)>,
}

/// Outcome of [`FairPlaces::take_or_wait`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// The client has a place.
    Place,
    /// The client waits, and is told when it has a place.
    Waiting,
    /// Too many clients wait already.
    Full,
}

impl<W> FairPlaces<W> {
    /// Creates the places. At most `waiting_max` wait for one.
    pub(super) fn new(places_max: usize, waiting_max: usize) -> Self {
        Self {
            places_max: places_max.max(1),
            waiting_max,
            taken: 0,
            taken_by: HashMap::new(),
            waiting: VecDeque::new(),
        }
    }

    /// Takes a place for `client`, or lets it wait with `waiter`.
    pub(super) fn take_or_wait(&mut self, client: BudgetClient, waiter: W) -> Taken {
        if self.is_free_for(client) {
            self.count_taken(client);
            return Taken::Place;
        }
        if self.waiting.len() >= self.waiting_max {
            return Taken::Full;
        }
        self.waiting.push_back((client, waiter));
        Taken::Waiting
    }

    /// Frees a place of `client`. Returns the waiting client that has it now, already counted.
    ///
    /// If that client has given up, the caller frees the place again.
    pub(super) fn free_place(&mut self, client: BudgetClient) -> Option<(BudgetClient, W)> {
        self.taken = self.taken.saturating_sub(1);
        match self.taken_by.get_mut(&client) {
            Some(own) if *own > 1 => *own -= 1,
            // Removed at zero, so that the map does not grow with every client.
            _ => drop(self.taken_by.remove(&client)),
        }
        let next = self.next_waiting()?;
        let (client, waiter) = self.waiting.remove(next)?;
        self.count_taken(client);
        Some((client, waiter))
    }

    /// Removes the waiters for which `has_left` returns `true`.
    pub(super) fn remove_left(&mut self, has_left: impl Fn(&W) -> bool) {
        self.waiting.retain(|(_, waiter)| !has_left(waiter));
    }

    /// Returns the number of clients that wait.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Returns the first in the queue among the clients with the fewest places, if one of them may take one more.
    fn next_waiting(&self) -> Option<usize> {
        let places = |client: &BudgetClient| self.taken_by.get(client).copied().unwrap_or_default();
        let candidates = self.waiting.iter().enumerate();
        candidates
            .filter(|(_, (client, _))| self.is_free_for(*client))
            // The first of several equal ones.
            .min_by_key(|(_, (client, _))| places(client))
            .map(|(index, _)| index)
    }

    /// Returns `true` if `client` may take one more place. No client takes more than half of them.
    fn is_free_for(&self, client: BudgetClient) -> bool {
        let own = self.taken_by.get(&client).copied().unwrap_or_default();
        self.taken < self.places_max && own < self.places_max.div_ceil(2)
    }

    fn count_taken(&mut self, client: BudgetClient) {
        self.taken = self.taken.saturating_add(1);
        let own = self.taken_by.entry(client).or_default();
        *own = own.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    fn client(last: u8) -> BudgetClient {
        BudgetClient::Address(IpAddr::from([192, 0, 2, last]))
    }

    #[test]
    fn a_client_takes_half_of_the_places_and_others_come_before_its_queue() {
        let mut places = FairPlaces::new(4, 8);
        assert_eq!(places.take_or_wait(client(1), 10), Taken::Place);
        assert_eq!(places.take_or_wait(client(1), 11), Taken::Place);
        assert_eq!(places.take_or_wait(client(1), 12), Taken::Waiting);
        assert_eq!(places.take_or_wait(client(1), 13), Taken::Waiting);
        assert_eq!(places.take_or_wait(client(2), 20), Taken::Place);
        assert_eq!(places.take_or_wait(client(3), 30), Taken::Place);
        assert_eq!(places.take_or_wait(client(4), 40), Taken::Waiting);
        // The queue of the first client is older, but client 4 has no place yet.
        assert_eq!(places.free_place(client(2)), Some((client(4), 40)));
        assert_eq!(places.free_place(client(1)), Some((client(1), 12)));
        assert_eq!(places.waiting(), 1);
        // Client 1 holds two again: its last one waits although a place is free.
        assert_eq!(places.free_place(client(3)), None);
        assert_eq!(places.free_place(client(1)), Some((client(1), 13)));
    }

    #[test]
    fn the_queue_is_bounded_and_forgets_those_who_left() {
        let mut places = FairPlaces::new(1, 2);
        assert_eq!(places.take_or_wait(client(1), 0), Taken::Place);
        assert_eq!(places.take_or_wait(client(1), 1), Taken::Waiting);
        assert_eq!(places.take_or_wait(client(2), 2), Taken::Waiting);
        assert_eq!(places.take_or_wait(client(3), 3), Taken::Full);
        places.remove_left(|waiter| *waiter == 1);
        assert_eq!(places.take_or_wait(client(3), 3), Taken::Waiting);
        assert_eq!(places.free_place(client(1)), Some((client(2), 2)));
    }

    #[test]
    fn nothing_of_a_client_remains_behind_its_last_place() {
        let mut places = FairPlaces::<u8>::new(2, 2);
        for _ in 0..2 {
            assert_eq!(places.take_or_wait(client(1), 0), Taken::Place);
            assert_eq!(places.free_place(client(1)), None);
        }
        assert_eq!((places.taken, places.taken_by.len()), (0, 0));
    }
}
