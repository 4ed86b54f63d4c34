//! Recovery from a provider's refusal of the history: repairs the calls it names, for a resend on the same credential.
//!
//! Never used in strict or observe mode, for a signed body, or after the first byte of an answer.

use std::collections::HashSet;

use bytes::Bytes;

use super::{
    foreign_thinking_recovery::choose_blocks,
    resend_base::{RecoveryContext, ResendBase},
    resend_plan::Resend,
    results_at_end::append_at_end,
};
use crate::proxy::{
    data_path::{DataPath, OnBindingError},
    late_delivery::LastText,
    request::{CallAnswers, SentBody},
};
use crate::{
    ledger::ROWS_MAX,
    policy::retry::SENDS_MAX,
    provider::ServerHash,
    recall::{FactKey, KeyedFact, LearnedFact, ShapeVerdict},
    repair::{
        BodyCall, CallKey, DisputedShape, LearnedRules, OnForeignThinking, Paired, PinnedAnswer, Placeholder, Plan,
        RefusalReading, RepairPolicy, parse, plan, replace_unseen_results, thinking_blocks,
    },
    splice::Segments,
    wire::{Refusal, RefusalKind},
};

/// The recovery of one request: what is known of its body, and which repairs were tried.
pub(super) struct RejectionRecovery {
    base: ResendBase,
    /// `true` if its last place for late results has some.
    ends_with_late: bool,
    /// `true` if a placeholder may override a result that the client has added in place since.
    may_override: bool,
    /// `true` once the body was sent without the learned rules.
    has_tried_without_rules: bool,
    /// The body of the last send.
    last_sent: Segments,
    /// Disputed shapes of the conversation, as the client wrote it.
    shapes: Vec<(DisputedShape, FactKey)>,
    /// State of the recovery from refusals other than for bound thinking.
    pairing_stage: PairingStage,
    binding_stage: BindingStage,
}

/// Stages of the recovery from bound thinking.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum BindingStage {
    /// Nothing was tried.
    Untouched,
    /// Results before unseen thinking were replaced by placeholders.
    ResultsReplaced,
    /// The provider was allowed to drop the thinking.
    Dropped,
}

/// Stages of the recovery from refusals of the pairing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PairingStage {
    /// Nothing was tried.
    Untouched,
    /// A rule that the refusal teaches was followed. If that does not help, one more repair is tried.
    RuleFollowed,
    /// The last repair was tried.
    Final,
}

/// A body whose results before unseen thinking are replaced by placeholders.
struct ReplacedResults {
    plan: Plan,
    body: Segments,
    replaced: Vec<(CallKey, Placeholder)>,
    /// Calls whose placeholder overrides a result that the client has added in place since.
    overridden: Vec<(CallKey, Placeholder)>,
    answers: CallAnswers,
}

impl RejectionRecovery {
    /// Creates the recovery of a request that was sent to `server`.
    pub(super) fn new(sent: SentBody, server: ServerHash) -> Self {
        Self {
            ends_with_late: sent.ends_with_late,
            may_override: true,
            has_tried_without_rules: false,
            last_sent: sent.body.clone(),
            shapes: sent.shapes.clone(),
            pairing_stage: PairingStage::Untouched,
            binding_stage: BindingStage::Untouched,
            base: ResendBase::new(sent, server),
        }
    }

    /// Returns the resend after `refusal`. `None` if the provider's answer is final. `sends` counts the sends so far.
    pub(super) fn plan_resend(
        &mut self,
        refusal: &Refusal,
        context: RecoveryContext<'_>,
        sends: u32,
    ) -> Option<Resend> {
        let resend = self.select_repair(refusal, context, sends)?;
        // The next refusal is about this body.
        self.last_sent = resend.body.clone();
        Some(resend)
    }

