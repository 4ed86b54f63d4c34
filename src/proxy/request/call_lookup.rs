//! Look-up of everything known about the open calls of one body: memory first, then the ledger, under one deadline.
//!
//! It returns plain data for a plan, which alone decides the result of each call.

use std::collections::{HashMap, HashSet};

use tokio::time::Instant;

use crate::proxy::{fact_memory::FactMemory, fact_scope::FactScope, late_results::LateResults};
use crate::{
    clock::rfc3339_date,
    late::{FoundCall, NamedCallRecord, ReadResult},
    ledger::{RecordName, Unread},
    recall::{AssignedResult, ClientResultQuery, RecallStore},
    repair::{
        Assignment, BodyCall, CallKey, IdSpelling, KnownResults, Paired, Parsed, PinnedResult, Plan, RealResult,
        RemoteCalls, RemoteReferences, RepairPolicy, ThinkingHash, contains_result, last_thinking, mark_earlier_run,
        plan,
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
    /// Ledger names of calls whose results a tool service posted.
    pub(in crate::proxy) posted_calls: HashMap<CallKey, RecordName>,
    /// Those of them that were not marked as contained in a request yet.
    unmarked: Vec<(CallKey, ReadResult)>,
    /// Calls that got the result of an earlier run.
    earlier_runs: HashSet<CallKey>,
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

impl CallLookup {
    /// Returns a look-up that knows no result yet.
    pub(in crate::proxy) fn of_body(paired: &Paired<'_>) -> Self {
        Self {
            last_thinking: last_thinking(paired),
            ..Self::default()
        }
    }

    /// Adds the results of open calls that are in memory. Returns the calls without one.
    pub(in crate::proxy) fn add_from_memory<'p>(
        &mut self,
        paired: &'p Paired<'_>,
        memory: CallMemory<'_>,
        results: &LateResults,
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
            } else if let Some(pinned) = memory.recall.cached_result(results.pin_scope(), call.key) {
                self.known.pinned.insert(call.key, pinned);
            } else {
                unknown.push(call);
            }
        }
        // Only callers with such a placeholder pay for this pass over the answered calls.
        if memory.facts.has_overrides(memory.scope.caller) {
            self.override_results(paired, |call| memory.facts.bound_placeholder(memory.scope, call.key));
        }
        unknown
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

    /// Adds results of these calls from the ledger: pinned results, posted results, and earlier client results.
    ///
    /// A posted result in `in_texts` is not restored: it is already in the body, at the end of a message.
    pub(in crate::proxy) async fn add_from_ledger(
        &mut self,
        calls: &[&BodyCall],
        results: &LateResults,
        in_texts: &HashSet<RecordName>,
        deadline: Instant,
    ) {
        let scope = results.pin_scope();
        let keys: Vec<CallKey> = calls.iter().map(|call| call.key).collect();
        let wanted: Vec<ClientResultQuery> = calls.iter().map(|call| wanted_result(call)).collect();
        // Side by side: three reads cost one wait.
        let (pinned, recorded, seen) = tokio::join!(
            results.recall.fetch_results(scope, &keys, deadline),
            results.recorded_calls(calls, deadline),
            results.recall.find_client_results(scope, &wanted, deadline),
        );
        // Noted even if the ledger did not answer: from now on memory may hold this request's own pins.
        self.looked_up.extend(&keys);
        let is_unread = pinned.is_err() || recorded.is_err() || seen.is_err();
        let pinned = pinned.unwrap_or_default();
        if is_unread {
            self.unread.extend(keys.iter().filter(|key| !pinned.contains_key(*key)));
        }
        let recorded = recorded.unwrap_or_else(|_| calls.iter().map(|_| None).collect());
        let seen = seen.unwrap_or_else(|_| vec![None; calls.len()]);
        let (mut room, mut open) = (RESTORED_BYTES_MAX, Vec::new());
        for ((call, recorded), seen) in calls.iter().copied().zip(recorded).zip(seen) {
            // A pinned result is final: only the other calls need a result.
            if pinned.contains_key(&call.key) {
                continue;
            }
            // The ledger's name covers letters and digits only: among twins the exact id tells whose result it is.
            let is_its = |id: &[u8]| call.spelling == IdSpelling::Alone || id == call.id;
            // Restored near the end only: further back the client may have pruned results on purpose.
            let is_near = call.turns_after < TURNS_BEHIND_MAX;
            match (recorded, seen.filter(|_| is_near)) {
                (Some(FoundCall::Posted(posted)), _)
                    if is_its(&posted.id) && !in_texts.contains(posted.read.call()) =>
                {
                    let content = results.content_in_place(&posted.content, call);
                    let failed = posted.failed;
                    self.known
                        .results
                        .insert(call.key, RealResult::Content { content, failed });
                    self.posted_calls.insert(call.key, *posted.read.call());
                    self.unmarked.push((call.key, posted.read));
                }
                (_, Some(real)) => {
                    if let Some(left) = room.checked_sub(real.byte_len()) {
                        room = left;
                        self.known.results.insert(call.key, real);
                    }
                }
                (Some(FoundCall::Open(recorded)), None) if is_near && is_its(&recorded.1.id) => {
                    open.push((call, recorded));
                }
                _ => {}
            }
        }
        self.known.pinned.extend(pinned);
        self.add_earlier_runs(&open, results, room, deadline).await;
    }

    /// Marks the posted results of this look-up as contained in its request. Removes those that are not marked: then it
    /// returns `false` if they have changed since they were read, and [`Unread`] if the ledger did not answer.
    pub(in crate::proxy) async fn mark_restored(
        &mut self,
        results: &LateResults,
        deadline: Instant,
    ) -> Result<bool, Unread> {
        let (calls, read): (Vec<CallKey>, Vec<ReadResult>) = self.unmarked.drain(..).unzip();
        let answered = results.late.calls().mark_in_request(&read, deadline).await;
        let (is_unread, marked) = (answered.is_err(), answered.unwrap_or_default());
        let mut all_marked = true;
        for (call, read) in calls.into_iter().zip(read) {
            if !marked.contains(read.call()) {
                self.known.results.remove(&call);
                self.posted_calls.remove(&call);
                self.unread.insert(call);
                all_marked = false;
            }
        }
        if is_unread { Err(Unread) } else { Ok(all_marked) }
    }

    /// Adds the results of earlier runs, of at most `room` bytes, for calls that have no result of their own.
    async fn add_earlier_runs(
        &mut self,
        open: &[(&BodyCall, Box<NamedCallRecord>)],
        results: &LateResults,
        mut room: usize,
        deadline: Instant,
    ) {
        let records: Vec<&NamedCallRecord> = open.iter().map(|(_, record)| &**record).collect();
        let Ok(runs) = results.earlier_runs(&records, deadline).await else {
            self.unread.extend(open.iter().map(|(call, _)| call.key));
            return;
        };
        for ((call, _), run) in open.iter().zip(runs) {
            let Some(run) = run else { continue };
            let content = results.content_in_place(&run.content, call);
            let content = mark_earlier_run(&content, &rfc3339_date(run.settled_at));
            let Some(left) = room.checked_sub(content.len()) else {
                continue;
            };
            room = left;
            self.earlier_runs.insert(call.key);
            // Not a posted result: the caller does not wait for it.
            let real = RealResult::Content { content, failed: false };
            self.known.results.insert(call.key, real);
        }
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
                self.posted_calls.remove(&call);
            }
            self.known.pinned.insert(call, result);
        }
    }

    /// Notes the pinned results whose caller has not received them yet: an earlier answer to it was cut off.
    ///
    /// A pin may also be the result of another run, or of a call of another session with the same id and input. Only a
    /// result that the body contains is received.
    pub(in crate::proxy) async fn note_waiting(
        &mut self,
        paired: &Paired<'_>,
        results: &LateResults,
        deadline: Instant,
    ) {
        if results.late.calls().waiting_count(results.caller) == 0 {
            return;
        }
        // A block is a result that the client brought. It may be another one than the posted.
        let is_content = |key: &CallKey| {
            matches!(
                self.known.pinned.get(key),
                Some(PinnedResult::Result(RealResult::Content { .. }))
            )
        };
        let open = paired.open_calls();
        let waiting: Vec<&BodyCall> = open
            .filter(|call| is_content(&call.key) && results.waiting_result(call).is_some())
            .collect();
        if waiting.is_empty() {
            return;
        }
        // What is not read in time goes on waiting.
        let recorded = results.recorded_calls(&waiting, deadline).await.unwrap_or_default();
        for (call, recorded) in waiting.into_iter().zip(recorded) {
            if let Some(FoundCall::Posted(posted)) = recorded
                && let Some(PinnedResult::Result(RealResult::Content { content, .. })) =
                    self.known.pinned.get(&call.key)
                && contains_result(content, &results.content_in_place(&posted.content, call))
            {
                self.posted_calls.insert(call.key, *posted.read.call());
            }
        }
    }

    /// Counts the results that a plan has assigned, and that are pinned for the first time.
    pub(in crate::proxy) fn count_results(&self, assigned: &[AssignedResult], telemetry: &Telemetry) {
        for (call, result) in assigned {
            telemetry.record_pinned_result(match result {
                PinnedResult::Placeholder(_) => "placeholder",
                PinnedResult::Result(_) if self.earlier_runs.contains(call) => "earlier_run",
                PinnedResult::Result(real) if self.known.results.get(call) == Some(real) => "restored",
                PinnedResult::Result(_) => "moved",
            });
        }
    }
}

/// Describes a call to the store of earlier client results.
fn wanted_result(call: &BodyCall) -> ClientResultQuery {
    // A call without an id is stored under its tool.
    let id = if call.id.is_empty() { &call.tool } else { &call.id };
    ClientResultQuery {
        id: id.clone(),
        tool: call.tool.clone(),
        context_hash: call.context_hash,
        occurrence: call.occurrence,
        has_twin: call.spelling != IdSpelling::Alone,
    }
}
