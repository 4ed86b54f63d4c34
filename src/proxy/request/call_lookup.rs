//! Look-up of everything known about the open calls of one body: memory first, then the ledger, under one deadline.
//!
//! It returns plain data for a plan, which alone decides the result of each call.

use std::collections::{HashMap, HashSet};

use tokio::time::Instant;

use crate::{
    ledger::{RecordName, Unread},
    proxy::{
        fact_memory::FactMemory,
        fact_scope::FactScope,
        late_results::{BeforeSend, GivenResults, LateResults, OpenCallRecords},
    },
    recall::{AssignedResult, RecallScope, RecallStore},
    repair::{
        Assignment, BodyCall, CallKey, KnownResults, Paired, Parsed, PinnedResult, Plan, RealResult, RemoteCalls,
        RemoteReferences, RepairPolicy, ThinkingHash, last_thinking, plan,
    },
    telemetry::Telemetry,
    wire::Unreadable,
};

/// Maximum bytes of earlier client results that are restored in one request. Clients may prune results on purpose.
const RESTORED_BYTES_MAX: usize = 1024 * 1024;
/// Number of last assistant turns in which such results are restored.
const TURNS_BEHIND_MAX: usize = 20;

/// Everything known about the open calls of one request.
#[derive(Clone, Debug, Default)]
pub(in crate::proxy) struct CallLookup {
    /// Input of a plan.
    pub(in crate::proxy) known: KnownResults,
    /// Those of the known results that come from tool services.
    pub(in crate::proxy) given: GivenResults,
    /// Calls that were looked up in the ledger. For them a resend ignores later pins in memory: they are this request's
    /// own, and the resend replaces them.
    looked_up: HashSet<CallKey>,
    /// Calls about which the ledger did not answer. Their results may contradict it, so they are never pinned.
    pub(in crate::proxy) unread: HashSet<CallKey>,
    /// Last signed thinking of the body. `None` if it has none.
    pub(in crate::proxy) last_thinking: Option<ThinkingHash>,
}

/// Sources of a look-up that never wait.
#[derive(Clone, Copy, Debug)]
pub(in crate::proxy) struct CallMemory<'m> {
    pub(in crate::proxy) facts: &'m FactMemory,
    pub(in crate::proxy) recall: &'m RecallStore,
    pub(in crate::proxy) scope: FactScope,
}

impl CallMemory<'_> {
    /// Returns the remote calls of each history, as far as earlier requests of this caller have taught them.
    pub(in crate::proxy) fn remote_calls(
        &self,
        references: impl FnOnce() -> Vec<RemoteReferences>,
    ) -> Vec<RemoteCalls> {
        // Finding the references costs a pass over the body, and few processes ever see a remote call.
        if !self.facts.knows_remote_calls() {
            return Vec::new();
        }
        let of_history = |history: RemoteReferences| {
            let origin = history.origin.as_deref().map(|id| self.scope.origin_key(id));
            let is_answered = |id: &Vec<u8>| self.facts.is_answered(self.scope.remote_call_key(id), origin);
            RemoteCalls {
                due: origin.map_or_else(Vec::new, |origin| self.facts.due_calls(origin)),
                answered: history.results.into_iter().filter(is_answered).collect(),
            }
        };
        references().into_iter().map(of_history).collect()
    }

    /// Returns the blocks of this body's thinking that the provider refused from this caller before.
    pub(in crate::proxy) fn refused_thinking(&self, parsed: &Parsed<'_>) -> Vec<ThinkingHash> {
        // Hashing the thinking costs a pass over it, and few processes ever see a foreign block.
        if !self.recall.knows_refused_thinking() {
            return Vec::new();
        }
        let mut blocks = parsed.thinking_hashes();
        blocks.retain(|block| {
            self.recall
                .is_refused_thinking(self.scope.caller, self.scope.thinking_key(*block))
        });
        blocks
    }
}

