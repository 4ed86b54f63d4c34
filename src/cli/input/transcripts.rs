//! Files that hold more or less than one request body: JSONL, lists of messages, and transcripts of agents.
//!
//! Claude Code writes one line for each block of an answer, and Codex one line for each item. Both are put together as
//! the agent would send them. Contents keep their bytes.

mod claude_code;

use std::collections::BTreeSet;

use bytes::Bytes;

use super::{BodyOrigin, faults::describe_fault};
use crate::{
    splice::Span,
    wire::{
        Format, Wire,
        json::{self, Json, JsonKind},
    },
};

/// Keys of the histories of all formats.
const HISTORY_KEYS: [&str; 3] = ["messages", "input", "contents"];

/// One line of JSONL.
#[derive(Clone, Copy, Debug)]
struct TextLine<'a> {
    /// Number, counted from 1.
    number: usize,
    json: Json<'a>,
    root: Span,
}

impl TextLine<'_> {
    /// Returns a string member of the line, or an empty string.
    fn text(&self, name: &str) -> String {
        String::from_utf8_lossy(&self.json.member_text(self.root, name)).into_owned()
    }

    fn has_member(&self, name: &str) -> bool {
        self.json.member(self.root, name).is_some()
    }
}

/// Reads a text with one JSON value on each line. Returns its bodies, or the description of its fault.
pub(super) fn read_lines(bytes: &[u8], wire: Option<Wire>) -> Result<Vec<(Bytes, BodyOrigin)>, String> {
    let lines = split_lines(bytes)?;
    if lines.iter().any(is_claude_code_line) {
        return Ok(vec![claude_code::conversation(&lines)]);
    }
    if lines.iter().any(is_codex_line) {
        return Ok(vec![codex_conversation(&lines)]);
    }
    let is_body = |line: &TextLine<'_>| HISTORY_KEYS.iter().any(|key| line.has_member(key));
    if !lines.iter().any(is_body) {
        // One message on each line.
        let items: Vec<(usize, &[u8])> = lines
            .iter()
            .map(|line| (line.number, line.json.bytes(line.root)))
            .collect();
        let key = history_key(lines.iter().map(|line| (line.json, line.root)), wire);
        return Ok(vec![body_of_items(key, &items, "the")]);
    }
    let body = |line: &TextLine<'_>| {
        let body = Bytes::copy_from_slice(line.json.bytes(line.root));
        (body, BodyOrigin::Line(line.number))
    };
    Ok(lines.iter().map(body).collect())
}

/// Splits a text into lines of JSON. An agent that was killed may have cut the last one.
fn split_lines(bytes: &[u8]) -> Result<Vec<TextLine<'_>>, String> {
    let texts: Vec<(usize, &[u8])> = bytes
        .split(|byte| *byte == b'\n')
        .enumerate()
        .map(|(at, text)| (at + 1, text.trim_ascii()))
        .filter(|(_, text)| !text.is_empty())
        .collect();
    let last = texts.last().map_or(0, |(number, _)| *number);
    let mut lines = Vec::new();
    for (number, text) in texts {
        let json = Json::new(text);
        let is_object = json::validate(text).is_ok();
        match json
            .root_span()
            .ok()
            .filter(|root| is_object && json.kind(*root) == JsonKind::Object)
        {
            Some(root) => lines.push(TextLine { number, json, root }),
            // Cut at the end: what is before it counts. A single line is no JSONL.
            None if number == last && lines.len() > 1 => {}
            // The first line decides if the text is meant as JSONL.
            None if lines.is_empty() => return Err(describe_fault(bytes)),
            None => return Err(format!("line {number}: {}", fault_of_line(text))),
        }
    }
    // One value over several lines is handled by the caller.
    if lines.is_empty() {
        Err(describe_fault(bytes))
    } else {
        Ok(lines)
    }
}

/// Describes the fault of one line, without the number of the line, which is always 1.
fn fault_of_line(text: &[u8]) -> String {
    let fault = describe_fault(text);
    fault
        .strip_prefix("line 1, ")
        .map_or_else(|| fault.clone(), ToOwned::to_owned)
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
    body_of_items("input", &items, "Codex's")
}

/// Writes a body with these items, each from its line.
fn body_of_items(key: &str, items: &[(usize, &[u8])], agent: &'static str) -> (Bytes, BodyOrigin) {
    let texts: Vec<&[u8]> = items.iter().map(|(_, text)| *text).collect();
    let mut body = format!("{{\"{key}\":[").into_bytes();
    body.extend(texts.join(&b',').iter());
    body.extend(b"]}");
    let lines = items.iter().map(|(number, _)| *number).collect();
    (body.into(), BodyOrigin::Transcript { agent, lines })
}

/// Wraps a bare list of messages as a body. `None` if the text is something else.
pub(super) fn wrap_list(bytes: &[u8], wire: Option<Wire>) -> Option<Bytes> {
    let json = Json::new(bytes);
    let root = json.root_span().ok()?;
    let items = Some(root).filter(|root| json.kind(*root) == JsonKind::Array);
    let items = json.elements(items?);
    let key = history_key(items.iter().map(|item| (json, *item)), wire);
    let list = json.bytes(root);
    let mut body = format!("{{\"{key}\":").into_bytes();
    body.extend(list);
    body.extend(b"}");
    (!items.is_empty()).then(|| body.into())
}

/// Returns the key of the history that these messages belong under, by the given format or by their own keys.
fn history_key<'a>(items: impl Iterator<Item = (Json<'a>, Span)>, wire: Option<Wire>) -> &'static str {
    match wire.map(|wire| wire.format) {
        Some(Format::Anthropic | Format::OpenAiChat) => return "messages",
        Some(Format::OpenAiResponses) => return "input",
        Some(Format::Gemini) => return "contents",
        None => {}
    }
    let mut keys = BTreeSet::new();
    for (json, item) in items {
        if json.member(item, "parts").is_some() {
            keys.insert("contents");
        } else if json.member(item, "role").is_none() && json.member(item, "type").is_some() {
            // Items such as calls and their outputs have a type and no role.
            keys.insert("input");
        }
    }
    keys.first().copied().unwrap_or("messages")
}
