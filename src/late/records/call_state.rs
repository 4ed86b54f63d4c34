//! The states of a recorded call. Pure.

/// The state of a recorded call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RecordedCallState {
    /// The call waits for its result.
    Open,
    /// A service has posted the result, and the caller has not received it yet.
    Settled,
    /// The caller has a result: the posted one, or one that the client brought.
    Delivered,
    /// The caller has confirmed the posted result.
    Acked,
    /// The conversation continued without the call. No code sets this state today.
    Abandoned,
    /// No result came in time. No code sets this state today: expiry is a comparison with the clock.
    Expired,
    /// The call was undone, and the tool has confirmed that.
    Cancelled,
    /// The tool was asked to undo the call.
    CancelRequested,
    /// The tool will not undo the call, and goes on.
    CancelRefused,
}

impl RecordedCallState {
    /// Every state. Ledger files contain these positions, so a position is never reused.
    pub const ALL: [Self; 9] = [
        Self::Open,
        Self::Settled,
        Self::Delivered,
        Self::Acked,
        Self::Abandoned,
        Self::Expired,
        Self::Cancelled,
        Self::CancelRequested,
        Self::CancelRefused,
    ];

    /// Returns `true` if neither a service nor the client has given a result.
    pub const fn is_open(self) -> bool {
        matches!(
            self,
            Self::Open | Self::Abandoned | Self::CancelRequested | Self::CancelRefused
        )
    }

    /// Returns the name in answers to services and callers.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Settled => "settled",
            Self::Delivered => "delivered",
            Self::Acked => "acked",
            Self::Abandoned => "abandoned",
            Self::Expired => "expired",
            Self::Cancelled => "cancelled",
            Self::CancelRequested => "cancel_requested",
            Self::CancelRefused => "cancel_refused",
        }
    }
}
