//! The kinds of damage in session files, one row each. Faults of calls and results are those of request bodies.

use crate::{
    conversation::FindingKind,
    labels::{Labelled as _, labelled_enum},
};

/// The layers of damage, in the order in which they are mended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum DamageLayer {
    /// Lines, which brings records back.
    Lines,
    /// Records that get lines of their own, once nothing else is on their line.
    JoinedLines,
    /// Links and numbers of records.
    Chain,
    /// Calls and results.
    Pairs,
    /// Records of joined lines that are appended once more.
    Copies,
}

/// Defines the table of damages: meaning, name, layer, and what `--fix` does about it or why it is only told.
macro_rules! damages {
    ($($(#[doc = $meaning:literal])+ $variant:ident = $label:literal, $layer:ident, $fix:literal;)+) => {
        labelled_enum! {
            /// A damage of the file, or of the links between its records.
            pub enum Damage { $($(#[doc = $meaning])+ $variant = $label,)+ }
        }

        impl Damage {
            /// Returns the layer in which it is mended.
            pub(super) const fn layer(self) -> DamageLayer {
                match self { $(Self::$variant => DamageLayer::$layer),+ }
            }

            /// Returns what `--fix` does about it, or why it is only told.
            const fn fix_text(self) -> &'static str {
                match self { $(Self::$variant => $fix),+ }
            }
        }
    };
}

damages! {
    /// NUL bytes stand where a record should be
    NulBytes = "nul_bytes", Lines, "NUL bytes become spaces";
    /// the file begins with a byte order mark
    ByteOrderMark = "byte_order_mark", Lines, "the mark becomes three spaces";
    /// a byte sequence is not valid UTF-8
    InvalidUtf8 = "invalid_utf8", Lines, "each such byte becomes a question mark";
    /// a text has an unpaired surrogate, which is half of a character
    LoneSurrogate = "lone_surrogate", Lines, "the half becomes the replacement character";
    /// a record is cut off
    TornRecord = "torn_record", Lines, "the fragment becomes spaces; what is behind it stays in its place";
    /// several records stand on one line
    JoinedRecords = "joined_records", JoinedLines,
        "Claude Code: all but the first are appended, and become spaces; Codex: told, since its records have numbers";
    /// a line feed stands inside a record
    RawNewline = "raw_newline", Lines, "the line feed becomes a space";
    /// the same record stands there twice
    RepeatedRecord = "repeated_record", Lines, "the second one becomes spaces";
    /// a member of the record is missing, or has a value of the wrong type
    InvalidRecord = "invalid_record", Chain, "told: what it held cannot be made up";
    /// a line is too long to be read
    LongRecord = "long_record", Lines, "told: a line of more than 64 MiB is not read";
    /// a message or a request body stands where a record should be
    StrayContent = "stray_content", Lines,
        "told: no client has written it, and none sends it; antiphon check judges it in a file of its own";
    /// the file has no record
    EmptyFile = "empty_file", Lines, "told: nothing is left to be mended; a backup may have the session";
    /// the parent of a record is not in the file
    LostParent = "lost_parent", Chain, "the record of its call becomes its parent, or the nearest one before it in the file";
    /// the parent of a record belongs to a sub-agent
    ParentInSubagent = "parent_in_subagent", Chain, "the record of its call becomes its parent, or the nearest one before it in the file";
    /// two different records have one id
    UuidTwice = "uuid_twice", Chain, "the second one gets another id";
    /// the parent of a record comes after it
    ParentCircle = "parent_circle", Chain,
        "the record before it in the file becomes its parent; the first record has none";
    /// two records follow the same one, and the client goes on with one of them
    Fork = "fork", Chain, "told: you choose the branch, in the client's own list";
    /// the user went back, and the branch from before is not sent
    Rewound = "rewound", Chain, "told: it was done on purpose, and what was left stays in the file";
    /// the last calls have no result yet
    OpenCall = "open_call", Pairs, "told: the call may still run, or the client answers it at its next start";
    /// two results answer one call, and the one that the client sends says less
    HiddenResult = "hidden_result", Chain, "told: the lines of both results are named";
    /// the record has no number, and the ones before it have
    OrdinalMissing = "ordinal_missing", Chain,
        "the last records are appended with their numbers, and become spaces; inside of the file: told";
    /// two records have one number
    OrdinalTwice = "ordinal_twice", Chain, "told: records are never numbered anew";
    /// the last record has the highest number that there is, and none can follow it
    LastOrdinal = "last_ordinal", Chain, "told: records are never numbered anew";
    /// the file does not begin with the record that names the session
    SessionMetaMissing = "session_meta_missing", Chain, "told: what it held cannot be made up";
    /// records of several sessions stand in one file
    MixedSessions = "mixed_sessions", Chain, "told: which of them belong here is not certain";
    /// the client's list of turns is ahead of the file
    ProjectionAhead = "projection_ahead", Chain, "told: the client's list is never written, and the turns are in the file";
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
    /// Lists every code that a session file may have, in the order of the documentation.
    pub fn all() -> impl Iterator<Item = Self> {
        let damages = Damage::ALL.into_iter().map(Self::Damage);
        let pairings = FindingKind::ALL.into_iter().map(Self::Pairing);
        damages.chain(pairings.filter(|code| !code.fix_text().is_empty()))
    }

    /// Returns the code of a name. `None` if no session file has it.
    pub fn from_label(label: &str) -> Option<Self> {
        Self::all().find(|code| code.label() == label)
    }

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

    /// Returns what `--fix` does about it, or why it is only told. Empty if no session file has it.
    pub const fn fix_text(self) -> &'static str {
        match self {
            Self::Damage(damage) => damage.fix_text(),
            Self::Pairing(kind) => pairing_fix(kind),
        }
    }

    /// Returns the layer in which it is mended.
    pub(super) const fn layer(self) -> DamageLayer {
        match self {
            Self::Damage(damage) => damage.layer(),
            Self::Pairing(_) => DamageLayer::Pairs,
        }
    }
}

/// Returns what `--fix` does about a fault of calls and results. Empty if session files are not searched for it.
const fn pairing_fix(kind: FindingKind) -> &'static str {
    match kind {
        FindingKind::Unanswered => {
            "a result is appended that says that the outcome is unknown; Codex: at the end of the file alone"
        }
        FindingKind::Orphan => "the result becomes a text that quotes it",
        FindingKind::Duplicate | FindingKind::NoId => {
            "Claude Code: told; Codex: the result becomes a text that quotes it, if that is no longer"
        }
        FindingKind::MalformedCall => "the input becomes `{\"INVALID_JSON\": \"…\"}`",
        FindingKind::Misplaced
        | FindingKind::DuplicateCall
        | FindingKind::BadId
        | FindingKind::ServerHalf
        | FindingKind::Field => "told: the proxy repairs it in each request",
        FindingKind::ForeignThinking => {
            "told: thinking is never removed; the client or the proxy leaves it out of a request"
        }
        // A file has neither the order in which a request is sent, nor what was dropped from it. None of the clients has
        // calls that are answered by a screenshot alone.
        FindingKind::Unanswerable
        | FindingKind::Headless
        | FindingKind::MisplacedWords
        | FindingKind::LostContinuity
        | FindingKind::DeadResponse => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_is_found_by_its_name_and_has_its_texts() {
        let codes: Vec<SessionCode> = SessionCode::all().collect();
        for code in &codes {
            assert_eq!(SessionCode::from_label(code.label()), Some(*code), "{code:?}");
            assert!(!code.explanation().is_empty(), "{code:?}");
            let marks = ["|", "\n", "\u{2014}"];
            assert!(!marks.iter().any(|mark| code.fix_text().contains(mark)), "{code:?}");
        }
        let names: std::collections::HashSet<_> = codes.iter().map(|code| code.label()).collect();
        assert_eq!(names.len(), codes.len());
        for name in ["no_such_code", "lost_continuity", "headless", ""] {
            assert_eq!(SessionCode::from_label(name), None, "{name}");
        }
    }
}
