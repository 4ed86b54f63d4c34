//! Pins of a request whose body is not finished yet: rolled back on drop, unless they become its pending pins.

use super::pending_pins::{CallAnswers, answers_not_again};
use crate::proxy::late_results::LateResults;

/// The answers of a plan, with a mark if they may be pinned already.
///
/// A plan or splice that fails after the pinning must not leave them: the store never evicts a pin that waits for its
/// provider.
pub(super) struct NewPins<'r> {
    results: &'r LateResults,
    answers: CallAnswers,
    may_be_pinned: bool,
}

impl<'r> NewPins<'r> {
    /// Wraps the answers of a plan. With `may_be_pinned` they are about to be pinned.
    pub(super) const fn new(results: &'r LateResults, answers: CallAnswers, may_be_pinned: bool) -> Self {
        Self {
            results,
            answers,
            may_be_pinned,
        }
    }

    /// Returns the answers.
    pub(super) const fn answers(&self) -> &CallAnswers {
        &self.answers
    }

    /// Replaces the answers by those of another plan. Rolls back those that it does not assign again.
    pub(super) fn replace_answers(&mut self, answers: CallAnswers) {
        if self.may_be_pinned {
            let gone = answers_not_again(&self.answers.assigned, &answers.assigned);
            self.results.recall.roll_back_answers(self.results.pin_scope(), gone);
        }
        self.answers = answers;
    }

    /// Hands the answers over to the request's pending pins.
    pub(super) fn into_answers(mut self) -> CallAnswers {
        // Nothing is left for the drop to roll back.
        std::mem::take(&mut self.answers)
    }
}

impl Drop for NewPins<'_> {
    fn drop(&mut self) {
        if self.may_be_pinned {
            let scope = self.results.pin_scope();
            self.results.recall.roll_back_answers(scope, &self.answers.assigned);
        }
    }
}
