//! Transcripts of agents.
//!
//! Claude Code writes one line for each block of an answer, and Codex one line for each item. Both are put together as
//! the agent would send them. Contents keep their bytes.

mod claude_code;

use super::{
    bodies::{body_of_items, is_of_other_kind},
    origin::{FoundBody, TranscriptSource},
    text_lines::TextLine,
};

/// A line with content in a transcript of an agent that wrote no such line. Its calls would be passed over.
#[derive(Clone, Copy, Debug)]
pub(super) struct OtherLine {
    /// The kind of the transcript.
    pub(super) source: TranscriptSource,
    /// The line, counted from 1.
    pub(super) number: usize,
}

/// Reads the conversation of an agent's transcript. `None` if no agent wrote these lines.
pub(super) fn read_transcript(lines: &[TextLine<'_>]) -> Option<Result<FoundBody, OtherLine>> {
    if lines.iter().any(is_claude_code_line) {
        let other = find_other(lines, TranscriptSource::ClaudeCode, is_claude_code_line);
        let other = other.or_else(|| find_foreign_message(lines));
        return Some(other.map_or_else(|| Ok(claude_code::conversation(lines)), Err));
    }
    lines.iter().any(is_codex_line).then(|| {
        let other = find_other(lines, TranscriptSource::Codex, |line| line.has_member("payload"));
        other.map_or_else(|| Ok(codex_conversation(lines)), Err)
    })
}

/// Returns `true` if an agent wrote these lines.
pub(super) fn is_transcript(lines: &[TextLine<'_>]) -> bool {
    lines
        .iter()
        .any(|line| is_claude_code_line(line) || is_codex_line(line))
}

/// Finds the first line with content that the agent did not write.
fn find_other(
    lines: &[TextLine<'_>],
    source: TranscriptSource,
    is_own: impl Fn(&TextLine<'_>) -> bool,
) -> Option<OtherLine> {
    let mut others = lines.iter().filter(|line| !is_own(line));
    let other = others.find(|line| is_of_other_kind(line) || is_codex_line(line))?;
    Some(OtherLine {
        source,
        number: other.number,
    })
}

/// Finds a message of another format among those of Claude Code: other agents have copied its links. `None` if all are so,
/// since that is another fault.
fn find_foreign_message(lines: &[TextLine<'_>]) -> Option<OtherLine> {
    let has = |line: &TextLine<'_>, name: &str| {
        let message = line.json.member(line.root, "message");
        message.is_some_and(|message| line.json.member(message, name).is_some())
    };
    let own = || lines.iter().filter(|line| is_claude_code_line(line));
    let foreign = own().find(|line| has(line, "parts") && !has(line, "content"))?;
    own().any(|line| has(line, "content")).then_some(OtherLine {
        source: TranscriptSource::ClaudeCode,
        number: foreign.number,
    })
}

fn is_claude_code_line(line: &TextLine<'_>) -> bool {
    matches!(line.text("type").as_str(), "user" | "assistant") && line.has_member("message")
}

fn is_codex_line(line: &TextLine<'_>) -> bool {
    matches!(line.text("type").as_str(), "session_meta" | "response_item") && line.has_member("payload")
}

/// Puts the items of Codex's transcript together, from the last compaction on.
fn codex_conversation(lines: &[TextLine<'_>]) -> FoundBody {
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
