//! Recovery from a provider's 400 about pairing: what it names is mended, and the request is sent again on the same credential.
//!
//! Never in strict or observe, never for a signed body, never behind the first byte of an answer.

use bytes::Bytes;

use crate::proxy::{
    data_path::OnBindingError,
    late_results::{LateResults, append_at_end},
    provider_facts::{AnsweredRemoteCalls, FactKey, FactScope, ProviderFacts},
    request::{CallLookup, GivenAnswers, Memory, SentBody, given_answers},
};
use crate::{
    ledger::ROWS_MAX,
    recall::{Appended, Recall},
    repair::{
        Anchor, BodyCall, CallKey, Paired, PairingContext, Parsed, PinnedAnswer, Placeholder, Plan, RefusalReading,
        RepairPolicy, RepairReport, is_strong, parse, plan, replace_unseen_results,
    },
    splice::Segments,
    wire::{Refusal, RefusalKind, Wire},
};

/// Sends of one request in all, if thinking is bound.
const SENDS_MAX: u32 = 3;

/// Everything that a resend is made from: stored until the head of the answer is there.
#[derive(Debug)]
pub(super) struct RejectionRecovery {
    /// The body that is mended: as it came, decoded, or with results of the client at its end.
    plain: Bytes,
    /// The body as it came, decoded.
    came: Bytes,
    /// Whether its last message ends with late results already.
    ends_with_late: bool,
    /// Whether a placeholder may go back where the client has put a result since.
    may_override: bool,
    wire: Wire,
    /// The body as it was sent last.
    sent: Segments,
    upstream: String,
    results: LateResults,
    /// What was looked up for the first send.
    lookup: CallLookup,
    /// Whether the ids of a refusal were followed already.
    has_followed_ids: bool,
    binding: Binding,
}

/// How far bound thinking was dealt with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Binding {
    Untouched,
    ResultsReplaced,
    Dropped,
}

/// One more send.
#[derive(Debug)]
pub(super) struct Resend {
    pub(super) body: Segments,
    /// Whether the body contains a setting of bound thinking, which needs a header.
    pub(super) asks_for_binding_controls: bool,
    /// What was found and done.
    pub(super) report: RepairReport,
    /// The label of the counter.
    pub(super) why: &'static str,
    /// Answers of its calls.
    pub(super) answers: GivenAnswers,
    /// Text at the end of a message, and its place.
    pub(super) late_text: Option<(Anchor, Appended)>,
    /// Fact that holds from now on if the provider takes the resend.
    pub(super) fact: LearnedFact,
}

/// A fact that an accepted resend proves.
#[derive(Debug)]
pub(super) enum LearnedFact {
    Nothing,
    BoundPlaceholders {
        calls: Vec<(FactKey, Placeholder)>,
        /// Whether some of them stand where the client has put a result since.
        overrides: bool,
    },
    ThinkingMayBeDropped(FactKey),
    RemoteCallsAnswered(AnsweredRemoteCalls),
    /// The upstream demands call ids that are unique in their body.
    UniqueIds,
}

impl LearnedFact {
    /// Stores the fact for this caller.
    pub(super) fn store(self, facts: &ProviderFacts, scope: FactScope<'_>) {
        match self {
            Self::Nothing => {}
            Self::BoundPlaceholders { calls, overrides } => {
                facts.learn_bound_placeholders(calls);
                if overrides {
                    facts.learn_overrides(scope.caller);
                }
            }
            Self::ThinkingMayBeDropped(key) => facts.learn_droppable_thinking(key),
            Self::RemoteCallsAnswered(calls) => facts.learn_answered(calls),
            Self::UniqueIds => facts.learn_unique_ids(scope.upstream),
        }
    }
}

/// Read access to everything a resend depends on besides the body.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecoveryContext<'m> {
    pub(super) facts: &'m ProviderFacts,
    pub(super) recall: &'m Recall,
    pub(super) policy: &'m RepairPolicy,
    pub(super) on_binding_error: OnBindingError,
}

