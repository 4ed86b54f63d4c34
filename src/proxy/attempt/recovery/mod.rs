//! Resends after a provider's refusal of the history, as long as each refusal helps to repair the request.
//!
//! One loop reads the refusal, asks the recoveries in their order for a body, and sends it with the same credential, three
//! sends in all. Never used in strict or observe mode, for a signed body, or after the first byte of an answer.

mod base;
mod bound_thinking;
mod dropped_values;
mod foreign_thinking;
mod foreign_values;
mod lost_response;
mod objection;
mod pairing_faults;
mod proposal;
mod put;
mod refused_exchange;
mod removed_thinking;
mod results_at_end;
mod sent_history;
mod server_demands;
mod without_posted;
mod without_rules;

pub(super) use foreign_values::{has_foreign_values, take_values_out};
pub(super) use sent_history::SentHistory;

use super::{
    Attempts,
    explained_error::explained_format,
    large_body,
    send::{self, to_proxy_error},
};
use crate::{
    clock,
    ledger::Unread,
    policy::retry::SENDS_MAX,
    proxy::{
        catch_core_panic::catch_core_panic, continuity::ReturnedValues, error::ProxyError, exchange_log::ExchangeLog,
        response::ProviderAnswer,
    },
    repair::CallKey,
    telemetry::events::RowOutcome,
    upstream::SendError,
};
use objection::{LedgerNeed, Objection, Recovery};
use proposal::{Proposal, Trial};
use put::{note_sent, put_proposal, put_trial, undo_trial};
use refused_exchange::RefusedExchange;

/// Every recovery. The first with a proposal is followed.
const RECOVERIES: [&dyn Recovery; 8] = [
    &dropped_values::DroppedValues,
    &lost_response::LostResponse,
    &foreign_thinking::ForeignThinking,
    &bound_thinking::BoundThinking,
    &pairing_faults::PairingFaults,
    &server_demands::ServerDemands,
    &without_rules::WithoutRules,
    &without_posted::WithoutPosted,
];

/// The answer after all resends.
pub(super) struct Recovered {
    pub(super) answer: ProviderAnswer,
    /// `true` if it is the answer to a resend.
    pub(super) is_new: bool,
}

