//! Look-up of refused and accepted thinking in the ledger, after a restart.

use tokio::time::Instant;

use super::call_lookup::CallMemory;
use crate::{
    proxy::{catch_core_panic::catch_core_panic, provider_facts::FactKey},
    recall::ThinkingFact,
    repair::{OnForeignThinking, Paired, RepairPolicy, last_thinking, thinking_blocks},
};

/// Loads what the ledger knows of this body's thinking into memory. Returns `true` if the provider refused some of it.
pub(super) async fn load_thinking_facts(
    memory: CallMemory<'_>,
    policy: &RepairPolicy,
    paired: &Paired<'_>,
    deadline: Instant,
) -> bool {
    let (facts, scope) = (memory.facts, memory.scope);
    // Most bodies have no thinking, and most callers no fact: both cost no wait.
    if policy.foreign_thinking != OnForeignThinking::Remove
        || facts.has_thinking_facts(scope.caller) == Some(false)
        || catch_core_panic(|| last_thinking(paired)).is_none()
    {
        return false;
    }
    if facts.has_thinking_facts(scope.caller).is_none() {
        let Some(has_facts) = memory.recall.has_thinking_facts(scope.caller, deadline).await else {
            return false;
        };
        facts.note_thinking_facts(scope.caller, has_facts);
        if !has_facts {
            return false;
        }
    }
    let blocks = catch_core_panic(|| Some(thinking_blocks(paired))).unwrap_or_default();
    let mut unknown: Vec<FactKey> = blocks.iter().map(|block| scope.thinking_key(block.hash)).collect();
    unknown.retain(|block| !facts.is_looked_up(*block));
    if unknown.is_empty() {
        return false;
    }
    let read = memory
        .recall
        .read_thinking_facts(scope.caller, &unknown, deadline)
        .await;
    let Some(found) = read else { return false };
    let mut has_refused = false;
    for (block, fact) in unknown.into_iter().zip(found) {
        facts.note_looked_up(block);
        match fact {
            Some(ThinkingFact::Refused) => {
                has_refused = true;
                facts.learn_refused_thinking(block);
            }
            Some(ThinkingFact::Accepted) => drop(facts.learn_accepted_thinking(block)),
            None => {}
        }
    }
    has_refused
}
