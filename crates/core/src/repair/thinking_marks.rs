//! Marks of foreign thinking, before the pairing: what is a finding, and what is removed.
//!
//! A signature that cannot be the provider's is a finding. So is a block that the provider has refused, by its hash, once
//! it has accepted the body without it. Blocks with a finding are removed before the current turn, and stay inside it.

use std::collections::HashSet;

use super::policy::{Applicability, OnForeignThinking, RepairPolicy};
use crate::{
    conversation::{Conversation, PartId, PartKind, Role, current_turn},
    digest::HashTexts,
    wire::{Format, Wire, json::Json, thinking_signature, thinking_text, verifies_signatures},
    work,
};

/// BLAKE3 hash of one block of thinking: of its signature and its text.
pub type ThinkingHash = [u8; 32];

/// Returns the hashes of all signed thinking, in document order.
pub(super) fn thinking_hashes(conversation: &Conversation<'_>, format: Format) -> impl Iterator<Item = ThinkingHash> {
    thinking_parts(conversation).filter_map(move |part| thinking_hash(conversation, format, part))
}

/// Returns the parts of the model that may be signed thinking.
pub(super) fn thinking_parts(conversation: &Conversation<'_>) -> impl DoubleEndedIterator<Item = PartId> {
    let is_signed = |part: &PartId| {
        conversation.part(*part).is_some_and(|found| match &found.kind {
            PartKind::Thinking => true,
            // Gemini signs calls.
            PartKind::Call(call) => call.signed,
            _ => false,
        })
    };
    PartId::all(0..conversation.parts.len()).filter(is_signed)
}

/// Returns the hash of the thinking at `part`. `None` if it is not signed.
pub(super) fn thinking_hash(conversation: &Conversation<'_>, format: Format, part: PartId) -> Option<ThinkingHash> {
    let (json, span) = (Json::new(conversation.body), conversation.part(part)?.span);
    let signature = thinking_signature(format, json, span);
    let text = thinking_text(format, json, span);
    if signature.is_none() && text.is_none() {
        return None;
    }
    let mut hash = blake3::Hasher::new();
    hash.add_text(format.label().as_bytes());
    // Decoded, because clients write the same block with other escapes, and with `cache_control` or without.
    hash.add_text(
        &signature
            .map(|signature| json.decode_string(signature))
            .unwrap_or_default(),
    );
    if let Some(text) = text {
        hash.add_text(&text);
    }
    Some(hash.finalize().into())
}

/// Marks the foreign thinking of a history: what is a finding, and what is removed.
///
/// `refused` is the thinking that the provider has refused. Returns the blocks that are marked for that alone.
pub(super) fn mark_foreign(
    conversation: &mut Conversation<'_>,
    wire: Wire,
    policy: &RepairPolicy,
    refused: &[ThinkingHash],
) -> Vec<PartId> {
    let mut found = std::mem::take(&mut conversation.foreign_thinking);
    if policy.foreign_thinking == OnForeignThinking::Ignore {
        return Vec::new();
    }
    // The provider ignores blocks before a compaction, and refuses thinking of the user for another reason.
    let is_judged = |part: &PartId| {
        conversation.compaction.is_none_or(|begin| *part > begin)
            && role_of(conversation, *part) == Some(Role::Assistant)
    };
    work::count(found.len());
    found.retain(|part| verifies_signatures(wire) && is_judged(part));
    // Healthy bodies pay for nothing further.
    if found.is_empty() && refused.is_empty() {
        return Vec::new();
    }
    let mut of_refusals = Vec::new();
    let begin = current_turn(conversation);
    if policy.foreign_thinking == OnForeignThinking::Remove && policy.least_safe <= Applicability::Lossy {
        // The provider requires the thinking of an open tool loop, so foreign thinking stays there.
        let is_past = |part: &PartId| conversation.part(*part).is_some_and(|found| found.message < begin);
        if !refused.is_empty() {
            let refused: HashSet<&ThinkingHash> = refused.iter().collect();
            let is_refused = |part: &PartId| {
                thinking_hash(conversation, wire.format, *part).is_some_and(|hash| refused.contains(&hash))
            };
            let is_news = |part: &PartId| found.binary_search(part).is_err();
            let more = thinking_parts(conversation).filter(is_past).filter(is_refused);
            of_refusals.extend(more.filter(is_news));
            found.extend(&of_refusals);
            found.sort_unstable();
        }
        conversation.removed_thinking = found.iter().copied().filter(is_past).collect();
    }
    conversation.foreign_thinking = found;
    of_refusals
}

/// Takes back the marks of [`mark_foreign`], which has returned `of_refusals`.
pub(super) fn unmark_foreign(conversation: &mut Conversation<'_>, of_refusals: &[PartId]) {
    conversation.removed_thinking.clear();
    work::count(conversation.foreign_thinking.len());
    let is_readers = |part: &PartId| of_refusals.binary_search(part).is_err();
    conversation.foreign_thinking.retain(is_readers);
}

/// Returns the role of the message that contains a part.
fn role_of(conversation: &Conversation<'_>, part: PartId) -> Option<Role> {
    let message = conversation.part(part)?.message;
    conversation.messages.get(message).map(|message| message.role)
}
