//! Rollouts of Codex: one record for each item, with a number.

use std::io;

use super::{
    edits::SessionEdit,
    finding::SessionFinding,
    log::{LogFacts, SessionFile, SessionLog},
    records::Record,
};

/// The log of a rollout of Codex.
#[derive(Debug, Default)]
pub(super) struct CodexLog {}

impl SessionLog for CodexLog {
    fn add(&mut self, _record: &Record<'_>) {}

    fn finish(self: Box<Self>) -> LogFacts {
        LogFacts::default()
    }
}

/// Plans the edits for one finding.
pub(super) fn plan_edits(_finding: &SessionFinding, _file: &mut dyn SessionFile) -> io::Result<Vec<SessionEdit>> {
    Ok(Vec::new())
}
