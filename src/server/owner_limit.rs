//! A limit of things that are open at the same time, in total and for each owner: event feeds, connections.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Places, counted by owner. Cheap to clone.
#[derive(Clone, Debug)]
pub struct OwnerLimit<O> {
    counts: Arc<Mutex<OwnerCounts<O>>>,
    total_max: usize,
    own_max: usize,
}

#[derive(Debug)]
struct OwnerCounts<O> {
    total: usize,
    by_owner: HashMap<O, usize>,
}

/// A place. Dropping it frees it.
#[derive(Debug)]
pub struct OwnerPlace<O: Copy + Eq + Hash> {
    limit: OwnerLimit<O>,
    owner: O,
}

impl<O: Copy + Eq + Hash> OwnerLimit<O> {
    /// Creates a limit of places in total, and of one owner.
    pub fn new(total_max: usize, own_max: usize) -> Self {
        let counts = OwnerCounts {
            total: 0,
            by_owner: HashMap::new(),
        };
        Self {
            counts: Arc::new(Mutex::new(counts)),
            total_max,
            own_max,
        }
    }

    /// Takes one more place. Returns `None` at a limit.
    pub fn take_place(&self, owner: O) -> Option<OwnerPlace<O>> {
        let mut counts = self.lock_counts();
        let own = counts.by_owner.get(&owner).copied().unwrap_or_default();
        if counts.total >= self.total_max || own >= self.own_max {
            return None;
        }
        counts.total = counts.total.saturating_add(1);
        counts.by_owner.insert(owner, own.saturating_add(1));
        let limit = self.clone();
        Some(OwnerPlace { limit, owner })
    }

    fn lock_counts(&self) -> MutexGuard<'_, OwnerCounts<O>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<O: Copy + Eq + Hash> Drop for OwnerPlace<O> {
    fn drop(&mut self) {
        let mut counts = self.limit.lock_counts();
        counts.total = counts.total.saturating_sub(1);
        match counts.by_owner.get_mut(&self.owner) {
            Some(own) if *own > 1 => *own -= 1,
            // Removed at zero, so that the map does not grow with every owner that there ever was.
            _ => drop(counts.by_owner.remove(&self.owner)),
        }
    }
}
