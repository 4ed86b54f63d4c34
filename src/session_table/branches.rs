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
struct LaneBranch {
    chain: CallChain,
    /// The number of the branch, unique within its lane.
    number: u64,
    /// The number of the last request that contained it.
    last_request: u64,
    /// The older branches that it parted from, without those that were seen to grow since.
    parted_from: Vec<u64>,
}

/// The branches of a lane.
#[derive(Clone, Debug, Default)]
pub(super) struct Branches {
    list: Vec<LaneBranch>,
    requests: u64,
}

impl Branches {
    /// Returns the bytes that the branches occupy.
    pub(super) fn memory_bytes(&self) -> usize {
        let weight = |branch: &LaneBranch| {
            let parted = branch.parted_from.capacity().saturating_mul(size_of::<u64>());
            size_of::<LaneBranch>()
                .saturating_add(branch.chain.heap_bytes())
                .saturating_add(parted)
        };
        self.list.iter().map(weight).fold(0, usize::saturating_add)
    }

    /// Notes the calls in a request's history. Returns the number of forks, at most one for each pair of branches.
    pub(super) fn add_history(&mut self, chain: &CallChain) -> usize {
        if chain.is_empty() {
            return 0;
        }
        self.requests = self.requests.saturating_add(1);
        let goes_on = self.list.iter_mut().filter(|branch| branch.chain.is_prefix_of(chain));
        if let Some(branch) = goes_on.max_by_key(|branch| branch.chain.count()) {
            branch.last_request = self.requests;
            // A retry of the same history proves nothing.
            if branch.chain.count() == chain.count() {
                return 0;
            }
            branch.chain = chain.clone();
            let number = branch.number;
            return self.count_new_forks(number);
        }
        // A prefix of a known branch is a retry or an edit. A new branch begins with its first new call.
        if !self.list.iter().any(|branch| chain.is_prefix_of(&branch.chain)) {
            self.start_branch(chain);
        }
        0
    }

    /// Counts the branches that had parted from this one, which has grown now. Each of them is a fork.
    fn count_new_forks(&mut self, number: u64) -> usize {
        let mut forks = 0_usize;
        for other in &mut self.list {
            let before = other.parted_from.len();
            // Each pair counts once.
            other.parted_from.retain(|older| *older != number);
            forks = forks.saturating_add(before.saturating_sub(other.parted_from.len()));
        }
        forks
    }

    /// Adds a branch. Histories without a common call are other conversations.
    fn start_branch(&mut self, chain: &CallChain) {
        let kin = self.list.iter().filter(|branch| branch.chain.shares_first_call(chain));
        let parted = kin.map(|branch| branch.number).collect();
        let least = self
            .list
            .iter()
            .enumerate()
            .min_by_key(|(_, branch)| branch.last_request);
        if let Some((index, _)) = least.filter(|_| self.list.len() >= BRANCHES_MAX) {
            self.list.remove(index);
        }
        self.list.push(LaneBranch {
            chain: chain.clone(),
            number: self.requests,
            last_request: self.requests,
            parted_from: parted,
        });
    }
}
