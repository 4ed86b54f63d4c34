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
    proxy::{betas::has_beta, mends::one_piece},
    wire::{Demand, MendKind, Refusal},
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
        let demand = refusal.demand.as_deref()?;
        let (path, history) = (exchange.path, &*exchange.history);
        let (base, scope) = (&history.base, history.base.fact_scope());
        let limits = &path.facts.mend_limits;
        if limits.rests(scope, &demand.row) || !limits.take_resend(scope.caller.principal(), clock::now()) {
            return None;
        }
        if demand.kind == MendKind::DropBeta {
            return leave_beta_out(refusal, demand, exchange);
        }
        let sent = one_piece(&history.finished(path, &base.sent.body));
        let digest = digest_of([&sent[..]]);
        let is_refused = |block: &BlockHash| {
            base.sent.mends.has_block(block)
                || path.facts.is_refused_block(scope, block)
                || limits.was_told(scope, block, &digest)
        };
        let met = meet_demand(&sent, base.sent.wire, demand, &refusal.ids, &is_refused).ok()?;
        // What the user has written newly stays, until the client has seen the refusal once.
        for block in &met.kept {
            limits.note_told(scope, block, digest);
        }
        if met.made.is_empty() || met.body == sent {
            limits.note_vain(scope, &demand.row);
            return None;
        }
        let mut mends = base.sent.mends.clone();
        mends.add(&met, demand.learning);
        let context = exchange.context();
        let proposal = exchange.history.base.plan_resend(context, ResendStep::Mended)?;
        Some(Proposal {
            mends: Some(mends),
            met: Some(refusal.clone()),
            ..proposal
        })
    }
}

/// Proposes the same body without a beta in the request's header.
fn leave_beta_out(refusal: &Refusal, demand: &Demand, exchange: &mut RefusedExchange<'_>) -> Option<Proposal> {
    let beta = demand.word.as_deref()?;
    if !has_beta(exchange.headers, beta) {
        return None;
    }
    let context = exchange.context();
    let base = &exchange.history.base;
    let mut mends = base.sent.mends.clone();
    mends.add_beta(beta);
    let proposal = base.plan_resend(context, ResendStep::Mended)?;
    Some(Proposal {
        mends: Some(mends),
        met: Some(refusal.clone()),
        ..proposal
    })
}
