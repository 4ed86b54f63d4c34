//! The members by which a record is known: its client, that it is a record at all, and that no other may equal it.

use super::client::SessionClient;
use crate::{splice::Span, wire::json::Json};

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

/// The members that are looked at, in the order of [`SeenMembers`].
const NAMES: [&str; 22] = [
    "type",
    "sessionId",
    "uuid",
    "parentUuid",
    "message",
    "payload",
    "timestamp",
    "ordinal",
    "leafUuid",
    "messageId",
    "snapshot",
    "data",
    "parentId",
    "cwd",
    "content",
    "$set",
    "role",
    "messages",
    "contents",
    "call_id",
    "custom_id",
    "parts",
];

/// The values of these members.
type SeenMembers = [Option<Span>; NAMES.len()];

/// One row: a record of these types and members is of this client.
struct OriginMark {
    origin: RecordOrigin,
    /// Any of these.
    types: &'static [&'static str],
    /// All of these.
    members: &'static [&'static str],
    /// A member of `message`, if one is needed.
    in_message: Option<&'static str>,
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
    ),
    // Of some forks' records the session is the name of the file.
    mark(
        CLAUDE_CODE,
        &["user", "assistant"],
        &["message", "parentUuid", "uuid"],
        Some("content"),
    ),
    mark(
        CLAUDE_CODE,
        &["file-history-snapshot"],
        &["messageId", "snapshot"],
        None,
    ),
    mark(CLAUDE_CODE, &["summary"], &["leafUuid"], None),
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
    ),
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
    ),
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
    ),
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
pub(super) fn find_origin(record: &[u8]) -> Option<RecordOrigin> {
    let (json, seen) = look_at(record)?;
    let kind = seen_member(&seen, "type").map_or_else(Default::default, |value| json.decode_string(value));
    let fits = |row: &&OriginMark| {
        row.types.iter().any(|name| name.as_bytes() == &*kind)
            && row.members.iter().all(|name| seen_member(&seen, name).is_some())
            && row.in_message.is_none_or(|name| {
                let message = seen_member(&seen, "message");
                message.is_some_and(|message| json.member(message, name).is_some())
            })
    };
    ORIGINS.iter().find(fits).map(|row| row.origin)
}

/// Returns `true` if an object in damaged text is a record of its own, and no part of another one.
pub(super) fn is_like_record(object: &[u8]) -> bool {
    /// Members that parts of records do not have together.
    const MARKS: [&[&str]; 5] = [
        &["sessionId"],
        &["payload", "timestamp"],
        &["leafUuid"],
        &["messageId", "snapshot"],
        &["data", "parentId", "timestamp"],
    ];
    look_at(object).is_some_and(|(_, seen)| {
        let has = |name: &&str| seen_member(&seen, name).is_some();
        has(&"type") && MARKS.iter().any(|marks| marks.iter().all(has))
    })
}

/// Returns `true` if an object has a type, as records have.
pub(super) fn has_type(object: &[u8]) -> bool {
    look_at(object).is_some_and(|(_, seen)| seen_member(&seen, "type").is_some())
}

/// Returns `true` if no client writes two such records with the same bytes on purpose.
pub(super) fn has_identity(record: &[u8]) -> bool {
    look_at(record).is_some_and(|(json, seen)| {
        // A client repeats titles and modes, and two equal messages may have been copied in the same millisecond.
        let has = |name| seen_member(&seen, name).is_some();
        let own = has("uuid") || has("ordinal") || (has("parentId") && has("data"));
        let payload = seen_member(&seen, "payload");
        own || payload.is_some_and(|payload| json.members(payload, ["call_id", "id"]).iter().any(Option::is_some))
    })
}

fn look_at(record: &[u8]) -> Option<(Json<'_>, SeenMembers)> {
    let json = Json::new(record);
    Some((json, json.members(json.root_span().ok()?, NAMES)))
}

fn seen_member(seen: &SeenMembers, name: &str) -> Option<Span> {
    let place = NAMES.iter().position(|known| *known == name)?;
    seen.get(place).copied().flatten()
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
            assert_eq!(find_origin(record.as_bytes()), wanted, "{record}");
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
