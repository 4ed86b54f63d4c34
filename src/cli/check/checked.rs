//! The result of `antiphon check` for a file and for each of its bodies.

use crate::{
    cli::{
        doctor::GivenSession,
        input::{BodyOrigin, InputError},
    },
    conversation::Finding,
    refusals::BodyNote,
    wire::Wire,
};

/// Result for one file.
pub(super) struct CheckedFile<'r> {
    pub(super) name: String,
    pub(super) verdict: Result<CheckedContent<'r>, InputError>,
}

/// The content of a file that was read.
pub(super) enum CheckedContent<'r> {
    /// Bodies, each with its faults.
    Bodies(Vec<CheckedBody<'r>>),
    /// A session, as the doctor has read it.
    Session(Box<GivenSession>),
}

impl CheckedContent<'_> {
    /// Returns `true` if something counts for the exit code.
    pub(super) fn has_findings(&self) -> bool {
        match self {
            Self::Bodies(bodies) => bodies.iter().any(|body| !body.findings.is_empty()),
            Self::Session(session) => session.has_findings(),
        }
    }
}

/// The faults of one body.
pub(super) struct CheckedBody<'r> {
    pub(super) wire: Wire,
    pub(super) origin: BodyOrigin,
    pub(super) findings: Vec<Finding>,
    /// Faults that only some servers of the format refuse. They never count for the exit code.
    pub(super) notes: Vec<Finding>,
    /// Rows of refusals whose mend would change the body. They never count for the exit code either.
    pub(super) row_notes: Vec<BodyNote<'r>>,
}

impl CheckedBody<'_> {
    /// Returns `true` if the report has no line about this body.
    pub(super) fn has_no_rows(&self) -> bool {
        self.findings.is_empty() && self.notes.is_empty() && self.row_notes.is_empty()
    }

    /// Returns the place of a finding in the file.
    pub(super) fn place_of(&self, finding: &Finding) -> String {
        self.place_at(self.wire.format.finding_path(finding), finding.message)
    }

    /// Returns the place of a note in the file.
    pub(super) fn place_of_note(&self, note: &BodyNote<'_>) -> String {
        self.place_at(self.wire.format.message_path(note.message), note.message)
    }

    /// Returns the place of what stands at `path` of the body, in this message.
    fn place_at(&self, path: String, message: usize) -> String {
        match &self.origin {
            BodyOrigin::WholeFile => path,
            BodyOrigin::Line(line) => format!("line {line}: {path}"),
            // Messages that were put together have no place of their own in the file.
            BodyOrigin::Lines { .. } => self.line_of(message).map_or(path, |line| format!("line {line}")),
        }
    }

    /// Returns the line of a message, if the body has lines.
    pub(super) fn line_of(&self, message: usize) -> Option<usize> {
        match &self.origin {
            BodyOrigin::WholeFile => None,
            BodyOrigin::Line(line) => Some(*line),
            BodyOrigin::Lines { lines, .. } => lines.get(message).copied(),
        }
    }
}
