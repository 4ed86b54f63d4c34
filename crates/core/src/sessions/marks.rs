//! The members by which a record is known: its client, that it is a record at all, and that no other may equal it.

use super::{client::SessionClient, finding::RecordLoss, members::RecordMembers};
use crate::{splice::Span, wire::json::JsonKind};

/// The client that a record tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RecordOrigin {
    /// A client whose files are read.
    Known(SessionClient),
    /// A client whose files are not read.
    Foreign,
    /// No client: a request body, a message or an item of one, which is no record.
    Stray,
}

/// One row: a record of these types and members is of this client.
struct OriginMark {
    origin: RecordOrigin,
    /// Any of these.
    types: &'static [&'static str],
    /// All of these.
    members: &'static [&'static str],
    /// A member of `message`, if one is needed.
    in_message: Option<&'static str>,
    /// Members that parts of records do not have together. None if such a record cannot be told from a part.
    alone: &'static [&'static str],
    /// Members, any of which no two records have alike, unless one repeats the other.
    identity: &'static [&'static str],
    /// Members of `payload` of the same meaning.
    identity_in_payload: &'static [&'static str],
}

impl OriginMark {
    /// Sets the members that parts of records do not have together.
    const fn alone(self, alone: &'static [&'static str]) -> Self {
        Self { alone, ..self }
    }

    /// Sets the members that no two records have alike: of the record, and of its `payload`.
    const fn known_by(self, identity: &'static [&'static str], in_payload: &'static [&'static str]) -> Self {
        Self {
            identity,
            identity_in_payload: in_payload,
            ..self
        }
    }
}

const CLAUDE_CODE: RecordOrigin = RecordOrigin::Known(SessionClient::ClaudeCode);
const CODEX: RecordOrigin = RecordOrigin::Known(SessionClient::Codex);
const COPILOT: RecordOrigin = RecordOrigin::Known(SessionClient::Copilot);
const QWEN_CODE: RecordOrigin = RecordOrigin::Known(SessionClient::QwenCode);

const fn mark(
    origin: RecordOrigin,
    types: &'static [&'static str],
    members: &'static [&'static str],
    in_message: Option<&'static str>,
) -> OriginMark {
    OriginMark {
        origin,
        types,
        members,
        in_message,
        alone: &[],
        identity: &[],
        identity_in_payload: &[],
    }
}

