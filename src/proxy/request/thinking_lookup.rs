//! Look-up of refused and accepted thinking in the ledger, after a restart or a change by another replica.

use tokio::time::Instant;

use super::call_lookup::CallMemory;
use crate::{
    proxy::catch_core_panic::catch_core_panic,
    recall::FactKey,
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
    let (recall, scope) = (memory.recall, memory.scope);
    // Most bodies have no thinking, and most callers no fact: both cost no wait.
    if policy.foreign_thinking != OnForeignThinking::Remove
        || !recall.may_have_thinking_facts(scope.caller)
        || catch_core_panic(|| last_thinking(paired)).is_none()
    {
        return false;
    }
    let blocks = catch_core_panic(|| Some(thinking_blocks(paired))).unwrap_or_default();
    let keys: Vec<FactKey> = blocks.iter().map(|block| scope.thinking_key(block.hash)).collect();
    recall.load_thinking_facts(scope.caller, &keys, deadline).await;
    // Another request may have learned of a block since this body was paired.
    let is_news = |block: &ThinkingBlock| !block.is_current && !block.is_impossible;
    let mut news = blocks.iter().filter(|block| is_news(block));
    news.any(|block| recall.is_refused_thinking(scope.caller, scope.thinking_key(block.hash)))
}
