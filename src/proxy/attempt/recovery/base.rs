//! The body that resends are planned from, with everything that was known or has been taught about it.

use bytes::Bytes;

use super::{
    proposal::{Proposal, ResendStep},
    removed_thinking::RemovedThinking,
};
use crate::{
    provider::ServerHash,
    proxy::{
        data_path::DataPath,
        fact_scope::FactScope,
        request::{CallLookup, CallMemory, CallResults, SentBody, call_results},
    },
    recall::{KeyedFact, LearnedFact},
    repair::{Paired, PairingContext, Parsed, Plan, RefusalReading, RepairPolicy, is_strong, parse},
    wire::{Refusal, Unreadable},
};

/// Maximum open calls of one remote response that are remembered.
const DUE_MAX: usize = 128;

/// Read access to everything besides the body that a resend depends on.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecoveryContext<'m> {
    pub(super) path: &'m DataPath,
    pub(super) policy: &'m RepairPolicy,
}

/// The body that resends are planned from.
pub(super) struct ResendBase {
    /// The request as it was sent, with the changes that its resends have made to it.
    pub(super) sent: Box<SentBody>,
    /// The body that is repaired: `sent.plain`, possibly with results moved to its end.
    pub(super) body: Bytes,
    server: ServerHash,
    /// The refusal of the pairing that the present body follows, with its reading. `None` if there was none.
    pub(super) followed: Option<(Refusal, RefusalReading)>,
    pub(super) removed_thinking: RemovedThinking,
}

/// The bytes of a base that other ones have replaced.
pub(super) struct ReplacedBytes {
    body: Bytes,
    plain: Bytes,
}

impl ResendBase {
    /// Creates the base of the resends of a request that was sent to `server`.
    pub(super) fn new(sent: Box<SentBody>, server: ServerHash) -> Self {
        Self {
            body: sent.plain.clone(),
            sent,
            server,
            followed: None,
            removed_thinking: RemovedThinking::default(),
        }
    }

    /// Plans from another body from now on. Returns the bytes before that.
    pub(super) fn replace(&mut self, body: Bytes) -> ReplacedBytes {
        ReplacedBytes {
            body: std::mem::replace(&mut self.body, body.clone()),
            plain: std::mem::replace(&mut self.sent.plain, body),
        }
    }

    /// Plans from these bytes again.
    pub(super) fn put_back(&mut self, replaced: ReplacedBytes) {
        (self.body, self.sent.plain) = (replaced.body, replaced.plain);
    }

    /// Returns the client's results to their places: those that a resend has moved.
    pub(super) fn restore(&mut self) {
        self.body = self.sent.plain.clone();
    }

    /// Notes the present body as the one without values, before it gets the first one back.
    pub(super) fn note_unfilled(&mut self) {
        let unfilled = self.body.clone();
        self.sent.unfilled.get_or_insert(unfilled);
    }

    /// Takes the body without any value that it got back. `None` if it got none.
    pub(super) const fn take_unfilled(&mut self) -> Option<Bytes> {
        self.sent.unfilled.take()
    }

    /// Returns the owner of learned facts.
    pub(super) fn fact_scope(&self) -> FactScope {
        FactScope {
            server: self.server,
            caller: self.sent.scope.caller,
        }
    }

    /// Returns the facts that the plan's placeholders answer remote calls, if the plan has any.
    pub(super) fn remote_facts(&self, plan: &Plan, is_original: bool) -> Vec<KeyedFact> {
        let Some(remote) = plan.remote_results.last().filter(|_| !is_original) else {
            return Vec::new();
        };
        let scope = self.fact_scope();
        let origin = remote.origin.as_deref().map(|id| scope.origin_key(id));
        // A weak id may name another call too: a result recorded under it could be wrong.
        let strong = remote.calls.iter().filter(|id| is_strong(id.as_bytes(), b""));
        let answered = |id: &String| {
            let key = scope.remote_call_key(id.as_bytes());
            (key, LearnedFact::AnsweredCall(origin))
        };
        let mut facts: Vec<KeyedFact> = strong.map(answered).collect();
        // A longer list is not worth its memory: the next refusal names the calls again.
        if let Some(origin) = origin.filter(|_| remote.calls.len() <= DUE_MAX) {
            facts.push((origin, LearnedFact::DueCalls(remote.calls.clone())));
        }
        facts
    }

    /// Returns a fact about the rules that the server demands for the model.
    pub(super) fn rules_fact(&self, fact: LearnedFact) -> KeyedFact {
        (self.fact_scope().rules_key(self.sent.model.as_deref()), fact)
    }