/// The rows, as seen in files of these clients in November 2026. The first one that fits counts.
const ORIGINS: &[OriginMark] = &[
    // Qwen Code has the links of Claude Code, and messages of Gemini's format.
    mark(
        QWEN_CODE,
        &["user", "assistant", "tool_result"],
        &["message", "uuid"],
        Some("parts"),
    ),
    mark(
        CLAUDE_CODE,
        &["user", "assistant"],
        &["message", "sessionId", "uuid"],
        Some("content"),
    )
    .alone(&["sessionId"])
    // A client repeats titles and modes, and two equal messages may have been copied in the same millisecond.
    .known_by(&["uuid"], &[]),
    // Of some forks' records the session is the name of the file.
    mark(
        CLAUDE_CODE,
        &["user", "assistant"],
        &["message", "parentUuid", "uuid"],
        Some("content"),
    )
    .alone(&["message", "parentUuid", "uuid"])
    .known_by(&["uuid"], &[]),
    mark(
        CLAUDE_CODE,
        &["file-history-snapshot"],
        &["messageId", "snapshot"],
        None,
    )
    .alone(&["messageId", "snapshot"]),
    mark(CLAUDE_CODE, &["summary"], &["leafUuid"], None).alone(&["leafUuid"]),
    mark(
        CLAUDE_CODE,
        &[
            "queue-operation",
            "last-prompt",
            "custom-title",
            "ai-title",
            "agent-name",
            "permission-mode",
            "mode",
            "attachment",
            "progress",
            "api-request",
            "api-request-blob",
            "api-request-shape",
        ],
        &["sessionId"],
        None,
    )
    .alone(&["sessionId"]),
    mark(
        CODEX,
        &[
            "session_meta",
            "response_item",
            "event_msg",
            "turn_context",
            "compacted",
        ],
        &["payload", "timestamp"],
        None,
    )
    .alone(&["payload", "timestamp"])
    .known_by(&["ordinal"], &["call_id", "id"]),
    mark(
        COPILOT,
        &[
            "session.start",
            "user.message",
            "assistant.message",
            "tool.execution_start",
            "tool.execution_complete",
        ],
        &["data"],
        None,
    )
    .alone(&["data", "parentId", "timestamp"])
    .known_by(&["parentId"], &[]),
    // pi.
    mark(RecordOrigin::Foreign, &["session"], &["cwd"], None),
    mark(RecordOrigin::Foreign, &["message"], &["message", "parentId"], None),
    // gemini-cli.
    mark(RecordOrigin::Foreign, &["gemini"], &["content"], None),
    mark(RecordOrigin::Foreign, &[""], &["$set"], None),
    // Request bodies, messages, and items of them.
    mark(RecordOrigin::Stray, &["", "message"], &["role"], None),
    mark(RecordOrigin::Stray, &[""], &["messages"], None),
    mark(RecordOrigin::Stray, &[""], &["contents"], None),
    mark(RecordOrigin::Stray, &[""], &["custom_id"], None),
    mark(
        RecordOrigin::Stray,
        &["", "user", "assistant", "model"],
        &["parts"],
        None,
    ),
    mark(
        RecordOrigin::Stray,
        &[
            "function_call",
            "function_call_output",
            "custom_tool_call",
            "custom_tool_call_output",
        ],
        &["call_id"],
        None,
    ),
];

/// Returns the client that a record tells of. `None` if any client may have written it.
pub(super) fn find_origin(record: &RecordMembers<'_>) -> Option<RecordOrigin> {
    let kind = record.get("type");
    let kind = kind.map_or_else(Default::default, |kind| record.json.decode_string(kind));
    let fits = |row: &&OriginMark| {
        row.types.iter().any(|name| name.as_bytes() == &*kind)
            && row.members.iter().all(|name| record.get(name).is_some())
            && row.in_message.is_none_or(|name| record.in_message(name).is_some())
    };
    ORIGINS.iter().find(fits).map(|row| row.origin)
}

/// Returns `true` if an object in damaged text is a record of its own, and no part of another one.
pub(super) fn is_like_record(object: &[u8]) -> bool {
    let record = RecordMembers::read(object);
    let has = |name: &&str| record.get(name).is_some();
    has(&"type")
        && ORIGINS
            .iter()
            .any(|row| !row.alone.is_empty() && row.alone.iter().all(has))
}

/// Returns what a client loses that reads a record twice.
///
/// Copilot CLI sends calls twice, which the provider refuses, and a result once (1.0.102, 2026-11). It sends nothing of a
/// sub-agent.
pub(super) fn repeat_loss(record: &RecordMembers<'_>) -> RecordLoss {
    let json = record.json;
    let Some(data) = record.get("data") else {
        return RecordLoss::Any;
    };
    let [calls, parent] = json.members(data, ["toolRequests", "parentToolCallId"]);
    let agent = json.root_span().ok().and_then(|root| json.member(root, "agentId"));
    let is_of_agent = agent.is_some_and(|agent| json.kind(agent) != JsonKind::Null) || parent.is_some();
    let has_calls = calls.is_some_and(|calls| json.kind(calls) == JsonKind::Array && !json.is_empty(calls));
    if has_calls && !is_of_agent {
        RecordLoss::Session
    } else {
        RecordLoss::Any
    }
}

/// Returns `true` if an object has a type, as records have.
pub(super) fn has_type(object: &[u8]) -> bool {
    RecordMembers::read(object).get("type").is_some()
}

