//! Choice of the thinking that a resend leaves out, after a provider has refused thinking as foreign.
//!
//! First the blocks behind the last accepted body, so that the bytes which the provider has cached stay. Then all.

use crate::repair::{ThinkingBlock, ThinkingHash};

/// The state of the recovery of one request.
#[derive(Debug)]
pub(super) struct ForeignThinkingRecovery {
    stage: RemovalStage,
    /// Blocks that resends of this request leave out.
    removed: Vec<ThinkingHash>,
    /// Last signed thinking of the client's body. `None` if it has none.
    last_thinking: Option<ThinkingHash>,
}

/// Stages of the removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum RemovalStage {
    /// Nothing was removed.
    Untouched,
    /// Blocks behind the last accepted one were removed.
    BehindAccepted,
    /// All blocks before the current turn were removed.
    All,
}

/// The blocks of one stage.
#[derive(Debug)]
pub(super) struct ChosenBlocks {
    stage: RemovalStage,
    blocks: Vec<ThinkingHash>,
}

impl ForeignThinkingRecovery {
    /// Creates the state of a request that was not refused yet.
    pub(super) const fn new(last_thinking: Option<ThinkingHash>) -> Self {
        Self {
            stage: RemovalStage::Untouched,
            removed: Vec::new(),
            last_thinking,
        }
    }

    /// Leaves these blocks out of the following resends.
    pub(super) fn remove_blocks(&mut self, chosen: ChosenBlocks) {
        self.stage = chosen.stage;
        self.removed.extend(chosen.blocks);
    }

    /// Returns the blocks that resends leave out.
    pub(super) fn removed(&self) -> &[ThinkingHash] {
        &self.removed
    }

    /// Returns the last signed thinking of the client's body.
    pub(super) const fn last_thinking(&self) -> Option<ThinkingHash> {
        self.last_thinking
    }
}

/// Chooses the blocks to remove before the current turn. `None` if the provider's refusal is final.
pub(super) fn choose_blocks(
    state: &ForeignThinkingRecovery,
    blocks: &[ThinkingBlock],
    is_removed_before: impl Fn(ThinkingHash) -> bool,
    is_accepted: impl Fn(ThinkingHash) -> bool,
) -> Option<ChosenBlocks> {
    // The provider requires the thinking of an open tool loop. With an impossible signature in it nothing helps.
    if blocks.iter().any(|block| block.is_current && block.is_impossible) {
        return None;
    }
    let is_left = |block: &&ThinkingBlock| {
        !block.is_current
            && !block.is_impossible
            && !state.removed.contains(&block.hash)
            && !is_removed_before(block.hash)
    };
    let hashes = |blocks: &[ThinkingBlock]| -> Vec<ThinkingHash> {
        blocks.iter().filter(is_left).map(|block| block.hash).collect()
    };
    if state.stage == RemovalStage::Untouched {
        // An accepted body proves every block up to its last one.
        let settled = blocks.iter().rposition(|block| is_accepted(block.hash));
        let behind = settled.map_or(0, |index| index.saturating_add(1));
        let newer = hashes(blocks.get(behind..).unwrap_or_default());
        if behind > 0 && !newer.is_empty() {
            return Some(ChosenBlocks {
                stage: RemovalStage::BehindAccepted,
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
