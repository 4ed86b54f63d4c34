//! The look-up of everything known about the open calls of one body: memory first, then the ledger, under one deadline.
//!
//! Gives plain data for a plan. Nothing here decides which answer a call takes.

use std::collections::{HashMap, HashSet};

use tokio::time::Instant;

use crate::proxy::{
    late_results::LateResults,
    provider_facts::{FactScope, ProviderFacts},
};
use crate::{
    late::Found,
    ledger::Name,
    recall::{Recall, Wanted},
    repair::{
        BodyCall, CallKey, IdSpelling, KnownAnswers, Paired, PinnedAnswer, RealResult, RemoteCalls, RemoteReferences,
        without_cache_control,
    },
};

/// Bytes of results that a client once brought which one request gets back: what it prunes on purpose must not come back.
const RESTORED_BYTES_MAX: usize = 1024 * 1024;
/// Assistant turns, from the last on, whose calls get such results back.
const TURNS_BEHIND_MAX: usize = 20;

/// Everything known about the open calls of one request.
#[derive(Clone, Debug, Default)]
pub(in crate::proxy) struct CallLookup {
    /// What a plan takes.
    pub(in crate::proxy) known: KnownAnswers,
    /// Ledger names of calls whose results a service posted.
    pub(in crate::proxy) posted: HashMap<CallKey, Name>,
    /// Calls that were looked up in the ledger. Pins that this very request leaves in memory are not theirs: a resend
    /// replaces them.
    looked_up: HashSet<CallKey>,
}

/// The sources of a look-up that never wait.
#[derive(Clone, Copy, Debug)]
pub(in crate::proxy) struct Memory<'m> {
    pub(in crate::proxy) facts: &'m ProviderFacts,
    pub(in crate::proxy) recall: &'m Recall,
    pub(in crate::proxy) scope: FactScope<'m>,
}

impl Memory<'_> {
    /// Returns the remote calls that each history refers to, as far as this caller's earlier requests showed them.
    pub(in crate::proxy) fn remote_calls(
        &self,
        references: impl FnOnce() -> Vec<RemoteReferences>,
    ) -> Vec<RemoteCalls> {
        if !self.facts.knows_remote_calls() {
            return Vec::new();
        }
        let of_history = |history: RemoteReferences| {
            let origin = history.origin.as_deref().map(|id| self.scope.origin(id));
            let is_answered = |id: &Vec<u8>| self.facts.is_answered(self.scope.remote_call(id), origin);
            RemoteCalls {
                due: origin.map_or_else(Vec::new, |origin| self.facts.due_calls(origin)),
                answered: history.results.into_iter().filter(is_answered).collect(),
            }
        };
        references().into_iter().map(of_history).collect()
    }
}

impl CallLookup {
    /// Adds what memory knows of the open calls. Returns the calls that it does not know.
    pub(in crate::proxy) fn recall<'p>(
        &mut self,
        paired: &'p Paired<'_>,
        memory: Memory<'_>,
        results: &LateResults,
    ) -> Vec<&'p BodyCall> {
        let mut unknown = Vec::new();
        for call in paired.open_calls() {
            // Thinking is bound to this placeholder: it outranks whatever else is known.
            if let Some(placeholder) = memory.facts.bound_placeholder(memory.scope, call.key) {
                self.known
                    .pinned
                    .insert(call.key, PinnedAnswer::Placeholder(placeholder));
            } else if self.looked_up.contains(&call.key) || self.known.pinned.contains_key(&call.key) {
                // Already in its final state for this request.
            } else if let Some(pinned) = memory.recall.recalled(results.scope(), call.key) {
                self.known.pinned.insert(call.key, pinned);
            } else {
                unknown.push(call);
            }
        }
        if memory.facts.has_overrides(memory.scope.caller) {
            self.override_results(paired, |call| memory.facts.bound_placeholder(memory.scope, call.key));
        }
        unknown
    }

    /// Puts placeholders back where the client has put results behind which thinking was generated without them.
    pub(in crate::proxy) fn override_results(
        &mut self,
        paired: &Paired<'_>,
        placeholder: impl Fn(&BodyCall) -> Option<crate::repair::Placeholder>,
    ) {
        let answered = paired.answered_calls().into_iter();
        let bound = answered.filter(|call| call.is_unique && call.has_thinking_behind);
        let overrides = bound.filter_map(|call| Some((call.key, placeholder(&call)?)));
        self.known.overrides.extend(overrides);
    }

    /// Adds what the ledger knows of these calls: pinned answers, posted results, results that the client once brought.
    ///
    /// A posted result that stands elsewhere in the body already, as one of `told`, is not restored too.
    pub(in crate::proxy) async fn fetch(
        &mut self,
        calls: &[&BodyCall],
        results: &LateResults,
        told: &HashSet<Name>,
        deadline: Instant,
    ) {
        let scope = results.scope();
        let keys: Vec<CallKey> = calls.iter().map(|call| call.key).collect();
        let pinned = results.recall.fetch(scope, &keys, deadline).await;
        let open: Vec<&BodyCall> = calls
            .iter()
            .copied()
            .filter(|call| !pinned.contains_key(&call.key))
            .collect();
        self.known.pinned.extend(pinned);
        self.looked_up.extend(keys);
        let posted = results.posted(&open, deadline).await;
        let wanted: Vec<Wanted> = open.iter().map(|call| wanted(call)).collect();
        let seen = results.recall.seen(scope, &wanted, deadline).await;
        let mut room = RESTORED_BYTES_MAX;
        for ((call, posted), seen) in open.into_iter().zip(posted).zip(seen) {
            let is_its = |posted: &Found| {
                let exact = call.spelling == IdSpelling::Alone || posted.id == call.id;
                exact && !told.contains(&posted.call)
            };
            if let Some(posted) = posted.filter(is_its) {
                let (content, failed) = (without_cache_control(&posted.content), posted.failed);
                self.known
                    .results
                    .insert(call.key, RealResult::Content { content, failed });
                self.posted.insert(call.key, posted.call);
            } else if let Some(real) = seen.filter(|_| call.turns_behind < TURNS_BEHIND_MAX)
                && let Some(left) = room.checked_sub(real.byte_len())
            {
                room = left;
                self.known.results.insert(call.key, real);
            }
        }
    }

    /// Returns the counter's label for an answer that a call was given now.
    pub(in crate::proxy) fn label_of(&self, call: CallKey, answer: &PinnedAnswer) -> &'static str {
        match answer {
            PinnedAnswer::Placeholder(_) => "placeholder",
            PinnedAnswer::Result(real) if self.known.results.get(&call) == Some(real) => "restored",
            PinnedAnswer::Result(_) => "moved",
        }
    }
}

/// Describes a call for the store of results that clients brought.
fn wanted(call: &BodyCall) -> Wanted {
    let id = if call.id.is_empty() { &call.tool } else { &call.id };
    Wanted {
        id: id.clone(),
        tool: call.tool.clone(),
        input: call.input_hash,
        asked: call.context_hash,
        occurrence: call.occurrence,
        has_twin: call.spelling != IdSpelling::Alone,
    }
}
