//! The items that each watched response stands for: one hash for each, in memory and in the ledger, never an item.
//!
//! The ledger has them for other processes and for a later one. A chain that is lost costs nothing but a resend: the client
//! gets the provider's refusal.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::{BufMut, Bytes, BytesMut};
use tokio::{
    sync::mpsc::{self, Receiver, Sender},
    time::{Instant, sleep_until},
};

use super::{RecallStore, learned_fact::LearnedFact};
use crate::{
    auth::Caller,
    clock,
    digest::keyed_digest_of,
    digest_cache::{DigestCache, Lifetime},
    ledger::{Record, RecordKind, RecordName, Unread},
    table::{
        DailyWrites, KnownPrincipals, MemoryLimit, RowChange, RowWrite, StoredRow, Table, TableParts, TablePolicy,
        VerifiedCallers, WritePolicy,
    },
    wire::{CHAIN_BYTES, ChainItem, ItemChain, UnjoinedItems},
};

/// The most chains in memory, of 150 bytes and a little more each.
const CHAINS_MAX: u64 = 50_000;
/// The most callers that are known to continue from responses.
const CALLERS_MAX: u64 = 20_000;
/// The time after which an unused chain leaves the memory: 24 hours.
const IDLE_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// The first byte of every record.
const VERSION: u8 = 1;
/// The second byte of a record: two different responses have the id.
const AMBIGUOUS: u8 = 0;
/// The second byte of a record with a chain.
const CHAIN: u8 = 1;
/// The most chains in the queue, and as many that wait for another try to read their parent. Each has 33 bytes for each of its items.
const WAITING_MAX: usize = 256;
/// The timeout of the read of a parent.
const READ_TIMEOUT: Duration = Duration::from_secs(5);
/// The pause before a parent is read again. Another process may not have written it yet.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// The most reads of a parent.
const TRIES_MAX: u32 = 3;

/// The items behind an id, as far as they are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KnownChain {
    One(ItemChain),
    /// Two different responses of a caller had the id.
    Ambiguous,
    /// The items before it were not found. This is never stored.
    Lost,
}

impl StoredRow for KnownChain {
    fn encode(&self) -> Option<Bytes> {
        let mut bytes = BytesMut::with_capacity(CHAIN_BYTES.saturating_add(2));
        match self {
            Self::One(chain) => {
                bytes.put_slice(&[VERSION, CHAIN]);
                bytes.put_slice(&chain.to_bytes());
            }
            Self::Ambiguous => bytes.put_slice(&[VERSION, AMBIGUOUS]),
            Self::Lost => return None,
        }
        Some(bytes.freeze())
    }

    fn decode(record: &Record) -> Option<Self> {
        match record.value.split_first_chunk()? {
            (&[VERSION, AMBIGUOUS], []) => Some(Self::Ambiguous),
            (&[VERSION, CHAIN], chain) => Some(Self::One(ItemChain::from_bytes(chain.try_into().ok()?)?)),
            _ => None,
        }
    }
}

/// The chains of this process.
#[derive(Debug)]
pub(super) struct ChainMemory {
    chains: Table<KnownChain>,
    /// Callers that have sent the id of a response.
    continuing: DigestCache<Caller, ()>,
    /// The queue of chains that wait for that of their parent.
    unjoined_sender: Sender<UnjoinedChain>,
    /// The end of the queue, until a worker takes it.
    unjoined_receiver: Mutex<Option<Receiver<UnjoinedChain>>>,
}

impl ChainMemory {
    pub(super) fn new(parts: &TableParts, callers: &VerifiedCallers, record_ttl: Duration) -> Self {
        let (sender, receiver) = mpsc::channel(WAITING_MAX);
        let policy = TablePolicy {
            kind: RecordKind::ResponseChain,
            writes: WritePolicy::Behind,
            memory: MemoryLimit::Rows(CHAINS_MAX),
            lifetime: Lifetime::SinceUse(IDLE_MAX),
            record_ttl,
            principals: KnownPrincipals::Any,
            // A chain that is not found may still be joined, and is then noted as lost.
            caches_absence: false,
            needs_lasting_ledger: true,
            restores_lost: false,
            daily: Some(DailyWrites::new()),
        };
        Self {
            chains: Table::new(parts, callers, policy),
            continuing: DigestCache::new(CALLERS_MAX, Lifetime::SinceUse(IDLE_MAX)),
            unjoined_sender: sender,
            unjoined_receiver: Mutex::new(Some(receiver)),
        }
    }
}

