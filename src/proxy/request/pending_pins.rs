//! Pins created for an in-flight request: committed on a 2xx, rolled back on drop.

use std::collections::HashMap;

use bytes::Bytes;

use crate::proxy::{catch_core_panic::catch_core_panic, late_results::LateResults};
use crate::{
    conversation::Outline,
    ledger::Name,
    recall::{Appended, Given, Patience},
    repair::{Anchor, CallKey, PinnedAnswer, client_results},
};

/// Answers that one request contains for calls to which its client sends no result in place.
#[derive(Clone, Debug, Default)]
pub(in crate::proxy) struct GivenAnswers {
    /// Answers that this request is the first to give.
    pub(in crate::proxy) assigned: Vec<Given>,
    /// Answers that earlier requests gave.
    pub(in crate::proxy) used: Vec<Given>,
}

/// Pins of an in-flight request.
#[derive(Debug)]
pub(in crate::proxy) struct PendingPins {
    pub(in crate::proxy) results: LateResults,
    /// Time that resends may still wait for the ledger.
    pub(in crate::proxy) patience: Patience,
    pub(in crate::proxy) answers: GivenAnswers,
    /// Ledger names of calls whose results a tool service posted.
    pub(in crate::proxy) posted: HashMap<CallKey, Name>,
    /// Anchor of the late text that a resend was the first to store. `None` if there is none.
    pub(in crate::proxy) placed: Option<Anchor>,
    /// Client's body, decoded, with late results at the end of messages. It may contain new results.
    pub(in crate::proxy) plain: Bytes,
    pub(in crate::proxy) outline: Outline,
}

impl PendingPins {
    /// Makes the pins permanent. Call it once the provider has answered the request with success.
    pub(in crate::proxy) fn commit(mut self) {
        let (scope, LateResults { late, recall, .. }) = (self.results.scope(), &self.results);
        // Only results count as delivered: a resend may have replaced one by a placeholder.
        let real = |(call, answer): &Given| matches!(answer, PinnedAnswer::Result(_)).then_some(*call);
        let assigned = self.answers.assigned.iter().filter_map(real);
        let delivered = assigned.filter_map(|call| self.posted.get(&call)).copied();
        late.delivered(scope.caller, delivered);
        let mut used = std::mem::take(&mut self.answers.used);
        // `append` empties the list, so that the drop at the end rolls nothing back.
        used.append(&mut self.answers.assigned);
        recall.accepted(scope, &used);
        self.placed = None;
        // Read only now: a request that no provider accepts must leave no records.
        let brought = catch_core_panic(|| {
            self.results.record_shown(&self.plain, &self.outline);
            let in_lane = scope.lane.is_some();
            Some(client_results(&self.plain, scope.format, &self.outline, in_lane))
        });
        recall.saw(scope, brought.unwrap_or_default());
    }

    /// Replaces the pins with those of a resend: rolls back those that it does not assign again, and pins the others.
    ///
    /// Returns `false` if the text that the resend appends to a message cannot be stored.
    pub(in crate::proxy) async fn replace(
        &mut self,
        answers: GivenAnswers,
        late_text: Option<(Anchor, Appended)>,
    ) -> bool {
        let (scope, LateResults { recall, .. }) = (self.results.scope(), &self.results);
        let mut again: HashMap<CallKey, Vec<&PinnedAnswer>> = HashMap::new();
        for (call, answer) in &answers.assigned {
            again.entry(*call).or_default().push(answer);
        }
        let is_gone = |(call, answer): &&Given| again.get(call).is_none_or(|given| !given.contains(&answer));
        recall.withdrawn(scope, self.answers.assigned.iter().filter(is_gone));
        self.answers = answers;
        let assigned = &self.answers.assigned;
        let store = async |deadline| {
            // An answer that another request has pinned meanwhile stays pinned. The resend is sent as planned.
            drop(recall.freeze(scope, assigned, deadline).await);
            match late_text {
                Some((anchor, appended)) => {
                    let stored = recall.append(scope.caller, anchor, appended, deadline).await;
                    // Text that another request stored must survive the rollback of this one.
                    stored.map(|(_, is_new)| is_new.then_some(anchor))
                }
                None => Some(None),
            }
        };
        let stored = self.patience.spend(store).await;
        // The resend's body no longer contains the text of an earlier resend.
        self.remove_placed_text();
        self.placed = stored.flatten();
        stored.is_some()
    }

    fn remove_placed_text(&mut self) {
        if let Some(anchor) = self.placed.take() {
            self.results.recall.unappend(self.results.caller, anchor);
        }
    }
}

impl Drop for PendingPins {
    // No provider accepted the request. After `commit` nothing is left to roll back.
    fn drop(&mut self) {
        self.results
            .recall
            .withdrawn(self.results.scope(), &self.answers.assigned);
        self.remove_placed_text();
    }
}
