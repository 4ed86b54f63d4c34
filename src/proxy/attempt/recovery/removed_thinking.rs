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
        let facts = &path.facts;
        let mut news = Vec::new();
        for block in self.blocks.iter().map(|block| scope.thinking_key(*block)) {
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
        let is_marked = !self.blocks.is_empty() || path.recall.has_thinking_facts(scope.caller);
        if !news.is_empty() && is_marked {
            path.recall.store_thinking_facts(scope.caller, news);
        }
    }
}