impl CallMemory<'_> {
    /// Plans a body, including what refusals have taught about this conversation's thinking.
    pub(in crate::proxy) fn plan_with_facts(
        &self,
        paired: &Paired<'_>,
        known: &KnownResults,
        policy: &RepairPolicy,
    ) -> Result<Plan, Unreadable> {
        let mut plan = plan(paired, known, policy)?;
        let key = || {
            let thinking = paired.first_thinking();
            thinking.map(|thinking| self.scope.conversation_key(thinking))
        };
        // Known from an earlier refusal: asking at once saves another refused send.
        if self.facts.may_drop_thinking(key) {
            plan.drop_bound_thinking(paired)?;
        }
        Ok(plan)
    }
}

/// Returns each call once. Of one that several entries of a batch contain, the nearest to the end of its history stays.
fn each_once(calls: Vec<&BodyCall>) -> Vec<&BodyCall> {
    if calls.len() < 2 {
        return calls;
    }
    let mut once: Vec<&BodyCall> = Vec::with_capacity(calls.len());
    let mut places = HashMap::with_capacity(calls.len());
    for call in calls {
        let place = *places.entry(call.key).or_insert(once.len());
        match once.get_mut(place) {
            Some(known) if call.turns_after < known.turns_after => *known = call,
            Some(_) => {}
            None => once.push(call),
        }
    }
    once
}

impl CallLookup {
    /// Returns a look-up that knows no result yet.
    pub(in crate::proxy) fn of_body(paired: &Paired<'_>) -> Self {
        Self {
            last_thinking: last_thinking(paired),
            ..Self::default()
        }
    }

