//! The shares of one use that wait for memory: the oldest of each client, found without a walk past all others.

use std::collections::{BTreeSet, HashMap};

use super::BudgetClient;

/// Number of a share, in the order of opening.
pub(super) type ShareId = u64;

/// Shares that wait, by client.
#[derive(Debug, Default)]
pub(super) struct WaitingShares {
    by_client: HashMap<BudgetClient, BTreeSet<ShareId>>,
    /// The oldest of each client.
    oldest: BTreeSet<ShareId>,
}

impl WaitingShares {
    /// Adds a share. Does nothing if it waits already.
    pub(super) fn insert(&mut self, client: BudgetClient, id: ShareId) {
        let own = self.by_client.entry(client).or_default();
        if let Some(first) = own.first().filter(|first| id < **first) {
            self.oldest.remove(first);
        }
        own.insert(id);
        if own.first() == Some(&id) {
            self.oldest.insert(id);
        }
    }

    /// Removes a share. Does nothing if it does not wait.
    pub(super) fn remove(&mut self, client: BudgetClient, id: ShareId) {
        let Some(own) = self.by_client.get_mut(&client) else {
            return;
        };
        own.remove(&id);
        if self.oldest.remove(&id)
            && let Some(next) = own.first()
        {
            self.oldest.insert(*next);
        }
        if own.is_empty() {
            self.by_client.remove(&client);
        }
    }

    /// Returns the oldest share of each client, in their order.
    pub(super) fn oldest_of_each(&self) -> impl Iterator<Item = ShareId> {
        self.oldest.iter().copied()
    }

    /// Returns the number of shares.
    pub(super) fn len(&self) -> usize {
        self.by_client.values().map(BTreeSet::len).sum()
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
    fn the_oldest_of_each_client_is_told() {
        let mut waiting = WaitingShares::default();
        for (last, id) in [(1, 3), (1, 2), (2, 5), (1, 9), (2, 4), (1, 2)] {
            waiting.insert(client(last), id);
        }
        let oldest = |waiting: &WaitingShares| waiting.oldest_of_each().collect::<Vec<_>>();
        assert_eq!((oldest(&waiting), waiting.len()), (vec![2, 4], 5));
        waiting.remove(client(1), 2);
        waiting.remove(client(2), 5);
        assert_eq!(oldest(&waiting), [3, 4]);
        for (last, id) in [(1, 9), (1, 3), (2, 4), (2, 4)] {
            waiting.remove(client(last), id);
        }
        assert!(waiting.oldest.is_empty() && waiting.by_client.is_empty());
    }
}
