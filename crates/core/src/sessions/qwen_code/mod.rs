//! Sessions of Qwen Code: records with the links of Claude Code, and messages of Gemini's format.
//!
//! The client goes back from the last record of the file, link by link, and sends nothing of what stands before a link
//! that leads nowhere. Records with one id are fragments of one message. It answers open calls itself. Tried with Qwen
//! Code 0.24.4 (2026-11).

mod chain;
mod record;

use std::collections::HashSet;

use self::{
    chain::RecordChain,
    record::{QwenPart, QwenRecord, ReadRecord, mark},
};
use super::{
    call_pairs::{CallPairs, CallPlace},
    client::ClientVersion,
    damage::{Damage, SessionCode},
    finding::SessionFinding,
    log::{LogFacts, SessionLog},
    records::{FileLines, SessionRecord},
};
use crate::conversation::FindingKind;

/// The log of a session of Qwen Code.
#[derive(Debug, Default)]
pub(super) struct QwenLog {
    version: Option<ClientVersion>,
    session: Option<String>,
    /// Records of another session than the first one.
    others: Vec<CallPlace>,
    /// Skipped records before the first one that is read, with their sessions. At most [`LINES_MAX`] of them.
    skipped: Vec<(CallPlace, String)>,
    records: Vec<QwenRecord>,
    parts: Vec<QwenPart>,
}

impl SessionLog for QwenLog {
    fn add(&mut self, record: &SessionRecord<'_>) {
        let Some(read) = ReadRecord::read(record.text) else {
            return;
        };
        self.version = self.version.max(ClientVersion::parse(&read.version()));
        let session = read.session();
        let place = CallPlace {
            line: record.line,
            byte: record.byte,
            len: u64::try_from(record.text.len()).unwrap_or(u64::MAX),
            is_read: !record.is_skipped,
        };
        match &self.session {
            None if place.is_read => self.session = Some(session),
            None if self.skipped.len() < LINES_MAX => self.skipped.push((place, session)),
            Some(first) if *first != session => self.others.push(place),
            _ => {}
        }
        let parts = u32::try_from(self.parts.len()).unwrap_or(u32::MAX);
        if read.marks & mark::MESSAGE != 0 {
            read.for_each_part(|part| self.parts.push(part));
        }
        let skipped = if record.is_skipped { mark::SKIPPED } else { 0 };
        self.records.push(QwenRecord {
            id: read.id,
            parent: read.parent,
            byte: record.byte,
            line: record.line,
            len: u32::try_from(record.text.len()).unwrap_or(u32::MAX),
            parts,
            marks: read.marks | skipped,
        });
    }

    fn note_lines(&mut self, lines: &FileLines) {
        // The client takes whole records out of a line, but nothing of a line that has an object without its end.
        let is_fatal = |code| {
            let damages = [Damage::TornRecord, Damage::RawNewline, Damage::LongRecord];
            damages.map(SessionCode::Damage).contains(&code)
        };
        let findings = lines.findings.iter().filter(|finding| is_fatal(finding.code));
        let lost: HashSet<u64> = findings.map(|finding| finding.line).collect();
        for record in &mut self.records {
            if record.has(mark::SKIPPED) && lost.contains(&record.line) {
                record.marks |= mark::LOST;
            }
        }
        self.others.retain(|place| place.is_read || !lost.contains(&place.line));
        // Of these the client reads the ones whose lines are not lost.
        let skipped = std::mem::take(&mut self.skipped).into_iter();
        let mut read = skipped.filter(|(place, _)| !lost.contains(&place.line)).peekable();
        if self.session.is_none() {
            self.session = read.peek().map(|(_, session)| session.clone());
        }
        let first = self.session.clone().unwrap_or_default();
        let others = read.filter(|(_, session)| *session != first);
        self.others.splice(..0, others.map(|(place, _)| place));
    }

