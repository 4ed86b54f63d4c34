//! The labels that clients give to their sessions and agents, in headers and in `metadata.user_id`.
#![cfg_attr(
    not(test),
    warn(clippy::indexing_slicing, clippy::string_slice, clippy::arithmetic_side_effects)
)]

use http::HeaderMap;

use super::Source;
use crate::{
    splice::Span,
    wire::json::{Json, Kind, validate},
};

/// Bytes of a label: a longer one counts as none.
pub const LABEL_BYTES_MAX: usize = 256;
/// Bytes of a `metadata.user_id` that is looked into.
pub(super) const USER_ID_BYTES_MAX: usize = 4 * 1024;

/// Headers that come before the body.
pub(super) const FIRST_HEADERS: [(&str, Source); 2] = [
    ("x-antiphon-session", Source::Antiphon),
    ("x-claude-code-session-id", Source::ClaudeCode),
];

/// Headers that come behind `metadata.user_id`: codex, codex until 0.57 and pi, opencode.
pub(super) const HEADERS: [(&str, Source); 6] = [
    ("session-id", Source::Header),
    ("session_id", Source::Header),
    ("thread-id", Source::Header),
    ("conversation_id", Source::Header),
    ("x-session-id", Source::Header),
    ("x-session-affinity", Source::Header),
];

/// The value of a header, if it is a label.
pub(super) fn header<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get_all(name).iter().find_map(|value| label(value.as_bytes()))
}

/// The string at `span`, if it is a label.
pub(super) fn string(json: Json<'_>, span: Span) -> Option<String> {
    // A letter is written in twelve bytes at most.
    if json.kind(span) != Kind::String || span.len() > LABEL_BYTES_MAX.saturating_mul(12) {
        return None;
    }
    label(&json.decode(span)).map(str::to_owned)
}

fn label(text: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(text).ok()?.trim();
    let fits = !text.is_empty() && text.len() <= LABEL_BYTES_MAX;
    (fits && !text.chars().any(char::is_control)).then_some(text)
}

/// The agent within a session. A codex thread beside another session is a subagent's; a compaction is its thread's own.
pub(super) fn agent(headers: &HeaderMap) -> Option<&str> {
    let thread = || {
        let session = header(headers, "session-id").or_else(|| header(headers, "session_id"))?;
        header(headers, "thread-id").filter(|thread| *thread != session)
    };
    let kind = || header(headers, "x-openai-subagent").filter(|kind| *kind != super::marks::COMPACT);
    header(headers, "x-claude-code-agent-id").or_else(thread).or_else(kind)
}

/// The session in a `metadata.user_id` of Claude Code: a JSON object with `session_id`, before 2.1.43
/// `user_…_account_…_session_<uuid>`.
pub(super) fn user_id(text: &[u8]) -> Option<String> {
    if text.trim_ascii().starts_with(b"{") {
        validate(text).ok()?;
        let json = Json::new(text);
        return string(json, json.member(json.root().ok()?, "session_id")?);
    }
    let (_, session) = std::str::from_utf8(text).ok()?.rsplit_once("_session_")?;
    let is_id = |letter: u8| matches!(letter, b'a'..=b'f' | b'0'..=b'9' | b'-');
    let session = label(session.as_bytes())?;
    session.bytes().all(is_id).then(|| session.to_owned())
}
