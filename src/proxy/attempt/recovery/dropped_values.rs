//! Recovery from a refusal because of a missing value, which the provider's answer carried and the client has dropped.

use bytes::Bytes;

use super::{
    objection::{LedgerNeed, Objection, Recovery},
    proposal::{Proposal, ResendStep},
    refused_exchange::RefusedExchange,
};
use crate::{
    proxy::catch_core_panic::catch_core_panic,
    recall::LearnedFact,
    repair::{ContinuityKind, Paired},
    wire::RefusalKind,
};

/// The recovery that puts dropped values back.
pub(super) struct DroppedValues;

impl Recovery for DroppedValues {
    fn applies(&self, objection: &Objection, exchange: &RefusedExchange<'_>) -> bool {
        missing_kind(objection).is_some() && exchange.body.continuity.is_some()
    }

    fn ledger_need(&self, objection: &Objection) -> LedgerNeed {
        missing_kind(objection).map_or(LedgerNeed::Nothing, LedgerNeed::Values)
    }

    fn propose(&self, objection: &Objection, exchange: &mut RefusedExchange<'_>) -> Option<Proposal> {
        let values = exchange.carried.take()?;
        let context = exchange.context();
        let history = &mut *exchange.history;
        history.base.note_unfilled();
        let step = ResendStep::ValuesFilled;
        // A panic of the core cancels them too.
        let fill = |paired: &Paired<'_>, body: &Bytes| values.put_into(paired, body, &[]);
        let filled = catch_core_panic(|| history.resend_changed(context, step, fill));
        let continuity = exchange.body.continuity.as_mut()?;
        let Some(mut proposal) = filled else {
            // What was filled is not sent, so it must be neither reported nor pinned.
            continuity.cancel();
            return None;
        };
        // The refusal alone proves nothing, since it may echo the client's text. Stored after a success only.
        let fact = (
            continuity.fact_key(missing_kind(objection)?),
            LearnedFact::WantedContinuity,
        );
        proposal.facts.push(fact);
        Some(proposal)
    }
}

/// Returns the kind of the values that the provider misses. `None` if it misses none.
fn missing_kind(objection: &Objection) -> Option<ContinuityKind> {
    match objection.kind()? {
        RefusalKind::WithoutReasoningContent => Some(ContinuityKind::Reasoning),
        RefusalKind::WithoutSignature => Some(ContinuityKind::Signature),
        RefusalKind::WithoutContainer => Some(ContinuityKind::Container),
        _ => None,
    }
}
