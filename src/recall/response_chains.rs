//! The items that each watched response stands for, in memory: one hash for each, never an item.
//!
//! A forgotten chain costs nothing but a resend: the client gets the provider's refusal.

use std::time::Duration;

use moka::{ops::compute::Op, sync::Cache};

use crate::{auth::Caller, digest::keyed_digest_of, wire::ItemChain};

/// The most chains in memory, of 150 bytes and a little more each.
const CHAINS_MAX: u64 = 50_000;
/// The most callers that are known to continue from responses.
const CALLERS_MAX: u64 = 20_000;
/// The time after which an unused chain is forgotten: 24 hours.
const IDLE_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// The chains of all callers.
#[derive(Debug)]
pub struct ResponseChains {
    /// The chain of each response. `None` if two different responses of a caller had its id.
    chains: Cache<[u8; 32], Option<ItemChain>>,
    /// Callers that have sent the id of a response.
    continuing: Cache<Caller, ()>,
}

impl ResponseChains {
    /// Creates an empty store.
    pub(super) fn new() -> Self {
        Self {
            chains: Cache::builder().max_capacity(CHAINS_MAX).time_to_idle(IDLE_MAX).build(),
            continuing: Cache::builder()
                .max_capacity(CALLERS_MAX)
                .time_to_idle(IDLE_MAX)
                .build(),
        }
    }

    /// Stores the chain of a response. An id that two different responses have belongs to neither.
    pub fn note_chain(&self, caller: Caller, id: &str, chain: ItemChain) {
        if !caller.is_authenticated() {
            return;
        }
        self.chains
            .entry(chain_name(caller, id))
            .and_compute_with(|known| match known.map(moka::Entry::into_value) {
                None => Op::Put(Some(chain)),
                Some(Some(other)) if other != chain => Op::Put(None),
                Some(_) => Op::Nop,
            });
    }

    /// Returns the chain of a response. `None` if it is not known for certain.
    pub fn find_chain(&self, caller: Caller, id: &str) -> Option<ItemChain> {
        self.chains.get(&chain_name(caller, id)).flatten()
    }

    /// Stores that a caller continues from responses by their ids.
    pub fn note_continuing(&self, caller: Caller) {
        self.continuing.insert(caller, ());
    }

    /// Returns `true` if the caller has continued from a response by its id.
    pub fn is_continuing(&self, caller: Caller) -> bool {
        self.continuing.get(&caller).is_some()
    }
}

/// Returns the name of a response: a hash keyed with the principal, so that no caller reaches another's.
fn chain_name(caller: Caller, id: &str) -> [u8; 32] {
    keyed_digest_of(caller.principal().as_bytes(), [b"response".as_slice(), id.as_bytes()])
}
