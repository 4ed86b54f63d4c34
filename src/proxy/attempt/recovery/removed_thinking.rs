//! The thinking that resends of a request leave out, and what their success proves about it.

use crate::{
    proxy::{data_path::DataPath, fact_scope::FactScope, request::CallMemory},
    recall::ThinkingFact,
    repair::{Parsed, ThinkingHash},
};

/// Thinking that resends of this request leave out.
#[derive(Clone, Debug, Default)]
pub(super) struct RemovedThinking {
    pub(super) blocks: Vec<ThinkingHash>,
}

impl RemovedThinking {
    /// Returns the thinking that every resend leaves out: refused before, or chosen for this request.
    pub(super) fn refused_thinking(&self, memory: CallMemory<'_>, parsed: &Parsed<'_>) -> Vec<ThinkingHash> {
        let mut refused = memory.refused_thinking(parsed);
        refused.extend_from_slice(&self.blocks);
        refused
    }

    /// Stores what a success has proved: the removed blocks are refused, and the thinking up to `last` is settled.
    pub(super) fn settle_thinking(&self, path: &DataPath, scope: FactScope, last: Option<ThinkingHash>) {
        let (recall, caller) = (&path.recall, scope.caller);
        let refused = self.blocks.iter().map(|block| (*block, ThinkingFact::Refused));
        // A refused block settles what is before it just as well, and its record must not change.
        let facts = refused.chain(last.map(|last| (last, ThinkingFact::Accepted)));
        // Only sessions with refused thinking ever need these facts again, so all others cost the ledger nothing.
        let is_marked = !self.blocks.is_empty() || recall.has_thinking_facts(caller);
        let facts = facts.map(|(block, fact)| (scope.thinking_key(block), fact));
        recall.note_thinking_facts(caller, facts, is_marked);
    }
}
