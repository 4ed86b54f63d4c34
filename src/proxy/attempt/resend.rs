//! Resends after a provider's refusal of the history, as long as each refusal helps to repair the request.
//!
//! All resends of an attempt use the same credential.

use http::StatusCode;

use super::{
    Attempts, continuity_recovery, dead_response_recovery, large_body, posted_result_recovery,
    resend_base::RecoveryContext,
    resend_plan::Resend,
    send::{self, to_proxy_error},
};
use crate::{
    clock,
    policy::{OnOrganisationChange, retry::SENDS_MAX},
    proxy::{
        catch_core_panic::catch_core_panic, error::ProxyError, exchange_log::ExchangeLog, request,
        response::ProviderAnswer,
    },
    recall::{KeyedFact, LearnedFact},
    repair::CallKey,
    upstream::SendError,
    wire::{Refusal, RefusalKind},
};

/// Reads an answer that may refuse the request's pairing, and resends the request as long as that helps.
pub(super) async fn recover_from_refusal(
    attempts: &mut Attempts<'_>,
    answer: ProviderAnswer,
    log: &mut ExchangeLog,
) -> Result<ProviderAnswer, ProxyError> {
    // A success refuses nothing, and its body is not read here.
    if answer.status().is_success() {
        log.event.is_history_refused = false;
        return Ok(answer);
    }
    let route = attempts.route;
    // Boxed, because refusals are rare and the future of every exchange would be larger otherwise.
    let recovered = Box::pin(resend_while_refused(attempts, answer, log)).await;
    recovered.map_err(|error| to_proxy_error(route, error))
}

/// Does the work of [`recover_from_refusal`], with errors that do not name the upstream yet.
async fn resend_while_refused(
    attempts: &mut Attempts<'_>,
    mut answer: ProviderAnswer,
    log: &mut ExchangeLog,
) -> Result<ProviderAnswer, SendError> {
    let idle = attempts.path.settings.timeouts.idle;
    // Renamed ids matter even without a resend: the client must get its own ids in an error.
    if attempts.recovery.is_some() || !attempts.outgoing.body.renamed_ids.is_empty() {
        answer = answer.with_refusal_read(idle).await?;
    }
    while let Some(refusal) = answer.pairing_refusal(&attempts.outgoing.body.renamed_ids) {
        // Boxed, because refusals are rare and the future of every exchange would be larger otherwise.
        let Some(mut resend) = Box::pin(plan_next(attempts, &refusal, log)).await else {
            break;
        };
        let more = resend.late_text.as_ref().map_or(0, |(_, text)| text.calls.len());
        if let Some(pins) = attempts.outgoing.body.pins.as_mut() {
            let (answers, late_text) = (std::mem::take(&mut resend.answers), resend.late_text.take());
            if !pins.replace_pins(answers, late_text).await {
                // The text that would contain the client's result could not be stored. The result stays where it is.
                attempts
                    .recovery
                    .iter_mut()
                    .for_each(|recovery| recovery.forbid_overrides());
                continue;
            }
        }
        attempts.outgoing.body.appended = attempts.outgoing.body.appended.saturating_add(more);
        attempts.outgoing.body.add_to_report(&mut resend.report);
        attempts.outgoing.replace_body(resend.body, resend.needs_binding_beta);
        // If a resend fails, the client gets the provider's last answer instead of an error of the proxy.
        let Some(next_answer) = send_again(attempts, log).await else {
            break;
        };
        answer = next_answer;
        // The report describes the request that this answer belongs to.
        log.repair_header = Some(request::actions_header(&resend.report));
        attempts.outgoing.body.renamed_ids.clone_from(&resend.report.renamed);
        log.event.report = Some(resend.report);
        if resend.is_fallback {
            // The body before all repairs proves nothing of what they assumed. It still lacks a dead id, and has the
            // values that were put back.
            let is_in_body =
                |(_, fact): &KeyedFact| matches!(fact, LearnedFact::DeadResponse | LearnedFact::WantedContinuity);
            attempts.learned_facts.retain(is_in_body);
        }
        attempts.learned_facts.extend(resend.facts);
    }
    let is_named = answer.pairing_refusal(&attempts.outgoing.body.renamed_ids).is_some();
    // Most bodies follow no rule, and then no memory is taken.
    let follows_rules = attempts
        .recovery
        .as_ref()
        .is_some_and(|recovery| recovery.follows_rules());
    let may_be_rules = follows_rules && !is_named && answer.status() == StatusCode::BAD_REQUEST;
    if may_be_rules && log.event.sends < SENDS_MAX {
        answer = resend_without_rules(attempts, answer, log).await;
    }
    // Not for observed bodies, whose refusals are not read.
    log.event.is_history_refused = answer.pairing_refusal(&attempts.outgoing.body.renamed_ids).is_some();
    if !answer.status().is_success() && attempts.outgoing.body.has_posted_results() {
        answer = Box::pin(resend_without_posted(attempts, answer, log)).await?;
    }
    Ok(answer.with_old_ids(&attempts.outgoing.body.renamed_ids))
}

