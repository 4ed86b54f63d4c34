//! The evidence of a request about the calls of its lane, for those that would undo the effect of a call.
#![cfg_attr(
    not(test),
    warn(clippy::indexing_slicing, clippy::string_slice, clippy::arithmetic_side_effects)
)]

use crate::{conversation::outline::ID_BYTES_MAX, session::CallEvidence};

/// The evidence of a request about the calls of its lane.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LaneEvidence {
    /// The ids of calls that the request lacks, although it goes on with their conversation.
    pub(super) left_ids: Vec<Box<str>>,
    /// The calls with whose conversation it does not go on, as far as the lane knows them.
    pub(super) unrelated: Vec<UnrelatedCall>,
    /// `true` if it may go on with the conversation of a call that the lane does not know: one of an earlier process.
    pub may_go_on: bool,
}

/// A call with whose conversation a request does not go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UnrelatedCall {
    pub(super) id: Box<str>,
    /// `true` if the request goes on all the same should its history contain the call.
    pub(super) counts_if_shown: bool,
}

impl LaneEvidence {
    /// Returns what the request proves about the call with this id. `is_shown` searches its body for the call.
    pub fn of_call(&self, id: &[u8], is_shown: impl Fn() -> bool) -> CallEvidence {
        let is_left = self.left_ids.iter().any(|left| is_truncated_id(left.as_bytes(), id));
        if is_left && !is_shown() {
            return CallEvidence::Left;
        }
        let mut unrelated = self.unrelated.iter();
        let goes_on = match unrelated.find(|call| is_truncated_id(call.id.as_bytes(), id)) {
            Some(call) => call.counts_if_shown && is_shown(),
            None => is_left || self.may_go_on || is_shown(),
        };
        if goes_on {
            CallEvidence::GoesOn
        } else {
            CallEvidence::Unrelated
        }
    }
}

/// Returns `true` if `own` is the emitted form of an id, which may be truncated.
pub(super) fn is_truncated_id(own: &[u8], id: &[u8]) -> bool {
    // The emitted id was truncated at a character boundary, so it may be up to three bytes shorter.
    let cut = id.len() >= ID_BYTES_MAX && own.len() > ID_BYTES_MAX.saturating_sub(4);
    !own.is_empty() && (id == own || (cut && id.starts_with(own)))
}
