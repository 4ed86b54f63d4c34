//! Recovery from a refusal of the pairing: repairs the calls that it names.

use super::{
    base::RecoveryContext,
    objection::{Objection, Recovery},
    proposal::{Proposal, ResendStep},
    refused_exchange::RefusedExchange,
    sent_history::SentHistory,
};
use crate::{
    proxy::request::CallResults,
    recall::LearnedFact,
    repair::{LearnedRules, RefusalReading},
    splice::Segments,
    wire::{Refusal, RefusalKind},
};

/// The recovery from refusals of the pairing, and of anything that the pairing rules of a format say.
pub(super) struct PairingFaults;

impl Recovery for PairingFaults {
    fn applies(&self, objection: &Objection, exchange: &RefusedExchange<'_>) -> bool {
        let history = &exchange.history;
        let mut repairs = history
            .steps
            .iter()
            .filter(|step| matches!(step, ResendStep::Pairing { .. }));
        // A second refusal of the pairing shows that following the first did not help, unless that only tried a rule.
        let is_final = match (repairs.next(), repairs.next()) {
            (None, _) | (Some(ResendStep::Pairing { taught_rule: true }), None) => history.has_moved_results(),
            _ => true,
        };
        !is_final && objection.kind().is_some_and(is_of_pairing)
    }

    fn propose(&self, objection: &Objection, exchange: &mut RefusedExchange<'_>) -> Option<Proposal> {
        let refusal = objection.refusal.as_ref()?;
        let context = exchange.context();
        let history = &mut *exchange.history;
        let (proposal, reading) = plan_pairing(history, refusal, context)?;
        let base = &mut history.base;
        // A further refusal may be about something else, so that what this one demands stays in force.
        for fact in &proposal.facts {
            if let (_, LearnedFact::Rules(learned)) = fact {
                base.sent.learned = *learned;
            }
        }
        if proposal.is_fallback {
            // The body before all repairs follows none.
            base.sent.learned = LearnedRules::NONE;
        }
        base.followed = reading.map(|reading| (refusal.clone(), reading));
        Some(proposal)
    }
}

/// Returns `true` if the pairing rules can meet what a refusal of this kind demands.
const fn is_of_pairing(kind: RefusalKind) -> bool {
    match kind {
        RefusalKind::AnyFault
        | RefusalKind::Unanswered
        | RefusalKind::Orphan
        | RefusalKind::Duplicate
        | RefusalKind::RepeatedCall
        | RefusalKind::MalformedCall
        | RefusalKind::UserAfterResults
        | RefusalKind::NoUserTurn
        | RefusalKind::ServerHalf
        | RefusalKind::RepeatedItem
        | RefusalKind::WithoutReasoningItem => true,
        RefusalKind::Bound
        | RefusalKind::WithoutReasoningContent
        | RefusalKind::WithoutSignature
        | RefusalKind::WithoutContainer
        | RefusalKind::ForeignThinking
        | RefusalKind::DeadResponse
        | RefusalKind::Demand
        | RefusalKind::Overflow
        | RefusalKind::BadTool => false,
    }
}

/// Plans what the refusal demands, or the body before all repairs if these have caused it. Returns the reading of the
/// refusal that the plan follows.
///
/// The reading is `None` for the body before all repairs.
fn plan_pairing(
    history: &SentHistory,
    refusal: &Refusal,
    context: RecoveryContext<'_>,
) -> Option<(Proposal, Option<RefusalReading>)> {
    let base = &history.base;
    let parsed = base.parse()?;
    // The format's rules first: trusting the named ids alone may change calls that are correct.
    for reading in RefusalReading::ALL {
        let paired = base.pair_refused(&parsed, context, refusal, reading);
        let lookup = base.look_up(&paired, context);
        let Ok(plan) = base.plan_with_facts(&paired, &lookup, context) else {
            continue;
        };
        let Ok(body) = plan.splice(&paired, &base.body) else {
            continue;
        };
        // The same bytes would be refused again.
        if reading.is_met(refusal, &plan.report.findings) && !history.is_last_sent(&body) {
            // The original body contains no answers of the proxy.
            let results = if body.is_original() {
                CallResults::default()
            } else {
                base.results_of(&paired, &plan, &lookup)
            };
            // The refusal alone proves nothing, since it may echo the client's text. Stored after a success only.
            let proven = RefusalReading::proven_rules(refusal, base.sent.wire, &plan.report.findings);
            let remote_facts = base.remote_facts(&plan, body.is_original());
            let learned = base.sent.learned.union(proven);
            let is_news = learned != base.sent.learned && !body.is_original();
            let step = ResendStep::Pairing { taught_rule: is_news };
            let rules_fact = is_news.then(|| base.rules_fact(LearnedFact::Rules(learned)));
            let facts = remote_facts.into_iter().chain(rules_fact).collect();
            return Some((Proposal::new(body, plan.report, step, results, facts), Some(reading)));
        }
        // Checked before the second reading, which would repair calls that only the proxy's edits broke.
        // The body before all repairs contains the thinking that the provider has refused.
        let may_be_ours = reading == RefusalReading::StrictestRules
            && !base.sent.body.is_original()
            && base.removed_thinking.blocks.is_empty();
        if may_be_ours && parsed.is_blameless(refusal) {
            return Some((Proposal::fallback(Segments::whole(base.body.clone())), None));
        }
    }
    None
}
