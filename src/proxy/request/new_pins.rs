//! Pins of a request whose body is not finished yet: rolled back on drop, unless they become its pending pins.

use super::pending_pins::{CallResults, results_not_again};
use crate::proxy::late_results::LateResults;

/// The results of a plan, with a mark if they may be pinned already.
///
/// A plan or splice that fails after the pinning must not leave them: the store never evicts a pin that waits for its
/// provider.
pub(super) struct NewPins<'r> {
    late_results: &'r LateResults,
    results: CallResults,
    may_be_pinned: bool,
}

impl<'r> NewPins<'r> {
    /// Wraps the results of a plan. With `may_be_pinned` they are about to be pinned.
    pub(super) const fn new(late_results: &'r LateResults, results: CallResults, may_be_pinned: bool) -> Self {
        Self {
            late_results,
            results,
            may_be_pinned,
        }
    }

    /// Returns the results.
    pub(super) const fn results(&self) -> &CallResults {
        &self.results
    }

    /// Replaces the results by those of another plan. Rolls back those that it does not assign again.
    pub(super) fn replace_results(&mut self, results: CallResults) {
        if self.may_be_pinned {
            let gone = results_not_again(&self.results.assigned, &results.assigned);
            self.late_results
                .recall
                .roll_back_results(self.late_results.pin_scope(), gone);
        }
        self.results = results;
    }

    /// Hands the results over to the request's pending pins.
    pub(super) fn into_results(mut self) -> CallResults {
        // Nothing is left for the drop to roll back.
        std::mem::take(&mut self.results)
    }
}

impl Drop for NewPins<'_> {
    fn drop(&mut self) {
        if self.may_be_pinned {
            let scope = self.late_results.pin_scope();
            self.late_results
                .recall
                .roll_back_results(scope, &self.results.assigned);
        }
    }
}
