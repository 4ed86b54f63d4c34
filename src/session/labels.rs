//! The labels that clients give to their sessions and agents, and the session in `metadata.user_id`.
#![cfg_attr(
    not(test),
    warn(clippy::indexing_slicing, clippy::string_slice, clippy::arithmetic_side_effects)
)]

use crate::{
    splice::Span,
    wire::json::{Json, JsonKind, validate},
};

/// The longest label in bytes. A longer one is ignored.
pub const LABEL_BYTES_MAX: usize = 256;
/// The longest `metadata.user_id` that is parsed, in bytes.
pub(super) const USER_ID_BYTES_MAX: usize = 4 * 1024;

/// Returns the string at `span` if it is a valid label.
pub(super) fn string_label(json: Json<'_>, span: Span) -> Option<String> {
    // JSON escapes take at most twelve bytes for a character: a longer string is not worth decoding.
    if json.kind(span) != JsonKind::String || span.len() > LABEL_BYTES_MAX.saturating_mul(12) {
        return None;
    }
    parse_label(&json.decode_string(span)).map(str::to_owned)
}

/// Returns a text if it is a valid label.
pub(super) fn parse_label(text: &[u8]) -> Option<&str> {
    // Labels appear in logs, so control characters disqualify one.
    let text = std::str::from_utf8(text).ok()?.trim();
    let fits = !text.is_empty() && text.len() <= LABEL_BYTES_MAX;
    (fits && !text.chars().any(char::is_control)).then_some(text)
}

/// Returns the session in a `metadata.user_id` of Claude Code: a JSON object with `session_id`, or before 2.1.43 the
/// text `user_…_account_…_session_<uuid>`.
pub(super) fn user_id_session(text: &[u8]) -> Option<String> {
    if text.trim_ascii().starts_with(b"{") {
        validate(text).ok()?;
        let json = Json::new(text);
        return string_label(json, json.member(json.root_span().ok()?, "session_id")?);
    }
    let (_, session) = std::str::from_utf8(text).ok()?.rsplit_once("_session_")?;
    // Claude Code's sessions are UUIDs: another text of this shape is not a session.
    let is_id = |letter: u8| matches!(letter, b'a'..=b'f' | b'0'..=b'9' | b'-');
    let session = parse_label(session.as_bytes())?;
    session.bytes().all(is_id).then(|| session.to_owned())
}
