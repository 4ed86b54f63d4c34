//! The log of one client, as its records build it up.

use std::io::{self, Read, Seek};

use super::{
    client::ClientVersion,
    edits::SessionEdit,
    finding::SessionFinding,
    records::{FileLines, SessionRecord},
};

/// The facts about a session, without those of its lines.
#[derive(Clone, Debug, Default)]
pub(super) struct LogFacts {
    /// The newest version that has written records.
    pub(super) version: Option<ClientVersion>,
    /// The id of the session.
    pub(super) session: Option<String>,
    /// Messages and items of the conversation in the file.
    pub(super) messages: u64,
    /// Those of them that the client sends in its next request.
    pub(super) reachable: u64,
    /// The highest number of a record. `None` if they have none.
    pub(super) last_ordinal: Option<u64>,
    /// The findings, in the order of the file.
    pub(super) findings: Vec<SessionFinding>,
}

/// The log of a client.
pub(super) trait SessionLog {
    /// Adds a record, in the order of the file.
    fn add(&mut self, record: &SessionRecord<'_>);

    /// Takes the damage of all lines, after the last record. A client may read records of a line that others skip.
    fn note_lines(&mut self, _lines: &FileLines) {}

    /// Returns the facts, after the last record and the lines.
    fn finish(self: Box<Self>) -> LogFacts;
}

/// A file whose records can be read again.
pub(super) trait SessionFile: Read + Seek {}

impl<F: Read + Seek> SessionFile for F {}

/// Plans the edits that mend one finding. It reads the records that are concerned once more.
pub(super) type PlanEdits = fn(&SessionFinding, &mut dyn SessionFile) -> io::Result<Vec<SessionEdit>>;

/// Plans the edits that mend several findings of one layer, in the file as it was before all of them.
pub(super) type PlanTogether = fn(&[&SessionFinding], &mut dyn SessionFile) -> io::Result<Vec<SessionEdit>>;

/// The way in which the edits of a client's findings are planned.
#[derive(Clone, Copy)]
pub(super) enum PlanWay {
    /// All findings of a layer together, since the edits of one depend on the others.
    Together(PlanTogether),
    /// One after the other, each in the file as the edits before have left it.
    InTurn(PlanEdits),
}