/// Returns the resend after a refusal. `None` if the provider's answer is final. A large body is planned as heavy work,
/// with memory of its own.
async fn plan_next(attempts: &mut Attempts<'_>, refusal: &Refusal, log: &mut ExchangeLog) -> Option<Resend> {
    // If it is not free in time, the client gets the refusal.
    large_body::take_resend_memory(attempts, 1).await.ok()?;
    let (passes, is_heavy) = large_body::resend_passes(attempts, log);
    let plan = async {
        if continuity_recovery::missing_kind(refusal.kind).is_some() {
            continuity_recovery::next_resend(attempts, refusal.kind, log).await
        } else if refusal.kind == RefusalKind::DeadResponse {
            dead_response_recovery::load_chain(attempts).await;
            dead_response_recovery::next_resend(attempts, refusal, log)
        } else {
            fetch_answered_calls(attempts, refusal).await;
            next_resend(attempts, refusal, log)
        }
    };
    // The same if there is no place in time.
    let resend = passes.run_pass(is_heavy, plan).await.flatten();
    large_body::end_resend_plan(attempts, resend.is_some());
    resend
}

/// Resends the request without what learned rules have changed, if the provider refuses it in words that name no fault.
///
/// Returns the answer to that, or the refusal if it is about something else.
async fn resend_without_rules(
    attempts: &mut Attempts<'_>,
    answer: ProviderAnswer,
    log: &mut ExchangeLog,
) -> ProviderAnswer {
    // Twice, since the body that follows the rules is planned again, too.
    if large_body::take_resend_memory(attempts, 2).await.is_err() {
        return answer;
    }
    let (passes, is_heavy) = large_body::resend_passes(attempts, log);
    let path = attempts.path;
    let context = RecoveryContext {
        path,
        policy: &path.settings.policy,
    };
    let recovery = &mut attempts.recovery;
    let plan = async { catch_core_panic(|| recovery.as_mut()?.plan_without_rules(context)) };
    let without = passes.run_pass(is_heavy, plan).await.flatten();
    large_body::end_resend_plan(attempts, without.is_some());
    let Some((mut resend, mut ruled)) = without else {
        return answer;
    };
    put_resend(attempts, &mut resend).await;
    log.record_resend(resend.reason);
    let next_answer = send_again(attempts, log).await;
    let Some(next_answer) = next_answer.filter(|next| next.status().is_success()) else {
        // The rules are not at fault. Another profile may get the body that follows them.
        put_resend(attempts, &mut ruled).await;
        return answer;
    };
    attempts.outgoing.body.renamed_ids.clone_from(&resend.report.renamed);
    log.repair_header = Some(request::actions_header(&resend.report));
    log.event.report = Some(resend.report);
    let retracted = attempts.recovery.as_mut().map(|recovery| recovery.retract_rules());
    attempts.learned_facts.extend(retracted);
    next_answer
}

/// Makes a planned body the one that is sent next.
async fn put_resend(attempts: &mut Attempts<'_>, resend: &mut Resend) {
    if let Some(pins) = attempts.outgoing.body.pins.as_mut() {
        pins.replace_pins(std::mem::take(&mut resend.answers), None).await;
    }
    attempts.outgoing.body.add_to_report(&mut resend.report);
    attempts
        .outgoing
        .replace_body(resend.body.clone(), resend.needs_binding_beta);
}

