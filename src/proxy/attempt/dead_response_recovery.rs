//! Recovery from a refusal because the provider has lost the response that the request continues from.

use super::{Attempts, resend_base::RecoveryContext, resend_plan::Resend};
use crate::{
    clock,
    ledger::Unread,
    policy::retry::SENDS_MAX,
    proxy::{catch_core_panic::catch_core_panic, exchange_log::ExchangeLog, fact_scope::FactScope},
    recall::LearnedFact,
    repair::OnForeignThinking,
    wire::Refusal,
};

/// Reads the items of the response that the request continues from into memory. Another process may have stored them.
pub(super) async fn load_chain(attempts: &mut Attempts<'_>) {
    let body = &mut attempts.outgoing.body;
    let previous = body
        .chain
        .as_ref()
        .and_then(|chain| Some((chain.caller, chain.previous_id()?)));
    let (Some((caller, id)), Some(pins)) = (previous, &mut body.pins) else {
        return;
    };
    let chains = attempts.path.recall.response_chains();
    let load = |deadline| chains.load_chain(caller, &id, deadline);
    // Unless it is read, the client gets the refusal.
    let _: Result<(), Unread> = pins.ledger_budget.spend(load).await;
}

/// Returns the resend without the id. `None` if the body lacks an item, so that the provider's answer is final.
pub(super) fn next_resend(attempts: &mut Attempts<'_>, refusal: &Refusal, log: &mut ExchangeLog) -> Option<Resend> {
    let path = attempts.path;
    let policy = &path.settings.policy;
    // The profile that the lane has left may still have the response.
    if log.event.sends >= SENDS_MAX
        || policy.foreign_thinking != OnForeignThinking::Remove
        || attempts.former_profile.is_some()
    {
        return None;
    }
    let began = clock::now();
    // Without its id the body was refused again, so the refusal repeats text.
    let chain = attempts
        .outgoing
        .body
        .chain
        .as_ref()
        .filter(|chain| chain.removed_id.is_none())?;
    let recovery = attempts.recovery.as_mut()?;
    let mut removed_id = None;
    let resend = catch_core_panic(|| {
        recovery.resend_changed(RecoveryContext { path, policy }, "dead_response", |_, body| {
            let removed = chain.remove_dead_id(body)?;
            // A refusal that names another id may repeat text of the client.
            let is_named = refusal.ids.first().is_none_or(|id| *id == removed.id);
            removed_id = is_named.then_some(removed.id);
            is_named.then_some(removed.body)
        })
    });
    log.event.overhead += clock::now().duration_since(began);
    let (mut resend, id) = resend.zip(removed_id)?;
    log.record_resend(resend.reason);
    let scope = FactScope {
        server: attempts.route.server,
        caller: attempts.outgoing.body.context.caller,
    };
    // The refusal alone proves nothing, since it may echo the client's text. Stored after a success only.
    resend
        .facts
        .push((scope.dead_response_key(&id), LearnedFact::DeadResponse));
    if let Some(chain) = &mut attempts.outgoing.body.chain {
        chain.removed_id = Some(id);
    }
    Some(resend)
}
