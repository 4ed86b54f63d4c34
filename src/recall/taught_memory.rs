//! Memory of what servers have taught by refusals: mends of every body, and blocks that are mended in every body.

use std::{
    collections::{BTreeSet, HashSet},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use super::FactKey;
use crate::{
    digest_cache::{DigestCache, EntryChange, Lifetime},
    mend::{BlockHash, MENDS_MAX, Mend},
};

/// Maximum entries of each cache.
const ENTRIES_MAX: u64 = 20_000;
/// Most conversations with unproven mends.
const UNPROVEN_ENTRIES_MAX: u64 = 2_000;
/// Lifetime of what was taught: 24 hours.
const TAUGHT_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// Time for which unproven mends are kept.
const UNPROVEN_MAX: Duration = Duration::from_secs(10 * 60);

/// Memory of what servers have taught. The handle is cheap to clone.
#[derive(Clone, Debug)]
pub struct TaughtMemory(Arc<TaughtCaches>);

#[derive(Debug)]
struct TaughtCaches {
    /// Mends by caller, server and model.
    mends: DigestCache<FactKey, Arc<[Mend]>>,
    /// Blocks that a server refuses, and that are mended in every body.
    refused_blocks: DigestCache<FactKey, ()>,
    /// Mends of a conversation after which its server has named another fault.
    unproven: DigestCache<FactKey, Arc<UnprovenMends>>,
    /// `true` once there are mends. In most processes there are none.
    has_mends: AtomicBool,
    /// `true` once there are unproven mends.
    has_unproven: AtomicBool,
}

/// Mends that no success has proven.
#[derive(Debug)]
pub struct UnprovenMends {
    /// The mends.
    pub mends: Vec<Mend>,
    /// The blocks that they have mended.
    pub blocks: BTreeSet<BlockHash>,
    /// The rows that have demanded them.
    pub rows: Vec<(Mend, Box<str>)>,
}

impl TaughtMemory {
    /// Creates an empty memory.
    pub(super) fn new() -> Self {
        Self(Arc::new(TaughtCaches {
            // Not since the last use: a server that was updated is asked again after a day.
            mends: DigestCache::new(ENTRIES_MAX, Lifetime::SinceWrite(TAUGHT_MAX)),
            refused_blocks: DigestCache::new(ENTRIES_MAX, Lifetime::SinceUse(TAUGHT_MAX)),
            unproven: DigestCache::new(UNPROVEN_ENTRIES_MAX, Lifetime::SinceWrite(UNPROVEN_MAX)),
            has_mends: AtomicBool::new(false),
            has_unproven: AtomicBool::new(false),
        }))
    }

    /// Returns the mends that were taught. Calls `key` only if there are any.
    pub fn mends(&self, key: impl FnOnce() -> FactKey) -> Vec<Mend> {
        // Without any mend the key need not be hashed.
        let has_any = self.0.has_mends.load(Ordering::Relaxed);
        let taught = has_any.then(|| self.0.mends.get(&key())).flatten();
        taught.map(|mends| mends.to_vec()).unwrap_or_default()
    }

    /// Adds mends to those that were taught before. An empty list takes all back.
    pub fn teach(&self, key: FactKey, mends: &[Mend]) {
        if mends.is_empty() {
            self.0.mends.remove(&key);
            return;
        }
        self.0.has_mends.store(true, Ordering::Relaxed);
        // Atomic: of two successes at once none loses its mend.
        self.0.mends.change(&key, |known| {
            let mut all = known.map(|known| known.to_vec()).unwrap_or_default();
            for mend in mends {
                if !all.contains(mend) && all.len() < MENDS_MAX {
                    all.push(mend.clone());
                }
            }
            all.sort();
            EntryChange::Put(all.into())
        });
    }

    /// Returns `true` if a server refuses this block.
    pub fn is_refused(&self, block: FactKey) -> bool {
        self.0.refused_blocks.get(&block).is_some()
    }

    /// Stores that a server refuses a block.
    pub fn refuse_block(&self, block: FactKey) {
        self.0.refused_blocks.insert(&block, ());
    }

    /// Keeps the mends of a conversation after which the server has named another fault.
    pub fn keep_unproven(&self, lane: FactKey, mends: UnprovenMends) {
        self.0.has_unproven.store(true, Ordering::Relaxed);
        self.0.unproven.insert(&lane, Arc::new(mends));
    }

    /// Returns the unproven mends of a conversation. Calls `lane` only if any conversation has some.
    pub fn unproven(&self, lane: impl FnOnce() -> FactKey) -> Option<Arc<UnprovenMends>> {
        let has_any = self.0.has_unproven.load(Ordering::Relaxed);
        has_any.then(|| self.0.unproven.get(&lane()))?
    }

    /// Forgets the unproven mends of a conversation. Calls `lane` only if any conversation has some.
    pub fn forget_unproven(&self, lane: impl FnOnce() -> FactKey) {
        if self.0.has_unproven.load(Ordering::Relaxed) {
            self.0.unproven.remove(&lane());
        }
    }

    /// Forgets everything. Returns the keys of what was proven.
    pub fn clear(&self) -> HashSet<FactKey> {
        let caches = &*self.0;
        let keys = |key: FactKey| caches.mends.remove(&key).map(|_| key);
        let mends: Vec<FactKey> = caches.mends.iter().map(|(key, _)| key).collect();
        let mut gone: HashSet<FactKey> = mends.into_iter().filter_map(keys).collect();
        let blocks: Vec<FactKey> = caches.refused_blocks.iter().map(|(key, ())| key).collect();
        for key in blocks {
            if caches.refused_blocks.remove(&key).is_some() {
                gone.insert(key);
            }
        }
        let unproven: Vec<FactKey> = caches.unproven.iter().map(|(key, _)| key).collect();
        for key in unproven {
            caches.unproven.remove(&key);
        }
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::MendKind;

    fn mend(word: &str) -> Mend {
        Mend::new(MendKind::DropMember, word).unwrap()
    }

    fn words(taught: &TaughtMemory) -> Vec<String> {
        let mends = taught.mends(|| [1; 32]);
        mends.into_iter().map(|mend| mend.word.into()).collect()
    }

    #[test]
    fn what_two_successes_teach_is_joined_until_it_is_taken_back() {
        let taught = TaughtMemory::new();
        taught.mends(|| panic!("no key is made without any mend"));
        taught.teach([1; 32], &[mend("b")]);
        taught.teach([1; 32], &[mend("a"), mend("b")]);
        taught.teach([2; 32], &[mend("c")]);
        assert_eq!(words(&taught), ["a", "b"]);
        taught.teach([1; 32], &[]);
        assert_eq!(words(&taught), [""; 0]);
        for number in 0..20 {
            taught.teach([1; 32], &[mend(&number.to_string())]);
        }
        assert_eq!(words(&taught).len(), MENDS_MAX);
    }

    #[test]
    fn everything_is_forgotten_at_once_and_what_was_proven_is_counted() {
        let taught = TaughtMemory::new();
        taught.teach([1; 32], &[mend("a")]);
        taught.refuse_block([2; 32]);
        let unproven = UnprovenMends {
            mends: vec![mend("b")],
            blocks: BTreeSet::new(),
            rows: Vec::new(),
        };
        taught.keep_unproven([3; 32], unproven);
        assert_eq!(taught.clear(), HashSet::from([[1; 32], [2; 32]]));
        assert_eq!(words(&taught), [""; 0]);
        assert!(!taught.is_refused([2; 32]) && taught.unproven(|| [3; 32]).is_none());
        assert!(taught.clear().is_empty());
    }
}
