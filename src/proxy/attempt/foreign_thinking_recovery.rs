//! Choice of the thinking that a resend leaves out, after a provider has refused thinking as foreign.
//!
//! First the blocks after the last accepted body, so that the bytes which the provider has cached stay. Then all.

use std::collections::HashSet;

use crate::{
    proxy::{data_path::DataPath, fact_memory::FactMemory, fact_scope::FactScope, request::CallMemory},
    recall::ThinkingFact,
    repair::{Parsed, ThinkingBlock, ThinkingHash},
};

/// The state of the recovery of one request.
#[derive(Debug)]
pub(super) struct ForeignThinkingRecovery {
    stage: RemovalStage,
    /// Blocks that resends of this request leave out.
    removed: Vec<ThinkingHash>,
}

/// Stages of the removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum RemovalStage {
    /// Nothing was removed.
    Untouched,
    /// Blocks after the last accepted one were removed.
    AfterAccepted,
    /// All blocks before the current turn were removed.
    All,
}

/// Blocks that the next resend removes, with the stage that it reaches.
#[derive(Debug)]
pub(super) struct ChosenBlocks {
    stage: RemovalStage,
    blocks: Vec<ThinkingHash>,
}

impl ForeignThinkingRecovery {
    /// The state of a request that was not refused yet.
    pub(super) const UNTOUCHED: Self = Self {
        stage: RemovalStage::Untouched,
        removed: Vec::new(),
    };

    /// Returns `true` if resends of this request leave out any thinking.
    pub(super) const fn has_removed(&self) -> bool {
        !self.removed.is_empty()
    }

    /// Leaves these blocks out of the following resends.
    pub(super) fn remove_blocks(&mut self, chosen: ChosenBlocks) {
        self.stage = chosen.stage;
        self.removed.extend(chosen.blocks);
    }

    /// Returns the thinking that every resend leaves out: refused before, or chosen for this request.
    pub(super) fn refused_thinking(&self, memory: CallMemory<'_>, parsed: &Parsed<'_>) -> Vec<ThinkingHash> {
        let mut refused = memory.refused_thinking(parsed);
        refused.extend_from_slice(&self.removed);
        refused
    }

    /// Stores what a success has proved: the removed blocks are refused, and the thinking up to `last` is settled.
    pub(super) fn settle_thinking(&self, path: &DataPath, scope: FactScope, last: Option<ThinkingHash>) {
        let facts = &path.facts;
        let mut news = Vec::new();
        for block in self.removed.iter().map(|block| scope.thinking_key(*block)) {
            if facts.learn_refused_thinking(block) {
                news.push((block, ThinkingFact::Refused));
            }
        }
        let last = last.map(|last| scope.thinking_key(last));
        // A refused block settles what is before it just as well, and its record must not change.
        if let Some(last) = last.filter(|last| !facts.is_refused_thinking(*last))
            && facts.learn_accepted_thinking(last)
        {
            news.push((last, ThinkingFact::Accepted));
        }
        // Only sessions with refused thinking ever need these facts again, so all others cost the ledger nothing.
        let is_marked = !self.removed.is_empty() || path.recall.has_thinking_facts(scope.caller);
        if !news.is_empty() && is_marked {
            path.recall.store_thinking_facts(scope.caller, news);
        }
    }
}

/// Chooses the blocks to remove before the current turn. `None` if the provider's refusal is final.
pub(super) fn choose_blocks(
    state: &ForeignThinkingRecovery,
    blocks: &[ThinkingBlock],
    facts: &FactMemory,
    scope: FactScope,
) -> Option<ChosenBlocks> {
    // The provider requires the thinking of an open tool loop. With an impossible signature in it nothing helps.
    if blocks.iter().any(|block| block.is_current && block.is_impossible) {
        return None;
    }
    let removed: HashSet<ThinkingHash> = state.removed.iter().copied().collect();
    let is_refused = |block: &ThinkingBlock| facts.is_refused_thinking(scope.thinking_key(block.hash));
    let is_left = |block: &&ThinkingBlock| {
        // Impossible blocks are not in the body that was refused.
        !block.is_current && !block.is_impossible && !removed.contains(&block.hash) && !is_refused(block)
    };
    let hashes = |blocks: &[ThinkingBlock]| -> Vec<ThinkingHash> {
        blocks.iter().filter(is_left).map(|block| block.hash).collect()
    };
    if state.stage == RemovalStage::Untouched {
        // An accepted body proves every block up to its last one.
        let is_settled =
            |block: &ThinkingBlock| is_refused(block) || facts.is_accepted_thinking(scope.thinking_key(block.hash));
        let after = blocks
            .iter()
            .rposition(is_settled)
            .map_or(0, |index| index.saturating_add(1));
        let newer = hashes(blocks.get(after..).unwrap_or_default());
        if after > 0 && !newer.is_empty() {
            return Some(ChosenBlocks {
                stage: RemovalStage::AfterAccepted,
                blocks: newer,
            });
        }
    }
    // Another account, or a request without thinking, may have accepted the older blocks: the session must go on.
    let all = if state.stage < RemovalStage::All {
        hashes(blocks)
    } else {
        Vec::new()
    };
    (!all.is_empty()).then_some(ChosenBlocks {
        stage: RemovalStage::All,
        blocks: all,
    })
}
