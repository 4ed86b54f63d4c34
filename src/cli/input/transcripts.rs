//! Transcripts of agents.
//!
//! Claude Code writes one line for each block of an answer, and Codex one line for each item. Both are put together as
//! the agent would send them. Contents keep their bytes.

mod claude_code;

use bytes::Bytes;

use super::{
    bodies::body_of_items,
    origin::{BodyOrigin, TranscriptSource},
    text_lines::TextLine,
};

/// Reads the conversation of an agent's transcript. `None` if no agent wrote these lines.
pub(super) fn read_transcript(lines: &[TextLine<'_>]) -> Option<(Bytes, BodyOrigin)> {
    if lines.iter().any(is_claude_code_line) {
        return Some(claude_code::conversation(lines));
    }
    lines.iter().any(is_codex_line).then(|| codex_conversation(lines))
}

fn is_claude_code_line(line: &TextLine<'_>) -> bool {
    matches!(line.text("type").as_str(), "user" | "assistant") && line.has_member("message")
}

fn is_codex_line(line: &TextLine<'_>) -> bool {
    matches!(line.text("type").as_str(), "session_meta" | "response_item") && line.has_member("payload")
}

/// Puts the items of Codex's transcript together, from the last compaction on.
fn codex_conversation(lines: &[TextLine<'_>]) -> (Bytes, BodyOrigin) {
    let mut items: Vec<(usize, &[u8])> = Vec::new();
    for line in lines {
        let Some(payload) = line.json.member(line.root, "payload") else {
            continue;
        };
        match line.text("type").as_str() {
            "response_item" => items.push((line.number, line.json.bytes(payload))),
            // The list replaces everything before it.
            "compacted" => {
                if let Some(list) = line.json.member(payload, "replacement_history") {
                    let replaced = line.json.elements(list);
                    items = replaced
                        .into_iter()
                        .map(|span| (line.number, line.json.bytes(span)))
                        .collect();
                }
            }
            _ => {}
        }
    }
    body_of_items("input", &items, TranscriptSource::Codex)
}