    /// Returns what this process remembers for the caller at this upstream.
    pub(super) fn call_memory<'m>(&'m self, context: RecoveryContext<'m>) -> CallMemory<'m> {
        CallMemory {
            facts: &context.path.facts,
            recall: &context.path.recall,
            scope: self.fact_scope(),
        }
    }

    /// Parses the present body.
    pub(super) fn parse(&self) -> Option<Parsed<'_>> {
        parse(&self.body, self.sent.wire).ok()
    }

    /// Pairs the present body by the rules of its dialect alone.
    pub(super) fn pair_by_dialect(&self, policy: &RepairPolicy) -> Option<Paired<'_>> {
        Some(self.in_conversation(self.parse()?.pair(PairingContext::new(policy))))
    }

    /// Pairs a sent body by the rules of its dialect alone.
    pub(super) fn pair_sent<'b>(&self, parsed: Parsed<'b>) -> Paired<'b> {
        self.in_conversation(parsed.pair(PairingContext::new(&RepairPolicy::default())))
    }

    /// Pairs the present body by everything that is known of it.
    pub(super) fn pair(&self, context: RecoveryContext<'_>) -> Option<Paired<'_>> {
        let parsed = self.parse()?;
        Some(self.with_pairing(&parsed, context, |pairing| match &self.followed {
            // An earlier refusal of this exchange stays in force: a later one may be about something else.
            Some((refusal, reading)) => parsed.clone().pair_refused(pairing, refusal, *reading),
            None => parsed.clone().pair(pairing),
        }))
    }

    /// Pairs the present body after a refusal.
    pub(super) fn pair_refused<'b>(
        &self,
        parsed: &Parsed<'b>,
        context: RecoveryContext<'_>,
        refusal: &'b Refusal,
        reading: RefusalReading,
    ) -> Paired<'b> {
        self.with_pairing(parsed, context, |pairing| {
            parsed.clone().pair_refused(pairing, refusal, reading)
        })
    }

    /// Applies `pair` with everything that is known of the parsed body.
    fn with_pairing<'b>(
        &self,
        parsed: &Parsed<'b>,
        context: RecoveryContext<'_>,
        pair: impl FnOnce(PairingContext<'_>) -> Paired<'b>,
    ) -> Paired<'b> {
        let memory = self.call_memory(context);
        let remote = memory.remote_calls(|| parsed.remote_references());
        let refused = self.removed_thinking.refused_thinking(memory, parsed);
        self.in_conversation(pair(PairingContext {
            learned: self.sent.learned,
            remote: &remote,
            refused_thinking: &refused,
            ..PairingContext::new(context.policy)
        }))
    }

    /// Sets the lane that makes reusable call ids unique, unless it is only guessed.
    fn in_conversation<'b>(&self, mut paired: Paired<'b>) -> Paired<'b> {
        let lane = self.sent.scope.lane;
        paired.set_conversation(lane.map(|lane| *lane.as_bytes()));
        paired
    }

    /// Returns everything known about the calls of a paired body. A copy, so that an unsent plan leaves no trace.
    pub(super) fn look_up(&self, paired: &Paired<'_>, context: RecoveryContext<'_>) -> CallLookup {
        let mut lookup = self.sent.lookup.clone();
        lookup.add_from_memory(paired, self.call_memory(context), self.sent.scope);
        lookup
    }

    /// Returns the results that a plan's body contains.
    pub(super) fn results_of(&self, paired: &Paired<'_>, plan: &Plan, lookup: &CallLookup) -> CallResults {
        call_results(paired, plan, lookup, self.sent.scope.caller)
    }

    /// Plans a paired body, including what refusals have taught about this conversation's thinking.
    pub(super) fn plan_with_facts(
        &self,
        paired: &Paired<'_>,
        lookup: &CallLookup,
        context: RecoveryContext<'_>,
    ) -> Result<Plan, Unreadable> {
        self.call_memory(context)
            .plan_with_facts(paired, &lookup.known, context.policy)
    }

    /// Plans the resend of the present body, which proves no fact.
    pub(super) fn plan_resend(&self, context: RecoveryContext<'_>, step: ResendStep) -> Option<Proposal> {
        let paired = self.pair(context)?;
        let lookup = self.look_up(&paired, context);
        let plan = self.plan_with_facts(&paired, &lookup, context).ok()?;
        let results = self.results_of(&paired, &plan, &lookup);
        let body = plan.splice(&paired, &self.body).ok()?;
        Some(Proposal::new(body, plan.report, step, results, Vec::new()))
    }
}
