//! Recovery from a refusal because of a missing value, which the provider's answer carried and the client has dropped.

use super::{
    Attempts,
    large_body::{end_resend_plan, resend_passes, take_resend_memory},
    resend_base::RecoveryContext,
    resend_plan::Resend,
};
use crate::{
    clock,
    policy::retry::SENDS_MAX,
    proxy::{
        catch_core_panic::catch_core_panic, continuity::RequestContinuity, error::ProxyError,
        exchange_log::ExchangeLog, request,
    },
    recall::LearnedFact,
    repair::ContinuityKind,
    splice::Segments,
    wire::RefusalKind,
};

/// Returns the kind of value that a refusal reports as missing. `None` if it is about something else.
pub(super) const fn missing_kind(refusal: RefusalKind) -> Option<ContinuityKind> {
    match refusal {
        RefusalKind::WithoutReasoningContent => Some(ContinuityKind::Reasoning),
        RefusalKind::WithoutSignature => Some(ContinuityKind::Signature),
        RefusalKind::WithoutContainer => Some(ContinuityKind::Container),
        _ => None,
    }
}

/// Returns the resend after a refusal because of a missing value. `None` if the provider's answer is final.
pub(super) async fn next_resend(
    attempts: &mut Attempts<'_>,
    refusal: RefusalKind,
    log: &mut ExchangeLog,
) -> Option<Resend> {
    let kind = missing_kind(refusal)?;
    let path = attempts.path;
    if log.event.sends >= SENDS_MAX {
        return None;
    }
    let profile = attempts.profile;
    let recovery = attempts.recovery.as_mut()?;
    let body = &mut attempts.outgoing.body;
    let continuity = body.continuity.as_mut()?;
    let pins = body.pins.as_mut()?;
    // All waits of the exchange share one deadline.
    let work = async |deadline| continuity.plan_refused(kind, profile, deadline).await;
    let plan = pins.ledger_budget.spend(work).await?;
    let began = clock::now();
    let policy = &path.settings.policy;
    let context = RecoveryContext { path, policy };
    recovery.note_unfilled();
    let resend =
        catch_core_panic(|| recovery.resend_changed(context, "continuity", |paired, body| plan.apply(paired, body)));
    log.event.overhead += clock::now().duration_since(began);
    let Some(resend) = resend else {
        // What was filled is not sent, so it must be neither reported nor pinned.
        attempts
            .outgoing
            .body
            .continuity
            .iter_mut()
            .for_each(RequestContinuity::cancel);
        return None;
    };
    log.record_resend(resend.reason);
    let continuity = attempts.outgoing.body.continuity.as_ref();
    Some(Resend {
        // The refusal alone proves nothing, since it may echo the client's text. Stored after a success only.
        facts: continuity
            .map(|continuity| (continuity.fact_key(kind), LearnedFact::WantedContinuity))
            .into_iter()
            .collect(),
        ..resend
    })
}

/// Returns `true` if the body got values back of another organisation than that of the present profile.
pub(super) fn has_foreign_values(attempts: &Attempts<'_>) -> bool {
    let continuity = attempts.outgoing.body.continuity.as_ref();
    continuity.is_some_and(|known| !known.fits_profile(attempts.profile))
}

/// Takes the values of another organisation out of the body again. A large body is planned as heavy work.
///
/// The profile is chosen after the repair, and rotation may change it. Reasoning and signatures of one account must not
/// reach another one, which could not use them either. Fails if there was no time left to take them out.
pub(super) async fn take_values_out(attempts: &mut Attempts<'_>, log: &mut ExchangeLog) -> Result<(), ProxyError> {
    let path = attempts.path;
    take_resend_memory(attempts, 1).await.map_err(ProxyError::Overloaded)?;
    let (passes, is_heavy) = resend_passes(attempts, log);
    let body = &mut attempts.outgoing.body;
    body.continuity.iter_mut().for_each(RequestContinuity::cancel);
    // A fact about these values is proven only by a body that has them.
    attempts
        .learned_facts
        .retain(|(_, fact)| *fact != LearnedFact::WantedContinuity);
    let context = RecoveryContext {
        path,
        policy: &path.settings.policy,
    };
    let Some(recovery) = attempts.recovery.as_mut() else {
        return Ok(());
    };
    let Some(unfilled) = recovery.take_unfilled() else {
        return Ok(());
    };
    let plan = async { catch_core_panic(|| recovery.resend_as(unfilled.clone(), context, "continuity")) };
    let planned = passes.run_pass(is_heavy, plan).await.ok_or(ProxyError::Deadline)?;
    // Even after a panic of the core the values stay where they belong: the provider judges the unrepaired body.
    let mut resend = planned.unwrap_or_else(|| Resend::fallback(Segments::whole(unfilled)));
    body.add_to_report(&mut resend.report);
    if let Some(pins) = body.pins.as_mut() {
        // Without a late text there is nothing to store that could fail.
        pins.replace_pins(resend.answers, None).await;
    }
    log.repair_header = Some(request::actions_header(&resend.report));
    body.renamed_ids.clone_from(&resend.report.renamed);
    log.event.report = Some(resend.report);
    attempts.outgoing.replace_body(resend.body, false);
    end_resend_plan(attempts, true);
    Ok(())
}
