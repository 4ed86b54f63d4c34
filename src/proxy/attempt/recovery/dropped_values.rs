//! Recovery from a refusal because of a missing value, which the provider's answer carried and the client has dropped.

use super::{
    base::RecoveryContext,
    objection::{LedgerNeed, Objection, Recovery},
    proposal::{Proposal, ResendStep},
    put::{note_sent, put_proposal},
    refused_exchange::RefusedExchange,
};
use crate::{
    proxy::{
        attempt::{
            Attempts,
            large_body::{end_resend_plan, resend_passes, take_resend_memory},
        },
        catch_core_panic::catch_core_panic,
        continuity::RequestContinuity,
        error::ProxyError,
        exchange_log::ExchangeLog,
    },
    recall::LearnedFact,
    repair::ContinuityKind,
    splice::Segments,
    wire::RefusalKind,
};

/// The recovery that puts back the values of one kind.
pub(super) struct DroppedValues(pub(super) ContinuityKind);

impl Recovery for DroppedValues {
    fn applies(&self, objection: &Objection, exchange: &RefusedExchange<'_>) -> bool {
        let missing = match self.0 {
            ContinuityKind::Reasoning => RefusalKind::WithoutReasoningContent,
            ContinuityKind::Signature => RefusalKind::WithoutSignature,
            ContinuityKind::Container => RefusalKind::WithoutContainer,
        };
        objection.kind() == Some(missing) && exchange.body.continuity.is_some()
    }

    fn ledger_need(&self) -> LedgerNeed {
        LedgerNeed::Values(self.0)
    }

    fn propose(&self, _: &Objection, exchange: &mut RefusedExchange<'_>) -> Option<Proposal> {
        let plan = exchange.carried.take()?;
        let context = exchange.context();
        let history = &mut *exchange.history;
        history.base.note_unfilled();
        let step = ResendStep::ValuesFilled;
        // A panic of the core cancels them too.
        let filled =
            catch_core_panic(|| history.resend_changed(context, step, |paired, body| plan.apply(paired, body)));
        let continuity = exchange.body.continuity.as_mut()?;
        let Some(mut proposal) = filled else {
            // What was filled is not sent, so it must be neither reported nor pinned.
            continuity.cancel();
            return None;
        };
        // The refusal alone proves nothing, since it may echo the client's text. Stored after a success only.
        let fact = (continuity.fact_key(self.0), LearnedFact::WantedContinuity);
        proposal.facts.push(fact);
        Some(proposal)
    }
}

/// Returns `true` if the body got values back of another organisation than that of the present profile.
pub(in crate::proxy::attempt) fn has_foreign_values(attempts: &Attempts<'_>) -> bool {
    let continuity = attempts.outgoing.body.continuity.as_ref();
    continuity.is_some_and(|known| !known.fits_profile(attempts.profile))
}

/// Takes the values of another organisation out of the body again. A large body is planned as heavy work.
///
/// The profile is chosen after the repair, and rotation may change it. Reasoning and signatures of one account must not
/// reach another one, which could not use them either. Fails if there was no time left to take them out.
pub(in crate::proxy::attempt) async fn take_values_out(
    attempts: &mut Attempts<'_>,
    log: &mut ExchangeLog,
) -> Result<(), ProxyError> {
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
    let Some(history) = attempts.history.as_mut() else {
        return Ok(());
    };
    let Some(unfilled) = history.base.take_unfilled() else {
        return Ok(());
    };
    let step = ResendStep::ValuesTakenOut;
    let plan = async { catch_core_panic(|| history.resend_as(unfilled.clone(), context, step)) };
    let planned = passes.run_pass(is_heavy, plan).await.ok_or(ProxyError::Deadline)?;
    // Even after a panic of the core the values stay where they belong: the provider judges the unrepaired body.
    let mut proposal = planned.unwrap_or_else(|| Proposal {
        step,
        ..Proposal::fallback(Segments::whole(unfilled))
    });
    // Without a late text there is nothing to store that could fail.
    put_proposal(attempts, &mut proposal).await;
    note_sent(attempts, proposal, log);
    end_resend_plan(attempts, true);
    Ok(())
}
