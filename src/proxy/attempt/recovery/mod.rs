//! Resends after a provider's refusal of the history, as long as each refusal helps to repair the request.
//!
//! One loop reads the refusal, asks the recoveries in their order for a body, and sends it with the same credential. A
//! body that was sent before is not sent again. Never used in strict or observe mode, for a signed body, or after the
//! first byte of an answer.

mod base;
mod bound_thinking;
mod carried_values;
mod dead_response;
mod foreign_thinking;
mod learned_rules;
mod objection;
mod pairing;
mod posted_results;
mod proposal;
mod removed_thinking;
mod results_at_end;
mod sent;

pub(super) use carried_values::{has_foreign_values, take_values_out};
pub(super) use sent::SentHistory;

use super::{
    Attempts, large_body,
    send::{self, to_proxy_error},
};
use crate::{
    clock,
    ledger::Unread,
    policy::retry::SENDS_MAX,
    proxy::{
        catch_core_panic::catch_core_panic, continuity::ContinuityPlan, error::ProxyError, exchange_log::ExchangeLog,
        request, response::ProviderAnswer,
    },
    recall::{KeyedFact, LearnedFact},
    repair::{CallKey, ContinuityKind},
    upstream::SendError,
};
use objection::{LedgerNeed, Objection, Recovery};
use proposal::{Proposal, Trial};
use sent::Sent;

/// Every recovery. The first with a proposal is followed.
const RECOVERIES: [&dyn Recovery; 9] = [
    &carried_values::DroppedValues(ContinuityKind::Reasoning),
    &carried_values::DroppedValues(ContinuityKind::Signature),
    &carried_values::DroppedValues(ContinuityKind::Container),
    &dead_response::LostResponse,
    &foreign_thinking::ForeignThinking,
    &bound_thinking::BoundThinking,
    &pairing::PairingFaults,
    &learned_rules::WithoutRules,
    &posted_results::WithoutPosted,
];

/// Reads an answer that may refuse the history, and resends the request as long as that helps.
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
    answer: ProviderAnswer,
    log: &mut ExchangeLog,
) -> Result<ProviderAnswer, SendError> {
    let mut answer = read_error(attempts, answer).await?;
    while let Some(objection) = Objection::read(attempts, &answer) {
        // Boxed, because refusals are rare and the future of every exchange would be larger otherwise.
        let Some(mut proposal) = Box::pin(propose_next(attempts, &objection, log)).await else {
            break;
        };
        if !put_proposal(attempts, &mut proposal).await {
            // The text that would contain the client's result could not be stored. The result stays where it is.
            attempts
                .history
                .iter_mut()
                .for_each(|history| history.forbid_overrides());
            continue;
        }
        log.record_resend(proposal.step.reason());
        let next = send_again(attempts, log).await;
        match proposal.trial.take() {
            Some(trial) => match next.filter(|next| next.status().is_success()) {
                Some(next) => {
                    answer = next;
                    note_sent(attempts, proposal, log);
                    end_trial(attempts, trial);
                }
                // The change has not helped. Another profile may get the body without it.
                None => {
                    if let Trial::Rules(mut ruled) = trial {
                        put_proposal(attempts, &mut ruled).await;
                    }
                }
            },
            // If a resend fails, the client gets the provider's last answer instead of an error of the proxy.
            None => {
                let Some(next) = next else { break };
                answer = next;
                note_sent(attempts, proposal, log);
            }
        }
    }
    let refusal = answer.pairing_refusal(&attempts.outgoing.body.renamed_ids);
    // Not for observed bodies, whose refusals are not read.
    log.event.is_history_refused = refusal.is_some();
    Ok(answer.with_old_ids(&attempts.outgoing.body.renamed_ids))
}

/// Reads the text of an error that may be about the body.
async fn read_error(attempts: &mut Attempts<'_>, answer: ProviderAnswer) -> Result<ProviderAnswer, SendError> {
    let idle = attempts.path.settings.timeouts.idle;
    if attempts.outgoing.body.has_posted_results() {
        // The faults of a posted result come with other statuses than those of the history: 413, too.
        return answer.with_error_read(idle).await;
    }
    // Renamed ids matter even without a resend: the client must get its own ids in an error.
    if attempts.history.is_some() || !attempts.outgoing.body.renamed_ids.is_empty() {
        return answer.with_refusal_read(idle).await;
    }
    Ok(answer)
}

/// Returns the proposal that follows a refusal. `None` if the provider's answer is final. A large body is planned as heavy
/// work, with memory of its own.
async fn propose_next(attempts: &mut Attempts<'_>, objection: &Objection, log: &mut ExchangeLog) -> Option<Proposal> {
    if log.event.sends >= SENDS_MAX {
        return None;
    }
    let sent = view(attempts, None)?;
    let recoveries: Vec<&dyn Recovery> = RECOVERIES
        .into_iter()
        .filter(|recovery| recovery.applies(objection, &sent))
        .collect();
    let bodies = recoveries.iter().map(|recovery| recovery.bodies()).max()?;
    // If it is not free in time, the client gets the refusal.
    large_body::take_resend_memory(attempts, bodies).await.ok()?;
    let (passes, is_heavy) = large_body::resend_passes(attempts, log);
    let plan = async {
        let mut carried = None;
        for recovery in &recoveries {
            if let Some(values) = read_ledger(attempts, recovery.ledger_need()).await {
                carried = Some(values);
            }
        }
        let began = clock::now();
        let mut sent = view(attempts, carried)?;
        let mut recoveries = recoveries.iter();
        // After a panic of the core, which would be a bug of the proxy, the client gets the provider's refusal.
        let proposal = recoveries.find_map(|recovery| catch_core_panic(|| recovery.propose(objection, &mut sent)));
        log.event.overhead += clock::now().duration_since(began);
        proposal
    };
    // The same if there is no place in time.
    let proposal = passes.run_pass(is_heavy, plan).await.flatten();
    large_body::end_resend_plan(attempts, proposal.is_some());
    proposal
}

