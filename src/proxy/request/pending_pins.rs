//! Pins of an in-flight request: committed on a 2xx, rolled back on drop.
//!
//! They are stored while the provider works. The answer's head waits for those that are not stored yet.

use std::{collections::HashMap, sync::Arc};

use bytes::Bytes;

use super::{call_lookup::CallLookup, repeat_watch::RepeatWatch};
use crate::{
    auth::Caller,
    conversation::Outline,
    ledger::RecordName,
    proxy::{catch_core_panic::catch_core_panic, late_results::LateResults},
    recall::{AppendedText, AssignedResult, LedgerBudget, RecallScope, RecallStore},
    repair::{Anchor, Assignment, BodyCall, CallKey, Paired, PinnedResult, Plan, client_results},
    splice::Span,
    table::UnstoredRows,
};

/// Results that one request contains for calls to which its client sends no result in place.
#[derive(Clone, Debug, Default)]
pub(in crate::proxy) struct CallResults {
    /// Results that this request is the first to give.
    pub(in crate::proxy) assigned: Vec<AssignedResult>,
    /// Results that earlier requests gave.
    pub(in crate::proxy) pinned_before: Vec<AssignedResult>,
}

/// Pins of a request that no provider has accepted yet, from before the first of them on.
///
/// Whatever fails after the pinning must not leave them: the store never evicts a pin that waits for its provider.
pub(in crate::proxy) struct PendingPins {
    recall: RecallStore,
    /// Owner of the pins.
    pub(in crate::proxy) scope: RecallScope,
    /// Time that resends may still wait for the ledger.
    pub(in crate::proxy) ledger_budget: LedgerBudget,
    pub(in crate::proxy) results: CallResults,
    /// Ledger names of calls whose results a tool service posted.
    pub(in crate::proxy) posted_calls: HashMap<CallKey, RecordName>,
    /// Late text that a resend was the first to store, with its anchor. `None` if there is none.
    stored_text: Option<(Anchor, Arc<AppendedText>)>,
    /// Late text of the last message with its anchor. `None` if the message has none.
    pub(in crate::proxy) last_text: Option<(Anchor, Arc<AppendedText>)>,
    /// Client's body, decoded, with late results at the end of messages. It may contain new results.
    pub(in crate::proxy) plain: Bytes,
    pub(in crate::proxy) outline: Outline,
    /// Calls of the body for which parked results of the caller wait.
    pub(in crate::proxy) awaited_calls: Vec<BodyCall>,
    /// Calls of the body, noted once the provider has accepted it. `None` unless one of them is or was lost, and for a
    /// body that is not edited: its provider refuses an open call.
    pub(in crate::proxy) repeat_watch: Option<RepeatWatch>,
}

impl PendingPins {
    /// Creates the pins of a body for which nothing is pinned yet.
    pub(super) fn new(recall: RecallStore, scope: RecallScope, plain: Bytes, outline: Outline) -> Self {
        Self {
            recall,
            scope,
            ledger_budget: LedgerBudget::FULL,
            results: CallResults::default(),
            posted_calls: HashMap::new(),
            stored_text: None,
            last_text: None,
            plain,
            outline,
            awaited_calls: Vec::new(),
            repeat_watch: None,
        }
    }

    /// Replaces the results by those of another plan. Rolls back those that it does not assign again.
    pub(super) fn replace_results(&mut self, results: CallResults) {
        let gone = results_not_again(&self.results.assigned, &results.assigned);
        self.recall.roll_back_results(self.scope, gone);
        self.results = results;
    }

    /// Makes the pins permanent. Call it once the provider has answered the request with success.
    ///
    /// Returns the calls whose posted results stand in their places, and what the answer's head must wait for.
    pub(in crate::proxy) fn commit(&mut self) -> (Vec<RecordName>, HeadHold) {
        let (scope, recall) = (self.scope, &self.recall);
        // Only results count: a resend may have replaced one by a placeholder.
        let real = |(call, result): &AssignedResult| matches!(result, PinnedResult::Result(_)).then_some(*call);
        let given = self
            .results
            .assigned
            .iter()
            .chain(&self.results.pinned_before)
            .filter_map(real);
        let restored = given.filter_map(|call| self.posted_calls.get(&call)).copied().collect();
        let mut used = std::mem::take(&mut self.results.pinned_before);
        // `append` empties the list, so that the drop rolls nothing back.
        used.append(&mut self.results.assigned);
        let hold = HeadHold {
            unstored: recall.commit_results(scope, &used),
            ledger_budget: self.ledger_budget,
        };
        for (anchor, appended) in self.stored_text.take().into_iter().chain(self.last_text.take()) {
            recall.accept_text(scope.caller, anchor, &appended);
        }
        if let Some(watch) = self.repeat_watch.take() {
            watch.note_calls();
        }
        (restored, hold)
    }

    /// Returns the number of bytes that [`PendingPins::record_shown`] reads.
    pub(in crate::proxy) fn shown_bytes(&self) -> usize {
        let (calls, results) = (&self.outline.last_calls, &self.outline.last_results);
        // Calls of one turn mostly share the message before them.
        let before = calls.iter().map(|call| call.before.len()).max().unwrap_or_default();
        let turn = calls
            .iter()
            .map(|call| call.at)
            .chain(results.iter().map(|result| result.at));
        turn.map(Span::len).fold(before, usize::saturating_add)
    }

