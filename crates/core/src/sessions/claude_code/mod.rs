//! Sessions of Claude Code: one record for each block of an answer, linked to the record before it.

use std::io;

use super::{
    edits::SessionEdit,
    finding::SessionFinding,
    log::{LogFacts, SessionFile, SessionLog},
    records::Record,
};

/// The log of a session of Claude Code.
#[derive(Debug, Default)]
pub(super) struct ClaudeCodeLog {}

impl SessionLog for ClaudeCodeLog {
    fn add(&mut self, _record: &Record<'_>) {}

    fn finish(self: Box<Self>) -> LogFacts {
        LogFacts::default()
    }
}

/// Plans the edits for one finding.
pub(super) fn plan_edits(_finding: &SessionFinding, _file: &mut dyn SessionFile) -> io::Result<Vec<SessionEdit>> {
    Ok(Vec::new())
}