/// Returns the member by which no client writes two such records with the same bytes on purpose. `None` if it has none.
pub(super) fn identity_of(record: &RecordMembers<'_>) -> Option<Span> {
    let own = |row: &OriginMark| row.identity.iter().find_map(|name| record.get(name));
    if let Some(found) = ORIGINS.iter().find_map(own) {
        return Some(found);
    }
    let payload = record.get("payload")?;
    let inside = |row: &OriginMark| {
        let mut names = row.identity_in_payload.iter();
        names.find_map(|name| record.json.member(payload, name))
    };
    ORIGINS.iter().find_map(inside)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_tell_their_client() {
        let (foreign, stray) = (Some(RecordOrigin::Foreign), Some(RecordOrigin::Stray));
        for (record, wanted) in [
            (
                r#"{"type":"user","uuid":"a","sessionId":"s","message":{"role":"user","content":"x"}}"#,
                Some(CLAUDE_CODE),
            ),
            (
                r#"{"type":"assistant","uuid":"a","sessionId":"s","message":{"content":[]}}"#,
                Some(CLAUDE_CODE),
            ),
            (
                r#"{"type":"user","uuid":"a","sessionId":"s","message":{"role":"user","parts":[]}}"#,
                Some(QWEN_CODE),
            ),
            (
                r#"{"type":"user","uuid":"a","parentUuid":null,"message":{"content":"x"}}"#,
                Some(CLAUDE_CODE),
            ),
            // The stream of a run without a session file.
            (
                r#"{"type":"user","uuid":"a","session_id":"s","message":{"content":"x"}}"#,
                None,
            ),
            (r#"{"type":"user","message":{"content":"x"}}"#, None),
            (r#"{"type":"summary","summary":"x","leafUuid":"a"}"#, Some(CLAUDE_CODE)),
            (r#"{"type":"system","uuid":"a","sessionId":"s"}"#, None),
            (r#"{"type":"session_meta","timestamp":"t","payload":{}}"#, Some(CODEX)),
            (r#"{"type":"response_item","timestamp":"t","payload":{}}"#, Some(CODEX)),
            (r#"{"type":"function_call","call_id":"c"}"#, stray),
            (r#"{"type":"message","role":"user","content":[]}"#, stray),
            (r#"{"role":"user","content":"x"}"#, stray),
            (r#"{"model":"m","messages":[]}"#, stray),
            (r#"{"contents":[]}"#, stray),
            (r#"{"custom_id":"a","body":{}}"#, stray),
            (r#"{"type":"assistant","parts":[]}"#, stray),
            (
                r#"{"type":"user.message","data":{},"id":"a","parentId":null}"#,
                Some(COPILOT),
            ),
            (
                r#"{"type":"message","id":"a","parentId":"b","message":{"role":"user"}}"#,
                foreign,
            ),
            (r#"{"type":"session","version":3,"id":"a","cwd":"/"}"#, foreign),
            (r#"{"id":"a","type":"gemini","content":"x"}"#, foreign),
            (r#"{"$set":{"lastUpdated":"t"}}"#, foreign),
            ("{}", None),
        ] {
            assert_eq!(find_origin(&RecordMembers::read(record.as_bytes())), wanted, "{record}");
        }
    }

    #[test]
    fn parts_of_records_are_no_records() {
        for part in [
            r#"{"type":"text","text":"x"}"#,
            r#"{"type":"message","role":"assistant","content":[],"id":"msg_1"}"#,
            r#"{"type":"tool_use","id":"toolu_1","name":"f","input":{}}"#,
            r#"{"type":"user","message":{"content":"x"},"uuid":"a","timestamp":"t"}"#,
            r#"{"messageId":"m","trackedFileBackups":{},"timestamp":"t"}"#,
        ] {
            assert!(!is_like_record(part.as_bytes()), "{part}");
        }
        for record in [
            r#"{"type":"assistant","sessionId":"s","uuid":"a"}"#,
            r#"{"timestamp":"t","type":"event_msg","payload":{}}"#,
            r#"{"type":"summary","leafUuid":"a"}"#,
        ] {
            assert!(is_like_record(record.as_bytes()), "{record}");
        }
    }
}