    /// Selects the repair that the refusal calls for and that was not tried before.
    fn select_repair(&mut self, refusal: &Refusal, context: RecoveryContext<'_>, sends: u32) -> Option<Resend> {
        if refusal.kind == RefusalKind::ForeignThinking {
            // Its own stages bound it: a body may have foreign thinking besides any other fault.
            return if sends < SENDS_MAX {
                self.remove_thinking(context)
            } else {
                None
            };
        }
        let is_bound = matches!(refusal.kind, RefusalKind::Bound { .. });
        // A second refusal of the pairing shows that following the first did not help, unless that only tried a rule.
        let is_final = self.pairing_stage == PairingStage::Final || self.binding_stage > BindingStage::Untouched;
        if sends >= SENDS_MAX || (!is_bound && is_final) {
            return None;
        }
        if !is_bound {
            let resend = self.repair_pairing(refusal, context);
            let is_rule = |(_, fact): &KeyedFact| matches!(fact, LearnedFact::Rules(_));
            let follows_rule = resend.as_ref().is_some_and(|resend| resend.facts.iter().any(is_rule));
            self.pairing_stage = match self.pairing_stage {
                PairingStage::Untouched if follows_rule => PairingStage::RuleFollowed,
                _ => PairingStage::Final,
            };
            return resend;
        }
        // Replacing results keeps the model's thinking, so it is tried before the thinking is given up.
        if self.binding_stage < BindingStage::ResultsReplaced {
            self.binding_stage = BindingStage::ResultsReplaced;
            if let Some(resend) = self.replace_results(context) {
                return Some(resend);
            }
        }
        let may_drop = context.path.settings.on_binding_error == OnBindingError::DropBlock;
        if self.binding_stage < BindingStage::Dropped && may_drop {
            self.binding_stage = BindingStage::Dropped;
            return self.drop_thinking(context);
        }
        None
    }

    /// Stores the shape in which the provider has accepted the conversation. Call it after a success.
    pub(super) fn settle_shapes(&self, path: &DataPath) {
        for (shape, key) in &self.shapes {
            // With a rule against it the body was sent in another shape.
            let verdict = if self.base.learned.forbids(*shape) {
                ShapeVerdict::Changed
            } else {
                ShapeVerdict::Accepted
            };
            if path.facts.note_shape(*key, verdict) {
                path.recall
                    .store_shape_verdict(self.base.fact_scope().caller, *key, verdict);
            }
        }
    }

    /// Returns `true` if the body follows learned rules, and was not sent without them.
    pub(super) fn follows_rules(&self) -> bool {
        self.base.learned != LearnedRules::NONE && !self.has_tried_without_rules
    }

    /// Returns the resend of the body without any learned rule, since the server may have been updated, and the body that
    /// follows them. `None` if they have changed nothing.
    pub(super) fn plan_without_rules(&mut self, context: RecoveryContext<'_>) -> Option<(Resend, Resend)> {
        self.has_tried_without_rules = true;
        let ruled = self.base.plan_body(context)?;
        let learned = std::mem::replace(&mut self.base.learned, LearnedRules::NONE);
        let planned = self.base.plan_body(context);
        self.base.learned = learned;
        let planned = planned.filter(|planned| planned.body.to_vec() != self.last_sent.to_vec())?;
        Some((planned.into_resend("rule"), ruled.into_resend("rule")))
    }

    /// Returns the fact that the learned rules no longer hold: the server has accepted the body without them.
    pub(super) fn retract_rules(&mut self) -> KeyedFact {
        self.base.learned = LearnedRules::NONE;
        self.base.retracted_rules()
    }

