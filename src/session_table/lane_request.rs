//! A request as its lane sees it, and the answer to one.
#![cfg_attr(
    not(test),
    warn(clippy::indexing_slicing, clippy::string_slice, clippy::arithmetic_side_effects)
)]

use crate::{
    conversation::Outline,
    session::{Lane, TurnMark},
};

/// A request of a lane.
#[derive(Clone, Copy, Debug)]
pub struct LaneRequest<'r> {
    /// The outline of its body.
    pub outline: &'r Outline,
    /// The marks by which it goes on with a conversation, or is unrelated to it.
    pub mark: TurnMark,
    /// `false` for a count of tokens and for a compaction.
    pub may_be_turn: bool,
    /// `true` if the history was compacted since the last turn.
    pub is_compacted: bool,
}

impl LaneRequest<'_> {
    /// Returns `true` if the request shows that its client goes on with the conversation in which `asked` was answered.
    ///
    /// A count of tokens and a compaction of that history show it, too. `is_known_gone` is `true` if an earlier turn has
    /// lacked the call: words of the user after it prove nothing new. `contains_answer` is `true` if the history contains
    /// that answer.
    pub(super) const fn keeps_alive(&self, asked: &TurnMark, contains_answer: bool, is_known_gone: bool) -> bool {
        if contains_answer || self.is_compacted || self.mark.continues_by_id() {
            return self.mark.may_continue(asked);
        }
        !is_known_gone && self.mark.goes_on_from(asked)
    }

    /// Returns `true` if the request may go on with a conversation of which nothing is known.
    pub(super) fn may_go_on(&self) -> bool {
        let has_calls = !self.outline.last_calls.is_empty() || !self.outline.chain.is_empty();
        self.mark.declares_tools() || self.mark.continues_by_id() || has_calls
    }

    /// Returns `true` if the request goes on with the conversation in which `asked` was answered.
    ///
    /// Cancels, carry-over, the counts of detached calls and the open calls of the lane all follow from this.
    /// `contains_answer` is `true` if its history contains that answer.
    pub(super) const fn goes_on_from(&self, asked: &TurnMark, contains_answer: bool) -> bool {
        if contains_answer || self.is_compacted {
            // The history itself proves it, or begins anew.
            return self.may_be_turn && self.mark.may_continue(asked);
        }
        self.may_be_turn && self.mark.goes_on_from(asked)
    }
}

/// A request of a lane that was answered.
#[derive(Clone, Copy, Debug)]
pub struct AnsweredRequest {
    /// The lane.
    pub lane: Lane,
    /// The marks of the request.
    pub mark: TurnMark,
}
