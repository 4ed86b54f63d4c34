//! The conversation of Claude Code's transcript: one line for each block, linked to the line before it.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use super::TextLine;
use crate::{
    cli::input::{BodyOrigin, CLAUDE_CODE},
    wire::json::JsonKind,
};

/// A line that belongs to the conversation.
struct ChainedLine<'a> {
    line: TextLine<'a>,
    is_assistant: bool,
    /// Id of the answer. All blocks of one answer have the same.
    message_id: String,
    parent: String,
}

/// A message of the body.
struct PutTogether {
    number: usize,
    role: &'static str,
    message_id: String,
    /// Content as JSON, without the brackets of a list.
    contents: Vec<Vec<u8>>,
    is_list: bool,
}

/// Puts the messages together that Claude Code would send next.
pub(super) fn conversation(lines: &[TextLine<'_>]) -> (Bytes, BodyOrigin) {
    let chain = present_branch(lines);
    let mut messages: Vec<PutTogether> = Vec::new();
    for chained in lines.iter().filter_map(|line| chained_line(*line)) {
        // Lines without an id are from tools that copy transcripts: all of them count.
        let id = chained.line.text("uuid");
        if id.is_empty() || chain.contains(&id) {
            add_message(&mut messages, &chained);
        }
    }
    let texts: Vec<Vec<u8>> = messages.iter().map(message_json).collect();
    let mut body = b"{\"messages\":[".to_vec();
    body.extend(texts.join(&b','));
    body.extend(b"]}");
    let origin = BodyOrigin::Transcript {
        agent: CLAUDE_CODE,
        lines: messages.iter().map(|message| message.number).collect(),
    };
    (body.into(), origin)
}

/// Reads a line of the main conversation. `None` for subagents, events, and messages that are only shown.
fn chained_line(line: TextLine<'_>) -> Option<ChainedLine<'_>> {
    let kind = line.text("type");
    let is_true = |name: &str| {
        let member = line.json.member(line.root, name);
        member.is_some_and(|value| line.json.bytes(value) == b"true")
    };
    let is_shown_only = ["isSidechain", "isApiErrorMessage", "isVisibleInTranscriptOnly"]
        .into_iter()
        .any(is_true);
    if !matches!(kind.as_str(), "user" | "assistant") || is_shown_only {
        return None;
    }
    let message = line.json.member(line.root, "message")?;
    Some(ChainedLine {
        line,
        is_assistant: kind == "assistant",
        message_id: String::from_utf8_lossy(&line.json.member_text(message, "id")).into_owned(),
        parent: line.text("parentUuid"),
    })
}

/// Returns the ids of the lines from the last message back to the start or the last compaction.
fn present_branch(lines: &[TextLine<'_>]) -> BTreeSet<String> {
    let parents: BTreeMap<String, String> = lines
        .iter()
        .map(|line| (line.text("uuid"), line.text("parentUuid")))
        .collect();
    let messages: Vec<String> = lines
        .iter()
        .filter_map(|line| chained_line(*line))
        .map(|chained| chained.line.text("uuid"))
        .collect();
    let mut at = messages.last().cloned().unwrap_or_default();
    let mut branch = BTreeSet::new();
    // A line that was seen ends the walk: a damaged file may have a circle.
    while !at.is_empty() && branch.insert(at.clone()) {
        let parent = parents.get(&at).cloned().unwrap_or_default();
        let is_lost = !parent.is_empty() && !parents.contains_key(&parent);
        // Behind a lost line the message before it goes on: what is lost must not hide what it leaves open.
        let before = || messages.iter().take_while(|id| **id != at).last().cloned();
        at = if is_lost { before().unwrap_or_default() } else { parent };
    }
    add_parallel_calls(lines, &mut branch);
    branch
}

/// Adds the blocks of answers and the results that stand beside the branch: parallel calls branch off.
fn add_parallel_calls(lines: &[TextLine<'_>], branch: &mut BTreeSet<String>) {
    let (mut answers, mut calls) = (BTreeSet::new(), BTreeSet::new());
    // Parents stand before their children, so one pass in the order of the file is enough.
    for chained in lines.iter().filter_map(|line| chained_line(*line)) {
        let id = chained.line.text("uuid");
        let is_beside = if chained.is_assistant {
            answers.contains(&chained.message_id)
        } else {
            calls.contains(&chained.parent) && has_results(&chained)
        };
        if is_beside {
            branch.insert(id.clone());
        }
        if chained.is_assistant && branch.contains(&id) {
            calls.insert(id);
            // Answers without an id cannot be told apart.
            answers.extend(Some(chained.message_id).filter(|id| !id.is_empty()));
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

/// Adds a line as a message, or to the message whose answer it continues.
fn add_message(messages: &mut Vec<PutTogether>, chained: &ChainedLine<'_>) {
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
    let same = |message: &&mut PutTogether| {
        chained.is_assistant
            && is_list
            && message.is_list
            && !chained.message_id.is_empty()
            && message.message_id == chained.message_id
    };
    if let Some(answer) = messages.iter_mut().rev().find(same) {
        answer.contents.push(text.to_vec());
        return;
    }
    messages.push(PutTogether {
        number,
        role: if chained.is_assistant { "assistant" } else { "user" },
        message_id: chained.message_id.clone(),
        contents: vec![text.to_vec()],
        is_list,
    });
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
