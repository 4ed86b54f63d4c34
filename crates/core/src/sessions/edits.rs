//! Edits of a session file that never move a byte, and a view of the file after them.

/// One edit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionEdit {
    /// Bytes are overwritten by as many others.
    Overwrite {
        /// Offset of the first one.
        at: u64,
        /// The new bytes.
        new: Vec<u8>,
    },
    /// Bytes are overwritten by spaces.
    Blank {
        /// Offset of the first one.
        at: u64,
        /// Their number.
        len: u64,
    },
    /// A record is appended at the end of the file, on a line of its own.
    Append {
        /// The record, without line feed.
        record: Vec<u8>,
    },
}

/// A file as it is after some edits.
#[derive(Debug)]
pub struct EditedFile<F> {
    _file: F,
}
