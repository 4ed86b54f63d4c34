//! The conversation of Claude Code's transcript: one line for each block, linked to the line before it.

mod chain;

use std::collections::{HashMap, HashSet};

use self::chain::{ChainedLine, present_branch};
use crate::{
    cli::input::{
        origin::{BodyOrigin, FoundBody, TranscriptSource},
        text_lines::TextLine,
    },
    wire::json::JsonKind,
};

/// A message of the body.
struct PutTogether<'a> {
    number: usize,
    role: &'static str,
    /// Content as JSON, without the brackets of a list.
    contents: Vec<&'a [u8]>,
    is_list: bool,
}

/// The messages so far, and the place of each answer among them.
#[derive(Default)]
struct MessageList<'a> {
    messages: Vec<PutTogether<'a>>,
    /// Places of answers with blocks, by their ids: a file has too many messages to search them for each line.
    answers: HashMap<String, usize>,
}

/// Puts the messages together that Claude Code would send next.
pub(super) fn conversation(lines: &[TextLine<'_>]) -> FoundBody {
    let owner = owner_of(lines);
    let chained: Vec<ChainedLine<'_>> = lines.iter().filter_map(|line| chained_line(*line, owner)).collect();
    let (mut branch, faults) = present_branch(lines, &chained, owner);
    add_parallel_calls(&chained, &mut branch);
    let mut list = MessageList::default();
    // Without any link, as in the output of `--output-format stream-json`, the order of the lines is that of the messages.
    let has_links = chained.iter().any(|chained| chained.line.has_member("parentUuid"));
    // Lines without an id are from tools that copy transcripts: all of them count.
    let sent = chained
        .iter()
        .filter(|chained| !has_links || chained.uuid.is_empty() || branch.contains(&chained.uuid));
    sent.for_each(|chained| list.add_line(chained));
    let mut body = b"{\"messages\":[".to_vec();
    for (place, message) in list.messages.iter().enumerate() {
        if place > 0 {
            body.push(b',');
        }
        message.write_json(&mut body);
    }
    body.extend(b"]}");
    let origin = BodyOrigin::Transcript {
        source: TranscriptSource::ClaudeCode,
        lines: list.messages.iter().map(|message| message.number).collect(),
        faults,
    };
    FoundBody {
        body: body.into(),
        origin,
        source: None,
    }
}

/// The agent whose conversation a file contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChainOwner {
    /// The main agent. Lines of its sub-agents may stand between its own.
    MainAgent,
    /// A sub-agent, with a file of its own.
    SubAgent,
}

