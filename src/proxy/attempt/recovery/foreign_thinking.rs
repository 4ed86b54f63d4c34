//! Recovery from a refusal of thinking that another provider or account has signed.
//!
//! First the blocks after the last accepted body go, so that the bytes which the provider has cached stay. Then all.

use std::collections::HashSet;

use super::{
    objection::{Objection, Recovery},
    proposal::{Proposal, ResendStep},
    refused_exchange::RefusedExchange,
    removed_thinking::RemovedThinking,
};
use crate::{
    policy::OnOrganisationChange,
    proxy::fact_scope::FactScope,
    recall::RecallStore,
    repair::{OnForeignThinking, ThinkingBlock, ThinkingHash, thinking_blocks},
    wire::RefusalKind,
};

/// The recovery from refusals of foreign thinking. Without a limit of its own, since a body may have another fault too.
pub(super) struct ForeignThinking;

impl Recovery for ForeignThinking {
    fn applies(&self, objection: &Objection, exchange: &RefusedExchange<'_>) -> bool {
        let settings = &exchange.path.settings;
        // Otherwise the profile that the lane left can read its reasoning, and the lane returns to it.
        let may_remove =
            !exchange.profile_left || settings.rotation.on_organisation_change == OnOrganisationChange::Move;
        objection.kind() == Some(RefusalKind::ForeignThinking)
            && may_remove
            && settings.policy.foreign_thinking == OnForeignThinking::Remove
    }

    fn propose(&self, _: &Objection, exchange: &mut RefusedExchange<'_>) -> Option<Proposal> {
        let context = exchange.context();
        let history = &mut *exchange.history;
        let base = &mut history.base;
        let blocks = thinking_blocks(&base.pair(context)?);
        let chosen = choose_blocks(&base.removed_thinking, &blocks, &context.path.recall, base.fact_scope())?;
        let before = base.removed_thinking.clone();
        base.removed_thinking.blocks.extend(chosen);
        let proposal = base.plan_resend(context, ResendStep::ThinkingRemoved);
        // The provider would refuse the same bytes again.
        let proposal = proposal.filter(|proposal| !history.is_last_sent(&proposal.body));
        if proposal.is_none() {
            history.base.removed_thinking = before;
        }
        proposal
    }
}

/// Chooses the blocks to remove before the current turn. `None` if the provider's refusal is final.
pub(super) fn choose_blocks(
    removed: &RemovedThinking,
    blocks: &[ThinkingBlock],
    recall: &RecallStore,
    scope: FactScope,
) -> Option<Vec<ThinkingHash>> {
    // The provider requires the thinking of an open tool loop. With an impossible signature in it nothing helps.
    if blocks.iter().any(|block| block.is_current && block.is_impossible) {
        return None;
    }
    let removed: HashSet<ThinkingHash> = removed.blocks.iter().copied().collect();
    let is_refused = |block: &ThinkingBlock| recall.is_refused_thinking(scope.caller, scope.thinking_key(block.hash));
    let is_left = |block: &&ThinkingBlock| {
        // Impossible blocks are not in the body that was refused.
        !block.is_current && !block.is_impossible && !removed.contains(&block.hash) && !is_refused(block)
    };
    let hashes = |blocks: &[ThinkingBlock]| -> Vec<ThinkingHash> {
        blocks.iter().filter(is_left).map(|block| block.hash).collect()
    };
    if removed.is_empty() {
        // An accepted body proves every block up to its last one.
        let is_settled = |block: &ThinkingBlock| {
            is_refused(block) || recall.is_accepted_thinking(scope.caller, scope.thinking_key(block.hash))
        };
        let after = blocks
            .iter()
            .rposition(is_settled)
            .map_or(0, |index| index.saturating_add(1));
        let newer = hashes(blocks.get(after..).unwrap_or_default());
        if after > 0 && !newer.is_empty() {
            return Some(newer);
        }
    }
    // Another account, or a request without thinking, may have accepted the older blocks: the session must go on.
    Some(hashes(blocks)).filter(|all| !all.is_empty())
}
