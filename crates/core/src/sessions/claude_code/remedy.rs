//! A fault with the fix that it gets.

use crate::sessions::finding::{FixKind, SessionFinding};

/// The mend of a fault. Numbers are those of records and of parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Remedy {
    /// No edits: it is only told.
    Told,
    /// The record gets another parent. `None` if it follows no record.
    NewParent {
        /// The record.
        record: u32,
        /// The record that it follows from now on.
        parent: Option<u32>,
    },
    /// The record gets an id of its own, and what follows it gets that id.
    NewId {
        /// The record.
        record: u32,
    },
    /// A record with a result is appended, and what follows the call follows the result.
    Answer {
        /// The record of the call.
        record: u32,
        /// The call.
        part: u32,
    },
    /// The result becomes text.
    Quote {
        /// The record.
        record: u32,
        /// The result.
        part: u32,
    },
    /// The input becomes an object.
    Input {
        /// The record.
        record: u32,
        /// The call.
        part: u32,
    },
    /// The record is appended with an object as input, and blanked where it stands.
    Rewrite {
        /// The record.
        record: u32,
        /// The call.
        part: u32,
    },
}

impl Remedy {
    /// Returns the way in which it changes the file.
    pub(super) const fn fix_kind(self) -> FixKind {
        match self {
            Self::Told => FixKind::Told,
            Self::Answer { .. } | Self::Rewrite { .. } => FixKind::Append,
            Self::NewParent { .. } | Self::NewId { .. } | Self::Quote { .. } | Self::Input { .. } => FixKind::InPlace,
        }
    }
}

/// A fault of the log.
#[derive(Clone, Debug)]
pub(super) struct FoundFault {
    /// The finding about it.
    pub(super) finding: SessionFinding,
    /// Its mend.
    pub(super) remedy: Remedy,
    /// The record and the number of its part. `None` if it is about the whole record.
    pub(super) place: Option<(u32, u32)>,
}