/// A body whose results before unseen thinking are replaced by placeholders.
struct ReplacedResults {
    plan: Plan,
    body: Segments,
    replaced: Vec<(CallKey, Placeholder)>,
    /// Calls whose placeholder goes back where the client has put a result since.
    overridden: Vec<(CallKey, Placeholder)>,
    answers: GivenAnswers,
}

impl RejectionRecovery {
    /// Starts from what was sent to `upstream`.
    pub(super) fn new(sent: SentBody, upstream: &str) -> Self {
        Self {
            came: sent.plain.clone(),
            plain: sent.plain,
            ends_with_late: sent.ends_with_late,
            may_override: true,
            wire: sent.wire,
            sent: sent.body,
            upstream: upstream.to_owned(),
            results: sent.results,
            lookup: sent.lookup,
            has_followed_ids: false,
            binding: Binding::Untouched,
        }
    }

    /// Returns what to send after `refusal`, or `None` if the provider's word is final. `sends` counts the sends so far.
    pub(super) fn next_send(&mut self, refusal: &Refusal, context: RecoveryContext<'_>, sends: u32) -> Option<Resend> {
        let resend = self.mend(refusal, context, sends)?;
        self.sent = resend.body.clone();
        Some(resend)
    }

    fn mend(&mut self, refusal: &Refusal, context: RecoveryContext<'_>, sends: u32) -> Option<Resend> {
        let is_bound = matches!(refusal.kind, RefusalKind::Bound { .. });
        if sends >= SENDS_MAX || (!is_bound && (self.has_followed_ids || self.binding > Binding::Untouched)) {
            return None;
        }
        if !is_bound {
            self.has_followed_ids = true;
            return self.mend_refused(refusal, context);
        }
        if self.binding < Binding::ResultsReplaced {
            self.binding = Binding::ResultsReplaced;
            if let Some(resend) = self.replace_results(context) {
                return Some(resend);
            }
        }
        if self.binding < Binding::Dropped && context.on_binding_error == OnBindingError::DropBlock {
            self.binding = Binding::Dropped;
            return self.drop_thinking(context);
        }
        None
    }

    /// From now on every result stays where the client has put it.
    pub(super) fn forbid_overrides(&mut self) {
        (self.may_override, self.binding) = (false, Binding::Untouched);
        self.plain = self.came.clone();
    }

    /// Returns the calls with a result in their place whose earlier answers matter for bound thinking.
    pub(super) fn answered_calls(&self, policy: &RepairPolicy) -> Vec<CallKey> {
        if self.binding > Binding::Untouched {
            return Vec::new();
        }
        let Ok(parsed) = parse(&self.plain, self.wire) else {
            return Vec::new();
        };
        let answered = self.pair(parsed, policy).answered_calls();
        answered.iter().map(|call| call.key).rev().take(ROWS_MAX).collect()
    }

