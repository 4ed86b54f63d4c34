//! The keys of facts: hashes that contain caller and server, so that nobody finds those of another.
//!
//! The ledger stores them, so a label in a key is never changed: every fact under it would be forgotten.

use crate::{
    auth::Caller,
    digest::digest_of,
    mend::BlockHash,
    provider::ServerHash,
    recall::FactKey,
    repair::{CallKey, DisputedShape, ThinkingHash},
};

/// Owner of a fact: one caller at one server.
#[derive(Clone, Copy, Debug)]
pub(super) struct FactScope {
    pub(super) server: ServerHash,
    pub(super) caller: Caller,
}

impl FactScope {
    fn fact_key(self, parts: &[&[u8]]) -> FactKey {
        // Part of every key, so that no lookup can find a fact of another caller or server.
        let principal = self.caller.principal();
        let whose: [&[u8]; 2] = [&self.server, principal.as_bytes()];
        digest_of(whose.into_iter().chain(parts.iter().copied()))
    }

    /// Returns the key of the rules for a model.
    pub(super) fn rules_key(self, model: Option<&str>) -> FactKey {
        self.fact_key(&[b"rules", model.unwrap_or_default().as_bytes()])
    }

    /// Returns the key of the mends for a model.
    pub(super) fn taught_key(self, model: Option<&str>) -> FactKey {
        self.fact_key(&[b"taught", model.unwrap_or_default().as_bytes()])
    }

    /// Returns the key of a row of refusals.
    pub(super) fn row_key(self, row: &str) -> FactKey {
        self.fact_key(&[b"row", row.as_bytes()])
    }

    /// Returns the key of a conversation with a model, by its lane.
    pub(super) fn lane_key(self, lane: &[u8; 32], model: Option<&str>) -> FactKey {
        self.fact_key(&[b"lane", lane, model.unwrap_or_default().as_bytes()])
    }

    /// Returns the key of a block that the server refuses.
    pub(super) fn block_key(self, block: &BlockHash) -> FactKey {
        self.fact_key(&[b"block", block])
    }

    /// Returns the key of a conversation in a disputed shape: its first call and the model.
    pub(super) fn shape_key(self, model: Option<&str>, first_call: &[u8], shape: DisputedShape) -> FactKey {
        let (model, shape) = (model.unwrap_or_default().as_bytes(), shape.label().as_bytes());
        self.fact_key(&[b"shape", model, first_call, shape])
    }

    /// Returns the key of the fact that placeholders override results of the caller.
    pub(super) fn overrides_key(self) -> FactKey {
        self.fact_key(&[b"overrides"])
    }

    /// Returns the key of a remote response.
    pub(super) fn origin_key(self, id: &[u8]) -> FactKey {
        self.fact_key(&[b"origin", id])
    }

    /// Returns the key of a response that the provider has lost.
    pub(super) fn dead_response_key(self, id: &str) -> FactKey {
        self.fact_key(&[b"dead_response", id.as_bytes()])
    }

    /// Returns the key of a remote call.
    pub(super) fn remote_call_key(self, id: &[u8]) -> FactKey {
        self.fact_key(&[b"held", id])
    }

    /// Returns the key of a call in a body.
    pub(super) fn call_key(self, call: CallKey) -> FactKey {
        self.fact_key(&[b"call", call.as_bytes()])
    }

    /// Returns the key of a kind of value that a model's answers carry.
    pub(super) fn continuity_key(self, kind: &str, model: &str) -> FactKey {
        self.fact_key(&[b"continuity", kind.as_bytes(), model.as_bytes()])
    }

    /// Returns the key of a block of thinking.
    pub(super) fn thinking_key(self, block: ThinkingHash) -> FactKey {
        self.fact_key(&[b"thinking", &block])
    }

    /// Returns the key of a conversation: its first block of thinking, which all of its requests contain.
    pub(super) fn conversation_key(self, first_thinking: &[u8]) -> FactKey {
        self.fact_key(&[b"conversation", first_thinking])
    }
}
