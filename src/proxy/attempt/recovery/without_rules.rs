//! Recovery from a refusal that names no fault, of a body that follows learned rules: the server may have been updated.

use http::StatusCode;

use super::{
    objection::{Objection, Recovery},
    proposal::{Proposal, ResendStep, Trial},
    refused_exchange::RefusedExchange,
};
use crate::{proxy::mends::BodyMends, repair::LearnedRules};

/// The recovery without any learned rule.
pub(super) struct WithoutRules;

impl Recovery for WithoutRules {
    fn applies(&self, objection: &Objection, exchange: &RefusedExchange<'_>) -> bool {
        // Most bodies follow no rule.
        let history = &exchange.history;
        let sent = &history.base.sent;
        let follows_rules = sent.learned != LearnedRules::NONE || sent.mends.changes_body();
        follows_rules
            && !history.has_tried(ResendStep::WithoutRules)
            && objection.refusal.is_none()
            && objection.status == StatusCode::BAD_REQUEST
    }

    fn propose(&self, _: &Objection, exchange: &mut RefusedExchange<'_>) -> Option<Proposal> {
        let context = exchange.context();
        let history = &mut *exchange.history;
        let learned = std::mem::replace(&mut history.base.sent.learned, LearnedRules::NONE);
        let proposal = history.base.plan_resend(context, ResendStep::WithoutRules);
        history.base.sent.learned = learned;
        let has_mends = history.base.sent.mends.changes_body();
        let proposal = proposal.filter(|proposal| has_mends || !history.is_last_sent(&proposal.body))?;
        Some(Proposal {
            trial: Some(Trial::WithoutRules),
            mends: Some(BodyMends::retracted()),
            ..proposal
        })
    }
}
