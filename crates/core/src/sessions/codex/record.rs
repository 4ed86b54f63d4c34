//! One record of a rollout, as Codex reads it.

use memchr::memmem;

use crate::{
    sessions::members::RecordMembers,
    splice::Span,
    wire::json::{self, Json, JsonKind},
};

/// The kinds of records that build up the history, and all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RolloutKind {
    /// The session: its id, its client, and how its history is kept.
    SessionMeta,
    /// An item of the history.
    ResponseItem,
    /// The message of another agent, which begins a turn.
    AgentMessage,
    /// A summary, which replaces all items before it.
    Compacted,
    /// The removal of the last turns.
    RolledBack,
    /// Anything else. It is not sent.
    Other,
}

/// One record, which the client can read: it has a time, a type, a payload, and no number or a legal one.
#[derive(Clone, Copy, Debug)]
pub(super) struct RolloutRecord<'a> {
    pub(super) json: Json<'a>,
    /// The whole record.
    pub(super) root: Span,
    pub(super) kind: RolloutKind,
    /// The time, as its JSON string.
    pub(super) timestamp: Span,
    /// The number. `None` if it has none, or null.
    pub(super) ordinal: Option<u64>,
    pub(super) payload: Span,
}

impl<'a> RolloutRecord<'a> {
    /// Reads the record in `text`, which is one JSON object. `None` if the client skips it.
    pub(super) fn read(text: &'a [u8]) -> Option<Self> {
        Self::of_members(text, &RecordMembers::read(text))
    }

    /// Reads the record in `text`, whose members are known.
    pub(super) fn of_members(text: &'a [u8], members: &RecordMembers<'a>) -> Option<Self> {
        let json = members.json;
        let [timestamp, ordinal, kind, payload] =
            ["timestamp", "ordinal", "type", "payload"].map(|name| members.get(name));
        let ordinal = match ordinal.filter(|ordinal| json.kind(*ordinal) != JsonKind::Null) {
            // Codex 0.171 skips a record with any other number, and does not say so.
            Some(ordinal) => Some(str::from_utf8(json.bytes(ordinal)).ok()?.parse().ok()?),
            None => None,
        };
        Some(Self {
            json,
            root: Span::new(0, text.len()),
            kind: kind_of(text, &json.decode_string(json.only_string(kind?)?)),
            timestamp: json.only_string(timestamp?)?,
            ordinal,
            payload: payload?,
        })
    }

    /// Reads the record on a line that may be anything.
    pub(super) fn read_line(line: &'a [u8]) -> Option<Self> {
        let text = line.trim_ascii();
        (json::is_object(text) && json::validate(text).is_ok()).then(|| Self::read(text))?
    }

    /// Returns the text of a member of the payload. Empty if it is no string.
    pub(super) fn payload_text(&self, name: &str) -> String {
        String::from_utf8_lossy(&self.json.member_text(self.payload, name)).into_owned()
    }

    /// Returns the number of turns that a [`RolloutKind::RolledBack`] removes.
    pub(super) fn removed_turns(&self) -> usize {
        let turns = self.json.member(self.payload, "num_turns");
        let digits = turns.map_or(&[][..], |turns| self.json.bytes(turns));
        str::from_utf8(digits)
            .ok()
            .and_then(|digits| digits.parse().ok())
            .unwrap_or(0)
    }
}

/// Returns the kind of a record by its type.
fn kind_of(text: &[u8], name: &[u8]) -> RolloutKind {
    match name {
        b"session_meta" => RolloutKind::SessionMeta,
        b"response_item" => RolloutKind::ResponseItem,
        b"inter_agent_communication" => RolloutKind::AgentMessage,
        b"compacted" => RolloutKind::Compacted,
        // Most records are events with long outputs, which need no walk.
        b"event_msg" if memmem::find(text, ROLLED_BACK).is_some() => event_kind(text),
        _ => RolloutKind::Other,
    }
}

/// The type of the event that removes turns.
const ROLLED_BACK: &[u8] = b"thread_rolled_back";

fn event_kind(text: &[u8]) -> RolloutKind {
    let json = Json::new(text);
    let payload = json.member(Span::new(0, text.len()), "payload");
    let is_rollback = payload.is_some_and(|payload| *json.member_text(payload, "type") == *ROLLED_BACK);
    if is_rollback {
        RolloutKind::RolledBack
    } else {
        RolloutKind::Other
    }
}
