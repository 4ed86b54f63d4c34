//! The plan of a repair, and the pins of the results that it assigns. Planned at most twice.

use tokio::time::Instant;

use super::{
    body_planner::BodyPlanner,
    call_lookup::CallLookup,
    pending_pins::{PendingPins, call_results},
};
use crate::{
    auth::Caller,
    proxy::{
        catch_core_panic::catch_read,
        late_results::{BeforeSend, LateTexts, OpenCallRecords},
    },
    repair::{Paired, Plan},
    wire::Unreadable,
};

impl BodyPlanner<'_> {
    /// Looks up what earlier requests and tool services know about the open calls. `records` are those that were read ahead.
    pub(super) async fn look_up_calls(
        &self,
        paired: &Paired<'_>,
        texts: &LateTexts,
        records: OpenCallRecords,
        before: BeforeSend<'_>,
    ) -> Result<CallLookup, Unreadable> {
        let memory = self.reader.call_memory(before.scope.caller);
        let mut lookup = catch_read(|| Ok(CallLookup::of_body(paired)))?;
        // Memory first: most requests have no unknown call, and then never wait for the ledger.
        let unknown = lookup.add_from_memory(paired, memory, before.scope);
        if !unknown.is_empty() {
            // Boxed, because most requests have no unknown call.
            let read = async {
                lookup.add_from_ledger(&unknown, records, &texts.calls, before).await;
                // A request that strict mode rejects must leave no mark.
                if !self.is_strict {
                    // What is not marked counts as unread.
                    lookup.mark_restored(before.results, before.deadline).await.ok();
                }
            };
            Box::pin(read).await;
        }
        lookup.given.note_waiting(paired, &lookup.known.pinned, before).await;
        Ok(lookup)
    }

    /// Plans the repair, and pins the results that the plan assigns. Without `pins` the request may pin nothing.
    pub(super) async fn plan_and_pin(
        &self,
        paired: &Paired<'_>,
        lookup: &mut CallLookup,
        caller: Caller,
        pins: Option<&mut PendingPins>,
        deadline: Instant,
    ) -> Result<Plan, Unreadable> {
        let memory = self.reader.call_memory(caller);
        let plan_once =
            |lookup: &CallLookup| catch_read(|| memory.plan_with_facts(paired, &lookup.known, self.reader.policy));
        let plan = plan_once(lookup)?;
        let Some(pins) = pins else { return Ok(plan) };
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
        let path = self.reader.path;
        path.facts.warn_of_short_lived_credential(self.headers);
        let conflicts = path.recall.pin_results(pins.scope, assigned, deadline).await;
        let has_conflicts = !conflicts.is_empty();
        lookup.add_pinned_by_others(conflicts);
        has_conflicts
    }
}
