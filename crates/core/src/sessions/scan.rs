//! The scan of a session file.

use std::io::{self, Read};

use super::{
    claude_code::{self, ClaudeCodeLog},
    client::{ClientVersion, SessionClient},
    codex::{self, CodexLog},
    damage::{Damage, SessionCode},
    finding::{FixKind, SessionFinding},
    log::{LogFacts, PlanEdits, SessionLog},
    marks::{RecordOrigin, find_origin},
    records::{FileLines, Record, RecordReader},
};

/// A session file, as it was read.
#[derive(Clone, Debug)]
pub struct SessionReport {
    /// The client that wrote it.
    pub client: SessionClient,
    /// The newest version that has written records.
    pub version: Option<ClientVersion>,
    /// The id of the session.
    pub session: Option<String>,
    /// Bytes of the file.
    pub bytes: u64,
    /// Line feeds, and a last line without one.
    pub lines: u64,
    /// Messages and items of the conversation in the file.
    pub messages: u64,
    /// Those of them that the client sends in its next request.
    pub reachable: u64,
    /// What was found, in the order of the file.
    pub findings: Vec<SessionFinding>,
    /// Findings about lines that are not listed, because there are too many.
    pub unlisted: u64,
}

/// The reason why nothing is known about a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotRead {
    /// No known client wrote it.
    #[error("no known client wrote this file")]
    UnknownClient,
    /// It has records of several clients.
    #[error("it has records of more than one client")]
    SeveralClients,
    /// It has lines of a client, and none of them has content that can be read.
    #[error("its records have no content that can be read")]
    NoContent,
}

/// The reader of one client.
#[derive(Clone, Copy)]
pub(super) struct LogRow {
    /// The client.
    pub(super) client: SessionClient,
    /// Creates its log.
    pub(super) new_log: fn() -> Box<dyn SessionLog>,
    /// Plans the edits for its findings.
    pub(super) plan_edits: PlanEdits,
}

/// The readers of all clients.
pub(super) const LOGS: &[LogRow] = &[
    LogRow {
        client: SessionClient::ClaudeCode,
        new_log: || Box::new(ClaudeCodeLog::default()),
        plan_edits: claude_code::plan_edits,
    },
    LogRow {
        client: SessionClient::Codex,
        new_log: || Box::new(CodexLog::default()),
        plan_edits: codex::plan_edits,
    },
];

/// Reads a session file, whose client is known by its first records.
///
/// # Errors
///
/// Those of `input`.
pub fn scan_session(input: &mut impl Read) -> io::Result<Result<SessionReport, NotRead>> {
    scan_with(LOGS, None, input)
}

/// Reads a session file from a place where `client` keeps its own. A file without one whole record is its file too.
///
/// # Errors
///
/// Those of `input`.
pub fn scan_session_of(client: SessionClient, input: &mut impl Read) -> io::Result<Result<SessionReport, NotRead>> {
    scan_with(LOGS, Some(client), input)
}

/// Reads a session file with the readers of `logs`.
pub(super) fn scan_with(
    logs: &'static [LogRow],
    place: Option<SessionClient>,
    input: &mut impl Read,
) -> io::Result<Result<SessionReport, NotRead>> {
    let mut reader = RecordReader::new(input);
    let mut scan = SessionScan {
        logs: logs.iter().map(|row| (row.client, (row.new_log)())).collect(),
        client: None,
        refused: None,
    };
    while reader.read_piece(&mut |record| scan.add(&record))? {
        if let Some(reason) = scan.refused {
            return Ok(Err(reason));
        }
    }
    Ok(scan.into_report(reader.into_lines(), place))
}

/// The state of a scan.
struct SessionScan {
    /// The logs of the clients that may have written the file.
    logs: Vec<(SessionClient, Box<dyn SessionLog>)>,
    client: Option<SessionClient>,
    refused: Option<NotRead>,
}

impl SessionScan {
    fn add(&mut self, record: &Record<'_>) {
        match find_origin(record.text) {
            Some(RecordOrigin::Known(client)) if self.client.is_none() => {
                self.client = Some(client);
                self.logs.retain(|(known, _)| *known == client);
            }
            // What a client skips may be anything.
            Some(origin) if !record.is_skipped && self.client.map(RecordOrigin::Known) != Some(origin) => {
                let reason = self.client.map_or(NotRead::UnknownClient, |_| NotRead::SeveralClients);
                self.refused = Some(reason);
            }
            _ => {}
        }
        for (_, log) in &mut self.logs {
            log.add(record);
        }
    }

    fn into_report(mut self, file: FileLines, place: Option<SessionClient>) -> Result<SessionReport, NotRead> {
        if let Some(reason) = self.refused {
            return Err(reason);
        }
        let is_empty = file.records == 0;
        let place = place.filter(|_| is_empty);
        let client = self.client.or(place).ok_or(NotRead::UnknownClient)?;
        let log = self.logs.iter().position(|(known, _)| *known == client);
        let log = log.map(|index| self.logs.swap_remove(index).1);
        let facts = log.map_or_else(LogFacts::default, SessionLog::finish);
        if facts.messages == 0 && !is_empty {
            return Err(NotRead::NoContent);
        }
        Ok(SessionReport {
            client,
            version: facts.version,
            session: facts.session,
            bytes: file.bytes,
            lines: file.lines,
            messages: facts.messages,
            reachable: facts.reachable,
            findings: join_findings(client, file.findings, facts.findings, is_empty),
            unlisted: file.unlisted,
        })
    }
}

/// Joins the findings about lines with those of the log, in the order of the file.
fn join_findings(
    client: SessionClient,
    mut lines: Vec<SessionFinding>,
    mut log: Vec<SessionFinding>,
    is_empty: bool,
) -> Vec<SessionFinding> {
    let is_long = |finding: &SessionFinding| finding.code == SessionCode::Damage(Damage::LongRecord);
    if lines.iter().any(is_long) {
        // A parent or a result may be in the record that was not read.
        log.iter_mut().for_each(|finding| finding.fix = FixKind::Told);
    }
    for finding in &mut lines {
        // Codex counts its records, so none is appended again.
        let is_appended = finding.fix == FixKind::Append && client == SessionClient::Codex;
        // Without a record nothing can be brought back.
        if is_appended || is_empty {
            finding.fix = FixKind::Told;
        }
    }
    lines.append(&mut log);
    lines.sort_by_key(|finding| finding.byte);
    lines
}
