//! The scan of a session file.

use std::io::{self, Read};

use super::{
    claude_code::{self, ClaudeCodeLog},
    client::{ClientVersion, SessionClient},
    codex::{self, CodexLog},
    copilot::CopilotLog,
    damage::{Damage, SessionCode},
    finding::{FixKind, RecordLoss, SessionFinding},
    holes::{SkipHoles, WithoutHoles},
    log::{LogFacts, PlanWay, SessionLog},
    marks::{RecordOrigin, find_origin},
    measured::Severity,
    qwen_code::QwenLog,
    records::{FileLines, PieceReader, SessionRecord},
    severity::severity_of,
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
    /// The highest number of a record that the client reads. `None` if its records have none.
    pub last_ordinal: Option<u64>,
    /// The findings, in the order of the file.
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
    #[error("it has records of more than one program")]
    SeveralClients,
    /// It has lines of a client, and none of them has content that can be read.
    #[error("its records have no content that can be read")]
    NoContent,
}

/// Lines of stray contents that are named beside the first one.
const STRAY_LINES_MAX: usize = 100;

/// The reader of one client.
#[derive(Clone, Copy)]
pub(super) struct LogRow {
    /// The client.
    pub(super) client: SessionClient,
    /// Creates its log.
    pub(super) new_log: fn() -> Box<dyn SessionLog>,
    /// Plans the edits for its findings.
    pub(super) plan_way: PlanWay,
}

/// The readers of all clients.
pub(super) const LOGS: &[LogRow] = &[
    LogRow {
        client: SessionClient::ClaudeCode,
        new_log: || Box::new(ClaudeCodeLog::default()),
        plan_way: PlanWay::Together(claude_code::plan_together),
    },
    LogRow {
        client: SessionClient::Codex,
        new_log: || Box::new(CodexLog::default()),
        plan_way: PlanWay::InTurn(codex::plan_edits),
    },
    LogRow {
        client: SessionClient::Copilot,
        new_log: || Box::new(CopilotLog::default()),
        plan_way: NO_EDITS,
    },
    LogRow {
        client: SessionClient::QwenCode,
        new_log: || Box::new(QwenLog::default()),
        plan_way: NO_EDITS,
    },
];

/// The plan for clients whose sessions are only read.
const NO_EDITS: PlanWay = PlanWay::InTurn(|_, _| Ok(Vec::new()));

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

/// Reads a session file as [`scan_session_of`] does, if `place` is known, and passes its holes.
///
/// # Errors
///
/// Those of `input`.
pub fn scan_sparse_session(
    place: Option<SessionClient>,
    input: &mut impl SkipHoles,
) -> io::Result<Result<SessionReport, NotRead>> {
    scan_pieces(LOGS, place, PieceReader::new(input))
}

/// Reads a session file with the readers of `logs`.
pub(super) fn scan_with(
    logs: &'static [LogRow],
    place: Option<SessionClient>,
    input: &mut impl Read,
) -> io::Result<Result<SessionReport, NotRead>> {
    scan_pieces(logs, place, PieceReader::new(WithoutHoles(input)))
}