/// The chain of a response whose parent is not in memory.
#[derive(Debug)]
pub struct UnjoinedChain {
    /// The caller.
    pub caller: Caller,
    /// The id of the response that the request continues from.
    pub parent: String,
    /// The id of the response.
    pub id: String,
    /// The items of the request.
    pub request: UnjoinedItems,
    /// The items of the answer.
    pub answer: Vec<ChainItem>,
}

/// Access to the chains of a [`RecallStore`].
#[derive(Clone, Copy, Debug)]
pub struct ChainStore<'s>(pub(super) &'s RecallStore);

impl ChainStore<'_> {
    /// Stores the chain of a response. An id that two different responses have belongs to neither, as far as this process
    /// has seen both.
    pub fn note_chain(self, caller: Caller, id: &str, chain: ItemChain) {
        if !caller.is_authenticated() {
            return;
        }
        let chains = &self.0.0.response_chains.chains;
        let note = |known: Option<&KnownChain>| match known {
            None | Some(KnownChain::Lost) => RowChange::Store(KnownChain::One(chain), RowWrite::Insert),
            Some(KnownChain::One(other)) if *other != chain => {
                RowChange::Store(KnownChain::Ambiguous, RowWrite::ReplaceFirst)
            }
            Some(_) => RowChange::Keep,
        };
        chains.change(caller.principal(), [(chain_name(caller, id), note)]);
    }

    /// Returns the chain of a response from memory. `None` if it is not known for certain.
    pub fn find_chain(self, caller: Caller, id: &str) -> Option<ItemChain> {
        match self.known_chain(caller, id)? {
            KnownChain::One(chain) => Some(chain),
            KnownChain::Ambiguous | KnownChain::Lost => None,
        }
    }

    /// Notes that nothing is known of the items before a response, so that nobody looks for those of what continues from it.
    pub fn note_lost(self, caller: Caller, id: &str) {
        let chains = &self.0.0.response_chains.chains;
        let note = |known: Option<&KnownChain>| match known {
            Some(_) => RowChange::Keep,
            None => RowChange::Remember(KnownChain::Lost),
        };
        chains.change(caller.principal(), [(chain_name(caller, id), note)]);
    }

    /// Returns `true` if memory has a chain for this id, or knows that there is none.
    pub fn is_known(self, caller: Caller, id: &str) -> bool {
        self.known_chain(caller, id).is_some()
    }

    fn known_chain(self, caller: Caller, id: &str) -> Option<KnownChain> {
        let chains = &self.0.0.response_chains.chains;
        chains.get(caller.principal(), chain_name(caller, id))
    }

    /// Reads the chain of a response into memory, unless it is there.
    pub async fn load_chain(self, caller: Caller, id: &str, deadline: Instant) -> Result<(), Unread> {
        let chains = &self.0.0.response_chains.chains;
        let names = [chain_name(caller, id)];
        chains.load(caller.principal(), &names, deadline).await.map(drop)
    }

    /// Stores the chain of a response once its parent has been read. Does not wait: a full queue loses the chain.
    pub fn join_later(self, chain: UnjoinedChain) {
        if chain.caller.is_authenticated() && self.0.0.ledger.survives_restart() {
            drop(self.0.0.response_chains.unjoined_sender.try_send(chain));
        }
    }

    /// Stores that a caller continues from responses by their ids.
    pub fn note_continuing(self, caller: Caller) {
        if !self.is_continuing(caller) {
            self.adopt_continuing(caller);
            let key = keyed_digest_of(caller.principal_bytes(), [&b"continues"[..]]);
            self.0.store_facts(caller, &[(key, LearnedFact::ContinuesById)]);
        }
    }

    /// Notes what another process has stored with [`note_continuing`](Self::note_continuing).
    pub fn adopt_continuing(self, caller: Caller) {
        self.0.0.response_chains.continuing.insert(&caller, ());
    }

    /// Returns `true` if the caller has continued from a response by its id.
    pub fn is_continuing(self, caller: Caller) -> bool {
        self.0.0.response_chains.continuing.get(&caller).is_some()
    }
}

