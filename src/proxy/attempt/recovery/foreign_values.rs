//! Values of another organisation, which go out of the body before it is sent with a credential of the present one.

use super::{
    base::RecoveryContext,
    proposal::{Proposal, ResendStep},
    put::{note_sent, put_proposal},
};
use crate::{
    proxy::{
        attempt::{
            Attempts,
            large_body::{end_resend_plan, resend_pass, take_resend_memory},
        },
        catch_core_panic::catch_core_panic,
        continuity::RequestContinuity,
        error::ProxyError,
        exchange_log::ExchangeLog,
    },
    recall::LearnedFact,
    splice::Segments,
};

/// Returns `true` if values of an organisation other than the present profile's were put back into the body.
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
    let pass = resend_pass(attempts, log);
    let body = &mut attempts.outgoing.body;
    let client = body.context.budget_client;
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
    let planned = path.budgets.work.run(client, pass, plan).await;
    let planned = planned.map_err(|_| ProxyError::Deadline)?;
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