/// Returns the exchange as recoveries see it. `None` if the provider's first answer is final.
fn view<'s>(attempts: &'s mut Attempts<'_>, carried: Option<ContinuityPlan>) -> Option<Sent<'s>> {
    Some(Sent {
        path: attempts.path,
        route: attempts.route,
        profile_left: attempts.former_profile.is_some(),
        history: attempts.history.as_deref_mut()?,
        body: &mut attempts.outgoing.body,
        carried,
    })
}

/// Reads what a recovery needs into memory, where its plan finds it. Returns the values that it wants back.
async fn read_ledger(attempts: &mut Attempts<'_>, need: LedgerNeed) -> Option<ContinuityPlan> {
    let (path, profile) = (attempts.path, attempts.profile);
    let history = attempts.history.as_deref()?;
    let body = &mut attempts.outgoing.body;
    let pins = body.pins.as_mut()?;
    match need {
        LedgerNeed::Nothing => {}
        LedgerNeed::EarlierAnswers => {
            let scope = pins.late_results.pin_scope();
            // After a panic of the core the resend is planned without these answers.
            let calls = catch_core_panic(|| Some(bound_thinking::answered_calls(history, &path.settings.policy)));
            // Memory first: only the ledger costs a wait.
            let is_unknown = |call: &CallKey| path.recall.cached_answer(scope, *call).is_none();
            let calls: Vec<CallKey> = calls.unwrap_or_default().into_iter().filter(is_unknown).collect();
            if !calls.is_empty() {
                let fetch = |deadline| path.recall.fetch_answers(scope, &calls, deadline);
                drop(pins.ledger_budget.spend(fetch).await);
            }
        }
        LedgerNeed::Items => {
            let chain = body.chain.as_ref()?;
            let (caller, id) = (chain.caller, chain.previous_id()?);
            let chains = path.recall.response_chains();
            let load = |deadline| chains.load_chain(caller, &id, deadline);
            // Unless it is read, the client gets the refusal.
            let _: Result<(), Unread> = pins.ledger_budget.spend(load).await;
        }
        LedgerNeed::Values(kind) => {
            let continuity = body.continuity.as_mut()?;
            // All waits of the exchange share one deadline.
            let work = async |deadline| continuity.plan_refused(kind, profile, deadline).await;
            return pins.ledger_budget.spend(work).await;
        }
    }
    None
}

/// Makes a proposal the body that is sent next. Returns `false` if its late text could not be stored.
async fn put_proposal(attempts: &mut Attempts<'_>, proposal: &mut Proposal) -> bool {
    let more = proposal.late_text.as_ref().map_or(0, |(_, text)| text.calls.len());
    let body = &mut attempts.outgoing.body;
    if let Some(pins) = body.pins.as_mut() {
        let (answers, late_text) = (std::mem::take(&mut proposal.answers), proposal.late_text.take());
        if !pins.replace_pins(answers, late_text).await {
            return false;
        }
    }
    let fewer = proposal.trial.as_ref().map_or(0, Trial::left_out_texts);
    body.appended = body.appended.saturating_add(more).saturating_sub(fewer);
    body.add_to_report(&mut proposal.report);
    attempts
        .outgoing
        .replace_body(proposal.body.clone(), proposal.needs_binding_beta);
    if let Some(history) = &mut attempts.history {
        // The next refusal is about this body.
        history.last_sent = proposal.body.clone();
        history.steps.push(proposal.step);
    }
    true
}

/// Notes what a resend has changed, now that the answer to it is the exchange's.
fn note_sent(attempts: &mut Attempts<'_>, proposal: Proposal, log: &mut ExchangeLog) {
    // The report describes the request that this answer belongs to.
    log.repair_header = Some(request::actions_header(&proposal.report));
    attempts.outgoing.body.renamed_ids.clone_from(&proposal.report.renamed);
    log.event.report = Some(proposal.report);
    if proposal.is_fallback {
        // The body before all repairs proves nothing of what they assumed. It still lacks a dead id, and has the
        // values that were put back.
        let is_in_body =
            |(_, fact): &KeyedFact| matches!(fact, LearnedFact::DeadResponse | LearnedFact::WantedContinuity);
        attempts.learned_facts.retain(is_in_body);
    }
    attempts.learned_facts.extend(proposal.facts);
}

/// Settles what the success of a trial shows.
fn end_trial(attempts: &mut Attempts<'_>, trial: Trial) {
    match trial {
        Trial::Rules(_) => {
            let retracted = attempts.history.as_mut().map(|history| history.retract_rules());
            attempts.learned_facts.extend(retracted);
        }
        Trial::Posted(left_out) => {
            let caller = attempts.outgoing.body.context.caller;
            left_out.withhold(attempts.path, caller, &mut attempts.outgoing.body);
        }
    }
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
    read_error(attempts, answer).await.ok()
}