impl RecallStore {
    /// Completes chains whose parents were not in memory, until all other handles are dropped. A second call ends at once.
    pub async fn join_chains(self) {
        let receiver = &self.0.response_chains.unjoined_receiver;
        let receiver = receiver.lock().unwrap_or_else(PoisonError::into_inner).take();
        // The task must not keep the store alive.
        let handle = Arc::downgrade(&self.0);
        drop(self);
        let Some(mut receiver) = receiver else { return };
        // Each with the time of its next try, and the tries so far. The first is due first.
        let mut retries: VecDeque<(Instant, u32, UnjoinedChain)> = VecDeque::new();
        loop {
            let due = retries.front().map_or_else(clock::now, |(due, ..)| *due);
            let (tries, chain) = tokio::select! {
                chain = receiver.recv() => match chain {
                    Some(chain) => (0, chain),
                    None => return,
                },
                () = sleep_until(due), if !retries.is_empty() => match retries.pop_front() {
                    Some((_, tries, chain)) => (tries, chain),
                    None => continue,
                },
            };
            let Some(store) = handle.upgrade().map(RecallStore) else {
                return;
            };
            let tries = tries.saturating_add(1);
            let chains = ChainStore(&store);
            match join_chain(chains, &chain).await {
                JoinEnd::Unread | JoinEnd::Absent if tries < TRIES_MAX && retries.len() < WAITING_MAX => {
                    retries.push_back((clock::now() + RETRY_PAUSE, tries, chain));
                }
                JoinEnd::Impossible | JoinEnd::Absent => chains.note_lost(chain.caller, &chain.id),
                JoinEnd::Stored | JoinEnd::Unread => {}
            }
        }
    }
}

/// The end of one try to join a chain with that of its parent.
enum JoinEnd {
    Stored,
    /// The parent has no chain, or the items do not continue it.
    Impossible,
    /// Another process may still write the parent.
    Absent,
    /// The ledger did not answer.
    Unread,
}

/// Stores the chain of a response after that of its parent.
async fn join_chain(chains: ChainStore<'_>, unjoined: &UnjoinedChain) -> JoinEnd {
    let UnjoinedChain { caller, parent, id, .. } = unjoined;
    let read = chains.load_chain(*caller, parent, clock::now() + READ_TIMEOUT).await;
    let Some(found) = chains.find_chain(*caller, parent) else {
        return match read {
            Err(Unread) => JoinEnd::Unread,
            Ok(()) if chains.is_known(*caller, parent) || chains.0.0.ledger.is_exclusive() => JoinEnd::Impossible,
            Ok(()) => JoinEnd::Absent,
        };
    };
    let Some(mut chain) = unjoined.request.join(found) else {
        return JoinEnd::Impossible;
    };
    unjoined.answer.iter().for_each(|item| chain.push_item(*item));
    chains.note_chain(*caller, id, chain);
    JoinEnd::Stored
}

/// Returns the name of a response: a hash keyed with the principal, so that no caller reaches another's.
fn chain_name(caller: Caller, id: &str) -> RecordName {
    keyed_digest_of(caller.principal_bytes(), [b"response".as_slice(), id.as_bytes()])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{auth::Principal, ledger::RecordKey};

    fn record(value: Bytes) -> Record {
        Record {
            key: RecordKey::new(RecordKind::ResponseChain, Principal::NONE, [0; 32]),
            index: None,
            value,
            version: 1,
            made_at: Duration::ZERO,
            expires_at: Duration::ZERO,
        }
    }

    #[test]
    fn a_chain_is_read_as_it_was_written() {
        for known in [KnownChain::Ambiguous, KnownChain::One(ItemChain::default())] {
            assert_eq!(KnownChain::decode(&record(known.encode().unwrap())), Some(known));
        }
        assert_eq!(KnownChain::Lost.encode(), None);
        for bytes in [
            &b""[..],
            &[VERSION],
            &[VERSION, 2],
            &[2, CHAIN],
            &[VERSION, CHAIN, 0],
            &[VERSION, AMBIGUOUS, 0],
        ] {
            assert_eq!(KnownChain::decode(&record(Bytes::copy_from_slice(bytes))), None);
        }
    }
}
