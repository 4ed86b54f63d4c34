//! Resends after a provider's 400 about pairing, as long as it says how to do better, all on one credential.

use super::{
    Attempts,
    rejection_recovery::{RecoveryContext, RejectionRecovery, Resend},
    send, upstream_error,
};
use crate::{
    clock,
    proxy::{
        catch_core_panic::catch_core_panic, error::ProxyError, exchange_log::ExchangeLog, provider_facts::FactScope,
        request, response::ProviderAnswer,
    },
    repair::CallKey,
    upstream::SendError,
    wire::{Refusal, RefusalKind},
};

/// Reads an answer that may refuse the request for its pairing, and resends as long as that helps.
pub(super) async fn recover(
    attempts: &mut Attempts<'_>,
    answer: ProviderAnswer,
    log: &mut ExchangeLog,
) -> Result<ProviderAnswer, ProxyError> {
    let route = attempts.route;
    let recovered = recover_answer(attempts, answer, log).await;
    recovered.map_err(|error| upstream_error(route, error))
}

async fn recover_answer(
    attempts: &mut Attempts<'_>,
    mut answer: ProviderAnswer,
    log: &mut ExchangeLog,
) -> Result<ProviderAnswer, SendError> {
    let (path, route) = (attempts.path, attempts.route);
    let (terms, idle) = (attempts.terms(log), path.settings.clocks.idle);
    let caller = attempts.outgoing.context.caller;
    if attempts.recovery.is_some() || !attempts.outgoing.renamed.is_empty() {
        answer = answer.with_refusal(idle).await?;
    }
    while let Some(refusal) = answer.refusal(&attempts.outgoing.renamed) {
        recall_answered_calls(attempts, &refusal).await;
        let Some(mut resend) = next_resend(attempts, &refusal, log) else {
            break;
        };
        if let Some(pins) = attempts.outgoing.pins.as_mut() {
            let (answers, late_text) = (std::mem::take(&mut resend.answers), resend.late_text.take());
            if !pins.replace(answers, late_text).await {
                // The client's result could not be stored anywhere else: it stays in its place.
                attempts
                    .recovery
                    .iter_mut()
                    .for_each(RejectionRecovery::forbid_overrides);
                continue;
            }
        }
        attempts.outgoing.replace(resend.body, resend.asks_for_binding_controls);
        let profile = attempts
            .profile
            .and_then(|id| path.profiles.profile(&route.upstream.name, id));
        // Whatever happens to the resend, the client gets an answer of the provider.
        let Ok(request) = attempts.outgoing.build(route.upstream, profile) else {
            break;
        };
        let Ok(better) = send::send_once(path, route, request, &terms, log).await else {
            break;
        };
        let Ok(better) = better.with_refusal(idle).await else {
            break;
        };
        answer = better;
        log.repair = Some(request::actions_header(&resend.report));
        attempts.outgoing.renamed.clone_from(&resend.report.renamed);
        log.event.report = Some(resend.report);
        if answer.is_success() {
            let upstream = &route.upstream.name;
            resend.fact.store(&path.facts, FactScope { upstream, caller });
        }
    }
    Ok(answer.with_old_ids(&attempts.outgoing.renamed))
}

/// Looks up earlier answers of calls that the client has answered in their places. Only bound thinking needs them.
async fn recall_answered_calls(attempts: &mut Attempts<'_>, refusal: &Refusal) {
    let path = attempts.path;
    let policy = request::policy_for(path, &attempts.route.upstream.name);
    let both = attempts.recovery.as_ref().zip(attempts.outgoing.pins.as_mut());
    let Some((recovery, pins)) = both.filter(|_| matches!(refusal.kind, RefusalKind::Bound { .. })) else {
        return;
    };
    let scope = pins.results.scope();
    let calls = catch_core_panic(|| Some(recovery.answered_calls(&policy))).unwrap_or_default();
    let is_unknown = |call: &CallKey| path.recall.recalled(scope, *call).is_none();
    let calls: Vec<CallKey> = calls.into_iter().filter(is_unknown).collect();
    if !calls.is_empty() {
        let fetch = |deadline| path.recall.fetch(scope, &calls, deadline);
        drop(pins.patience.spend(fetch).await);
    }
}

/// Returns what to send after a refusal, or `None` if the provider's word is final.
fn next_resend(attempts: &mut Attempts<'_>, refusal: &Refusal, log: &mut ExchangeLog) -> Option<Resend> {
    let (path, upstream) = (attempts.path, attempts.route.upstream.name.as_str());
    let began = clock::now();
    let mut policy = request::policy_for(path, upstream);
    if refusal.kind == RefusalKind::RepeatedCall && !policy.unique_ids {
        policy.to_mut().unique_ids = true;
    }
    let (recovery, sends) = (attempts.recovery.as_mut()?, log.event.attempts);
    let context = RecoveryContext {
        facts: &path.facts,
        recall: &path.recall,
        policy: &policy,
        on_binding_error: path.settings.on_binding_error,
    };
    // A panic of the core would be our own bug: the provider's word is then final.
    let resend = catch_core_panic(|| recovery.next_send(refusal, context, sends));
    log.event.overhead += clock::now().duration_since(began);
    let resend = resend?;
    log.sends_again(resend.why);
    Some(resend)
}