    fn scope(&self) -> FactScope<'_> {
        FactScope {
            upstream: &self.upstream,
            caller: self.results.caller,
        }
    }

    fn memory<'m>(&'m self, context: RecoveryContext<'m>) -> Memory<'m> {
        Memory {
            facts: context.facts,
            recall: context.recall,
            scope: self.scope(),
        }
    }

    fn conversation(&self) -> Option<[u8; 32]> {
        self.results.scope().lane.map(|lane| *lane.as_bytes())
    }

    fn pair<'b>(&self, parsed: Parsed<'b>, policy: &RepairPolicy) -> Paired<'b> {
        let mut paired = parsed.pair(PairingContext::new(policy));
        paired.set_conversation(self.conversation());
        paired
    }

    /// Mends what the refusal names; else sends the original if the refusal is the fault of our own edits.
    fn mend_refused(&self, refusal: &Refusal, context: RecoveryContext<'_>) -> Option<Resend> {
        let memory = self.memory(context);
        let parsed = parse(&self.plain, self.wire).ok()?;
        let before = self.sent.to_vec();
        let remote = memory.remote_calls(|| parsed.remote_references());
        let pairing = PairingContext {
            policy: context.policy,
            remote: &remote,
        };
        for reading in RefusalReading::ALL {
            let mut paired = parsed.clone().pair_refused(pairing, refusal, reading);
            paired.set_conversation(self.conversation());
            let mut lookup = self.lookup.clone();
            lookup.recall(&paired, memory, &self.results);
            let Ok(plan) = plan(&paired, &lookup.known, context.policy) else {
                continue;
            };
            let Ok(body) = plan.splice(&paired, &self.plain) else {
                continue;
            };
            if reading.is_met(refusal, &plan.report.findings) && body.to_vec() != before {
                // A body that goes up as it came answers no call.
                let answers = if body.is_original() {
                    GivenAnswers::default()
                } else {
                    given_answers(&paired, &plan, &lookup, self.results.caller)
                };
                let mut fact = self.remote_fact(&plan, body.is_original());
                // The refusal alone teaches nothing: it may echo what the client wrote.
                let has_renamed = refusal.kind == RefusalKind::RepeatedCall && !plan.report.renamed.is_empty();
                if has_renamed && matches!(fact, LearnedFact::Nothing) {
                    fact = LearnedFact::UniqueIds;
                }
                return Some(resend(body, plan.report, "pairing", answers, fact));
            }
            let may_be_ours = reading == RefusalReading::StrictestRules && !self.sent.is_original();
            if may_be_ours && parsed.is_blameless(refusal) {
                let original = Segments::whole(self.plain.clone());
                let answers = GivenAnswers::default();
                return Some(resend(
                    original,
                    RepairReport::default(),
                    "pairing",
                    answers,
                    LearnedFact::Nothing,
                ));
            }
        }
        None
    }

    fn remote_fact(&self, plan: &Plan, is_original: bool) -> LearnedFact {
        let Some(remote) = plan.remote_answers.last().filter(|_| !is_original) else {
            return LearnedFact::Nothing;
        };
        let scope = self.scope();
        let name = |id: &String| {
            // Another call may have the same id unless it is strong.
            let key = is_strong(id.as_bytes(), b"").then(|| scope.remote_call(id.as_bytes()));
            (key, id.clone())
        };
        LearnedFact::RemoteCallsAnswered(AnsweredRemoteCalls {
            origin: remote.origin.as_deref().map(|id| scope.origin(id)),
            calls: remote.calls.iter().map(name).collect(),
        })
    }

    /// Replaces results that precede thinking which was generated without them. Where the client itself has filled a gap
    /// since, the placeholder goes back, and the client's result to the end of the user's text.
    fn replace_results(&mut self, context: RecoveryContext<'_>) -> Option<Resend> {
        let replaced = self.plan_replaced(context, self.may_override)?;
        if replaced.overridden.is_empty() {
            return self.resend_replaced(replaced);
        }
        // Behind late results the place would have another name than without them.
        let late = if self.ends_with_late {
            None
        } else {
            let parsed = parse(&self.plain, self.wire).ok()?;
            let paired = self.pair(parsed, context.policy);
            append_at_end(&self.plain, &paired, &replaced.overridden)
        };
        let Some(late) = late else {
            // The client's result has no other place: it stays where it is.
            let replaced = self.plan_replaced(context, false)?;
            return self.resend_replaced(replaced);
        };
        self.plain = late.body;
        let replaced = self.plan_replaced(context, true)?;
        let resend = self.resend_replaced(replaced)?;
        Some(Resend {
            late_text: Some((late.anchor, late.appended)),
            ..resend
        })
    }

    fn plan_replaced(&self, context: RecoveryContext<'_>, overrides: bool) -> Option<ReplacedResults> {
        let memory = self.memory(context);
        let paired = self.pair_again(context)?;
        let mut lookup = self.lookup.clone();
        lookup.recall(&paired, memory, &self.results);
        let mut overridden = Vec::new();
        if overrides {
            let pinned = |call: &BodyCall| match self.pinned_answer(call, memory)? {
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
        let mut answers = given_answers(&paired, &plan, &lookup, self.results.caller);
        let is_replaced = |call: &CallKey| replaced.iter().any(|(replaced, _)| replaced == call);
        answers.used.retain(|(call, _)| !is_replaced(call));
        let pin = |(call, placeholder): &(CallKey, Placeholder)| (*call, PinnedAnswer::Placeholder(*placeholder));
        answers.assigned.extend(replaced.iter().map(pin));
        Some(ReplacedResults {
            body: plan.splice(&paired, &self.plain).ok()?,
            plan,
            replaced,
            overridden,
            answers,
        })
    }

    fn pinned_answer(&self, call: &BodyCall, memory: Memory<'_>) -> Option<PinnedAnswer> {
        if let Some(placeholder) = memory.facts.bound_placeholder(memory.scope, call.key) {
            return Some(PinnedAnswer::Placeholder(placeholder));
        }
        let pinned = self.lookup.known.pinned.get(&call.key).cloned();
        pinned.or_else(|| memory.recall.recalled(self.results.scope(), call.key))
    }

    fn pair_again(&self, context: RecoveryContext<'_>) -> Option<Paired<'_>> {
        let parsed = parse(&self.plain, self.wire).ok()?;
        let remote = self.memory(context).remote_calls(|| parsed.remote_references());
        let mut paired = parsed.pair(PairingContext {
            policy: context.policy,
            remote: &remote,
        });
        paired.set_conversation(self.conversation());
        Some(paired)
    }

    fn resend_replaced(&self, replaced: ReplacedResults) -> Option<Resend> {
        if replaced.replaced.is_empty() && replaced.overridden.is_empty() {
            return None;
        }
        let overrides = !replaced.overridden.is_empty();
        let named = replaced.replaced.iter().chain(&replaced.overridden);
        let calls = named.map(|(call, placeholder)| (self.scope().call(*call), *placeholder));
        let fact = LearnedFact::BoundPlaceholders {
            calls: calls.collect(),
            overrides,
        };
        Some(resend(
            replaced.body,
            replaced.plan.report,
            "binding",
            replaced.answers,
            fact,
        ))
    }

    /// Adds the documented setting that lets the provider drop bound thinking to what was made of the body first.
    fn drop_thinking(&mut self, context: RecoveryContext<'_>) -> Option<Resend> {
        // Text that the refused send put at its end stands in its place again.
        self.plain = self.came.clone();
        let paired = self.pair_again(context)?;
        let mut lookup = self.lookup.clone();
        lookup.recall(&paired, self.memory(context), &self.results);
        let mut plan = plan(&paired, &lookup.known, context.policy).ok()?;
        if !plan.drop_bound_thinking(&paired).ok()? {
            return None;
        }
        let answers = given_answers(&paired, &plan, &lookup, self.results.caller);
        let key = paired
            .first_thinking()
            .map(|thinking| self.scope().conversation(thinking));
        let fact = key.map_or(LearnedFact::Nothing, LearnedFact::ThinkingMayBeDropped);
        let body = plan.splice(&paired, &self.plain).ok()?;
        Some(Resend {
            asks_for_binding_controls: true,
            ..resend(body, plan.report, "binding", answers, fact)
        })
    }
}

fn resend(body: Segments, report: RepairReport, why: &'static str, answers: GivenAnswers, fact: LearnedFact) -> Resend {
    Resend {
        body,
        asks_for_binding_controls: false,
        report,
        why,
        answers,
        late_text: None,
        fact,
    }
}
