//! A limited number of places, shared fairly by clients. Pure: `heavy_work` waits and wakes.

use std::collections::{BTreeMap, HashMap};

use super::BudgetClient;

/// Number of a body that waits, in the order of arrival.
pub(super) type QueueTicket = u64;

/// The pass for which a body wants a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PlaceUse {
    /// Its first pass: a queue that is full refuses it.
    FirstPass,
    /// A later pass, which is never refused. There is one for each exchange at most.
    LaterPass,
}

/// Places, and the bodies that wait for one. `W` is the handle by which a waiting body gets its place.
#[derive(Debug)]
pub(super) struct FairPlaces<W> {
    places_max: usize,
    queue_max: usize,
    taken: usize,
    clients: HashMap<BudgetClient, ClientPlaces<W>>,
    waiting: usize,
    /// Bodies that wait for their first pass.
    first_passes: usize,
    next_ticket: QueueTicket,
}

/// The places of one client, and its bodies that wait.
#[derive(Debug)]
struct ClientPlaces<W> {
    taken: usize,
    queue: BTreeMap<QueueTicket, (PlaceUse, W)>,
    /// Bodies that wait for their first pass.
    first_passes: usize,
}

impl<W> Default for ClientPlaces<W> {
    fn default() -> Self {
        Self {
            taken: 0,
            queue: BTreeMap::new(),
            first_passes: 0,
        }
    }
}

/// Outcome of [`FairPlaces::take_or_wait`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PlaceOutcome<W> {
    /// The body has a place.
    Taken,
    /// The body waits for its turn. A body that waited for its first pass has made way for it, if there is a handle.
    Waiting(QueueTicket, Option<W>),
    /// Too many bodies wait already.
    Full,
}

impl<W> FairPlaces<W> {
    /// Creates the places. At most `queue_max` bodies wait for their first pass.
    pub(super) fn new(places_max: usize, queue_max: usize) -> Self {
        Self {
            places_max: places_max.max(1),
            queue_max,
            taken: 0,
            clients: HashMap::new(),
            waiting: 0,
            first_passes: 0,
            next_ticket: 0,
        }
    }

    /// Takes a place for a body of `client`, or lets it wait with `waiter`.
    ///
    /// In a full queue, the latest body of the client that has the most there makes way for a client that has fewer.
    pub(super) fn take_or_wait(&mut self, client: BudgetClient, place_use: PlaceUse, waiter: W) -> PlaceOutcome<W> {
        let own = self.clients.entry(client).or_default();
        if self.taken < self.places_max && own.taken < self.places_max.div_ceil(2) {
            own.taken += 1;
            self.taken += 1;
            return PlaceOutcome::Taken;
        }
        let is_first_pass = place_use == PlaceUse::FirstPass;
        let mut displaced = None;
        if is_first_pass && self.first_passes >= self.queue_max {
            let own_count = own.first_passes;
            displaced = self.displace(own_count);
            if displaced.is_none() {
                self.forget_if_idle(client);
                return PlaceOutcome::Full;
            }
        }
        let ticket = self.next_ticket;
        self.next_ticket = ticket.saturating_add(1);
        let own = self.clients.entry(client).or_default();
        own.queue.insert(ticket, (place_use, waiter));
        own.first_passes += usize::from(is_first_pass);
        self.first_passes += usize::from(is_first_pass);
        self.waiting += 1;
        PlaceOutcome::Waiting(ticket, displaced)
    }

    /// Removes the latest body that waits for its first pass, of the client that has the most of them. `None` if no client
    /// has two more than `own_count`.
    fn displace(&mut self, own_count: usize) -> Option<W> {
        let counts = self.clients.iter().map(|(client, own)| {
            let latest = own.queue.last_key_value().map(|(ticket, _)| *ticket);
            (own.first_passes, latest, *client)
        });
        let (count, _, client) = counts.max_by_key(|(count, latest, _)| (*count, *latest))?;
        if count < own_count.saturating_add(2) {
            return None;
        }
        let queue = self.clients.get(&client)?.queue.iter();
        let is_first_pass = |(_, (place_use, _)): &(&QueueTicket, &(PlaceUse, W))| *place_use == PlaceUse::FirstPass;
        let (ticket, _) = queue.rev().find(is_first_pass)?;
        self.leave_queue(client, *ticket)
    }

    /// Frees a place of `client`. Returns the client of the next body, which has the place now, and its handle.
    ///
    /// If that body does not take it any more, the place must be freed again.
    pub(super) fn free_place(&mut self, client: BudgetClient) -> Option<(BudgetClient, W)> {
        if let Some(own) = self.clients.get_mut(&client) {
            own.taken = own.taken.saturating_sub(1);
            self.taken = self.taken.saturating_sub(1);
        }
        let next = self.next_in_queue();
        let waiter = next.and_then(|(next, ticket)| self.leave_queue(next, ticket).map(|waiter| (next, waiter)));
        if let Some((next, _)) = &waiter {
            self.clients.entry(*next).or_default().taken += 1;
            self.taken += 1;
        }
        self.forget_if_idle(client);
        waiter
    }

    /// Ends the wait of a body of `client`. Returns its handle, or `None` if it has had its turn.
    pub(super) fn leave_queue(&mut self, client: BudgetClient, ticket: QueueTicket) -> Option<W> {
        let own = self.clients.get_mut(&client)?;
        let (place_use, waiter) = own.queue.remove(&ticket)?;
        let is_first_pass = usize::from(place_use == PlaceUse::FirstPass);
        own.first_passes = own.first_passes.saturating_sub(is_first_pass);
        self.first_passes = self.first_passes.saturating_sub(is_first_pass);
        self.waiting = self.waiting.saturating_sub(1);
        self.forget_if_idle(client);
        Some(waiter)
    }

