//! One finding in a session file.

use super::damage::SessionCode;
use crate::labels::labelled_enum;

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
}
