//! One session of opencode's database: its messages, and the calls among their parts.
//!
//! Tried with opencode 1.18.33 (2026-11): it answers a call that is `pending` or `running` in each request, does not
//! load a session with data that is no JSON, and sends two calls of one id.

use std::{collections::HashMap, time::Duration};

use rusqlite::{Connection, types::ValueRef};
use serde::Deserialize;
use serde_json::Value;

use super::row_finder::{RowFinder, StoredTable};
use crate::{
    conversation::FindingKind,
    sessions::{ClientVersion, Damage, SessionClient, SessionCode, SessionFinding, SessionReport},
    wire::json::Json,
};

/// The longest data that is read, in bytes. Longer ones are told.
const DATA_BYTES_MAX: i64 = 64 * 1024 * 1024;
/// Findings of one session that are listed. Further ones are counted.
const FINDINGS_MAX: usize = 10_000;

/// A row of the list of sessions.
#[derive(Clone, Debug)]
pub(super) struct StoredSession {
    pub(super) id: String,
    pub(super) version: String,
    /// The last write, since 1970.
    pub(super) modified: Duration,
    /// The first message that the user has taken back. `None` if there is none.
    pub(super) reverted_from: Option<String>,
}

/// Returns the message from which on the user has taken everything back.
pub(super) fn reverted_message(revert: &str) -> Option<String> {
    let revert: Value = serde_json::from_str(revert).ok()?;
    Some(revert.get("messageID")?.as_str()?.to_owned())
}

/// The members of a message that are read.
#[derive(Deserialize)]
struct MessageData {
    role: Value,
    #[serde(default)]
    finish: Value,
    #[serde(default, rename = "parentID")]
    parent: Value,
}

/// Returns `true` if a message is marked as a summary. That of a user's message has texts, with halves of characters.
fn is_summary(data: ValueRef<'_>) -> bool {
    let json = Json::new(data.as_bytes().unwrap_or_default());
    let value = json.root_span().ok().and_then(|root| json.member(root, "summary"));
    value.is_some_and(|value| json.bytes(value) == b"true")
}

/// The members of a part that are read.
#[derive(Deserialize)]
struct PartData {
    #[serde(rename = "type")]
    kind: Value,
    #[serde(default, rename = "callID")]
    call: Value,
    #[serde(default)]
    state: Option<PartState>,
}

#[derive(Deserialize)]
struct PartState {
    #[serde(default)]
    status: Value,
}

/// A call of a tool.
struct StoredCall {
    /// Its message, by its place in the session.
    message: usize,
    part: String,
    row: u64,
    id: String,
    /// `true` if its id is a text, and not empty.
    has_id: bool,
    status: String,
}

/// A session, as its rows build it up.
struct SessionRows {
    /// Ids of the messages, in the order in which they are sent.
    messages: Vec<String>,
    places: HashMap<String, usize>,
    /// For each summary that is complete, the message that asked for it.
    summarized: Vec<String>,
    /// Messages that ask for a summary.
    asking: Vec<usize>,
    calls: Vec<StoredCall>,
    bytes: u64,
    findings: Vec<SessionFinding>,
    unlisted: u64,
}

/// Reads a session.
pub(super) fn read_stored(
    connection: &Connection,
    finder: &RowFinder,
    session: &StoredSession,
) -> rusqlite::Result<SessionReport> {
    let mut rows = SessionRows {
        messages: Vec::new(),
        places: HashMap::new(),
        summarized: Vec::new(),
        asking: Vec::new(),
        calls: Vec::new(),
        bytes: 0,
        findings: Vec::new(),
        unlisted: 0,
    };
    rows.read_messages(connection, finder, &session.id)?;
    rows.read_parts(connection, finder, &session.id)?;
    let (from, to) = rows.sent_range(session.reverted_from.as_deref());
    rows.judge_calls(from, to);
    Ok(SessionReport {
        client: SessionClient::OpenCode,
        version: ClientVersion::parse(&session.version),
        session: Some(session.id.clone()),
        bytes: rows.bytes,
        lines: 0,
        messages: count(rows.messages.len()),
        reachable: count(to.saturating_sub(from)),
        last_ordinal: None,
        findings: rows.findings,
        unlisted: rows.unlisted,
    })
}

impl SessionRows {
    fn read_messages(&mut self, connection: &Connection, finder: &RowFinder, session: &str) -> rusqlite::Result<()> {
        let rows_of = finder.rows_of(connection, StoredTable::Message, session)?;
        let mut query = connection.prepare(&format!(
            "SELECT rowid, id, octet_length(data), CASE WHEN octet_length(data) <= ?2 THEN data END \
             FROM message WHERE {} ORDER BY time_created, +id",
            rows_of.condition()
        ))?;
        let mut rows = query.query((rows_of.given(), DATA_BYTES_MAX))?;
        while let Some(row) = rows.next()? {
            let (number, id): (i64, String) = (row.get(0)?, row.get(1)?);
            self.add_bytes(row.get(2)?);
            if let Some(message) = self.read_data::<MessageData>(row.get_ref(3)?, number, &id) {
                let is_complete =
                    message.role == "assistant" && is_summary(row.get_ref(3)?) && !message.finish.is_null();
                if let Some(parent) = message.parent.as_str().filter(|_| is_complete) {
                    self.summarized.push(parent.to_owned());
                }
            }
            self.places.insert(id.clone(), self.messages.len());
            self.messages.push(id);
        }
        Ok(())
    }

