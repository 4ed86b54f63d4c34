//! Refusals that the proxy does not know, and the conversations that they stop.

use crate::{
    auth::Caller,
    session::{LaneId, TurnMark},
};

/// A conversation of a caller with an upstream, as one of its requests shows it.
#[derive(Clone, Debug)]
pub struct AskedConversation {
    /// The caller.
    pub caller: Caller,
    /// The lane; `None` if nothing identifies it. All such requests of a caller are one conversation here.
    pub lane: Option<LaneId>,
    /// The name of the upstream.
    pub upstream: Box<str>,
    /// The marks of the request.
    pub mark: TurnMark,
}

impl AskedConversation {
    /// Returns `true` if another request is of the same conversation.
    pub(in crate::telemetry) fn is_same(&self, other: &Self) -> bool {
        self.caller == other.caller && self.lane == other.lane && self.upstream == other.upstream
    }

    /// Returns `true` if this request can be a turn after an earlier one. A title that a client asks for beside its
    /// conversation is none.
    pub(in crate::telemetry) fn is_next_of(&self, earlier: &Self) -> bool {
        self.is_same(earlier) && self.mark.may_continue(&earlier.mark)
    }
}

/// A provider's refusal of a request in words that the proxy does not know.
#[derive(Clone, Debug)]
pub struct UnknownRefusal {
    /// The conversation of the request.
    pub conversation: AskedConversation,
    /// The masked text, as [`RefusalTable::mask`](crate::wire::RefusalTable::mask) returns it.
    pub text: Box<str>,
    /// The status of the provider's answer.
    pub status: u16,
}
