//! Removal of foreign thinking: reasoning that another provider, account or organisation has signed or encrypted.

use std::collections::HashSet;

use super::{
    Action, Paired,
    history_plan::{HistoryPlan, PartChange},
    parsed::PairedHistory,
    planner::HistoryPlanner,
    thinking_marks::{ThinkingHash, thinking_hash, thinking_parts},
};
use crate::{
    conversation::{Flaw, FlawKind, PartId, PartKind, Role, current_turn},
    wire::{Format, HistoryShape, json::Json},
    work,
};

/// One signed or encrypted block of thinking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThinkingBlock {
    /// Its hash.
    pub hash: ThinkingHash,
    /// `true` if it belongs to the current turn, an open tool loop.
    pub is_current: bool,
    /// `true` if its signature cannot be the provider's, or if the provider has refused it before.
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

/// Returns the hash of the last signed block of thinking. `None` for a batch, or if there is none.
pub fn last_thinking(paired: &Paired<'_>) -> Option<ThinkingHash> {
    let conversation = paired.only_conversation()?;
    let hash = |part| thinking_hash(conversation, paired.wire.format, part);
    thinking_parts(conversation).rev().find_map(hash)
}

/// Plans the removal of the marked thinking.
pub(super) fn remove_foreign_thinking(planner: &mut HistoryPlanner<'_>, format: Format) {
    let conversation = planner.conversation;
    let removed = &conversation.removed_thinking;
    let stays = |part: &&PartId| removed.binary_search(part).is_err();
    planner.plan.report.unrepairable += conversation.foreign_thinking.iter().filter(stays).count();
    let whole = |flaw: &Flaw| flaw.part.is_none().then_some(flaw.message);
    let mut fixed: HashSet<usize> = planner.plan.fixes.iter().filter_map(whole).collect();
    work::count(
        conversation
            .foreign_thinking
            .len()
            .saturating_add(planner.plan.fixes.len()),
    );
    for part in removed {
        work::count(1);
        match format.history() {
            HistoryShape::Messages | HistoryShape::Chat => remove_block(planner, *part),
            HistoryShape::Items => {
                remove_block(planner, *part);
                drop_ids_after(planner.history, &mut planner.plan, &mut fixed, *part);
            }
            // The signature alone is foreign: the call or text that carries it stays.
            HistoryShape::Contents => {
                planner.plan.unsigned.insert(*part);
                planner.count(Action::Fix);
            }
        }
    }
}

fn remove_block(planner: &mut HistoryPlanner<'_>, part: PartId) {
    planner.plan.part_changes.insert(part, PartChange::Removed);
    planner.count(Action::Drop);
}

/// Plans the removal of the item ids after a reasoning item that is removed.
///
/// OpenAI refuses an item with an id that comes without its reasoning item; an item without an id needs none
/// (continuedev/continue#11785).
fn drop_ids_after(history: &PairedHistory<'_>, plan: &mut HistoryPlan, fixed: &mut HashSet<usize>, reasoning: PartId) {
    let (conversation, json) = (&history.conversation, Json::new(history.conversation.body));
    let first = conversation
        .part(reasoning)
        .map_or(0, |found| found.message)
        .saturating_add(1);
    for (message, found) in conversation.messages.iter().enumerate().skip(first) {
        work::count(1);
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
        if may_lose_id && json.member(found.span, "id").is_some() && fixed.insert(message) {
            plan.fixes.push(Flaw {
                message,
                part: None,
                kind: FlawKind::RepeatedItemId,
            });
        }
    }
}
