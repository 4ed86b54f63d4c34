//! The branches of one lane: histories that began alike and parted.
//!
//! A branch that grows after another one has parted from it is a fork: a second agent loop on the same history.
#![cfg_attr(
    not(test),
    warn(clippy::indexing_slicing, clippy::string_slice, clippy::arithmetic_side_effects)
)]

use crate::conversation::CallChain;

/// The most branches of one lane. Beyond that the branch that was least recently used is dropped.
pub const BRANCHES_MAX: usize = 4;

/// One branch.
#[derive(Clone, Debug)]
struct Branch {
    chain: CallChain,
    /// The number of the branch, unique within its lane.
    number: u64,
    /// The number of the last request that contained it.
    seen: u64,
    /// The older branches that it parted from, without those that were seen to grow since.
    parted: Vec<u64>,
}

/// The branches of a lane.
#[derive(Clone, Debug, Default)]
pub(super) struct Branches {
    list: Vec<Branch>,
    requests: u64,
}

impl Branches {
    /// Returns the bytes that the branches occupy.
    pub(super) fn weight(&self) -> usize {
        let weight = |branch: &Branch| {
            let parted = branch.parted.capacity().saturating_mul(size_of::<u64>());
            size_of::<Branch>()
                .saturating_add(branch.chain.heap_bytes())
                .saturating_add(parted)
        };
        self.list.iter().map(weight).fold(0, usize::saturating_add)
    }

    /// Notes the calls in a request's history. Returns the number of forks, at most one for each pair of branches.
    pub(super) fn show(&mut self, chain: &CallChain) -> usize {
        if chain.is_empty() {
            return 0;
        }
        self.requests = self.requests.saturating_add(1);
        let goes_on = self.list.iter_mut().filter(|branch| branch.chain.is_prefix_of(chain));
        if let Some(branch) = goes_on.max_by_key(|branch| branch.chain.count()) {
            branch.seen = self.requests;
            // A retry of the same history proves nothing.
            if branch.chain.count() == chain.count() {
                return 0;
            }
            branch.chain = chain.clone();
            let number = branch.number;
            return self.grown(number);
        }
        // A prefix of a known branch is a retry or an edit. A new branch begins with its first new call.
        if !self.list.iter().any(|branch| chain.is_prefix_of(&branch.chain)) {
            self.part(chain);
        }
        0
    }

    /// Counts the branches that had parted from this one, which has grown now. Each of them is a fork.
    fn grown(&mut self, number: u64) -> usize {
        let mut forks = 0_usize;
        for other in &mut self.list {
            let before = other.parted.len();
            // Each pair counts once.
            other.parted.retain(|older| *older != number);
            forks = forks.saturating_add(before.saturating_sub(other.parted.len()));
        }
        forks
    }

    /// Adds a branch. Histories without a common call are other conversations.
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
