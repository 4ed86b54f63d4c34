//! Look-up of refused and accepted thinking in the ledger, after a restart or a change by another replica.

use tokio::time::Instant;

use super::call_lookup::CallMemory;
use crate::{
    ledger::{RecordState, RecordsStamp},
    proxy::catch_core_panic::catch_core_panic,
    recall::{FactKey, ThinkingFact},
    repair::{OnForeignThinking, Paired, RepairPolicy, ThinkingBlock, last_thinking, thinking_blocks},
};

/// Loads what the ledger knows of this body's thinking into memory. Returns `true` if one of it
/// was refused and is still in the body.
pub(super) async fn load_thinking_facts(
    memory: CallMemory<'_>,
    policy: &RepairPolicy,
    paired: &Paired<'_>,
    deadline: Instant,
) -> bool {
    let (facts, scope) = (memory.facts, memory.scope);
    // Before the read: a change meanwhile needs another one.
    let state = memory.recall.thinking_state(scope.caller);
    // Most bodies have no thinking, and most callers no fact: both cost no wait.
    if policy.foreign_thinking != OnForeignThinking::Remove
        || state == RecordState::Absent
        || catch_core_panic(|| last_thinking(paired)).is_none()
    {
        return false;
    }
    let stamp = match state {
        RecordState::Present(stamp) => Some(stamp),
        RecordState::Absent | RecordState::Unknown => None,
    };
    let blocks = catch_core_panic(|| Some(thinking_blocks(paired))).unwrap_or_default();
    let mut unknown: Vec<FactKey> = blocks.iter().map(|block| scope.thinking_key(block.hash)).collect();
    unknown.retain(|block| !stamp.is_some_and(|stamp| facts.is_looked_up(*block, stamp)));
    if !unknown.is_empty() {
        read_blocks(memory, unknown, stamp, deadline).await;
    }
    // Another request may have learned of a block since this body was paired.
    let is_news = |block: &ThinkingBlock| !block.is_current && !block.is_impossible;
    let mut news = blocks.iter().filter(|block| is_news(block));
    news.any(|block| facts.is_refused_thinking(scope.thinking_key(block.hash)))
}

/// Reads what the ledger knows of these blocks. `stamp` is the state of the caller's records before. `None` if that is not
/// known.
async fn read_blocks(memory: CallMemory<'_>, blocks: Vec<FactKey>, stamp: Option<RecordsStamp>, deadline: Instant) {
    let (facts, caller) = (memory.facts, memory.scope.caller);
    let Some(found) = memory.recall.read_thinking_facts(caller, &blocks, deadline).await else {
        return;
    };
    for (block, fact) in blocks.into_iter().zip(found) {
        if let Some(stamp) = stamp {
            facts.note_looked_up(block, stamp);
        }
        match fact {
            Some(ThinkingFact::Refused) => drop(facts.learn_refused_thinking(block)),
            Some(ThinkingFact::Accepted) => drop(facts.learn_accepted_thinking(block)),
            None => {}
        }
    }
}