fn scan_pieces(
    logs: &'static [LogRow],
    place: Option<SessionClient>,
    mut reader: PieceReader<impl SkipHoles>,
) -> io::Result<Result<SessionReport, NotRead>> {
    let mut scan = SessionScan {
        logs: logs.iter().map(|row| (row.client, (row.new_log)())).collect(),
        client: None,
        refused: None,
        stray: None,
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
    /// The first line that is no record of any client, with further ones.
    stray: Option<SessionFinding>,
}

impl SessionScan {
    fn add(&mut self, record: &SessionRecord<'_>) {
        match find_origin(&record.members) {
            Some(RecordOrigin::Known(client)) if self.client.is_none() => {
                self.client = Some(client);
                self.logs.retain(|(known, _)| *known == client);
            }
            // What a client skips may be anything.
            _ if record.is_skipped => {}
            Some(RecordOrigin::Known(client)) if self.client != Some(client) => {
                self.refused = Some(NotRead::SeveralClients);
            }
            Some(RecordOrigin::Foreign) if self.client.is_none() => self.refused = Some(NotRead::UnknownClient),
            // Known clients pass over types of records that they do not know.
            Some(RecordOrigin::Foreign | RecordOrigin::Stray) => self.add_stray(record),
            Some(RecordOrigin::Known(_)) | None => {}
        }
        for (_, log) in &mut self.logs {
            log.add(record);
        }
    }

    /// Notes a line that is no record. Its calls are in no log, so the file must not be told healthy.
    fn add_stray(&mut self, record: &SessionRecord<'_>) {
        if let Some(known) = &mut self.stray {
            if known.lines.len() < STRAY_LINES_MAX {
                known.lines.push(record.line);
            }
            return;
        }
        let code = SessionCode::Damage(Damage::StrayContent);
        let len = record.text.len() as u64;
        self.stray = Some(SessionFinding::told(code, record.line, record.byte, len));
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
        let facts = log.map_or_else(LogFacts::default, |mut log| {
            log.note_lines(&file);
            log.finish()
        });
        if facts.messages == 0 && !is_empty {
            return Err(NotRead::NoContent);
        }
        let mut of_lines = file.findings;
        of_lines.extend(self.stray);
        // Some clients load no file that begins with anything else than its first record.
        let is_dead = of_lines.iter().any(|finding| {
            let severity = severity_of(finding.code, finding.loss, client, facts.version);
            finding.loss == RecordLoss::First && client != SessionClient::ClaudeCode && severity == Severity::Error
        });
        Ok(SessionReport {
            client,
            version: facts.version,
            session: facts.session,
            bytes: file.bytes,
            lines: file.lines,
            messages: facts.messages,
            reachable: if is_dead { 0 } else { facts.reachable },
            last_ordinal: facts.last_ordinal,
            findings: join_findings(client, of_lines, facts.findings, is_empty),
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
        for finding in &mut log {
            finding.fix = FixKind::Told;
        }
    }
    for finding in &mut lines {
        // Codex counts its records, so none is appended again.
        let is_appended = finding.fix == FixKind::Append && client == SessionClient::Codex;
        // Without a record nothing can be brought back.
        if is_appended || is_empty || !client.is_mended() {
            finding.fix = FixKind::Told;
        }
    }
    lines.append(&mut log);
    lines.sort_by_key(|finding| finding.byte);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sessions::stand_ins::{StandInLog, count_record, find_lost_parent};

    /// Counts messages, and finds that each parent is lost.
    fn add_message(facts: &mut LogFacts, record: &SessionRecord<'_>) {
        if memchr::memmem::find(record.text, b"\"message\"").is_some() {
            count_record(facts, record);
        }
        find_lost_parent(facts, record);
    }

    const ROWS: &[LogRow] = &[
        LogRow {
            client: SessionClient::ClaudeCode,
            new_log: || StandInLog::new_log(add_message),
            plan_way: PlanWay::InTurn(|_, _| Ok(Vec::new())),
        },
        LogRow {
            client: SessionClient::Codex,
            new_log: || StandInLog::new_log(add_message),
            plan_way: PlanWay::InTurn(|_, _| Ok(Vec::new())),
        },
    ];

    const CLAUDE: &str = r#"{"type":"user","uuid":"a","sessionId":"s","message":{"content":"x"}}"#;
    const TITLE: &str = r#"{"type":"custom-title","sessionId":"s"}"#;
    const SYSTEM: &str = r#"{"type":"system","uuid":"b","sessionId":"s"}"#;
    const CODEX: &str = r#"{"type":"response_item","timestamp":"t","payload":{"type":"message"}}"#;
    const QWEN: &str = r#"{"type":"user","uuid":"a","sessionId":"s","message":{"parts":[{"text":"x"}]}}"#;
    const COPILOT: &str = r#"{"type":"session.start","data":{},"id":"a","timestamp":"t","parentId":null}"#;
    const GEMINI: &str = r#"{"type":"gemini","id":"a","content":"x"}"#;

    const MESSAGE: &str = r#"{"role":"assistant","tool_calls":[]}"#;
    const BODY: &str = r#"{"model":"m","messages":[]}"#;

    fn scan_text(place: Option<SessionClient>, text: &str) -> Result<SessionReport, NotRead> {
        scan_with(ROWS, place, &mut text.as_bytes()).unwrap()
    }

    #[test]
    fn only_files_of_one_known_client_are_read() {
        let (claude, codex) = (SessionClient::ClaudeCode, SessionClient::Codex);
        for (lines, wanted) in [
            (vec![CLAUDE], Ok((claude, 1, 1))),
            (vec![SYSTEM, TITLE, CLAUDE, SYSTEM], Ok((claude, 1, 1))),
            (vec![CODEX, CODEX], Ok((codex, 2, 2))),
            // A record that the client skips counts, and tells the client if no other does.
            (vec!["\0", CLAUDE], Ok((claude, 1, 1))),
            (vec!["", CODEX, "\0"], Ok((codex, 1, 1))),
            (vec!["\0", CODEX], Ok((codex, 1, 0))),
            (vec![TITLE], Err(NotRead::NoContent)),
            (vec![SYSTEM], Err(NotRead::UnknownClient)),
            (vec!["{}", "[]", "x"], Err(NotRead::UnknownClient)),
            (vec![SYSTEM, QWEN, CLAUDE], Err(NotRead::SeveralClients)),
            (vec![CLAUDE, COPILOT], Err(NotRead::SeveralClients)),
            (vec![CLAUDE, QWEN], Err(NotRead::SeveralClients)),
            (vec![SYSTEM, GEMINI, CLAUDE], Err(NotRead::UnknownClient)),
            (vec![CLAUDE, CODEX], Err(NotRead::SeveralClients)),
            (vec![CODEX, GEMINI], Ok((codex, 1, 1))),
            (vec![GEMINI, CODEX], Err(NotRead::UnknownClient)),
            (vec![MESSAGE, CLAUDE], Ok((claude, 1, 1))),
            (vec![MESSAGE, BODY], Err(NotRead::UnknownClient)),
            (vec![], Err(NotRead::UnknownClient)),
        ] {
            let report = scan_text(None, &(lines.join("\n") + "\n"));
            let report = report.map(|report| (report.client, report.messages, report.reachable));
            assert_eq!(report, wanted, "{lines:?}");
        }
    }

    /// A line of another program has calls that no client sends, and nobody has read.
    #[test]
    fn lines_that_are_no_records_are_told() {
        let stray = |lines: &[&str]| {
            let report = scan_text(None, &(lines.join("\n") + "\n")).unwrap();
            let of_stray = |finding: &&SessionFinding| finding.code == SessionCode::Damage(Damage::StrayContent);
            let found = report.findings.iter().find(of_stray);
            found.map(|found| (found.line, found.lines.clone(), found.fix))
        };
        let told = FixKind::Told;
        assert_eq!(stray(&[CLAUDE, CLAUDE]), None);
        assert_eq!(stray(&[CLAUDE, MESSAGE]), Some((2, vec![], told)));
        assert_eq!(stray(&[CLAUDE, GEMINI]), Some((2, vec![], told)));
        assert_eq!(stray(&[BODY, CODEX, MESSAGE, BODY]), Some((1, vec![3, 4], told)));
        // A part of a damaged line is told with that.
        assert_eq!(stray(&[CLAUDE, &format!("x{MESSAGE}")]), None);
    }

    #[test]
    fn files_without_a_record_are_those_of_their_place() {
        let client = SessionClient::Codex;
        for (text, wanted) in [
            ("", "empty_file"),
            ("\0\0\n", "nul_bytes"),
            ("{\"type\":\"us", "torn_record"),
        ] {
            let report = scan_text(Some(client), text).unwrap();
            assert_eq!((report.client, report.messages), (client, 0), "{text:?}");
            let found: Vec<_> = report
                .findings
                .iter()
                .map(|found| (found.code.label(), found.fix))
                .collect();
            assert_eq!(found, [(wanted, FixKind::Told)], "{text:?}");
            assert_eq!(scan_text(None, text).err(), Some(NotRead::UnknownClient), "{text:?}");
        }
        // A record tells more than the place.
        assert_eq!(scan_text(Some(client), SYSTEM).err(), Some(NotRead::UnknownClient));
        assert_eq!(
            scan_text(Some(client), CLAUDE).unwrap().client,
            SessionClient::ClaudeCode
        );
    }

    #[test]
    fn findings_of_lines_and_of_the_log_are_one_list() {
        let report = scan_text(None, &format!("{CLAUDE}\n{TITLE}{SYSTEM}\nx\n")).unwrap();
        let found: Vec<_> = report
            .findings
            .iter()
            .map(|found| (found.line, found.code.label()))
            .collect();
        let (lost, joined) = ("lost_parent", "joined_records");
        assert_eq!(
            found,
            [(1, lost), (2, joined), (2, lost), (2, lost), (3, "torn_record")]
        );
        assert_eq!(report.findings.first().map(|found| found.fix), Some(FixKind::InPlace));
        // Codex counts records, so none is appended a second time.
        let report = scan_text(None, &format!("{CODEX}{CODEX}\n")).unwrap();
        let joined = report.findings.iter().find(|found| found.code.label() == joined);
        assert_eq!(joined.map(|found| found.fix), Some(FixKind::Told));
    }

    #[test]
    fn a_long_record_may_be_the_one_that_is_missed() {
        use std::io::Read as _;

        let long = io::repeat(b'x').take(crate::sessions::records::RECORD_BYTES_MAX as u64 + 1);
        let mut text = CLAUDE.as_bytes().chain(&b"\n"[..]).chain(long);
        let report = scan_with(ROWS, None, &mut text).unwrap().unwrap();
        let found: Vec<_> = report
            .findings
            .iter()
            .map(|found| (found.code.label(), found.fix))
            .collect();
        assert_eq!(found, [("lost_parent", FixKind::Told), ("long_record", FixKind::Told)]);
    }
}
