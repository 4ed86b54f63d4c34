//! The kinds of damage in session files. Faults of calls and results are those of request bodies.

use crate::{
    conversation::FindingKind,
    labels::{Labelled as _, labelled_enum},
};

labelled_enum! {
    /// A damage of the file, or of the links between its records.
    pub enum Damage {
        /// NUL bytes stand where a record should be
        NulBytes = "nul_bytes",
        /// the file begins with a byte order mark
        ByteOrderMark = "byte_order_mark",
        /// a byte is no UTF-8
        InvalidUtf8 = "invalid_utf8",
        /// a text has half of a character
        LoneSurrogate = "lone_surrogate",
        /// the beginning of a record is there, and its end is not
        TornRecord = "torn_record",
        /// several records stand on one line
        JoinedRecords = "joined_records",
        /// a line feed stands inside a record
        RawNewline = "raw_newline",
        /// the same record stands there twice
        RepeatedRecord = "repeated_record",
        /// a line is too long to be read
        LongRecord = "long_record",
        /// the file has no record
        EmptyFile = "empty_file",
        /// the record that it follows is not in the file
        LostParent = "lost_parent",
        /// the record that it follows is one of a sub-agent
        ParentInSubagent = "parent_in_subagent",
        /// two different records have one id
        UuidTwice = "uuid_twice",
        /// the record that it follows comes after it
        ParentCircle = "parent_circle",
        /// two records follow the same one, and the client goes on with one of them
        Fork = "fork",
        /// the user went back, and the branch from before is not sent
        Rewound = "rewound",
        /// the last calls have no result yet
        OpenCall = "open_call",
        /// two results answer one call, and the one that the client sends says less
        HiddenResult = "hidden_result",
        /// the record has no number, and the ones before it have
        OrdinalMissing = "ordinal_missing",
        /// two records have one number
        OrdinalTwice = "ordinal_twice",
        /// the file does not begin with the record that names the session
        SessionMetaMissing = "session_meta_missing",
        /// the client's list of turns is ahead of the file
        ProjectionAhead = "projection_ahead",
    }
}

/// The code of a finding: a damage of the file, or a fault of its calls and results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SessionCode {
    /// A damage of the file.
    Damage(Damage),
    /// A fault of calls and results, as in a request body.
    Pairing(FindingKind),
}

impl SessionCode {
    /// Returns the stable name.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Damage(damage) => damage.label(),
            Self::Pairing(kind) => kind.code(),
        }
    }

    /// Returns one sentence for a human, without what the client does.
    pub fn explanation(self) -> &'static str {
        match self {
            Self::Damage(damage) => {
                let row = Damage::LABELS.iter().find(|(_, value, _)| *value == damage);
                row.map_or("", |(_, _, meaning)| meaning.trim())
            }
            Self::Pairing(kind) => kind.explanation(),
        }
    }
}
