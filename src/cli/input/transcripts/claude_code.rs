//! The conversation of Claude Code's transcript: one line for each block, linked to the line before it.

use std::collections::{HashMap, HashSet};

use bytes::Bytes;

use crate::{
    cli::input::{
        origin::{BodyOrigin, TranscriptSource},
        text_lines::TextLine,
    },
    wire::json::JsonKind,
};

/// A line that belongs to the conversation.
struct ChainedLine<'a> {
    line: TextLine<'a>,
    /// Place among all lines of the file.
    place: usize,
    /// Id of the line. Empty if it has none.
    uuid: String,
    is_assistant: bool,
    /// Id of the answer. All blocks of one answer have the same.
    message_id: String,
    parent: String,
}

/// A message of the body.
struct PutTogether {
    number: usize,
    role: &'static str,
    /// Content as JSON, without the brackets of a list.
    contents: Vec<Vec<u8>>,
    is_list: bool,
}

/// The messages so far, and the place of each answer among them.
#[derive(Default)]
struct MessageList {
    messages: Vec<PutTogether>,
    /// Places of answers with blocks, by their ids: a file has too many messages to search them for each line.
    answers: HashMap<String, usize>,
}

/// Puts the messages together that Claude Code would send next.
pub(super) fn conversation(lines: &[TextLine<'_>]) -> (Bytes, BodyOrigin) {
    let chained: Vec<ChainedLine<'_>> = lines
        .iter()
        .enumerate()
        .filter_map(|(place, line)| chained_line(place, *line))
        .collect();
    let mut branch = present_branch(lines, &chained);
    add_parallel_calls(&chained, &mut branch);
    let mut list = MessageList::default();
    // Without any link, as in the output of `--output-format stream-json`, the order of the lines is that of the messages.
    let has_links = chained.iter().any(|chained| chained.line.has_member("parentUuid"));
    // Lines without an id are from tools that copy transcripts: all of them count.
    let sent = chained
        .iter()
        .filter(|chained| !has_links || chained.uuid.is_empty() || branch.contains(&chained.uuid));
    sent.for_each(|chained| list.add_line(chained));
    let texts: Vec<Vec<u8>> = list.messages.iter().map(message_json).collect();
    let mut body = b"{\"messages\":[".to_vec();
    body.extend(texts.join(&b','));
    body.extend(b"]}");
    let origin = BodyOrigin::Transcript {
        source: TranscriptSource::ClaudeCode,
        lines: list.messages.iter().map(|message| message.number).collect(),
    };
    (body.into(), origin)
}

/// Reads a line of the main conversation. `None` for subagents, events, and messages that are only shown.
fn chained_line(place: usize, line: TextLine<'_>) -> Option<ChainedLine<'_>> {
    let kind = line.text("type");
    let is_true = |name: &str| {
        let member = line.json.member(line.root, name);
        member.is_some_and(|value| line.json.bytes(value) == b"true")
    };
    let is_shown_only = ["isSidechain", "isApiErrorMessage", "isVisibleInTranscriptOnly"]
        .into_iter()
        .any(is_true);
    // The output of a command names the call of a subagent in this member.
    let is_of_subagent = !line.text("parent_tool_use_id").is_empty();
    if !matches!(kind.as_str(), "user" | "assistant") || is_shown_only || is_of_subagent {
        return None;
    }
    let message = line.json.member(line.root, "message")?;
    Some(ChainedLine {
        line,
        place,
        uuid: line.text("uuid"),
        is_assistant: kind == "assistant",
        message_id: String::from_utf8_lossy(&line.json.member_text(message, "id")).into_owned(),
        parent: line.text("parentUuid"),
    })
}

/// Returns the ids of the lines from the last message back to the start or the last compaction.
fn present_branch(lines: &[TextLine<'_>], chained: &[ChainedLine<'_>]) -> HashSet<String> {
    // The place and the parent of each line, by its id. Lines without a message are links too.
    let links: HashMap<String, (usize, String)> = lines
        .iter()
        .enumerate()
        .map(|(place, line)| (line.text("uuid"), (place, line.text("parentUuid"))))
        .collect();
    let mut at = chained.last().map(|last| last.uuid.clone()).unwrap_or_default();
    let mut branch = HashSet::new();
    // A line that was seen ends the walk: a damaged file may have a circle.
    while !at.is_empty() && branch.insert(at.clone()) {
        let (place, parent) = links.get(&at).cloned().unwrap_or_default();
        let is_lost = !parent.is_empty() && !links.contains_key(&parent);
        // After a lost line the message before it goes on: what is lost must not hide what it leaves open.
        at = if is_lost {
            message_before(chained, place)
        } else {
            parent
        };
    }
    branch
}

/// Returns the id of the last message before a place in the file. Empty if there is none.
fn message_before(chained: &[ChainedLine<'_>], place: usize) -> String {
    // The lines are in the order of the file, so their places can be searched by halves.
    let count = chained.partition_point(|chained| chained.place < place);
    let before = count.checked_sub(1).and_then(|last| chained.get(last));
    before.map(|before| before.uuid.clone()).unwrap_or_default()
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

impl MessageList {
    /// Adds a line as a message, or to the message whose answer it continues.
    fn add_line(&mut self, chained: &ChainedLine<'_>) {
        let TextLine { json, root, number } = chained.line;
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
                answer.contents.push(text.to_vec());
                return;
            }
        }
        self.messages.push(PutTogether {
            number,
            role: if chained.is_assistant { "assistant" } else { "user" },
            contents: vec![text.to_vec()],
            is_list,
        });
    }
}

/// Writes a message as JSON.
fn message_json(message: &PutTogether) -> Vec<u8> {
    let filled: Vec<&[u8]> = message
        .contents
        .iter()
        .map(Vec::as_slice)
        .filter(|text| !text.is_empty())
        .collect();
    let content = filled.join(&b',');
    let mut text = format!("{{\"role\":\"{}\",\"content\":", message.role).into_bytes();
    if message.is_list {
        text.push(b'[');
    }
    text.extend(content);
    text.extend(if message.is_list { &b"]}"[..] } else { b"}" });
    text
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
        let lines = split_lines(text.as_bytes()).unwrap();
        let (_, origin) = conversation(&lines);
        let BodyOrigin::Transcript { lines, .. } = origin else {
            panic!("a transcript");
        };
        assert_eq!(lines, (1..=LINES).collect::<Vec<_>>());
    }
}