    fn read_parts(&mut self, connection: &Connection, finder: &RowFinder, session: &str) -> rusqlite::Result<()> {
        let rows_of = finder.rows_of(connection, StoredTable::Part, session)?;
        let mut query = connection.prepare(&format!(
            "SELECT rowid, id, message_id, octet_length(data), CASE WHEN octet_length(data) <= ?2 THEN data END \
             FROM part WHERE {} ORDER BY +id",
            rows_of.condition()
        ))?;
        let mut rows = query.query((rows_of.given(), DATA_BYTES_MAX))?;
        while let Some(row) = rows.next()? {
            let (number, id, message): (i64, String, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
            self.add_bytes(row.get(3)?);
            let Some(message) = self.places.get(&message).copied() else {
                self.add_finding(SessionCode::Damage(Damage::LostParent), row_number(number), &id, None);
                continue;
            };
            if let Some(part) = self.read_data::<PartData>(row.get_ref(4)?, number, &id) {
                self.add_part(part, message, (id, row_number(number)));
            }
        }
        Ok(())
    }

    /// Reads the data of a row. `None` with a finding if it is no JSON object with the members that it needs.
    fn read_data<'d, D: Deserialize<'d>>(&mut self, data: ValueRef<'d>, row: i64, id: &str) -> Option<D> {
        let damage = match data {
            ValueRef::Text(text) => match serde_json::from_slice(text) {
                Ok(read) => return Some(read),
                Err(_) => Damage::TornRecord,
            },
            ValueRef::Null => Damage::LongRecord,
            _ => Damage::TornRecord,
        };
        self.add_finding(SessionCode::Damage(damage), row_number(row), id, None);
        None
    }

    fn add_part(&mut self, part: PartData, message: usize, (id, row): (String, u64)) {
        match part.kind.as_str() {
            Some("compaction") => self.asking.push(message),
            Some("tool") => {
                let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                self.calls.push(StoredCall {
                    message,
                    part: id,
                    row,
                    id: text(&part.call),
                    has_id: part.call.as_str().is_some_and(|id| !id.is_empty()),
                    status: part.state.map(|state| text(&state.status)).unwrap_or_default(),
                });
            }
            _ => {}
        }
    }

    const fn add_bytes(&mut self, bytes: Option<i64>) {
        if let Some(bytes @ 1..) = bytes {
            self.bytes = self.bytes.saturating_add(bytes.unsigned_abs());
        }
    }

    /// Returns the first message that is sent, and the end of those.
    fn sent_range(&self, reverted_from: Option<&str>) -> (usize, usize) {
        let is_summarized = |place: &&usize| {
            let id = self.messages.get(**place);
            id.is_some_and(|id| self.summarized.contains(id))
        };
        let end = reverted_from.and_then(|id| self.places.get(id).copied());
        let end = end.unwrap_or(self.messages.len());
        let start = self
            .asking
            .iter()
            .filter(is_summarized)
            .filter(|place| **place < end)
            .max();
        (start.copied().unwrap_or_default(), end)
    }

    /// Finds the faults of the calls that are sent.
    fn judge_calls(&mut self, from: usize, to: usize) {
        let mut calls = std::mem::take(&mut self.calls);
        calls.retain(|call| (from..to).contains(&call.message));
        calls.sort_by(|left, right| (left.message, &left.part).cmp(&(right.message, &right.part)));
        let mut seen: HashMap<&str, u64> = HashMap::new();
        for call in &calls {
            let is_last = call.message.saturating_add(1) == to;
            let code = match call.status.as_str() {
                // Without an id the client sends no request, or the provider refuses it.
                _ if !call.has_id => Some(SessionCode::Pairing(FindingKind::MalformedCall)),
                "completed" | "error" => None,
                "pending" | "running" if is_last => Some(SessionCode::Damage(Damage::OpenCall)),
                "pending" | "running" => Some(SessionCode::Pairing(FindingKind::Unanswered)),
                _ => Some(SessionCode::Pairing(FindingKind::MalformedCall)),
            };
            let name = if call.id.is_empty() { &call.part } else { &call.id };
            if let Some(code) = code {
                self.add_finding(code, call.row, name, None);
            }
            match seen.get(call.id.as_str()) {
                Some(earlier) if !call.id.is_empty() => {
                    let code = SessionCode::Pairing(FindingKind::DuplicateCall);
                    self.add_finding(code, call.row, name, Some(*earlier));
                }
                _ => drop(seen.insert(&call.id, call.row)),
            }
        }
    }

    fn add_finding(&mut self, code: SessionCode, row: u64, id: &str, other: Option<u64>) {
        if self.findings.len() >= FINDINGS_MAX {
            self.unlisted = self.unlisted.saturating_add(1);
            return;
        }
        // A database has rows in place of lines.
        self.findings.push(SessionFinding {
            id: id.to_owned(),
            lines: other.into_iter().collect(),
            ..SessionFinding::told(code, row, 0, 0)
        });
    }
}

fn row_number(row: i64) -> u64 {
    u64::try_from(row).unwrap_or_default()
}

fn count(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}
