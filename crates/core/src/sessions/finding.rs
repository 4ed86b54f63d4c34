//! One finding in a session file.

use super::damage::SessionCode;
use crate::labels::{Labelled as _, labelled_enum};

labelled_enum! {
    /// The way in which a finding is mended.
    pub enum FixKind {
        /// Bytes are overwritten with as many others.
        InPlace = "in_place",
        /// A record is appended, and bytes may be overwritten too.
        Append = "append",
        /// Nothing is written: the finding is only told.
        Told = "none",
    }
}

labelled_enum! {
    /// The record that a damage takes from the client. It tells cases of one code apart which clients treat differently.
    pub enum RecordLoss {
        /// where no record is lost
        Nothing = "none",
        /// where a record is lost
        Any = "any",
        /// at or before the first record
        First = "first",
        /// at the last record
        Last = "last",
        /// where the session needs the record
        Session = "session",
    }
}

impl RecordLoss {
    /// Returns the case, as a part of a sentence: "where no record is lost".
    pub fn meaning(self) -> &'static str {
        let row = Self::LABELS.iter().find(|(_, loss, _)| *loss == self);
        row.map_or("", |(_, _, meaning)| meaning.trim())
    }
}

/// Longest id of a call whose text is kept, in bytes.
pub(super) const ID_BYTES_MAX: usize = 200;

/// One finding in a session file. It holds no text of the conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionFinding {
    /// The kind.
    pub code: SessionCode,
    /// The line, counted from 1 by line feeds.
    pub line: u64,
    /// Offset of the place in the file, in bytes.
    pub byte: u64,
    /// Bytes from there that are concerned: of the fragment, of the record, or of the run.
    pub len: u64,
    /// The id of the call, or of the record. Empty if there is none.
    pub id: String,
    /// Other lines that are concerned, such as those of a fork.
    pub lines: Vec<u64>,
    /// The way in which it is mended.
    pub fix: FixKind,
    /// The record that the client loses by it.
    pub loss: RecordLoss,
}

impl SessionFinding {
    /// Creates a finding that is told, about `len` bytes from `byte` on. It names no id and no other line.
    pub const fn told(code: SessionCode, line: u64, byte: u64, len: u64) -> Self {
        Self {
            code,
            line,
            byte,
            len,
            id: String::new(),
            lines: Vec::new(),
            fix: FixKind::Told,
            loss: RecordLoss::Any,
        }
    }
}
