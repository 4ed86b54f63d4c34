//! How a call stands: whether its lane still waits for it, and how it was closed.

use std::time::Duration;

use tokio::time::Instant;

/// Why nobody is known to wait for a call's result any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Detached {
    /// The client left the stream that brought the call.
    StreamDropped,
    /// The lane went on without the result, or with a text that says that it was lost.
    WentOn,
    /// The lane has said nothing for too long.
    Silent,
    /// Somebody closed the lane.
    Closed,
}

impl Detached {
    /// Every reason: the values of the metric label.
    pub const ALL: [Self; 4] = [Self::StreamDropped, Self::WentOn, Self::Silent, Self::Closed];

    /// The name in metrics.
    pub const fn label(self) -> &'static str {
        match self {
            Self::StreamDropped => "stream_dropped",
            Self::WentOn => "went_on",
            Self::Silent => "silent",
            Self::Closed => "closed",
        }
    }
}

/// How the answer ended that calls came with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Came {
    /// It said that this was its end.
    #[default]
    Whole,
    /// It broke off, or ended in an error: the client may have thrown it away.
    Broken,
    /// The client left before its end.
    Dropped,
}

/// A call that a result has settled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settled {
    /// The tool.
    pub tool: Box<str>,
    /// How long the call was open.
    pub open: Duration,
    /// Whether the lane still waited for it.
    pub attached: bool,
}

/// What a request closed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Closed {
    /// Calls whose results it brought.
    pub settled: Vec<Settled>,
    /// Calls that it answers with a text which says that the result was lost.
    pub placeholder: usize,
    /// Calls that the lane went on without.
    pub abandoned: usize,
    /// Calls, closed or not, that became detached since the last request, by why.
    pub detached: Vec<Detached>,
}

/// How a call stands for who settles it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Whether the call's turn is still the lane's tip, and somebody waits there.
    pub attached: bool,
    /// Why nobody does.
    pub detached_because: Option<Detached>,
    /// Whether neither the end of its stream nor a request has shown that the client has the call.
    pub tentative: bool,
    /// Since the call was emitted.
    pub age: Duration,
    /// When its tool should be done; none where nobody said how long it may take.
    pub deadline: Option<Instant>,
    /// The tool.
    pub tool: Box<str>,
}
