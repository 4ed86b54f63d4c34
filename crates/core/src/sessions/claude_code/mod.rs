//! Sessions of Claude Code: one record for each block of an answer, linked to the record before it.
//!
//! A record is read once, and its place, links and ids are kept ([`entry`], [`reading`]). The links ([`links`]) give
//! the way from the end of the conversation to its beginning ([`branch`]), with what stands beside it ([`joins`]) and
//! what is left out ([`forks`]). Its calls and results are judged by the rules for bodies ([`skeleton`]). Each fault has a
//! remedy ([`analysis`], [`remedy`]), from which its edits are planned ([`plan`]).
//!
//! Tried with Claude Code 2.0.32, 2.1.42 and 2.1.332 (2026-11).

mod analysis;
mod branch;
mod entry;
mod forks;
mod joins;
mod links;
mod plan;
mod quoted;
mod reading;
mod remedy;
mod skeleton;

#[cfg(test)]
mod log_writer;
#[cfg(test)]
mod tests;

use std::io;

use self::{analysis::LogAnalysis, reading::ReadLog};
use super::{
    edits::SessionEdit,
    finding::SessionFinding,
    log::{LogFacts, SessionFile, SessionLog},
    records::SessionRecord,
};

/// The log of a session of Claude Code.
#[derive(Debug, Default)]
pub(super) struct ClaudeCodeLog {
    log: ReadLog,
}

impl SessionLog for ClaudeCodeLog {
    fn add(&mut self, record: &SessionRecord<'_>) {
        self.log.add_record(record);
    }

    fn finish(self: Box<Self>) -> LogFacts {
        let analysis = LogAnalysis::new(self.log);
        LogFacts {
            version: analysis.log.version,
            session: analysis.log.session,
            messages: analysis.messages,
            reachable: analysis.reachable,
            last_ordinal: None,
            findings: analysis.faults.into_iter().map(|fault| fault.finding).collect(),
        }
    }
}

/// Plans the edits for findings of one scan, in one pass over the file.
pub(super) fn plan_together(findings: &[&SessionFinding], file: &mut dyn SessionFile) -> io::Result<Vec<SessionEdit>> {
    plan::plan_findings(findings, file)
}
