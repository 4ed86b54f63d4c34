//! The plan of a repair, and the pins of the results that it assigns. Planned at most twice.

use http::HeaderMap;
use tokio::time::Instant;

use super::{
    call_lookup::{CallLookup, CallMemory},
    pending_pins::{PendingPins, call_results},
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

    /// Plans the repair, and pins the results that the plan assigns. Without `pins` the request may pin nothing.
    pub(super) async fn plan_and_pin(
        &self,
        paired: &Paired<'_>,
        lookup: &mut CallLookup,
        pins: Option<&mut PendingPins>,
        deadline: Instant,
    ) -> Result<Plan, Unreadable> {
        let plan_once =
            |lookup: &CallLookup| catch_read(|| self.memory.plan_with_facts(paired, &lookup.known, self.policy));
        let plan = plan_once(lookup)?;
        let Some(pins) = pins else { return Ok(plan) };
        let caller = pins.late_results.caller;
        // Before the first pin: from here on, every way out keeps them or rolls them back.
        pins.replace_results(call_results(paired, &plan, lookup, caller));
        if !self.pin_results(pins, lookup, deadline).await {
            return Ok(plan);
        }
        // Another request has pinned a call meanwhile. The first writer wins: plan once more with its results.
        let plan = plan_once(lookup)?;
        pins.replace_results(call_results(paired, &plan, lookup, caller));
        Ok(plan)
    }

    /// Pins the results that a plan assigns. Returns `true` if another request was first for some of the calls.
    ///
    /// Adds those results of other requests to `lookup`.
    async fn pin_results(&self, pins: &PendingPins, lookup: &mut CallLookup, deadline: Instant) -> bool {
        let assigned = &pins.results.assigned;
        if assigned.is_empty() {
            return false;
        }
        // Pins are stored under the credential: the operator should know if it is short-lived.
        self.memory.facts.warn_of_short_lived_credential(self.headers);
        let scope = pins.late_results.pin_scope();
        let conflicts = self.memory.recall.pin_results(scope, assigned, deadline).await;
        let has_conflicts = !conflicts.is_empty();
        lookup.add_pinned_by_others(conflicts);
        has_conflicts
    }
}