/// Returns the owner of the conversation: a sub-agent if all messages are marked as those of one.
fn owner_of(lines: &[TextLine<'_>]) -> ChainOwner {
    let mut messages = lines.iter().filter(|line| super::is_claude_code_line(line));
    if messages.all(is_of_subagent) {
        ChainOwner::SubAgent
    } else {
        ChainOwner::MainAgent
    }
}

fn is_of_subagent(line: &TextLine<'_>) -> bool {
    line.is_true("isSidechain")
}

/// Reads a line of the owner's conversation. `None` for subagents of it, events, and messages that are only shown.
fn chained_line(line: TextLine<'_>, owner: ChainOwner) -> Option<ChainedLine<'_>> {
    let kind = line.text("type");
    let is_shown_only = line.is_true("isApiErrorMessage") || line.is_true("isVisibleInTranscriptOnly");
    // The output of a command names the call of a subagent in this member.
    let is_foreign =
        !line.text("parent_tool_use_id").is_empty() || (owner == ChainOwner::MainAgent && is_of_subagent(&line));
    if !matches!(kind.as_str(), "user" | "assistant") || is_shown_only || is_foreign {
        return None;
    }
    let message = line.json.member(line.root, "message")?;
    Some(ChainedLine {
        line,
        uuid: line.text("uuid"),
        is_assistant: kind == "assistant",
        message_id: String::from_utf8_lossy(&line.json.member_text(message, "id")).into_owned(),
        parent: line.text("parentUuid"),
    })
}

/// Adds the blocks of answers and the results that stand beside the branch: parallel calls branch off.
fn add_parallel_calls<'a>(lines: &'a [ChainedLine<'_>], branch: &mut HashSet<String>) {
    let (mut answers, mut calls): (HashSet<&'a str>, HashSet<&'a str>) = (HashSet::new(), HashSet::new());
    // Parents stand before their children, so one pass in the order of the file is enough.
    for chained in lines {
        let is_beside = if chained.is_assistant {
            answers.contains(chained.message_id.as_str())
        } else {
            calls.contains(chained.parent.as_str()) && has_results(chained)
        };
        if is_beside {
            branch.insert(chained.uuid.clone());
        }
        if chained.is_assistant && branch.contains(&chained.uuid) {
            calls.insert(&chained.uuid);
            // Answers without an id cannot be told apart.
            answers.extend(Some(chained.message_id.as_str()).filter(|id| !id.is_empty()));
        }
    }
}

fn has_results(chained: &ChainedLine<'_>) -> bool {
    let TextLine { json, root, .. } = chained.line;
    let content = json
        .member(root, "message")
        .and_then(|message| json.member(message, "content"));
    content.is_some_and(|content| {
        let blocks = json.elements(content).into_iter();
        blocks
            .into_iter()
            .any(|block| &*json.member_text(block, "type") == b"tool_result")
    })
}

impl<'a> MessageList<'a> {
    /// Adds a line as a message, or to the message whose answer it continues.
    fn add_line(&mut self, chained: &ChainedLine<'a>) {
        let TextLine { json, root, number, .. } = chained.line;
        let content = json
            .member(root, "message")
            .and_then(|message| json.member(message, "content"));
        let Some(content) = content else { return };
        let is_list = json.kind(content) == JsonKind::Array;
        let text = json.bytes(content);
        let text = if is_list {
            let inner = text.strip_prefix(b"[").and_then(|text| text.strip_suffix(b"]"));
            inner.unwrap_or_default().trim_ascii()
        } else {
            text
        };
        // Only blocks can be added to an answer, and only to one with an id.
        let is_block = chained.is_assistant && is_list && !chained.message_id.is_empty();
        if is_block {
            let place = *self
                .answers
                .entry(chained.message_id.clone())
                .or_insert(self.messages.len());
            if let Some(answer) = self.messages.get_mut(place) {
                answer.contents.push(text);
                return;
            }
        }
        self.messages.push(PutTogether {
            number,
            role: if chained.is_assistant { "assistant" } else { "user" },
            contents: vec![text],
            is_list,
        });
    }
}

impl PutTogether<'_> {
    /// Writes the message as JSON.
    fn write_json(&self, body: &mut Vec<u8>) {
        body.extend(format!("{{\"role\":\"{}\",\"content\":", self.role).bytes());
        if self.is_list {
            body.push(b'[');
        }
        let filled: Vec<&[u8]> = self.contents.iter().copied().filter(|text| !text.is_empty()).collect();
        body.extend(filled.join(&b','));
        body.extend(if self.is_list { &b"]}"[..] } else { b"}" });
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;
    use crate::cli::input::text_lines::split_lines;

    /// The file of a long session has some 100,000 lines. If each one searched all others, this would take minutes.
    #[test]
    fn long_files_are_read_in_steps_that_grow_with_their_lines() {
        const LINES: usize = 60_000;
        let mut text = String::new();
        for number in 0..LINES {
            // Every answer has an id of its own, and every line names one that is lost.
            let _ = writeln!(
                text,
                r#"{{"type":"assistant","uuid":"a{number}","parentUuid":"lost{number}","message":{{"id":"m{number}","content":[{{"type":"text","text":"t"}}]}}}}"#
            );
        }
        let lines = split_lines(text.as_bytes()).unwrap().lines;
        let BodyOrigin::Transcript { lines, .. } = conversation(&lines).origin else {
            panic!("a transcript");
        };
        assert_eq!(lines, (1..=LINES).collect::<Vec<_>>());
    }
}