    fn finish(self: Box<Self>) -> LogFacts {
        let chain = RecordChain::walk(&self.records);
        let unreached = chain.members.len().saturating_sub(chain.reached);
        let (mut pairs, mut reachable) = (CallPairs::default(), 0_u64);
        for (place, at) in chain.members.iter().enumerate() {
            let record = chain.record(*at);
            if record.has(mark::SUMMARY) {
                pairs.forget_calls();
                reachable = 0;
            }
            if !record.has(mark::MESSAGE) {
                continue;
            }
            let is_read = place >= unreached;
            let is_sent = self.add_parts(*at, record, is_read, &mut pairs);
            reachable = reachable.saturating_add(u64::from(is_read && is_sent));
        }
        let mut findings = chain.findings;
        findings.extend(pairs.finish());
        let mixed = mixed_sessions(&self.others);
        let is_dead = mixed.is_some();
        findings.extend(mixed);
        findings.sort_by_key(|finding| (finding.line, finding.byte));
        let messages = self.records.iter().filter(|record| record.has(mark::MESSAGE)).count();
        LogFacts {
            version: self.version,
            session: self.session,
            messages: u64::try_from(messages).unwrap_or(u64::MAX),
            reachable: if is_dead { 0 } else { reachable },
            last_ordinal: None,
            findings,
        }
    }
}

/// Other lines of a finding that are named.
const LINES_MAX: usize = 100;

/// Returns the finding of records of another session than the first one. `None` if there are none.
fn mixed_sessions(others: &[CallPlace]) -> Option<SessionFinding> {
    let (first, rest) = others.split_first()?;
    Some(SessionFinding {
        lines: rest.iter().take(LINES_MAX).map(|place| place.line).collect(),
        ..SessionFinding::told(
            SessionCode::Damage(Damage::MixedSessions),
            first.line,
            first.byte,
            first.len,
        )
    })
}

impl QwenLog {
    /// Adds the calls and results of a message. Returns `true` if something of it is sent.
    fn add_parts(&self, at: usize, record: QwenRecord, is_read: bool, pairs: &mut CallPairs) -> bool {
        let end = self.records.get(at.saturating_add(1)).map(|next| next.parts);
        let start = usize::try_from(record.parts).unwrap_or(usize::MAX);
        let end = end.map_or(self.parts.len(), |end| usize::try_from(end).unwrap_or(usize::MAX));
        let parts = self.parts.get(start..end).unwrap_or_default();
        let place = CallPlace {
            line: record.line,
            byte: record.byte,
            len: u64::from(record.len),
            is_read,
        };
        let is_results = !parts.is_empty() && parts.iter().all(|part| !part.is_call);
        if !is_results {
            pairs.note_message();
        }
        let mut is_sent = !is_results;
        for part in parts {
            if part.is_call {
                pairs.add_call(&part.id, place);
                if part.is_malformed {
                    pairs.add_fault(FindingKind::MalformedCall, &part.id, place);
                }
            } else {
                is_sent |= pairs.add_result(&part.id, place);
            }
        }
        is_sent
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sessions::scan_session;

    /// Sessions and types of records, the lines that are told, and the messages that are sent.
    type MixedLog<'l> = (&'l [(&'l str, &'l str)], &'l [u64], u64);

    #[test]
    fn records_of_another_session_are_told() {
        let record = |at: usize, session: &str, kind: &str| {
            let parent = if at > 1 {
                format!("\"{}\"", at - 1)
            } else {
                "null".to_owned()
            };
            let message = r#"{"role":"user","parts":[{"text":"x"}]}"#;
            let link = format!(r#""uuid":"{at}","parentUuid":{parent},"sessionId":"{session}","version":"0.24.4""#);
            format!("{{{link},\"type\":\"{kind}\",\"message\":{message}}}\n")
        };
        let cases: [MixedLog<'_>; 4] = [
            (&[("a", "user"), ("a", "assistant")], &[], 2),
            (&[("a", "user"), ("a", "assistant"), ("b", "of_later")], &[], 2),
            (&[("a", "user"), ("b", "assistant"), ("b", "user")], &[2, 3], 0),
            (&[("a", "user"), ("a", "assistant"), ("b", "system")], &[3], 0),
        ];
        for (records, lines, reachable) in cases {
            let records = records.iter().enumerate();
            let file: String = records
                .map(|(at, (session, kind))| record(at + 1, session, kind))
                .collect();
            let report = scan_session(&mut file.as_bytes()).unwrap().unwrap();
            let mixed = SessionCode::Damage(Damage::MixedSessions);
            let mixed = report.findings.iter().filter(|finding| finding.code == mixed);
            let found = mixed.flat_map(|finding| [&[finding.line], finding.lines.as_slice()].concat());
            assert_eq!(found.collect::<Vec<_>>(), lines, "{file}");
            assert_eq!(report.reachable, reachable, "{file}");
        }
    }
}
