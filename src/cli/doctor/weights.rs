//! The weight of findings for the client and the version that wrote a file.

use crate::sessions::{FixKind, Measured, SessionFinding, SessionReport, Severity, find_effect, severity_of};

/// Findings of one file, by weight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct WeightCounts {
    pub(super) errors: usize,
    pub(super) warnings: usize,
    pub(super) notes: usize,
    /// Those of any weight that can be mended.
    pub(super) mendable: usize,
}

impl WeightCounts {
    /// Returns `true` if something is above a note, or with `is_strict` if there is anything.
    pub(super) const fn has_findings(self, is_strict: bool) -> bool {
        self.errors > 0 || self.warnings > 0 || (is_strict && self.notes > 0)
    }
}

/// Returns the weight of a finding.
pub(super) fn weight_of(report: &SessionReport, finding: &SessionFinding) -> Severity {
    // Nothing is left of such a session, whatever the client makes of its bytes.
    if report.messages == 0 {
        return Severity::Error;
    }
    severity_of(finding.code, finding.loss, report.client, report.version)
}

fn effect_of(report: &SessionReport, finding: &SessionFinding) -> Option<&'static Measured> {
    find_effect(finding.code, finding.loss, report.client, report.version)
}

/// Says what is damaged, and what the client does about it.
pub(super) fn message_of(report: &SessionReport, finding: &SessionFinding) -> String {
    let explanation = finding.code.explanation();
    match effect_of(report, finding) {
        Some(measured) => format!("{explanation}; {}", measured.effect),
        None => explanation.to_owned(),
    }
}

/// Counts the findings of a file.
pub(super) fn count_weights(report: &SessionReport) -> WeightCounts {
    let mut counts = WeightCounts::default();
    for finding in &report.findings {
        match weight_of(report, finding) {
            Severity::Error => counts.errors += 1,
            Severity::Warning => counts.warnings += 1,
            Severity::Note => counts.notes += 1,
        }
        counts.mendable += usize::from(finding.fix != FixKind::Told);
    }
    counts
}
