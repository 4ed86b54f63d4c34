//! The end of a call: how it was closed, and why its lane no longer waited for it.

use std::time::Duration;

/// The reason why a client is not believed to wait for a call's result any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DetachReason {
    /// The client left the stream that brought the call.
    StreamDropped,
    /// The lane went on without the result, or with a text that reports it as lost.
    WentOn,
    /// The lane had no request and no answer for too long.
    Silent,
    /// The owner closed the session through the ledger API.
    Closed,
}

impl DetachReason {
    /// Every reason, which are the values of the metric label.
    pub const ALL: [Self; 4] = [Self::StreamDropped, Self::WentOn, Self::Silent, Self::Closed];

    /// Returns the name in metrics.
    pub const fn label(self) -> &'static str {
        match self {
            Self::StreamDropped => "stream_dropped",
            Self::WentOn => "went_on",
            Self::Silent => "silent",
            Self::Closed => "closed",
        }
    }
}

/// The end of the answer that brought calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum AnswerEnd {
    /// The answer reported its end.
    #[default]
    Complete,
    /// The answer broke off or ended in an error, so that the client may have discarded it.
    Broken,
    /// The client left before the end.
    ClientLeft,
}

/// A call that a result has settled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettledCall {
    /// The tool.
    pub tool: Box<str>,
    /// The time for which the call was open.
    pub open_for: Duration,
    /// `true` if the lane still waited for the call.
    pub attached: bool,
    /// `true` if the call took longer than the time limit of its tool.
    pub is_overrun: bool,
}

/// The calls that a request closed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClosedCalls {
    /// Calls whose results the request brought.
    pub settled: Vec<SettledCall>,
    /// The number of calls that the request answers with a text which reports the result as lost.
    pub placeholder: usize,
    /// The number of calls that the lane went on without.
    pub abandoned: usize,
    /// The reasons of the calls that were detached since the last request, closed or not.
    pub detached: Vec<DetachReason>,
}
