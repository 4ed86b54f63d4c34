//! The plan of a repair, and the pins of the results that it assigns. Planned at most twice.

use http::HeaderMap;
use tokio::time::Instant;

use super::{
    call_lookup::{CallLookup, CallMemory},
    new_pins::NewPins,
    pending_pins::{CallResults, call_results},
};
use crate::{
    proxy::{catch_core_panic::catch_read, late_results::LateResults, late_text_insertion::LateTexts},
    repair::{Paired, Plan, RepairPolicy},
    wire::Unreadable,
};

/// Everything besides the body that the plan of one request depends on.
pub(super) struct ResultPlanner<'x> {
    pub(super) memory: CallMemory<'x>,
    pub(super) headers: &'x HeaderMap,
    pub(super) policy: &'x RepairPolicy,
    /// `true` in strict mode: the results that are found are not marked as contained in the request.
    pub(super) is_strict: bool,
}

impl ResultPlanner<'_> {
    /// Looks up what earlier requests and tool services know about the open calls.
    pub(super) async fn look_up_calls(
        &self,
        paired: &Paired<'_>,
        late_results: &LateResults,
        texts: &LateTexts,
        deadline: Instant,
    ) -> Result<CallLookup, Unreadable> {
        let mut lookup = catch_read(|| Ok(CallLookup::of_body(paired)))?;
        // Memory first: most requests have no unknown call, and then never wait for the ledger.
        let unknown = lookup.add_from_memory(paired, self.memory, late_results);
        if !unknown.is_empty() {
            // Boxed, because most requests have no unknown call.
            let read = async {
                lookup
                    .add_from_ledger(&unknown, late_results, &texts.calls, deadline)
                    .await;
                // A request that strict mode rejects must leave no mark.
                if !self.is_strict {
                    // What is not marked counts as unread.
                    lookup.mark_restored(late_results, deadline).await.ok();
                }
            };
            Box::pin(read).await;
        }
        lookup.note_waiting(paired, late_results, deadline).await;
        Ok(lookup)
    }

    /// Plans the repair and, if `may_pin` is set, pins the results that the plan assigns.
    pub(super) async fn plan_and_pin<'r>(
        &self,
        paired: &Paired<'_>,
        lookup: &mut CallLookup,
        late_results: &'r LateResults,
        may_pin: bool,
        deadline: Instant,
    ) -> Result<(Plan, NewPins<'r>), Unreadable> {
        let caller = late_results.caller;
        let plan_once =
            |lookup: &CallLookup| catch_read(|| self.memory.plan_with_facts(paired, &lookup.known, self.policy));
        let mut plan = plan_once(lookup)?;
        // Before the first pin: from here on, every way out keeps them or rolls them back.
        let mut pins = NewPins::new(late_results, call_results(paired, &plan, lookup, caller), may_pin);
        // Another request may have pinned a call meanwhile. The first writer wins: plan once more with its results.
        if may_pin && self.pin_results(pins.results(), late_results, lookup, deadline).await {
            plan = plan_once(lookup)?;
            pins.replace_results(call_results(paired, &plan, lookup, caller));
        }
        Ok((plan, pins))
    }

    /// Pins the results that a plan assigns. Returns `true` if another request was first for some of the calls.
    ///
    /// Adds those results of other requests to `lookup`.
    async fn pin_results(
        &self,
        results: &CallResults,
        late_results: &LateResults,
        lookup: &mut CallLookup,
        deadline: Instant,
    ) -> bool {
        if results.assigned.is_empty() {
            return false;
        }
        // Pins are stored under the credential: the operator should know if it is short-lived.
        self.memory.facts.warn_of_short_lived_credential(self.headers);
        let pin = self
            .memory
            .recall
            .pin_results(late_results.pin_scope(), &results.assigned, deadline);
        let conflicts = pin.await;
        let has_conflicts = !conflicts.is_empty();
        lookup.add_pinned_by_others(conflicts);
        has_conflicts
    }
}