    /// Returns the resend of the original body with a change that is no matter of pairing. `None` if that fails.
    pub(super) fn resend_changed(
        &mut self,
        context: RecoveryContext<'_>,
        reason: &'static str,
        change: impl FnOnce(&Paired<'_>, &Bytes) -> Option<Bytes>,
    ) -> Option<Resend> {
        // A recovery from bound thinking may have moved results: this change would undo that.
        if self.binding_stage > BindingStage::Untouched {
            return None;
        }
        let changed = change(&self.base.pair(context)?, &self.base.body)?;
        self.resend_as(changed, context, reason)
    }

    /// Returns the size of the body that resends are planned from.
    pub(super) const fn body_len(&self) -> usize {
        self.base.body.len()
    }

    /// Returns the memory that the plan of a resend takes: for reading the body, and for a copy of it.
    pub(super) const fn resend_bytes(&self) -> usize {
        self.base.reading_bytes.saturating_add(self.base.body.len())
    }

    /// Notes the present body as the one without values, before it gets the first one back.
    pub(super) fn note_unfilled(&mut self) {
        self.base.note_unfilled();
    }

    /// Takes the body without any value that it got back. `None` if it got none.
    pub(super) const fn take_unfilled(&mut self) -> Option<Bytes> {
        self.base.take_unfilled()
    }

    /// Returns `true` if the message at this index of the last sent body holds a result of these calls. The last message
    /// counts too if it has a late text.
    pub(super) fn holds_at(&self, message: usize, calls: &[CallKey], has_late_text: bool) -> bool {
        let sent = Bytes::from(self.last_sent.to_vec());
        let Ok(parsed) = parse(&sent, self.base.wire) else {
            return false;
        };
        let paired = self.base.pair_sent(parsed);
        let is_its = |call: &&BodyCall| calls.contains(&call.key);
        let answered = paired.answered_calls();
        let results = answered.iter().filter(is_its).filter_map(|call| call.result);
        let mut messages = results.filter_map(|result| paired.message_at(result.content.start));
        messages.any(|at| at == message) || (has_late_text && message.saturating_add(1) == paired.message_count())
    }

    /// Plans the body without the posted results of these calls, and without its last late text.
    pub(super) fn resend_without(
        &mut self,
        calls: &[CallKey],
        text: Option<&LastText>,
        context: RecoveryContext<'_>,
    ) -> Option<Resend> {
        for call in calls {
            self.base.lookup.known.results.remove(call);
        }
        let body = text.map_or_else(|| self.base.body.clone(), |text| text.body_without.clone());
        self.resend_as(body, context, "posted")
    }

    /// Plans another body in place of the present one. `None` if that fails.
    pub(super) fn resend_as(
        &mut self,
        body: Bytes,
        context: RecoveryContext<'_>,
        reason: &'static str,
    ) -> Option<Resend> {
        // A recovery from bound thinking that has moved results starts over.
        self.binding_stage = BindingStage::Untouched;
        self.base.replace(body);
        let resend = self.base.plan_body(context)?.into_resend(reason);
        // The next refusal is about this body.
        self.last_sent = resend.body.clone();
        Some(resend)
    }

    /// Starts over with every result of the client in its place.
    pub(super) fn forbid_overrides(&mut self) {
        (self.may_override, self.binding_stage) = (false, BindingStage::Untouched);
        self.base.restore();
    }

    /// Returns the calls that the client has answered in place, whose earlier answers matter for bound thinking.
    pub(super) fn answered_calls(&self, policy: &RepairPolicy) -> Vec<CallKey> {
        // Results are replaced once. Later stages need no earlier answers.
        if self.binding_stage > BindingStage::Untouched {
            return Vec::new();
        }
        let Some(paired) = self.base.pair_by_dialect(policy) else {
            return Vec::new();
        };
        let answered = paired.answered_calls();
        // The last calls first: the newest thinking is after them, and one ledger read has a limit.
        answered.iter().map(|call| call.key).rev().take(ROWS_MAX).collect()
    }

    /// Repairs the calls that the refusal names, or returns the original body if the proxy's edits caused the refusal.
    fn repair_pairing(&mut self, refusal: &Refusal, context: RecoveryContext<'_>) -> Option<Resend> {
        let (resend, reading) = self.plan_pairing(refusal, context)?;
        // A further refusal may be about something else, so that what this one demands stays in force.
        for fact in &resend.facts {
            if let (_, LearnedFact::Rules(learned)) = fact {
                self.base.learned = *learned;
            }
        }
        if resend.is_fallback {
            // The body before all repairs follows none.
            self.base.learned = LearnedRules::NONE;
        }
        self.base.followed = reading.map(|reading| (refusal.clone(), reading));
        Some(resend)
    }

    /// Plans the resend of [`RejectionRecovery::repair_pairing`], with the reading of the refusal that it follows.
    ///
    /// The reading is `None` for the body before all repairs.
    fn plan_pairing(
        &self,
        refusal: &Refusal,
        context: RecoveryContext<'_>,
    ) -> Option<(Resend, Option<RefusalReading>)> {
        let base = &self.base;
        let parsed = base.parse()?;
        let before = self.last_sent.to_vec();
        // The format's rules first: trusting the named ids alone may change calls that are correct.
        for reading in RefusalReading::ALL {
            let paired = base.pair_refused(&parsed, context, refusal, reading);
            let lookup = base.look_up(&paired, context);
            let Ok(plan) = base.plan_known(&paired, &lookup, context) else {
                continue;
            };
            let Ok(body) = plan.splice(&paired, &base.body) else {
                continue;
            };
            // The same bytes would be refused again.
            if reading.is_met(refusal, &plan.report.findings) && body.to_vec() != before {
                // The original body contains no answers of the proxy.
                let answers = if body.is_original() {
                    CallAnswers::default()
                } else {
                    base.answers_of(&paired, &plan, &lookup)
                };
                // The refusal alone proves nothing, since it may echo the client's text. Stored after a success only.
                let proven = RefusalReading::proven_rules(refusal, base.wire, &plan.report.findings);
                let remote_facts = base.remote_facts(&plan, body.is_original());
                let learned = base.learned.union(proven);
                let is_news = learned != base.learned && !body.is_original();
                let rules_fact = is_news.then(|| base.rules_fact(learned));
                let facts = remote_facts.into_iter().chain(rules_fact).collect();
                return Some((Resend::new(body, plan.report, "pairing", answers, facts), Some(reading)));
            }
            // Checked before the second reading, which would repair calls that only the proxy's edits broke.
            // The body before all repairs contains the thinking that the provider has refused.
            let may_be_ours = reading == RefusalReading::StrictestRules
                && !self.last_sent.is_original()
                && !base.foreign_thinking.has_removed();
            if may_be_ours && parsed.is_blameless(refusal) {
                return Some((Resend::fallback(Segments::whole(base.body.clone())), None));
            }
        }
        None
    }

    /// Replaces results by placeholders if signed thinking after them was generated without them.
    ///
    /// Also overrides results that the client has added in place since. They move to the end of the user's text.
    fn replace_results(&mut self, context: RecoveryContext<'_>) -> Option<Resend> {
        let replaced = self.plan_placeholders(context, self.may_override)?;
        if replaced.overridden.is_empty() {
            return self.resend_with_placeholders(replaced);
        }
        // The place is named by the message's text: late results at its end would give it another anchor.
        let late = if self.ends_with_late {
            None
        } else {
            let paired = self.base.pair_by_dialect(context.policy)?;
            append_at_end(&self.base.body, &paired, self.base.wire.format, &replaced.overridden)
        };
        let Some(late) = late else {
            // Without another place for it the client's result would be lost: nothing is overridden.
            let replaced = self.plan_placeholders(context, false)?;
            return self.resend_with_placeholders(replaced);
        };
        self.base.body = late.body;
        let replaced = self.plan_placeholders(context, true)?;
        let resend = self.resend_with_placeholders(replaced)?;
        Some(Resend {
            late_text: Some((late.anchor, late.appended)),
            ..resend
        })
    }

    /// Plans the body with placeholders. Overrides results of the client only if `overrides` is set.
    fn plan_placeholders(&self, context: RecoveryContext<'_>, overrides: bool) -> Option<ReplacedResults> {
        let base = &self.base;
        let paired = base.pair(context)?;
        let mut lookup = base.look_up(&paired, context);
        let mut overridden = Vec::new();
        if overrides {
            let pinned = |call: &BodyCall| match self.pinned_answer(call, context)? {
                PinnedAnswer::Placeholder(placeholder) => Some(placeholder),
                PinnedAnswer::Result(_) => None,
            };
            lookup.override_results(&paired, pinned);
            overridden.extend(paired.answered_calls().iter().filter_map(|call| {
                let placeholder = lookup.known.overrides.get(&call.key)?;
                Some((call.key, *placeholder))
            }));
        }
        let replaced = replace_unseen_results(paired.open_calls(), &mut lookup.known, context.policy);
        let plan = plan(&paired, &lookup.known, context.policy).ok()?;
        let mut answers = base.answers_of(&paired, &plan, &lookup);
        let replaced_calls: HashSet<CallKey> = replaced.iter().map(|(call, _)| *call).collect();
        // A replaced answer is a new pin of this resend, not one that earlier requests gave.
        answers.pinned_before.retain(|(call, _)| !replaced_calls.contains(call));
        let pin = |(call, placeholder): &(CallKey, Placeholder)| (*call, PinnedAnswer::Placeholder(*placeholder));
        answers.assigned.extend(replaced.iter().map(pin));
        Some(ReplacedResults {
            body: plan.splice(&paired, &base.body).ok()?,
            plan,
            replaced,
            overridden,
            answers,
        })
    }

    /// Returns the answer that earlier requests contained for a call.
    fn pinned_answer(&self, call: &BodyCall, context: RecoveryContext<'_>) -> Option<PinnedAnswer> {
        let memory = self.base.call_memory(context);
        if let Some(placeholder) = memory.facts.bound_placeholder(memory.scope, call.key) {
            return Some(PinnedAnswer::Placeholder(placeholder));
        }
        let pinned = self.base.lookup.known.pinned.get(&call.key).cloned();
        pinned.or_else(|| {
            memory
                .recall
                .cached_answer(self.base.late_results.pin_scope(), call.key)
        })
    }

    /// Builds the resend of a plan with placeholders. `None` if it replaces nothing.
    fn resend_with_placeholders(&self, replaced: ReplacedResults) -> Option<Resend> {
        if replaced.replaced.is_empty() && replaced.overridden.is_empty() {
            return None;
        }
        let overrides = !replaced.overridden.is_empty();
        let named = replaced.replaced.iter().chain(&replaced.overridden);
        let scope = self.base.fact_scope();
        let bound = named.map(|(call, placeholder)| {
            let fact = LearnedFact::BoundPlaceholder(*placeholder);
            (scope.call_key(*call), fact)
        });
        let overrides = overrides.then(|| (scope.overrides_key(), LearnedFact::HasOverrides));
        let facts = bound.chain(overrides).collect();
        Some(Resend::new(
            replaced.body,
            replaced.plan.report,
            "binding",
            replaced.answers,
            facts,
        ))
    }

    /// Removes thinking that another provider or account has signed.
    fn remove_thinking(&mut self, context: RecoveryContext<'_>) -> Option<Resend> {
        if context.policy.foreign_thinking != OnForeignThinking::Remove {
            return None;
        }
        let base = &mut self.base;
        let blocks = thinking_blocks(&base.pair(context)?);
        let chosen = choose_blocks(&base.foreign_thinking, &blocks, &context.path.facts, base.fact_scope())?;
        base.foreign_thinking.remove_blocks(chosen);
        let planned = base.plan_body(context)?;
        // The same bytes would be refused again.
        let is_same = planned.body.to_vec() == self.last_sent.to_vec();
        (!is_same).then(|| planned.into_resend("foreign"))
    }

    /// Stores which thinking the provider has accepted, and which it has refused. Call it after a success.
    pub(super) fn settle_thinking(&self, path: &DataPath) {
        let base = &self.base;
        base.foreign_thinking
            .settle_thinking(path, base.fact_scope(), base.lookup.last_thinking);
    }

    /// Builds a resend with the documented setting that lets the provider drop bound thinking.
    fn drop_thinking(&mut self, context: RecoveryContext<'_>) -> Option<Resend> {
        // Without the refused attempt's text at its end: the client's results return to their places.
        self.base.restore();
        let base = &self.base;
        let paired = base.pair(context)?;
        let lookup = base.look_up(&paired, context);
        let mut plan = plan(&paired, &lookup.known, context.policy).ok()?;
        if !plan.drop_bound_thinking(&paired).ok()? {
            return None;
        }
        let answers = base.answers_of(&paired, &plan, &lookup);
        let key = paired
            .first_thinking()
            .map(|thinking| base.fact_scope().conversation_key(thinking));
        let body = plan.splice(&paired, &base.body).ok()?;
        let fact = key.map(|key| (key, LearnedFact::DroppableThinking));
        let facts = fact.into_iter().collect();
        Some(Resend::new(body, plan.report, "binding", answers, facts))
    }
}