/// Reads an answer that may refuse the history, and resends the request as long as that helps.
pub(super) async fn recover_from_refusal(
    attempts: &mut Attempts<'_>,
    answer: ProviderAnswer,
    log: &mut ExchangeLog,
) -> Result<Recovered, ProxyError> {
    // A success refuses nothing, and its body is not read here.
    if answer.status().is_success() {
        log.event.is_history_refused = false;
        return Ok(Recovered { answer, is_new: false });
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
) -> Result<Recovered, SendError> {
    let mut answer = read_error(attempts, answer, log).await?;
    // The first recovery that may be asked. After a failed trial the refusal is the same, so the earlier ones are not.
    let (mut from, mut is_new) = (0, false);
    while let Some(objection) = Objection::read(attempts, &answer) {
        // Boxed, because refusals are rare and the future of every exchange would be larger otherwise.
        let Some((place, mut proposal)) = Box::pin(propose_next(attempts, &objection, from, log)).await else {
            record_unmet(attempts, &objection, log);
            break;
        };
        let trial = proposal.trial.take();
        if trial.is_some() {
            // Everything else follows the body only if the provider accepts it.
            put_trial(attempts, &proposal);
        } else if !put_proposal(attempts, &mut proposal).await {
            // The text that would contain the client's result could not be stored. The result stays where it is.
            attempts
                .history
                .iter_mut()
                .for_each(|history| history.forbid_overrides());
            continue;
        }
        log.record_resend(proposal.step.reason());
        let next = send_again(attempts, log).await;
        if let Some(trial) = trial {
            let Some(next) = next.filter(|next| next.status().is_success()) else {
                // The change has not helped. Another profile gets the body from before it.
                undo_trial(attempts, proposal.step);
                from = place.saturating_add(1);
                continue;
            };
            answer = next;
            end_trial(attempts, trial);
            // A trial has no late text, so there is nothing to store that could fail.
            put_proposal(attempts, &mut proposal).await;
            record_resent(&objection, log);
        } else {
            record_resent(&objection, log);
            // If a resend fails, the client gets the provider's last answer instead of an error of the proxy.
            let Some(next) = next else { break };
            answer = next;
        }
        note_sent(attempts, proposal, log);
        (from, is_new) = (0, true);
    }
    let refusal = answer.history_refusal(&attempts.outgoing.body.renamed_ids);
    if let Some(history) = attempts.history.as_deref().filter(|_| !answer.status().is_success()) {
        history.keep_unproven(attempts.path, refusal.as_ref());
    }
    // Not for bodies that are never resent.
    let is_resent = attempts.history.is_some();
    log.event.is_history_refused = is_resent && refusal.is_some_and(|refusal| refusal.kind.is_about_history());
    let answer = answer.with_old_ids(&attempts.outgoing.body.renamed_ids);
    Ok(Recovered { answer, is_new })
}

/// Records that the request is resent because of what a row has read. A success later makes it a mend.
fn record_resent(objection: &Objection, log: &mut ExchangeLog) {
    if let Some(refusal) = &objection.refusal {
        log.record_row(&refusal.row, RowOutcome::Vain);
    }
}

/// Records why the client gets a refusal that a row has read.
fn record_unmet(attempts: &mut Attempts<'_>, objection: &Objection, log: &mut ExchangeLog) {
    let policy = &attempts.path.settings.policy;
    let (Some(history), Some(refusal)) = (&mut attempts.history, &objection.refusal) else {
        return;
    };
    let is_off = refusal.demand.as_ref().is_some_and(|demand| !policy.makes(demand.kind));
    let outcome = match history.unmet.take() {
        _ if is_off => RowOutcome::SwitchedOff,
        Some(unmet) => unmet,
        None if log.event.sends >= SENDS_MAX => RowOutcome::Limited,
        None => RowOutcome::Relayed,
    };
    log.record_row(&refusal.row, outcome);
}

/// Reads the text of an error that may be about the body.
async fn read_error(
    attempts: &mut Attempts<'_>,
    answer: ProviderAnswer,
    log: &ExchangeLog,
) -> Result<ProviderAnswer, SendError> {
    let idle = attempts.path.settings.timeouts.idle;
    if attempts.outgoing.body.has_posted_results() {
        // The faults of a posted result come with other statuses than those of the history: 413, too.
        return answer.with_error_read(idle).await;
    }
    // Renamed ids matter even without a resend: the client must get its own ids in an error.
    let has_renamed = !attempts.outgoing.body.renamed_ids.is_empty();
    // Without a history too an error may need a sentence that the client understands.
    let is_explained = || explained_format(attempts.path, attempts.route, log).is_some();
    if attempts.history.is_some() || has_renamed || is_explained() {
        return answer.with_refusal_read(idle).await;
    }
    Ok(answer)
}

/// Returns the proposal that follows a refusal, with the place of its recovery. `None` if the provider's answer is final.
///
/// Asks the recoveries from the place `from` on. A large body is planned as heavy work, with memory of its own.
async fn propose_next(
    attempts: &mut Attempts<'_>,
    objection: &Objection,
    from: usize,
    log: &mut ExchangeLog,
) -> Option<(usize, Proposal)> {
    for (place, recovery) in RECOVERIES.into_iter().enumerate().skip(from) {
        if log.event.sends >= SENDS_MAX || !recovery.applies(objection, &refused_exchange(attempts, None)?) {
            continue;
        }
        // If it is not free in time, the client gets the refusal.
        large_body::take_resend_memory(attempts, recovery.bodies()).await.ok()?;
        let pass = large_body::resend_pass(attempts, log);
        let (work, client) = (
            &attempts.path.budgets.work,
            attempts.outgoing.body.context.budget_client,
        );
        let plan = async {
            let carried = read_ledger(attempts, recovery.ledger_need(objection)).await;
            let began = clock::now();
            let mut exchange = refused_exchange(attempts, carried)?;
            let planned = catch_core_panic(|| Some(recovery.propose(objection, &mut exchange)));
            log.event.overhead += clock::now().duration_since(began);
            planned
        };
        let planned = work.run(client, pass, plan).await.ok().flatten();
        large_body::end_resend_plan(attempts, matches!(planned, Some(Some(_))));
        // After a panic of the core, which would be a bug of the proxy, the client gets the provider's refusal. The same
        // if there was no place in time.
        if let Some(proposal) = planned? {
            return Some((place, proposal));
        }
    }
    None
}

/// Returns the exchange as recoveries see it. `None` if the provider's first answer is final.
fn refused_exchange<'s>(
    attempts: &'s mut Attempts<'_>,
    carried: Option<ReturnedValues>,
) -> Option<RefusedExchange<'s>> {
    Some(RefusedExchange {
        path: attempts.path,
        route: attempts.route,
        profile_left: attempts.former_profile.is_some(),
        history: attempts.history.as_deref_mut()?,
        body: &mut attempts.outgoing.body,
        headers: &attempts.outgoing.headers,
        carried,
    })
}

/// Reads what a recovery needs into memory, where its plan finds it. Returns the values that it wants back.
async fn read_ledger(attempts: &mut Attempts<'_>, need: LedgerNeed) -> Option<ReturnedValues> {
    let (path, profile) = (attempts.path, attempts.profile);
    let history = attempts.history.as_deref()?;
    let body = &mut attempts.outgoing.body;
    let pins = body.pins.as_mut()?;
    match need {
        LedgerNeed::Nothing => {}
        LedgerNeed::EarlierResults => {
            let scope = pins.scope;
            // After a panic of the core the resend is planned without these answers.
            let calls = catch_core_panic(|| Some(bound_thinking::answered_calls(history, &path.settings.policy)));
            // Memory first: only the ledger costs a wait.
            let is_unknown = |call: &CallKey| path.recall.cached_result(scope, *call).is_none();
            let calls: Vec<CallKey> = calls.unwrap_or_default().into_iter().filter(is_unknown).collect();
            if !calls.is_empty() {
                let fetch = |deadline| path.recall.fetch_results(scope, &calls, deadline);
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

/// Settles what the success of a trial shows.
fn end_trial(attempts: &mut Attempts<'_>, trial: Trial) {
    let Some(history) = &mut attempts.history else { return };
    match trial {
        Trial::WithoutRules => attempts.learned_facts.push(history.retract_rules()),
        Trial::WithoutPosted(left_out) => {
            history.leave_out(&left_out);
            let body = &mut attempts.outgoing.body;
            body.appended = body.appended.saturating_sub(left_out.text_calls());
            left_out.withhold(attempts.path, body.context.caller, body);
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
    read_error(attempts, answer, log).await.ok()
}
