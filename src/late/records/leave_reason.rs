//! The evidence that nobody waits for a call any more.

/// The reason for a cancel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LeaveReason {
    /// The client left the stream that brought the call.
    StreamDropped,
    /// The conversation went on, and its history lacks the call.
    WentOn,
    /// The client closed the session through the ledger API.
    Closed,
    /// This process saw neither a request of the conversation nor a heartbeat of the tool for too long.
    Silent,
    /// The owner asked for it.
    Requested,
}

impl LeaveReason {
    /// Every reason. Ledger files contain these positions, so a position is never reused.
    pub const ALL: [Self; 5] = [
        Self::StreamDropped,
        Self::WentOn,
        Self::Closed,
        Self::Silent,
        Self::Requested,
    ];

    /// Returns the name in messages.
    pub const fn label(self) -> &'static str {
        match self {
            Self::StreamDropped => "stream_dropped",
            Self::WentOn => "went_on",
            Self::Closed => "closed",
            Self::Silent => "silent",
            Self::Requested => "requested",
        }
    }
}
