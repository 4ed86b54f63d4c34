//! Refusals: those that a row reads, with what becomes of them, and those that the proxy does not know.

use crate::{
    auth::Caller,
    labels::labelled_enum,
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

labelled_enum! {
    /// The outcome of a refusal that a row has read.
    pub enum RowOutcome {
        /// The request was resent with a change, and the provider accepted it.
        Mended = "mended",
        /// The request was resent with a change, and the client got an error all the same.
        Vain = "vain",
        /// The client got the refusal, because it is about what the user has written newly.
        Kept = "kept",
        /// The client got the refusal, because the mend of the row fits nowhere in the body.
        FitsNowhere = "fits_nowhere",
        /// The client got the refusal, because mends of the row were in vain three times.
        Rests = "rests",
        /// The client got the refusal, because the exchange or its caller had no resend left.
        Limited = "limited",
        /// The client got the refusal, because the mend of the row is switched off.
        SwitchedOff = "switched_off",
        /// The client got the refusal, because no recovery has another body.
        Relayed = "relayed",
        /// The client got the refusal with an explanation.
        Explained = "explained",
    }
}

/// A refusal that a row has read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowRefusal {
    /// The name of the row.
    pub row: Box<str>,
    /// Its outcome.
    pub outcome: RowOutcome,
}
