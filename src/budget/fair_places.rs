//! A limited number of places, shared fairly by clients. Pure: `heavy_work` waits and wakes.

use std::collections::{BTreeMap, HashMap};

use super::BudgetClient;

/// Turn of a body that waits: a number in the order of arrival.
pub(super) type QueueTicket = u64;

/// Places, and the bodies that wait for one. `W` is the handle by which a waiting body gets its place.
#[derive(Debug)]
pub(super) struct FairPlaces<W> {
    places_max: usize,
    queue_max: usize,
    taken: usize,
    taken_by: HashMap<BudgetClient, usize>,
    queue: BTreeMap<QueueTicket, (BudgetClient, W)>,
    next_ticket: QueueTicket,
}

/// Outcome of [`FairPlaces::take_or_wait`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PlaceOutcome {
    /// The body has a place.
    Taken,
    /// The body waits for its turn.
    Waiting(QueueTicket),
    /// Too many bodies wait already.
    Full,
}

impl<W> FairPlaces<W> {
    /// Creates the places. At most `queue_max` bodies wait for one, and any number of those that were admitted before.
    pub(super) fn new(places_max: usize, queue_max: usize) -> Self {
        Self {
            places_max: places_max.max(1),
            queue_max,
            taken: 0,
            taken_by: HashMap::new(),
            queue: BTreeMap::new(),
            next_ticket: 0,
        }
    }

    /// Takes a place for a body of `client`, or lets it wait with `waiter`.
    ///
    /// A full queue does not refuse a body that was admitted before: its bytes are in memory, which bounds their number.
    pub(super) fn take_or_wait(&mut self, client: BudgetClient, waiter: W, is_admitted: bool) -> PlaceOutcome {
        if self.is_free_for(client) {
            self.count_taken(client);
            return PlaceOutcome::Taken;
        }
        if !is_admitted && (self.queue.len() >= self.queue_max || self.fills_half(client)) {
            return PlaceOutcome::Full;
        }
        let ticket = self.next_ticket;
        self.next_ticket = ticket.saturating_add(1);
        self.queue.insert(ticket, (client, waiter));
        PlaceOutcome::Waiting(ticket)
    }

    /// Returns `true` if the bodies of one client fill half of the queue: the other half is for others.
    fn fills_half(&self, client: BudgetClient) -> bool {
        let half = self.queue_max.div_ceil(2);
        self.queue.len() >= half && self.queue.values().filter(|(of, _)| *of == client).count() >= half
    }

    /// Frees a place of `client`. Returns the client of the next body, which has the place now, and its handle.
    ///
    /// If that body does not take it any more, the place must be freed again.
    pub(super) fn free_place(&mut self, client: BudgetClient) -> Option<(BudgetClient, W)> {
        self.taken = self.taken.saturating_sub(1);
        match self.taken_by.get_mut(&client) {
            Some(own) if *own > 1 => *own -= 1,
            // Removed at zero, so that the map does not grow with every client.
            _ => drop(self.taken_by.remove(&client)),
        }
        let ticket = self.due_ticket()?;
        let (client, waiter) = self.queue.remove(&ticket)?;
        self.count_taken(client);
        Some((client, waiter))
    }

    /// Ends the wait of a body. Returns its handle, or `None` if it has had its turn.
    pub(super) fn leave_queue(&mut self, ticket: QueueTicket) -> Option<W> {
        self.queue.remove(&ticket).map(|(_, waiter)| waiter)
    }

    /// Returns the number of bodies that wait.
    pub(super) fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Returns the first ticket among the clients with the fewest places, if one of them may take one more.
    fn due_ticket(&self) -> Option<QueueTicket> {
        let own_places = |client: &BudgetClient| self.taken_by.get(client).copied().unwrap_or_default();
        let candidates = self.queue.iter();
        candidates
            .filter(|(_, (client, _))| self.is_free_for(*client))
            // The first of several equal ones.
            .min_by_key(|(_, (client, _))| own_places(client))
            .map(|(ticket, _)| *ticket)
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
        let mut ask = |last, waiter| places.take_or_wait(client(last), waiter, false);
        assert_eq!(ask(1, 10), PlaceOutcome::Taken);
        assert_eq!(ask(1, 11), PlaceOutcome::Taken);
        assert_eq!(ask(1, 12), PlaceOutcome::Waiting(0));
        assert_eq!(ask(1, 13), PlaceOutcome::Waiting(1));
        assert_eq!(ask(2, 20), PlaceOutcome::Taken);
        assert_eq!(ask(3, 30), PlaceOutcome::Taken);
        assert_eq!(ask(4, 40), PlaceOutcome::Waiting(2));
        // The queue of the first client is older, but client 4 has no place yet.
        assert_eq!(places.free_place(client(2)), Some((client(4), 40)));
        assert_eq!(places.free_place(client(1)), Some((client(1), 12)));
        assert_eq!(places.waiting(), 1);
        // Client 1 holds two again: its last one waits although a place is free.
        assert_eq!(places.free_place(client(3)), None);
        assert_eq!(places.free_place(client(1)), Some((client(1), 13)));
    }

    #[test]
    fn the_queue_is_bounded_but_for_admitted_bodies() {
        let mut places = FairPlaces::new(1, 2);
        let mut ask = |last: u8, is_admitted| places.take_or_wait(client(last), last, is_admitted);
        assert_eq!(ask(1, false), PlaceOutcome::Taken);
        assert_eq!(ask(2, false), PlaceOutcome::Waiting(0));
        assert_eq!(ask(3, false), PlaceOutcome::Waiting(1));
        assert_eq!(ask(4, false), PlaceOutcome::Full);
        assert_eq!(ask(4, true), PlaceOutcome::Waiting(2));
        assert_eq!(places.leave_queue(0), Some(2));
        assert_eq!((places.leave_queue(0), places.waiting()), (None, 2), "it has left");
        assert_eq!(places.free_place(client(1)), Some((client(3), 3)));
        assert_eq!(places.take_or_wait(client(1), 1, false), PlaceOutcome::Waiting(3));
        assert_eq!(
            places.free_place(client(3)),
            Some((client(4), 4)),
            "in the order of arrival"
        );
    }

    #[test]
    fn nothing_of_a_client_remains_behind_its_last_place() {
        let mut places = FairPlaces::<u8>::new(2, 2);
        for _ in 0..2 {
            assert_eq!(places.take_or_wait(client(1), 0, false), PlaceOutcome::Taken);
            assert_eq!(places.free_place(client(1)), None);
        }
        assert_eq!((places.taken, places.taken_by.len()), (0, 0));
    }
}
