//! The limit of listeners of an event feed: each holds a task, a buffer and a connection.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// The listeners of one feed, counted by owner. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ListenerLimit<O> {
    counts: Arc<Mutex<HashMap<O, usize>>>,
    total_max: usize,
    own_max: usize,
}

/// A listener's slot. Dropping it frees the slot.
#[derive(Debug)]
pub struct ListenerSlot<O: Copy + Eq + Hash> {
    listeners: ListenerLimit<O>,
    owner: O,
}

impl<O: Copy + Eq + Hash> ListenerLimit<O> {
    /// Creates a limit of listeners in total, and of one owner.
    pub fn new(total_max: usize, own_max: usize) -> Self {
        Self {
            counts: Arc::default(),
            total_max,
            own_max,
        }
    }

    /// Takes a slot for one more listener. Returns `None` at a limit.
    pub fn take_slot(&self, owner: O) -> Option<ListenerSlot<O>> {
        let mut listening = self.lock_counts();
        let own = listening.get(&owner).copied().unwrap_or_default();
        if listening.values().sum::<usize>() >= self.total_max || own >= self.own_max {
            return None;
        }
        listening.insert(owner, own.saturating_add(1));
        let listeners = self.clone();
        Some(ListenerSlot { listeners, owner })
    }

    fn lock_counts(&self) -> MutexGuard<'_, HashMap<O, usize>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<O: Copy + Eq + Hash> Drop for ListenerSlot<O> {
    fn drop(&mut self) {
        let mut listening = self.listeners.lock_counts();
        match listening.get_mut(&self.owner) {
            Some(own) if *own > 1 => *own -= 1,
            // Removed at zero, so that the map does not grow with every owner that ever listened.
            _ => drop(listening.remove(&self.owner)),
        }
    }
}
