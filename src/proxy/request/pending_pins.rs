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

/// Answers of the calls of one request.
#[derive(Clone, Debug, Default)]
pub(in crate::proxy) struct GivenAnswers {
    /// Answers that this request gives for the first time.
    pub(in crate::proxy) assigned: Vec<Given>,
    /// Answers that earlier requests gave.
    pub(in crate::proxy) used: Vec<Given>,
}

/// The pins of a request on its way.
#[derive(Debug)]
pub(in crate::proxy) struct PendingPins {
    pub(in crate::proxy) results: LateResults,
    /// How long resends may still wait for the ledger.
    pub(in crate::proxy) patience: Patience,
    pub(in crate::proxy) answers: GivenAnswers,
    /// Ledger names of calls whose results a service posted.
    pub(in crate::proxy) posted: HashMap<CallKey, Name>,
    /// Place where a resend has put text that stood nowhere before.
    pub(in crate::proxy) placed: Option<Anchor>,
    /// The body as it came, decoded, with late results at the end of messages. It may bring results.
    pub(in crate::proxy) plain: Bytes,
    pub(in crate::proxy) outline: Outline,
}

impl PendingPins {
    /// Makes the pins permanent: the provider has answered the request with success.
    pub(in crate::proxy) fn commit(mut self) {
        let (scope, LateResults { late, recall, .. }) = (self.results.scope(), &self.results);
        // A resend may have put a placeholder in the place of a result since.
        let real = |(call, answer): &Given| matches!(answer, PinnedAnswer::Result(_)).then_some(*call);
        let assigned = self.answers.assigned.iter().filter_map(real);
        let delivered = assigned.filter_map(|call| self.posted.get(&call)).copied();
        late.delivered(scope.caller, delivered);
        let mut used = std::mem::take(&mut self.answers.used);
        used.append(&mut self.answers.assigned);
        recall.accepted(scope, &used);
        self.placed = None;
        let brought = catch_core_panic(|| {
            self.results.record_shown(&self.plain, &self.outline);
            let in_lane = scope.lane.is_some();
            Some(client_results(&self.plain, scope.format, &self.outline, in_lane))
        });
        recall.saw(scope, brought.unwrap_or_default());
    }

    /// Replaces the pins by those of a resend: rolls back what it does not assign again, and pins what it assigns.
    ///
    /// Returns `false` if the text that the resend puts at the end of a message cannot be stored.
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
            // An answer that another request pinned meanwhile stays with the call; this resend goes out without it.
            drop(recall.freeze(scope, assigned, deadline).await);
            match late_text {
                Some((anchor, appended)) => {
                    let stored = recall.append(scope.caller, anchor, appended, deadline).await;
                    stored.map(|(_, is_new)| is_new.then_some(anchor))
                }
                None => Some(None),
            }
        };
        let stored = self.patience.spend(store).await;
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
    // No provider took the request, or its pins were committed and are no longer here.
    fn drop(&mut self) {
        self.results
            .recall
            .withdrawn(self.results.scope(), &self.answers.assigned);
        self.remove_placed_text();
    }
}
