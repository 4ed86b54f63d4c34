//! The kinds of events, and what each is about.

use crate::ledger::RecordName;

/// The kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventKind {
    /// A result was posted for a call.
    Settled,
    /// The time of a call is over, and it has no result.
    Expired,
    /// Another result was posted for a call that has one.
    Conflict,
    /// The holder of an intent that cannot be undone has disappeared.
    Unknown,
    /// The service of a call was asked to undo it.
    Cancel,
}

impl EventKind {
    /// Every kind. Ledger files contain these positions, so a position is never reused.
    pub const ALL: [Self; 5] = [
        Self::Settled,
        Self::Expired,
        Self::Conflict,
        Self::Unknown,
        Self::Cancel,
    ];

    /// Returns the type in messages.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Settled => "ledger.result.settled",
            Self::Expired => "ledger.result.expired",
            Self::Conflict => "ledger.result.conflict",
            Self::Unknown => "ledger.result.unknown",
            Self::Cancel => "ledger.intent.cancel",
        }
    }
}

/// The record that an event is about, of the same principal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventSubject {
    /// A recorded call.
    Call(RecordName),
    /// An intent.
    Intent(RecordName),
}

impl EventSubject {
    /// Returns the name of the record.
    pub(in crate::late) const fn name(&self) -> &RecordName {
        match self {
            Self::Call(name) | Self::Intent(name) => name,
        }
    }
}
