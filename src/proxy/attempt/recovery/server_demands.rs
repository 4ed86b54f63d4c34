//! Recovery from a refusal that demands more than the rules of the format: makes the mend of its row in the body that was
//! sent.

use super::{
    objection::{Objection, Recovery},
    proposal::{Proposal, ResendStep},
    refused_exchange::RefusedExchange,
};
use crate::{
    clock,
    digest::digest_of,
    mend::{BlockHash, meet_demand},
    proxy::{
        betas::has_beta,
        mends::{BodyMends, one_piece},
    },
    telemetry::events::RowOutcome,
    wire::{MendKind, Refusal},
};

/// The recovery from demands of servers. A body may have several faults, so it has no limit of its own.
pub(super) struct ServerDemands;

impl Recovery for ServerDemands {
    fn applies(&self, objection: &Objection, exchange: &RefusedExchange<'_>) -> bool {
        let demand = objection.refusal.as_ref().and_then(|refusal| refusal.demand.as_deref());
        // A recovery from bound thinking may have moved results: another plan would undo that.
        demand.is_some_and(|demand| exchange.path.settings.policy.makes(demand.kind))
            && !exchange.history.has_moved_results()
    }

    fn bodies(&self) -> usize {
        // The planned body in one piece, and the mended one.
        2
    }

    fn propose(&self, objection: &Objection, exchange: &mut RefusedExchange<'_>) -> Option<Proposal> {
        let refusal = objection.refusal.as_ref()?;
        match find_mends(refusal, exchange) {
            Ok(mends) => propose_with(mends, refusal, exchange),
            Err(unmet) => {
                exchange.history.unmet = Some(unmet);
                None
            }
        }
    }
}

/// Returns the mends of the body with that which meets the demand of a refusal, or the reason why none does.
fn find_mends(refusal: &Refusal, exchange: &RefusedExchange<'_>) -> Result<BodyMends, RowOutcome> {
    let demand = refusal.demand.as_deref().ok_or(RowOutcome::Relayed)?;
    let (path, history) = (exchange.path, &*exchange.history);
    let (base, scope) = (&history.base, history.base.fact_scope());
    let limits = &path.facts.mend_limits;
    if limits.rests(scope, &demand.row) {
        return Err(RowOutcome::Rests);
    }
    let mut mends = base.sent.mends.clone();
    if demand.kind == MendKind::DropBeta {
        let beta = demand.word.as_deref().filter(|beta| has_beta(exchange.headers, beta));
        let Some(beta) = beta else {
            limits.note_vain(scope, &demand.row);
            return Err(RowOutcome::FitsNowhere);
        };
        let has_room = mends.add_beta(beta, &demand.row);
        return if has_room { Ok(mends) } else { Err(RowOutcome::Limited) };
    }
    let sent = one_piece(&history.finished(path, &base.sent.body));
    // Of the client's own bytes: what the proxy adds or mends in them may differ when they are sent again.
    let digest = digest_of([&base.sent.plain[..]]);
    let is_refused = |block: &BlockHash| {
        base.sent.mends.has_block(block)
            || path.facts.is_refused_block(scope, block)
            || limits.was_told(scope, block, &digest)
    };
    let met = meet_demand(&sent, base.sent.wire, demand, &refusal.ids, &is_refused);
    let met = met.map_err(|_| RowOutcome::FitsNowhere)?;
    // What the user has written newly stays, until the client has seen the refusal once.
    for block in &met.kept {
        limits.note_told(scope, block, digest);
    }
    if met.made.is_empty() || met.body == sent {
        if !met.kept.is_empty() {
            return Err(RowOutcome::Kept);
        }
        limits.note_vain(scope, &demand.row);
        return Err(RowOutcome::FitsNowhere);
    }
    if !mends.add(&met, demand) {
        // The resend would be the same body.
        limits.note_vain(scope, &demand.row);
        return Err(RowOutcome::Limited);
    }
    // What is sent is mended anew. A mend that does not come about there would send the same bytes.
    if one_piece(&history.finished_with(path, &mends, &base.sent.body)) == sent {
        limits.note_vain(scope, &demand.row);
        return Err(RowOutcome::FitsNowhere);
    }
    Ok(mends)
}

/// Proposes the planned body with these mends, which meet the demand of a refusal. `None` if its caller has had its resends.
fn propose_with(mends: BodyMends, refusal: &Refusal, exchange: &mut RefusedExchange<'_>) -> Option<Proposal> {
    let base = &exchange.history.base;
    let principal = base.fact_scope().caller.principal();
    if !exchange.path.facts.mend_limits.take_resend(principal, clock::now()) {
        exchange.history.unmet = Some(RowOutcome::Limited);
        return None;
    }
    let proposal = base.plan_resend(exchange.context(), ResendStep::Mended)?;
    Some(Proposal {
        mends: Some(mends),
        met: Some(refusal.clone()),
        ..proposal
    })
}
