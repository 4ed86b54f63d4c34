//! The change from one body of an exchange to the next.

use super::proposal::{Proposal, ResendStep};
use crate::{
    proxy::{attempt::Attempts, exchange_log::ExchangeLog, mends, request},
    recall::{KeyedFact, LearnedFact},
    splice::Segments,
};

/// Makes a proposal the body that the exchange follows. Returns `false` if its late text could not be stored.
pub(super) async fn put_proposal(attempts: &mut Attempts<'_>, proposal: &mut Proposal) -> bool {
    let more = proposal.late_text.as_ref().map_or(0, |(_, text)| text.calls.len());
    let body = &mut attempts.outgoing.body;
    if let Some(pins) = body.pins.as_mut() {
        let (results, late_text) = (std::mem::take(&mut proposal.results), proposal.late_text.take());
        if !pins.replace_pins(results, late_text).await {
            return false;
        }
    }
    body.appended = body.appended.saturating_add(more);
    body.add_to_report(&mut proposal.report);
    let mut finished = proposal.body.clone();
    if let Some(history) = &mut attempts.history {
        // The next refusal is about this body.
        history.base.sent.body = proposal.body.clone();
        history.steps.push(proposal.step);
        if let Some(mends) = proposal.mends.take() {
            history.base.sent.mends = mends;
        }
        history.met.extend(proposal.met.take());
        history.unmet = None;
        let scope = history.base.fact_scope();
        let sent = &mut history.base.sent;
        let mut made = sent.mends.made_in_header(&attempts.outgoing.headers, &sent.made);
        mends::leave_betas_out(&sent.mends, &mut attempts.outgoing.headers);
        if let Some(mended) = sent.mends.make(&proposal.body, sent.wire, attempts.path, scope) {
            made.extend(sent.mends.made_in(&mended));
            finished = Segments::whole(mended.body);
        }
        mends::add_to_report(&made, &mut proposal.report);
        sent.made = made;
    }
    attempts.outgoing.replace_body(finished, proposal.needs_binding_beta);
    true
}

/// Sends the planned body of a trial, with its mends.
pub(super) fn put_trial(attempts: &mut Attempts<'_>, proposal: &Proposal) {
    let history = attempts.history.as_deref();
    let finished = history.map(|history| match &proposal.mends {
        Some(mends) => history.finished_with(attempts.path, mends, &proposal.body),
        None => history.finished(attempts.path, &proposal.body),
    });
    let body = finished.unwrap_or_else(|| proposal.body.clone());
    attempts.outgoing.replace_body(body, proposal.needs_binding_beta);
}

/// Puts the refused body back, after a trial of this change that has not helped.
pub(super) fn undo_trial(attempts: &mut Attempts<'_>, failed: ResendStep) {
    if let Some(history) = &mut attempts.history {
        history.failed_trials.push(failed);
        let body = history.finished(attempts.path, &history.base.sent.body);
        attempts.outgoing.replace_body(body, false);
    }
}

/// Notes what a resend has changed, now that the answer to it is the exchange's.
pub(super) fn note_sent(attempts: &mut Attempts<'_>, proposal: Proposal, log: &mut ExchangeLog) {
    // The report describes the request that this answer belongs to.
    log.repair_header = Some(request::actions_header(&proposal.report));
    attempts.outgoing.body.renamed_ids.clone_from(&proposal.report.renamed);
    log.event.report = Some(proposal.report);
    let history = attempts.history.as_deref();
    log.event.mends = history
        .map(|history| history.base.sent.made.clone())
        .unwrap_or_default();
    if proposal.is_fallback {
        // The body before all repairs proves nothing of what they assumed. It still lacks a dead id, and has the
        // values that were put back.
        let is_in_body =
            |(_, fact): &KeyedFact| matches!(fact, LearnedFact::DeadResponse | LearnedFact::WantedContinuity);
        attempts.learned_facts.retain(is_in_body);
    }
    attempts.learned_facts.extend(proposal.facts);
}