    /// Records the calls and results of the body's last turn. Only then: a request that no provider accepts must leave no
    /// records.
    pub(in crate::proxy) fn record_shown(self, late_results: Option<&LateResults>) {
        let (scope, recall) = (self.scope, &self.recall);
        let brought = catch_core_panic(|| {
            if let Some(results) = late_results {
                results.record_shown((&self.plain, scope.format), &self.outline, &self.awaited_calls);
            }
            let in_lane = scope.lane.is_some();
            Some(client_results(&self.plain, scope.format, &self.outline, in_lane))
        });
        recall.store_client_results(scope, brought.unwrap_or_default());
    }

    /// Replaces the pins with those of a resend: rolls back those that it does not assign again, and pins the others.
    ///
    /// Returns `false` if the text that the resend appends to a message cannot be stored.
    pub(in crate::proxy) async fn replace_pins(
        &mut self,
        results: CallResults,
        late_text: Option<(Anchor, AppendedText)>,
    ) -> bool {
        self.replace_results(results);
        let (scope, recall) = (self.scope, &self.recall);
        let assigned = &self.results.assigned;
        let store = async |deadline| {
            // A result that another request has pinned meanwhile stays pinned. The resend is sent as planned.
            drop(recall.pin_results(scope, assigned, deadline).await);
            match late_text {
                Some((anchor, appended)) => {
                    // The first send contained the same results, and has marked them.
                    let marks = Vec::new();
                    let stored = recall
                        .append_text(scope.caller, anchor, appended, marks, deadline)
                        .await;
                    // Text that another request stored must survive the rollback of this one.
                    stored.map(|(text, is_new)| is_new.then_some((anchor, text)))
                }
                None => Some(None),
            }
        };
        let stored = self.ledger_budget.spend(store).await;
        // The resend's body no longer contains the text of an earlier resend.
        self.remove_placed_text();
        let is_stored = stored.is_some();
        self.stored_text = stored.flatten();
        is_stored
    }

    fn remove_placed_text(&mut self) {
        if let Some((anchor, _)) = self.stored_text.take() {
            self.recall.roll_back_text(self.scope.caller, anchor);
        }
    }
}

/// Rows for which the head of an accepted request's answer waits.
pub(in crate::proxy) struct HeadHold {
    unstored: UnstoredRows,
    ledger_budget: LedgerBudget,
}

impl HeadHold {
    /// Waits until the rows are stored, for what is left of the exchange's time for the ledger.
    ///
    /// The client may repeat what it has an answer to: a crash must not change those bytes.
    pub(in crate::proxy) async fn wait_until_stored(mut self) {
        let wait = |deadline| self.unstored.await_stored(deadline);
        self.ledger_budget.spend(wait).await;
    }
}

impl Drop for PendingPins {
    // No provider accepted the request. After `commit` nothing is left to roll back.
    fn drop(&mut self) {
        self.recall.roll_back_results(self.scope, &self.results.assigned);
        self.remove_placed_text();
        // The user may go on from an older answer to the message, which the model gave without the text.
        if let Some((anchor, _)) = &self.last_text {
            self.recall.roll_back_text(self.scope.caller, *anchor);
        }
    }
}

/// Returns the results of `before` that `now` does not assign again.
fn results_not_again<'b>(before: &'b [AssignedResult], now: &[AssignedResult]) -> Vec<&'b AssignedResult> {
    if before.is_empty() {
        return Vec::new();
    }
    let mut again: HashMap<CallKey, Vec<&PinnedResult>> = HashMap::new();
    for (call, result) in now {
        again.entry(*call).or_default().push(result);
    }
    let is_gone = |(call, result): &&AssignedResult| again.get(call).is_none_or(|given| !given.contains(&result));
    before.iter().filter(is_gone).collect()
}

/// Returns the results in a plan's body: those that it assigns and that are to be pinned, and those pinned before.
pub(in crate::proxy) fn call_results(
    paired: &Paired<'_>,
    plan: &Plan,
    lookup: &CallLookup,
    caller: Caller,
) -> CallResults {
    // Not pinned: the result of a call that the ledger may know, but was not read in time. It could contradict what the
    // provider was sent before. Nor a result under a key that may name another call too: each body derives it again.
    let is_pinned = |assigned: &&Assignment| {
        if lookup.unread.contains(&assigned.call) {
            return false;
        }
        let is_own = caller.is_authenticated() && assigned.is_unique;
        is_own || matches!(assigned.result, PinnedResult::Placeholder(_))
    };
    let assigned = plan.assigned.iter().filter(is_pinned);
    let pinned = |key| lookup.known.pinned.get(key);
    let used = paired
        .open_calls()
        .filter_map(|call| Some((call.key, pinned(&call.key)?.clone())));
    CallResults {
        pinned_before: used.collect(),
        assigned: assigned
            .map(|assigned| (assigned.call, assigned.result.clone()))
            .collect(),
    }
}
