//! What was really said in a body: the words of users, the results of tools, the calls; and whether they are still there.

use std::collections::BTreeMap;

use serde_json::Value;

use super::history::{History, histories};

/// Who said it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A user's text or image.
    User,
    /// A tool result's text or image.
    Result,
    /// The model's text.
    Assistant,
    /// A string inside the input of a call.
    Input,
}

/// Every text and how often it was said.
pub type Texts = BTreeMap<(Kind, String), usize>;

/// Collects every text of every history of a body of any format.
pub fn texts(body: &Value) -> Texts {
    let mut found = Texts::new();
    for history in histories(body) {
        match history {
            History::Messages(list) => items(list).for_each(|message| said(message, &mut found)),
            History::Input(Value::String(words)) => note(Kind::User, words, &mut found),
            History::Input(list) => items(list).for_each(|item| done(item, &mut found)),
            History::Contents(list) => items(list).for_each(|content| spoken(content, &mut found)),
        }
    }
    found
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

/// A message of Messages, of Chat Completions, or of Responses.
fn said(message: &Value, found: &mut Texts) {
    let role = message.get("role").and_then(Value::as_str).unwrap_or_default();
    let kind = match role {
        "user" => Kind::User,
        "tool" => Kind::Result,
        "assistant" => Kind::Assistant,
        _ => return,
    };
    content(kind, message.get("content"), found);
    for call in message.get("tool_calls").into_iter().flat_map(items) {
        for pointer in ["/function/arguments", "/custom/input"] {
            leaves(Kind::Input, call.pointer(pointer), found);
        }
    }
}

/// An item of Responses.
fn done(item: &Value, found: &mut Texts) {
    let kind = item.get("type").and_then(Value::as_str).unwrap_or("message");
    if kind == "message" {
        return said(item, found);
    }
    let output = kind.ends_with("_output");
    let keys: &[&str] = if output {
        &["output", "tools", "result"]
    } else {
        &["arguments", "input", "action", "operation", "code"]
    };
    for key in keys {
        leaves(if output { Kind::Result } else { Kind::Input }, item.get(key), found);
    }
}

/// A content of Gemini.
fn spoken(content: &Value, found: &mut Texts) {
    let model = content.get("role").and_then(Value::as_str) == Some("model");
    let kind = if model { Kind::Assistant } else { Kind::User };
    for part in content.get("parts").into_iter().flat_map(items) {
        if part.get("thought").and_then(Value::as_bool) == Some(true) {
            continue;
        }
        for pointer in [
            "/text",
            "/inlineData/data",
            "/inline_data/data",
            "/fileData/fileUri",
            "/file_data/file_uri",
        ] {
            let text = part.pointer(pointer).and_then(Value::as_str);
            note(kind, text.unwrap_or_default(), found);
        }
        for (call, response) in [
            ("functionCall", "functionResponse"),
            ("function_call", "function_response"),
        ] {
            leaves(Kind::Input, part.get(call).and_then(|call| call.get("args")), found);
            leaves(
                Kind::Result,
                part.get(response).and_then(|own| own.get("response")),
                found,
            );
        }
    }
}

fn content(kind: Kind, value: Option<&Value>, found: &mut Texts) {
    match value {
        Some(Value::String(text)) => note(kind, text, found),
        Some(Value::Array(blocks)) => {
            for block in blocks {
                match block.get("type").and_then(Value::as_str).unwrap_or_default() {
                    "tool_result" => content(Kind::Result, block.get("content"), found),
                    "tool_use" => leaves(Kind::Input, block.get("input"), found),
                    _ => {
                        for pointer in ["/text", "/source/data", "/image_url/url", "/image_url"] {
                            let text = block.pointer(pointer).and_then(Value::as_str);
                            note(kind, text.unwrap_or_default(), found);
                        }
                    }
                }
            }
        }
        _ => {}
    }
}

fn note(kind: Kind, text: &str, found: &mut Texts) {
    if !text.trim().is_empty() {
        *found.entry((kind, text.to_owned())).or_default() += 1;
    }
}

/// Every string inside a value, but for those that say of what type something is.
fn leaves(kind: Kind, value: Option<&Value>, found: &mut Texts) {
    match value {
        Some(Value::String(text)) => note(kind, text, found),
        Some(Value::Array(items)) => items.iter().for_each(|item| leaves(kind, Some(item), found)),
        Some(Value::Object(members)) => {
            let telling = members.iter().filter(|(key, _)| kind == Kind::Input || *key != "type");
            telling.for_each(|(_, item)| leaves(kind, Some(item), found));
        }
        _ => {}
    }
}

/// What was said in `before` and stands in no string of the histories of `after`.
pub fn lost(before: &Value, after: &Value) -> Vec<(Kind, String)> {
    let mut strings = String::new();
    for history in histories(after) {
        let (History::Messages(list) | History::Input(list) | History::Contents(list)) = history;
        flatten(list, &mut strings);
    }
    let mut missing: Vec<(Kind, String)> = texts(before)
        .into_keys()
        .filter(|(kind, text)| !holds(&strings, *kind, text))
        .collect();
    if !missing.is_empty() {
        let mut inner = String::new();
        embedded(&strings, &mut inner);
        missing.retain(|(_, text)| !inner.contains(text));
    }
    missing
}

/// Whether `text` is there; an input that is JSON in a string may stand there as the object that it meant.
fn holds(strings: &str, kind: Kind, text: &str) -> bool {
    if strings.contains(text) {
        return true;
    }
    let meant: Option<Value> = serde_json::from_str(text).ok().filter(|_| kind == Kind::Input);
    let mut parts = Texts::new();
    leaves(Kind::Input, meant.as_ref(), &mut parts);
    !parts.is_empty() && parts.into_keys().all(|(_, part)| strings.contains(&part))
}

/// The strings of the JSON that begins a line of `strings`: a value carried as the text that it was written in.
fn embedded(strings: &str, into: &mut String) {
    let starts = strings.match_indices(['{', '[']).filter(|(at, _)| {
        let before = strings[..*at].chars().next_back();
        before.is_none_or(|letter| matches!(letter, '\n' | '\0'))
    });
    for (at, _) in starts {
        let value = serde_json::Deserializer::from_str(&strings[at..])
            .into_iter::<Value>()
            .next();
        if let Some(Ok(value)) = value {
            flatten(&value, into);
        }
    }
}

fn flatten(value: &Value, into: &mut String) {
    match value {
        Value::String(text) => {
            into.push_str(text);
            into.push('\0');
        }
        Value::Array(items) => items.iter().for_each(|item| flatten(item, into)),
        Value::Object(members) => members.values().for_each(|item| flatten(item, into)),
        _ => {}
    }
}

/// The histories as one sequence of decoded blocks with their roles: what a prefix cache and a bound signature see.
///
/// A string is one text block; a chat message is one block, and so is an item of Responses; a part of Gemini is one.
pub fn blocks(body: &Value) -> Vec<(String, Value)> {
    let mut sequence = Vec::new();
    for history in histories(body) {
        match history {
            History::Messages(list) => items(list).for_each(|message| block(message, &mut sequence)),
            History::Input(Value::Array(list)) => {
                sequence.extend(list.iter().map(|item| ("item".to_owned(), item.clone())));
            }
            History::Input(words) => sequence.push(("user".to_owned(), words.clone())),
            History::Contents(list) => items(list).for_each(|content| {
                let model = content.get("role").and_then(Value::as_str) == Some("model");
                let role = if model { "model" } else { "user" };
                let parts = content.get("parts").into_iter().flat_map(items);
                sequence.extend(parts.map(|part| (role.to_owned(), part.clone())));
            }),
        }
    }
    sequence
}

fn block(message: &Value, sequence: &mut Vec<(String, Value)>) {
    let role = message.get("role").and_then(Value::as_str).unwrap_or_default();
    let chat = role == "tool" || message.get("tool_calls").is_some();
    match message.get("content") {
        Some(Value::Array(blocks)) if !chat => {
            sequence.extend(blocks.iter().map(|block| (role.to_owned(), block.clone())));
        }
        Some(Value::String(text)) if !chat => {
            sequence.push((role.to_owned(), serde_json::json!({"type": "text", "text": text})));
        }
        _ => sequence.push((role.to_owned(), message.clone())),
    }
}
