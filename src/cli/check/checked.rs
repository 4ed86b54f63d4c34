//! The result of `antiphon check` for a file and for each of its bodies.

use crate::{
    cli::input::{BodyOrigin, ChainFault, InputError},
    conversation::Finding,
    refusals::BodyNote,
    wire::Wire,
};

/// Result for one file.
pub(super) struct CheckedFile<'r> {
    pub(super) name: String,
    pub(super) verdict: Result<Vec<CheckedBody<'r>>, InputError>,
    /// `true` for a session of a client whose session files are read.
    pub(super) is_session: bool,
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
    /// Returns the number of findings, with the links of a transcript that lose a part of it.
    pub(super) fn count_findings(&self) -> usize {
        let losses = self.chain_faults().iter().filter(|fault| !fault.is_bridged);
        self.findings.len() + losses.count()
    }

    /// Returns `true` if the report has no line about this body.
    pub(super) fn has_no_rows(&self) -> bool {
        self.chain_faults().is_empty() && self.findings.is_empty() && self.notes.is_empty() && self.row_notes.is_empty()
    }

    /// Returns `true` if the body was put together from the session of an agent.
    pub(super) fn is_of_agent(&self) -> bool {
        matches!(&self.origin, BodyOrigin::Transcript { source, .. } if source.is_agent())
    }

    /// Returns the faults in the links between the lines of a transcript.
    pub(super) fn chain_faults(&self) -> &[ChainFault] {
        match &self.origin {
            BodyOrigin::Transcript { faults, .. } => faults,
            BodyOrigin::WholeFile | BodyOrigin::Line(_) => &[],
        }
    }

    /// Returns the index of the first message that begins on a line or after it.
    pub(super) fn message_from(&self, line: usize) -> usize {
        match &self.origin {
            BodyOrigin::Transcript { lines, .. } => lines.partition_point(|start| *start < line),
            BodyOrigin::WholeFile | BodyOrigin::Line(_) => 0,
        }
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
            BodyOrigin::Transcript { .. } => self.line_of(message).map_or(path, |line| format!("line {line}")),
        }
    }

    /// Returns the line of a message, if the body has lines.
    pub(super) fn line_of(&self, message: usize) -> Option<usize> {
        match &self.origin {
            BodyOrigin::WholeFile => None,
            BodyOrigin::Line(line) => Some(*line),
            BodyOrigin::Transcript { lines, .. } => lines.get(message).copied(),
        }
    }
}
