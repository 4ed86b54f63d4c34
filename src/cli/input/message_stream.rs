//! The output of `claude --output-format stream-json`: a message on each line, or a part of one, and events between them.
//!
//! It has no links and belongs to no session file, so the order of its lines is that of the messages.

use super::{
    bodies::{body_of_items, is_of_other_kind},
    origin::{FoundBody, LineSource},
    text_lines::TextLine,
};
use crate::splice::Span;

/// Puts the messages of a stream together. `None` if no line is one of a stream. Fails with the number of the first line
/// whose calls would be passed over, because it belongs to no stream.
pub(super) fn read_stream(lines: &[TextLine<'_>]) -> Option<Result<FoundBody, usize>> {
    if !is_stream(lines) {
        return None;
    }
    let mut others = lines.iter().filter(|line| message_of(line).is_none());
    if let Some(other) = others.find(|line| is_of_other_kind(line)) {
        return Some(Err(other.number));
    }
    // A line names the call of the sub-agent that it belongs to.
    let own = lines.iter().filter(|line| line.text("parent_tool_use_id").is_empty());
    let messages: Vec<(usize, &[u8])> = own
        .filter_map(|line| Some((line.number, line.json.bytes(message_of(line)?))))
        .collect();
    Some(Ok(body_of_items("messages", &messages, LineSource::MessageStream)))
}

/// Returns `true` if a line is one of a stream.
pub(super) fn is_stream(lines: &[TextLine<'_>]) -> bool {
    lines.iter().any(|line| message_of(line).is_some())
}

fn message_of(line: &TextLine<'_>) -> Option<Span> {
    let has_kind = matches!(line.text("type").as_str(), "user" | "assistant");
    line.json.member(line.root, "message").filter(|_| has_kind)
}