    /// Adds the results of open calls that are in memory. Returns the calls without one, each once.
    pub(in crate::proxy) fn add_from_memory<'p>(
        &mut self,
        paired: &'p Paired<'_>,
        memory: CallMemory<'_>,
        scope: RecallScope,
    ) -> Vec<&'p BodyCall> {
        let mut unknown = Vec::new();
        for call in paired.open_calls() {
            // Thinking is bound to this placeholder: any other result would be refused.
            if let Some(placeholder) = memory.facts.bound_placeholder(memory.scope, call.key) {
                self.known
                    .pinned
                    .insert(call.key, PinnedResult::Placeholder(placeholder));
            } else if self.looked_up.contains(&call.key) || self.known.pinned.contains_key(&call.key) {
                // Already looked up for this request, whose results must not change between its sends.
            } else if let Some(pinned) = memory.recall.cached_result(scope, call.key) {
                self.known.pinned.insert(call.key, pinned);
            } else {
                unknown.push(call);
            }
        }
        // Only callers with such a placeholder pay for this pass over the answered calls.
        if memory.facts.has_overrides(memory.scope.caller) {
            self.override_results(paired, |call| memory.facts.bound_placeholder(memory.scope, call.key));
        }
        each_once(unknown)
    }

    /// Overrides results that the client has added in front of thinking which was generated with a placeholder.
    pub(in crate::proxy) fn override_results(
        &mut self,
        paired: &Paired<'_>,
        placeholder: impl Fn(&BodyCall) -> Option<crate::repair::Placeholder>,
    ) {
        let answered = paired.answered_calls().into_iter();
        // Without thinking after it nothing is bound. A key that is not unique could override another call.
        let bound = answered.filter(|call| call.is_unique && call.has_thinking_after);
        let overrides = bound.filter_map(|call| Some((call.key, placeholder(&call)?)));
        self.known.overrides.extend(overrides);
    }

    /// Adds results of these calls from the ledger: pinned results, posted results, and earlier client results. `records` are
    /// those that were read already.
    ///
    /// A posted result in `in_texts` is not restored: it is already in the body, at the end of a message.
    pub(in crate::proxy) async fn add_from_ledger(
        &mut self,
        calls: &[&BodyCall],
        mut records: OpenCallRecords,
        in_texts: &HashSet<RecordName>,
        before: BeforeSend<'_>,
    ) {
        records.read(calls, before).await;
        let (mut room, mut lacking) = (RESTORED_BYTES_MAX, Vec::new());
        for call in calls.iter().copied() {
            // Noted even if the ledger did not answer: from now on memory may hold this request's own pins.
            self.looked_up.insert(call.key);
            let record = records.take(call.key);
            let is_unread = record.is_unread();
            let (pinned, mut recorded, seen) = record.into_found();
            // A pinned result is final: only the other calls need a result.
            if let Some(pinned) = pinned {
                self.known.pinned.insert(call.key, pinned);
                continue;
            }
            if is_unread {
                self.unread.insert(call.key);
            }
            // Restored near the end only: further back the client may have pruned results on purpose.
            let is_near = call.turns_after < TURNS_BEHIND_MAX;
            if let Some(posted) = self.given.give_posted(call, &mut recorded, before.results, in_texts) {
                self.known.results.insert(call.key, posted);
            } else if let Some(real) = seen.filter(|_| is_near) {
                if let Some(left) = room.checked_sub(real.byte_len()) {
                    room = left;
                    self.known.results.insert(call.key, real);
                }
            } else if is_near {
                lacking.push((call, recorded));
            }
        }
        for (call, run) in self.given.give_earlier_runs(lacking, room, before).await {
            match run {
                Ok(real) => drop(self.known.results.insert(call, real)),
                Err(Unread) => drop(self.unread.insert(call)),
            }
        }
    }

    /// Marks the posted results of this look-up as contained in its request. Removes those that are not marked: then it
    /// returns `false` if they have changed since they were read, and [`Unread`] if the ledger did not answer.
    pub(in crate::proxy) async fn mark_restored(
        &mut self,
        results: &LateResults,
        deadline: Instant,
    ) -> Result<bool, Unread> {
        let (unmarked, answered) = self.given.mark_in_request(results, deadline).await;
        for call in &unmarked {
            self.known.results.remove(call);
            self.unread.insert(*call);
        }
        answered.map(|()| unmarked.is_empty())
    }

    /// Returns `true` if a tool service has posted every known result.
    pub(in crate::proxy) fn knows_posted_only(&self) -> bool {
        // A block is a result that the client once brought.
        let is_posted = |result: &RealResult| matches!(result, RealResult::Content { .. });
        let mut pinned = self.known.pinned.values();
        self.known.results.values().all(is_posted)
            && pinned.all(|result| matches!(result, PinnedResult::Result(result) if is_posted(result)))
    }

    /// Counts the placeholders that a plan has assigned to calls about which the ledger did not answer.
    pub(in crate::proxy) fn count_unread(&self, assigned: &[Assignment], telemetry: &Telemetry) {
        for assigned in assigned.iter().filter(|assigned| self.unread.contains(&assigned.call)) {
            if matches!(assigned.result, PinnedResult::Placeholder(_)) {
                telemetry.record_pinned_result("unread");
            }
        }
    }

    /// Adds results that other requests were the first to pin. A posted result for which another one stands is not received.
    pub(in crate::proxy) fn add_pinned_by_others(&mut self, pinned: HashMap<CallKey, PinnedResult>) {
        for (call, result) in pinned {
            let is_same = matches!(&result, PinnedResult::Result(real) if self.known.results.get(&call) == Some(real));
            if !is_same {
                self.given.posted_calls.remove(&call);
            }
            self.known.pinned.insert(call, result);
        }
    }

    /// Counts the results that a plan has assigned, and that are pinned for the first time.
    pub(in crate::proxy) fn count_results(&self, assigned: &[AssignedResult], telemetry: &Telemetry) {
        for (call, result) in assigned {
            telemetry.record_pinned_result(match result {
                PinnedResult::Placeholder(_) => "placeholder",
                PinnedResult::Result(_) if self.given.earlier_runs.contains(call) => "earlier_run",
                PinnedResult::Result(real) if self.known.results.get(call) == Some(real) => "restored",
                PinnedResult::Result(_) => "moved",
            });
        }
    }
}