    /// Returns the number of bodies that wait.
    pub(super) const fn waiting(&self) -> usize {
        self.waiting
    }

    /// Returns the first ticket among the clients with the fewest places, if one of them may take one more.
    fn next_in_queue(&self) -> Option<(BudgetClient, QueueTicket)> {
        if self.taken >= self.places_max {
            return None;
        }
        let may_take = self
            .clients
            .iter()
            .filter(|(_, own)| own.taken < self.places_max.div_ceil(2));
        let candidates = may_take.filter_map(|(client, own)| {
            let (ticket, _) = own.queue.first_key_value()?;
            Some((own.taken, *ticket, *client))
        });
        let next = candidates.min_by_key(|(taken, ticket, _)| (*taken, *ticket));
        next.map(|(_, ticket, client)| (client, ticket))
    }

    /// Removes a client without bodies, so that the map does not grow with every client.
    fn forget_if_idle(&mut self, client: BudgetClient) {
        let is_idle = |own: &ClientPlaces<W>| own.taken == 0 && own.queue.is_empty();
        if self.clients.get(&client).is_some_and(is_idle) {
            self.clients.remove(&client);
        }
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
        let mut ask = |last, waiter| places.take_or_wait(client(last), PlaceUse::FirstPass, waiter);
        assert_eq!(ask(1, 10), PlaceOutcome::Taken);
        assert_eq!(ask(1, 11), PlaceOutcome::Taken);
        assert_eq!(ask(1, 12), PlaceOutcome::Waiting(0, None));
        assert_eq!(ask(1, 13), PlaceOutcome::Waiting(1, None));
        assert_eq!(ask(2, 20), PlaceOutcome::Taken);
        assert_eq!(ask(3, 30), PlaceOutcome::Taken);
        assert_eq!(ask(4, 40), PlaceOutcome::Waiting(2, None));
        // The queue of the first client is older, but client 4 has no place yet.
        assert_eq!(places.free_place(client(2)), Some((client(4), 40)));
        assert_eq!(places.free_place(client(1)), Some((client(1), 12)));
        assert_eq!(places.waiting(), 1);
        // Client 1 holds two again: its last one waits although a place is free.
        assert_eq!(places.free_place(client(3)), None);
        assert_eq!(places.free_place(client(1)), Some((client(1), 13)));
    }

    #[test]
    fn the_queue_of_first_passes_is_bounded() {
        let mut places = FairPlaces::new(1, 2);
        let mut ask = |last: u8, place_use| places.take_or_wait(client(last), place_use, last);
        assert_eq!(ask(1, PlaceUse::FirstPass), PlaceOutcome::Taken);
        assert_eq!(ask(2, PlaceUse::LaterPass), PlaceOutcome::Waiting(0, None));
        assert_eq!(ask(2, PlaceUse::FirstPass), PlaceOutcome::Waiting(1, None));
        assert_eq!(ask(3, PlaceUse::FirstPass), PlaceOutcome::Waiting(2, None));
        assert_eq!(ask(4, PlaceUse::FirstPass), PlaceOutcome::Full);
        assert_eq!(ask(4, PlaceUse::LaterPass), PlaceOutcome::Waiting(3, None));
        assert_eq!(places.leave_queue(client(2), 0), Some(2));
        assert_eq!(
            (places.leave_queue(client(2), 0), places.waiting()),
            (None, 3),
            "it has left"
        );
        assert_eq!(places.free_place(client(1)), Some((client(2), 2)));
        assert_eq!(
            places.take_or_wait(client(1), PlaceUse::FirstPass, 1),
            PlaceOutcome::Waiting(4, None)
        );
        for (freed, next) in [(2, 3), (3, 4), (4, 1)] {
            let taken = places.free_place(client(freed));
            assert_eq!(taken, Some((client(next), next)), "in the order of arrival");
        }
    }

    #[test]
    fn in_a_full_queue_the_client_with_the_most_makes_way() {
        let mut places = FairPlaces::new(1, 4);
        let mut ask = |last: u8, waiter| places.take_or_wait(client(last), PlaceUse::FirstPass, waiter);
        assert_eq!(ask(1, 10), PlaceOutcome::Taken);
        for (ticket, waiter) in [(0, 11), (1, 12), (2, 13), (3, 14)] {
            assert_eq!(ask(1, waiter), PlaceOutcome::Waiting(ticket, None));
        }
        assert_eq!(ask(1, 15), PlaceOutcome::Full);
        assert_eq!(ask(2, 20), PlaceOutcome::Waiting(4, Some(14)), "the latest");
        assert_eq!(ask(2, 21), PlaceOutcome::Waiting(5, Some(13)));
        // They have two each.
        assert_eq!(ask(2, 22), PlaceOutcome::Full);
        assert_eq!(ask(3, 30), PlaceOutcome::Waiting(6, Some(21)));
        assert_eq!((places.waiting(), places.first_passes), (4, 4));
    }

    #[test]
    fn nothing_of_a_client_remains_after_its_last_place() {
        let mut places = FairPlaces::<u8>::new(2, 2);
        for _ in 0..2 {
            assert_eq!(
                places.take_or_wait(client(1), PlaceUse::FirstPass, 0),
                PlaceOutcome::Taken
            );
            assert_eq!(places.free_place(client(1)), None);
        }
        assert_eq!((places.taken, places.clients.len()), (0, 0));
    }
}
