//! The branches of one lane: histories that began alike and parted. One that grows on after another has parted from it
//! is a second loop on the same log.
#![cfg_attr(
    not(test),
    warn(clippy::indexing_slicing, clippy::string_slice, clippy::arithmetic_side_effects)
)]

use crate::conversation::CallChain;

/// Branches of one lane that are kept: of more the one that was seen least lately is forgotten.
pub const BRANCHES_MAX: usize = 4;

/// One branch.
#[derive(Clone, Debug)]
struct Branch {
    chain: CallChain,
    /// Its name; no two branches of a lane have one.
    number: u64,
    /// The request that showed it last.
    seen: u64,
    /// The older branches that it parted from, but for those that were seen to grow since.
    parted: Vec<u64>,
}

/// The branches of a lane.
#[derive(Clone, Debug, Default)]
pub(super) struct Branches {
    list: Vec<Branch>,
    requests: u64,
}

impl Branches {
    /// Bytes that they take.
    pub(super) fn weight(&self) -> usize {
        let weight = |branch: &Branch| {
            let parted = branch.parted.capacity().saturating_mul(size_of::<u64>());
            size_of::<Branch>()
                .saturating_add(branch.chain.heap_bytes())
                .saturating_add(parted)
        };
        self.list.iter().map(weight).fold(0, usize::saturating_add)
    }

    /// A request shows a history with these calls: how many forks this is the first to prove, one a pair of branches.
    pub(super) fn show(&mut self, chain: &CallChain) -> usize {
        if chain.is_empty() {
            return 0;
        }
        self.requests = self.requests.saturating_add(1);
        let goes_on = self.list.iter_mut().filter(|branch| branch.chain.is_prefix_of(chain));
        if let Some(branch) = goes_on.max_by_key(|branch| branch.chain.count()) {
            branch.seen = self.requests;
            if branch.chain.count() == chain.count() {
                return 0;
            }
            branch.chain = chain.clone();
            let number = branch.number;
            return self.grown(number);
        }
        // Cut back, to be asked again or edited: a branch begins with the first call that is new.
        if !self.list.iter().any(|branch| chain.is_prefix_of(&branch.chain)) {
            self.part(chain);
        }
        0
    }

    /// A branch grew: the branches that had parted from it are forks.
    fn grown(&mut self, number: u64) -> usize {
        let mut forks = 0_usize;
        for other in &mut self.list {
            let before = other.parted.len();
            other.parted.retain(|older| *older != number);
            forks = forks.saturating_add(before.saturating_sub(other.parted.len()));
        }
        forks
    }

    /// A branch begins. Histories that have no call in common are other conversations.
    fn part(&mut self, chain: &CallChain) {
        let kin = self.list.iter().filter(|branch| branch.chain.shares_first_call(chain));
        let parted = kin.map(|branch| branch.number).collect();
        let least = self.list.iter().enumerate().min_by_key(|(_, branch)| branch.seen);
        if let Some((index, _)) = least.filter(|_| self.list.len() >= BRANCHES_MAX) {
            self.list.remove(index);
        }
        self.list.push(Branch {
            chain: chain.clone(),
            number: self.requests,
            seen: self.requests,
            parted,
        });
    }
}
