//! Removal of foreign thinking: reasoning that another provider, account or organisation has signed or encrypted.
//!
//! A signature that cannot be the provider's is a finding, and its block is removed before the current turn. Every other
//! block is removed by its hash, once the provider has refused it and accepted the body without it.

use std::collections::HashSet;

use super::{
    Action, Applicability, Paired, PairingContext,
    history_plan::{HistoryPlan, PartChange},
    parsed::PairedHistory,
    planner::Planner,
};
use crate::{
    conversation::{Conversation, Flaw, FlawKind, PartId, PartKind, Role, current_turn},
    digest::HashTexts,
    wire::{Format, Wire, json::Json, thinking_signature},
};

/// Treatment of foreign thinking.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnForeignThinking {
    /// No finding and no repair.
    Ignore,
    /// Findings only.
    Report,
    /// Findings, and removal before the current turn.
    #[default]
    Remove,
}

/// BLAKE3 hash of one block of thinking: of its signature and its text.
pub type ThinkingHash = [u8; 32];

/// One signed or encrypted block of thinking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThinkingBlock {
    /// Its hash.
    pub hash: ThinkingHash,
    /// `true` if it belongs to the current turn, an open tool loop.
    pub is_current: bool,
    /// `true` if its signature cannot be the provider's.
    pub is_impossible: bool,
}

/// Returns the signed blocks of thinking in document order. Empty for a batch.
pub fn thinking_blocks(paired: &Paired<'_>) -> Vec<ThinkingBlock> {
    let Some(conversation) = paired.only_conversation() else {
        return Vec::new();
    };
    let (format, begin) = (paired.wire.format, current_turn(conversation));
    let block = |part: PartId| {
        Some(ThinkingBlock {
            hash: thinking_hash(conversation, format, part)?,
            is_current: conversation.part(part)?.message >= begin,
            is_impossible: conversation.foreign_thinking.binary_search(&part).is_ok(),
        })
    };
    thinking_parts(conversation).filter_map(block).collect()
}

/// Returns the hashes of all signed thinking, in document order.
pub(super) fn thinking_hashes(conversation: &Conversation<'_>, format: Format) -> impl Iterator<Item = ThinkingHash> {
    thinking_parts(conversation).filter_map(move |part| thinking_hash(conversation, format, part))
}

/// Returns the hash of the last signed block of thinking. `None` for a batch, or if there is none.
pub fn last_thinking(paired: &Paired<'_>) -> Option<ThinkingHash> {
    let conversation = paired.only_conversation()?;
    let hash = |part| thinking_hash(conversation, paired.wire.format, part);
    thinking_parts(conversation).rev().find_map(hash)
}

/// Returns the parts of the model that may be signed thinking.
fn thinking_parts(conversation: &Conversation<'_>) -> impl DoubleEndedIterator<Item = PartId> {
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
fn thinking_hash(conversation: &Conversation<'_>, format: Format, part: PartId) -> Option<ThinkingHash> {
    let (json, span) = (Json::new(conversation.body), conversation.part(part)?.span);
    let signature = thinking_signature(format, json, span);
    // Anthropic requires a signature, so thinking without one is as foreign as thinking with a wrong one.
    if signature.is_none() && format != Format::Anthropic {
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
    if format == Format::Anthropic {
        // Blocks without a signature differ by their text only.
        hash.add_text(&json.member_text(span, "thinking"));
    }
    Some(hash.finalize().into())
}

/// Marks the foreign thinking of a history: what is a finding, and what is removed.
pub(super) fn mark_foreign(conversation: &mut Conversation<'_>, wire: Wire, context: &PairingContext<'_>) {
    let policy = context.policy;
    let mut found = std::mem::take(&mut conversation.foreign_thinking);
    if policy.foreign_thinking == OnForeignThinking::Ignore {
        return;
    }
    let begin = current_turn(conversation);
    // The provider ignores blocks before a compaction, and refuses thinking of the user for another reason.
    let is_judged = |part: &PartId| {
        conversation.compaction.is_none_or(|begin| *part > begin)
            && role_of(conversation, *part) == Some(Role::Assistant)
    };
    found.retain(|part| wire.verifies_signatures() && is_judged(part));
    if policy.foreign_thinking == OnForeignThinking::Remove && policy.least_safe <= Applicability::Lossy {
        // The provider requires the thinking of an open tool loop, so an impossible signature stays there.
        let is_past = |part: &PartId| conversation.part(*part).is_some_and(|found| found.message < begin);
        let mut removed: Vec<PartId> = found.iter().copied().filter(is_past).collect();
        if !context.refused_thinking.is_empty() {
            let refused: HashSet<&ThinkingHash> = context.refused_thinking.iter().collect();
            let is_refused = |part: &PartId| {
                thinking_hash(conversation, wire.format, *part).is_some_and(|hash| refused.contains(&hash))
            };
            removed.extend(thinking_parts(conversation).filter(is_refused));
            removed.sort_unstable();
            removed.dedup();
        }
        conversation.removed_thinking = removed;
    }
    conversation.foreign_thinking = found;
}

/// Returns the role of the message that contains a part.
fn role_of(conversation: &Conversation<'_>, part: PartId) -> Option<Role> {
    let message = conversation.part(part)?.message;
    conversation.messages.get(message).map(|message| message.role)
}

/// Plans the removal of the marked thinking.
pub(super) fn remove_foreign_thinking(planner: &mut Planner<'_>, format: Format) {
    let conversation = planner.conversation;
    let removed = &conversation.removed_thinking;
    let stays = |part: &&PartId| removed.binary_search(part).is_err();
    planner.plan.report.unrepairable += conversation.foreign_thinking.iter().filter(stays).count();
    for part in removed {
        if format == Format::Gemini {
            // The signature alone is foreign: the call or text that carries it stays.
            planner.plan.unsigned.insert(*part);
            planner.count(Action::Fix);
            continue;
        }
        planner.plan.part_changes.insert(*part, PartChange::Removed);
        planner.count(Action::Drop);
        if format == Format::OpenAiResponses {
            drop_ids_behind(planner.history, &mut planner.plan, *part);
        }
    }
}

/// Plans the removal of the item ids behind a reasoning item that is removed.
///
/// OpenAI refuses an item with an id that comes without its reasoning item; an item without an id needs none
/// (continuedev/continue#11785).
fn drop_ids_behind(history: &PairedHistory<'_>, plan: &mut HistoryPlan, reasoning: PartId) {
    let (conversation, json) = (&history.conversation, Json::new(history.conversation.body));
    let first = conversation
        .part(reasoning)
        .map_or(0, |found| found.message)
        .saturating_add(1);
    for (message, found) in conversation.messages.iter().enumerate().skip(first) {
        let part = conversation.parts_of(found).first();
        // The output of one response ends at the next reasoning, result or message of the user.
        if found.role != Role::Assistant || part.is_some_and(|part| matches!(part.kind, PartKind::Thinking)) {
            break;
        }
        let kind = json.member_text(found.span, "type");
        let may_lose_id = match part.map(|part| &part.kind) {
            // Without a `call_id` the result names the item id.
            Some(PartKind::Call(_)) => json.member(found.span, "call_id").is_some(),
            // Hosted tools and references are nothing without their id.
            _ => *kind == *b"message",
        };
        let is_fixed = plan
            .fixes
            .iter()
            .any(|flaw| flaw.message == message && flaw.part.is_none());
        if may_lose_id && !is_fixed && json.member(found.span, "id").is_some() {
            plan.fixes.push(Flaw {
                message,
                part: None,
                kind: FlawKind::RepeatedItemId,
            });
        }
    }
}
