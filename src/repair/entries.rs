//! Several requests in one body: each is repaired by itself, and the edits and reports are put together.

use super::{Mended, Report};
use crate::{
    conversation::Finding,
    wire::{Entry, Unreadable},
};

/// What `mend` makes of every entry, as edits of the whole body. An entry that cannot be read stays as it came.
pub(super) fn together(entries: &[Entry], mend: impl Fn(&Entry) -> Result<Mended, Unreadable>) -> Mended {
    let mut whole = Mended::default();
    for entry in entries {
        match mend(entry) {
            Ok(Mended { edits, report, .. }) => {
                let shifted = edits.into_iter().map(|edit| edit.shifted(entry.span.start));
                whole.edits.extend(shifted);
                add(&mut whole.report, report, &entry.path);
            }
            Err(reason) => {
                whole.report.unread.get_or_insert(reason);
            }
        }
    }
    whole
}

/// Findings by their places in the whole body.
pub(super) fn placed(findings: Vec<Finding>, path: &str) -> Vec<Finding> {
    let place = |finding: Finding| Finding {
        within: format!("{path}{}", finding.within),
        ..finding
    };
    findings.into_iter().map(place).collect()
}

fn add(whole: &mut Report, report: Report, path: &str) {
    whole.findings.extend(placed(report.findings, path));
    for (action, count) in report.actions {
        *whole.actions.entry(action).or_default() += count;
    }
    whole.deferred += report.deferred;
    whole.unrepairable += report.unrepairable;
    whole.renamed.extend(report.renamed);
    whole.unread = whole.unread.or(report.unread);
}
