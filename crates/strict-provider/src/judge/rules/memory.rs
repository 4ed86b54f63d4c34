//! What a server remembers between requests, as far as its verdicts depend on it.

use std::collections::{HashSet, VecDeque};

use serde_json::Value;

use super::history_calls::read_calls;
use crate::Format;

/// Largest number of entries of each kind. The oldest go first.
const ENTRIES_MAX: usize = 4096;

/// What a server made itself, and which calls its cache contains.
#[derive(Clone, Debug, Default)]
pub struct ServerMemory {
    /// Signatures and encrypted reasoning.
    seals: BoundedSet,
    /// Ids of stored responses.
    responses: BoundedSet,
    /// Ids of calls in the cache.
    cached: BoundedSet,
}

impl ServerMemory {
    /// Remembers a signature, or encrypted reasoning, as made here.
    pub fn add_seal(&mut self, seal: &str) {
        self.seals.insert(seal);
    }

    /// Remembers the id of a response that can be continued.
    pub fn add_response(&mut self, id: &str) {
        self.responses.insert(id);
    }

    /// Loses every response: none can be continued.
    pub fn forget_responses(&mut self) {
        self.responses = BoundedSet::default();
    }

    /// Counts all reasoning so far as another account's.
    pub fn forget_seals(&mut self) {
        self.seals = BoundedSet::default();
    }

    /// Remembers a call, so that its turn counts as warm.
    pub fn add_cached(&mut self, call_id: &str) {
        self.cached.insert(call_id);
    }

    /// Remembers every call of an accepted body, as a prompt cache does.
    pub fn add_accepted(&mut self, format: Format, body: &Value) {
        for call in read_calls(format, body) {
            self.cached.insert(call.id_text());
        }
    }

    /// Forgets the prompt cache: the next request is a cold replay.
    pub fn clear_cache(&mut self) {
        self.cached = BoundedSet::default();
    }

    /// Reports whether a signature or encrypted reasoning was made here.
    pub(super) fn has_seal(&self, seal: &str) -> bool {
        self.seals.contains(seal)
    }

    /// Reports whether a response can be continued.
    pub(super) fn has_response(&self, id: &str) -> bool {
        self.responses.contains(id)
    }

    /// Reports whether the cache contains a call.
    pub(super) fn is_cached(&self, call_id: &str) -> bool {
        self.cached.contains(call_id)
    }
}

/// A set that drops its oldest entry.
#[derive(Clone, Debug, Default)]
struct BoundedSet {
    entries: HashSet<String>,
    order: VecDeque<String>,
}

impl BoundedSet {
    fn insert(&mut self, entry: &str) {
        if !self.entries.insert(entry.to_owned()) {
            return;
        }
        self.order.push_back(entry.to_owned());
        if self.order.len() > ENTRIES_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.entries.remove(&oldest);
        }
    }

    fn contains(&self, entry: &str) -> bool {
        self.entries.contains(entry)
    }
}
