//! Recovery from a refusal because the provider has lost the response that the request continues from.

use super::{
    objection::{LedgerNeed, Objection, Recovery},
    proposal::{Proposal, ResendStep},
    refused_exchange::RefusedExchange,
};
use crate::{proxy::fact_scope::FactScope, recall::LearnedFact, repair::OnForeignThinking, wire::RefusalKind};

/// The recovery that sends the items of a lost response in place of its id.
pub(super) struct LostResponse;

impl Recovery for LostResponse {
    fn applies(&self, objection: &Objection, exchange: &RefusedExchange<'_>) -> bool {
        objection.kind() == Some(RefusalKind::DeadResponse)
            && exchange.path.settings.policy.foreign_thinking == OnForeignThinking::Remove
            // The profile that the lane has left may still have the response.
            && !exchange.profile_left
            // Without its id the body was refused again, so the refusal repeats text.
            && exchange.body.chain.as_ref().is_some_and(|chain| chain.removed_id.is_none())
    }

    fn ledger_need(&self, _: &Objection) -> LedgerNeed {
        LedgerNeed::Items
    }

    fn propose(&self, objection: &Objection, exchange: &mut RefusedExchange<'_>) -> Option<Proposal> {
        let refusal = objection.refusal.as_ref()?;
        let context = exchange.context();
        let chain = exchange.body.chain.as_ref()?;
        let mut removed_id = None;
        let changed = exchange
            .history
            .resend_changed(context, ResendStep::DeadResponse, |_, body| {
                // The body lacks an item if that fails, so that the provider's answer is final.
                let removed = chain.remove_dead_id(body)?;
                // A refusal that names another id may repeat text of the client.
                let is_named = refusal.ids.first().is_none_or(|id| *id == removed.id);
                removed_id = is_named.then_some(removed.id);
                is_named.then_some(removed.body)
            });
        let (mut proposal, id) = changed.zip(removed_id)?;
        let scope = FactScope {
            server: exchange.route.server,
            caller: exchange.body.context.caller,
        };
        // The refusal alone proves nothing, since it may echo the client's text. Stored after a success only.
        let fact = (scope.dead_response_key(&id), LearnedFact::DeadResponse);
        proposal.facts.push(fact);
        if let Some(chain) = &mut exchange.body.chain {
            chain.removed_id = Some(id);
        }
        Some(proposal)
    }
}
