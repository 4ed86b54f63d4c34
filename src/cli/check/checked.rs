//! The result of `antiphon check` for a file and for each of its bodies.

use crate::{
    cli::input::{BodyOrigin, InputError},
    conversation::Finding,
    wire::Wire,
};

/// Result for one file.
pub(super) struct CheckedFile {
    pub(super) name: String,
    pub(super) verdict: Result<Vec<CheckedBody>, InputError>,
}

/// The faults of one body.
pub(super) struct CheckedBody {
    pub(super) wire: Wire,
    pub(super) origin: BodyOrigin,
    pub(super) findings: Vec<Finding>,
    /// Faults that only some servers of the format refuse. They never count for the exit code.
    pub(super) notes: Vec<Finding>,
}

impl CheckedBody {
    /// Returns the place of a finding in the file.
    pub(super) fn place_of(&self, finding: &Finding) -> String {
        let path = self.wire.format.finding_path(finding);
        match &self.origin {
            BodyOrigin::WholeFile => path,
            BodyOrigin::Line(line) => format!("line {line}: {path}"),
            // Messages that were put together have no place of their own in the file.
            BodyOrigin::Transcript { .. } => self.line_of(finding).map_or(path, |line| format!("line {line}")),
        }
    }

    /// Returns the line of a finding, if the body has lines.
    pub(super) fn line_of(&self, finding: &Finding) -> Option<usize> {
        match &self.origin {
            BodyOrigin::WholeFile => None,
            BodyOrigin::Line(line) => Some(*line),
            BodyOrigin::Transcript { lines, .. } => lines.get(finding.message).copied(),
        }
    }
}
