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

/// The longest label in bytes. A longer one is ignored.
pub const LABEL_BYTES_MAX: usize = 256;
/// The longest `metadata.user_id` that is parsed, in bytes.
pub(super) const USER_ID_BYTES_MAX: usize = 4 * 1024;

/// Session headers that take precedence over the body.
pub(super) const FIRST_HEADERS: [(&str, Source); 2] = [
    ("x-antiphon-session", Source::Antiphon),
    ("x-claude-code-session-id", Source::ClaudeCode),
];

/// Session headers after `metadata.user_id` in precedence. They are from codex, codex up to 0.57 and pi, and opencode.
pub(super) const HEADERS: [(&str, Source); 6] = [
    ("session-id", Source::Header),
    ("session_id", Source::Header),
    ("thread-id", Source::Header),
    ("conversation_id", Source::Header),
    ("x-session-id", Source::Header),
    ("x-session-affinity", Source::Header),
];

/// Returns the first value of a header that is a valid label.
pub(super) fn header<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get_all(name).iter().find_map(|value| label(value.as_bytes()))
}

/// Returns the string at `span` if it is a valid label.
pub(super) fn string(json: Json<'_>, span: Span) -> Option<String> {
    // JSON escapes take at most twelve bytes for a character: a longer string is not worth decoding.
    if json.kind(span) != Kind::String || span.len() > LABEL_BYTES_MAX.saturating_mul(12) {
        return None;
    }
    label(&json.decode(span)).map(str::to_owned)
}

fn label(text: &[u8]) -> Option<&str> {
    // Labels appear in logs, so control characters disqualify one.
    let text = std::str::from_utf8(text).ok()?.trim();
    let fits = !text.is_empty() && text.len() <= LABEL_BYTES_MAX;
    (fits && !text.chars().any(char::is_control)).then_some(text)
}

/// Returns the agent within the session. `None` for the main agent.
///
/// A codex thread beside another session belongs to a subagent. A compaction belongs to its own thread.
pub(super) fn agent(headers: &HeaderMap) -> Option<&str> {
    let thread = || {
        let session = header(headers, "session-id").or_else(|| header(headers, "session_id"))?;
        header(headers, "thread-id").filter(|thread| *thread != session)
    };
    let kind = || header(headers, "x-openai-subagent").filter(|kind| *kind != super::marks::COMPACT);
    header(headers, "x-claude-code-agent-id").or_else(thread).or_else(kind)
}

/// Returns the session in a `metadata.user_id` of Claude Code: a JSON object with `session_id`, or before 2.1.43 the
/// text `user_…_account_…_session_<uuid>`.
pub(super) fn user_id(text: &[u8]) -> Option<String> {
    if text.trim_ascii().starts_with(b"{") {
        validate(text).ok()?;
        let json = Json::new(text);
        return string(json, json.member(json.root().ok()?, "session_id")?);
    }
    let (_, session) = std::str::from_utf8(text).ok()?.rsplit_once("_session_")?;
    // Claude Code's sessions are UUIDs: another text of this shape is not a session.
    let is_id = |letter: u8| matches!(letter, b'a'..=b'f' | b'0'..=b'9' | b'-');
    let session = label(session.as_bytes())?;
    session.bytes().all(is_id).then(|| session.to_owned())
}
