//! Recovery from a refusal of thinking that was generated after another prefix.

use std::collections::HashSet;

use super::{
    base::RecoveryContext,
    objection::{LedgerNeed, Objection, Recovery},
    proposal::{Proposal, ResendStep},
    refused_exchange::RefusedExchange,
    results_at_end::append_at_end,
    sent_history::SentHistory,
};
use crate::{
    ledger::ROWS_MAX,
    proxy::{data_path::OnBindingError, request::CallResults},
    recall::LearnedFact,
    repair::{BodyCall, CallKey, PinnedResult, Placeholder, Plan, RepairPolicy, plan, replace_unseen_results},
    splice::Segments,
    wire::RefusalKind,
};

/// The recovery from refusals of bound thinking.
pub(super) struct BoundThinking;

impl Recovery for BoundThinking {
    fn applies(&self, objection: &Objection, exchange: &RefusedExchange<'_>) -> bool {
        let is_bound = objection.kind() == Some(RefusalKind::Bound);
        is_bound && !exchange.history.has_tried_for_bound(ResendStep::ThinkingDropped)
    }

    fn ledger_need(&self, _: &Objection) -> LedgerNeed {
        LedgerNeed::EarlierResults
    }

    fn propose(&self, _: &Objection, exchange: &mut RefusedExchange<'_>) -> Option<Proposal> {
        let path = exchange.path;
        let context = exchange.context();
        let history = &mut *exchange.history;
        // Replacing results keeps the model's thinking, so it is tried before the thinking is given up.
        if !history.has_tried_for_bound(ResendStep::ResultsReplaced)
            && let Some(proposal) = replace_results(history, context)
        {
            return Some(proposal);
        }
        let may_drop = path.settings.on_binding_error == OnBindingError::DropBlock;
        may_drop.then(|| drop_thinking(history, context)).flatten()
    }
}

/// A body whose results before unseen thinking are replaced by placeholders.
struct ReplacedResults {
    plan: Plan,
    body: Segments,
    replaced: Vec<(CallKey, Placeholder)>,
    /// Calls whose placeholder overrides a result that the client has added in place since.
    overridden: Vec<(CallKey, Placeholder)>,
    results: CallResults,
}

/// Returns the calls that the client has answered in place, whose earlier results matter for bound thinking.
pub(super) fn answered_calls(history: &SentHistory, policy: &RepairPolicy) -> Vec<CallKey> {
    // Results are replaced once. Later stages need no earlier results.
    if history.has_moved_results() {
        return Vec::new();
    }
    let Some(paired) = history.base.pair_by_dialect(policy) else {
        return Vec::new();
    };
    let answered = paired.answered_calls();
    // The last calls first: the newest thinking is after them, and one ledger read has a limit.
    answered.iter().map(|call| call.key).rev().take(ROWS_MAX).collect()
}

/// Replaces results by placeholders if signed thinking after them was generated without them.
///
/// Also overrides results that the client has added in place since. They move to the end of the user's text.
fn replace_results(history: &mut SentHistory, context: RecoveryContext<'_>) -> Option<Proposal> {
    let replaced = plan_placeholders(history, context, history.may_override)?;
    if replaced.overridden.is_empty() {
        return resend_with_placeholders(history, replaced);
    }
    // The place is named by the message's text: late results at its end would give it another anchor.
    let late = if history.base.sent.ends_with_late {
        None
    } else {
        let paired = history.base.pair_by_dialect(context.policy)?;
        append_at_end(
            &history.base.body,
            &paired,
            history.base.sent.wire.format,
            &replaced.overridden,
        )
    };
    let Some(late) = late else {
        // Without another place for it the client's result would be lost: nothing is overridden.
        let replaced = plan_placeholders(history, context, false)?;
        return resend_with_placeholders(history, replaced);
    };
    let before = std::mem::replace(&mut history.base.body, late.body);
    let replaced = plan_placeholders(history, context, true);
    let Some(resend) = replaced.and_then(|replaced| resend_with_placeholders(history, replaced)) else {
        history.base.body = before;
        return None;
    };
    Some(Proposal {
        late_text: Some((late.anchor, late.appended)),
        ..resend
    })
}