/// Resends the request without its posted results, if the provider refuses one of them.
///
/// Returns the answer to that, or the refusal if it is about something else.
async fn resend_without_posted(
    attempts: &mut Attempts<'_>,
    answer: ProviderAnswer,
    log: &mut ExchangeLog,
) -> Result<ProviderAnswer, SendError> {
    // The faults of a result come with other statuses than those of the pairing: 413, too.
    let answer = answer.with_error_read(attempts.path.settings.timeouts.idle).await?;
    let Some(refused) = posted_result_recovery::find_refused(attempts, &answer, log) else {
        return Ok(answer);
    };
    // Twice, since the body that was sent is searched too.
    if large_body::take_resend_memory(attempts, 2).await.is_err() {
        return Ok(answer);
    }
    let (passes, is_heavy) = large_body::resend_passes(attempts, log);
    let plan = async { posted_result_recovery::plan_resend(attempts, refused) };
    let without = passes.run_pass(is_heavy, plan).await.flatten();
    large_body::end_resend_plan(attempts, without.is_some());
    let Some(mut without) = without else {
        return Ok(answer);
    };
    let resend = &mut without.resend;
    if let Some(pins) = attempts.outgoing.body.pins.as_mut() {
        pins.replace_pins(std::mem::take(&mut resend.answers), None).await;
    }
    let (body, needs_beta) = (resend.body.clone(), resend.needs_binding_beta);
    attempts.outgoing.replace_body(body, needs_beta);
    let Some(next_answer) = send_again(attempts, log).await else {
        return Ok(answer);
    };
    if !next_answer.status().is_success() {
        // The results are not at fault.
        return Ok(answer);
    }
    log.repair_header = Some(request::actions_header(&without.resend.report));
    attempts.path.telemetry.record_resend("posted");
    without.withhold(attempts);
    Ok(next_answer)
}

/// Sends the present body on the same credential. `None` if there is no answer.
async fn send_again(attempts: &mut Attempts<'_>, log: &mut ExchangeLog) -> Option<ProviderAnswer> {
    let (path, route) = (attempts.path, attempts.route);
    let request = large_body::build_request(attempts, log).await.ok()?;
    let timeout = attempts.head_timeout(log);
    let context = &attempts.outgoing.body.context;
    let answer = send::send_once(path, route, context, request, timeout, log)
        .await
        .ok()?;
    answer.with_refusal_read(path.settings.timeouts.idle).await.ok()
}

/// Looks up earlier answers of calls that the client has answered in place since. Only bound thinking needs them.
async fn fetch_answered_calls(attempts: &mut Attempts<'_>, refusal: &Refusal) {
    let path = attempts.path;
    let both = attempts.recovery.as_ref().zip(attempts.outgoing.body.pins.as_mut());
    let Some((recovery, pins)) = both.filter(|_| matches!(refusal.kind, RefusalKind::Bound { .. })) else {
        return;
    };
    let scope = pins.late_results.pin_scope();
    // After a panic of the core the resend is planned without these answers.
    let calls = catch_core_panic(|| Some(recovery.answered_calls(&path.settings.policy))).unwrap_or_default();
    // Memory first: only the ledger costs a wait.
    let is_unknown = |call: &CallKey| path.recall.cached_answer(scope, *call).is_none();
    let calls: Vec<CallKey> = calls.into_iter().filter(is_unknown).collect();
    if !calls.is_empty() {
        let fetch = |deadline| path.recall.fetch_answers(scope, &calls, deadline);
        // The fetch caches the answers in memory, where the plan finds them.
        drop(pins.ledger_budget.spend(fetch).await);
    }
}

/// Returns the resend after a refusal. `None` if the provider's answer is final.
fn next_resend(attempts: &mut Attempts<'_>, refusal: &Refusal, log: &mut ExchangeLog) -> Option<Resend> {
    let path = attempts.path;
    let policy = &path.settings.policy;
    let may_move = path.settings.rotation.on_organisation_change == OnOrganisationChange::Move;
    if refusal.kind == RefusalKind::ForeignThinking && attempts.former_profile.is_some() && !may_move {
        // The profile that the lane left can read its reasoning: `prepare_next_attempt` returns to it.
        return None;
    }
    let began = clock::now();
    let (recovery, sends) = (attempts.recovery.as_mut()?, log.event.sends);
    let context = RecoveryContext { path, policy };
    // After a panic of the core, which would be a bug of the proxy, the client gets the provider's refusal.
    let resend = catch_core_panic(|| recovery.plan_resend(refusal, context, sends));
    log.event.overhead += clock::now().duration_since(began);
    let resend = resend?;
    log.record_resend(resend.reason);
    Some(resend)
}