/// Plans the body with placeholders. Overrides results of the client only if `overrides` is set.
fn plan_placeholders(history: &SentHistory, context: RecoveryContext<'_>, overrides: bool) -> Option<ReplacedResults> {
    let base = &history.base;
    let paired = base.pair(context)?;
    let mut lookup = base.look_up(&paired, context);
    let mut overridden = Vec::new();
    if overrides {
        let pinned = |call: &BodyCall| match pinned_result(history, call, context)? {
            PinnedResult::Placeholder(placeholder) => Some(placeholder),
            PinnedResult::Result(_) => None,
        };
        lookup.override_results(&paired, pinned);
        overridden.extend(paired.answered_calls().iter().filter_map(|call| {
            let placeholder = lookup.known.overrides.get(&call.key)?;
            Some((call.key, *placeholder))
        }));
    }
    let replaced = replace_unseen_results(paired.open_calls(), &mut lookup.known, context.policy);
    let plan = plan(&paired, &lookup.known, context.policy).ok()?;
    let mut results = base.results_of(&paired, &plan, &lookup);
    let replaced_calls: HashSet<CallKey> = replaced.iter().map(|(call, _)| *call).collect();
    // A replaced result is a new pin of this resend, not one that earlier requests gave.
    results.pinned_before.retain(|(call, _)| !replaced_calls.contains(call));
    let pin = |(call, placeholder): &(CallKey, Placeholder)| (*call, PinnedResult::Placeholder(*placeholder));
    results.assigned.extend(replaced.iter().map(pin));
    Some(ReplacedResults {
        body: plan.splice(&paired, &base.body).ok()?,
        plan,
        replaced,
        overridden,
        results,
    })
}

/// Returns the result that earlier requests contained for a call.
fn pinned_result(history: &SentHistory, call: &BodyCall, context: RecoveryContext<'_>) -> Option<PinnedResult> {
    let memory = history.base.call_memory(context);
    if let Some(placeholder) = memory.facts.bound_placeholder(memory.scope, call.key) {
        return Some(PinnedResult::Placeholder(placeholder));
    }
    let pinned = history.base.sent.lookup.known.pinned.get(&call.key).cloned();
    pinned.or_else(|| memory.recall.cached_result(history.base.sent.scope, call.key))
}

/// Builds the resend of a plan with placeholders. `None` if it replaces nothing.
fn resend_with_placeholders(history: &SentHistory, replaced: ReplacedResults) -> Option<Proposal> {
    if replaced.replaced.is_empty() && replaced.overridden.is_empty() {
        return None;
    }
    let overrides = !replaced.overridden.is_empty();
    let named = replaced.replaced.iter().chain(&replaced.overridden);
    let scope = history.base.fact_scope();
    let bound = named.map(|(call, placeholder)| {
        let fact = LearnedFact::BoundPlaceholder(*placeholder);
        (scope.call_key(*call), fact)
    });
    let overrides = overrides.then(|| (scope.overrides_key(), LearnedFact::HasOverrides));
    let facts = bound.chain(overrides).collect();
    Some(Proposal::new(
        replaced.body,
        replaced.plan.report,
        ResendStep::ResultsReplaced,
        replaced.results,
        facts,
    ))
}

/// Builds a resend with the documented setting that lets the provider drop bound thinking.
fn drop_thinking(history: &mut SentHistory, context: RecoveryContext<'_>) -> Option<Proposal> {
    // Without the refused attempt's text at its end: the client's results return to their places.
    history.base.restore();
    let base = &history.base;
    let paired = base.pair(context)?;
    let lookup = base.look_up(&paired, context);
    let mut plan = plan(&paired, &lookup.known, context.policy).ok()?;
    if !plan.drop_bound_thinking(&paired).ok()? {
        return None;
    }
    let results = base.results_of(&paired, &plan, &lookup);
    let key = paired
        .first_thinking()
        .map(|thinking| base.fact_scope().conversation_key(thinking));
    let body = plan.splice(&paired, &base.body).ok()?;
    let fact = key.map(|key| (key, LearnedFact::DroppableThinking));
    let facts = fact.into_iter().collect();
    Some(Proposal::new(
        body,
        plan.report,
        ResendStep::ThinkingDropped,
        results,
        facts,
    ))
}
