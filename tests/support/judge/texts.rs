//! What was really said in a body: the words of users, the results of tools, the calls; and whether they are still there.

use std::collections::BTreeMap;

use serde_json::Value;

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

/// Collects every text of a history of either format.
pub fn texts(body: &Value) -> Texts {
    let mut found = Texts::new();
    for message in body.get("messages").and_then(Value::as_array).into_iter().flatten() {
        let role = message.get("role").and_then(Value::as_str).unwrap_or_default();
        let kind = match role {
            "user" => Kind::User,
            "tool" => Kind::Result,
            "assistant" => Kind::Assistant,
            _ => continue,
        };
        content(kind, message.get("content"), &mut found);
        for call in message
            .get("tool_calls")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            for pointer in ["/function/arguments", "/custom/input"] {
                leaves(call.pointer(pointer), &mut found);
            }
        }
    }
    found
}

fn content(kind: Kind, value: Option<&Value>, found: &mut Texts) {
    match value {
        Some(Value::String(text)) => note(kind, text, found),
        Some(Value::Array(blocks)) => {
            for block in blocks {
                match block.get("type").and_then(Value::as_str).unwrap_or_default() {
                    "tool_result" => content(Kind::Result, block.get("content"), found),
                    "tool_use" => leaves(block.get("input"), found),
                    _ => {
                        for pointer in ["/text", "/source/data", "/image_url/url"] {
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

/// Every string inside the input of a call.
fn leaves(value: Option<&Value>, found: &mut Texts) {
    match value {
        Some(Value::String(text)) => note(Kind::Input, text, found),
        Some(Value::Array(items)) => items.iter().for_each(|item| leaves(Some(item), found)),
        Some(Value::Object(members)) => members.values().for_each(|item| leaves(Some(item), found)),
        _ => {}
    }
}

/// What was said in `before` and stands in no string of the history of `after`.
pub fn lost(before: &Value, after: &Value) -> Vec<(Kind, String)> {
    let mut strings = String::new();
    if let Some(messages) = after.get("messages") {
        flatten(messages, &mut strings);
    }
    texts(before)
        .into_keys()
        .filter(|(kind, text)| !holds(&strings, *kind, text))
        .collect()
}

/// Whether `text` is there; an input that is JSON in a string may stand there as the object that it meant.
fn holds(strings: &str, kind: Kind, text: &str) -> bool {
    if strings.contains(text) {
        return true;
    }
    let meant: Option<Value> = serde_json::from_str(text).ok().filter(|_| kind == Kind::Input);
    let mut parts = Texts::new();
    leaves(meant.as_ref(), &mut parts);
    !parts.is_empty() && parts.into_keys().all(|(_, part)| strings.contains(&part))
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

/// The history as one sequence of decoded blocks with their roles: what a prefix cache and a bound signature see.
///
/// A string is one text block; a chat message is one block.
pub fn blocks(body: &Value) -> Vec<(String, Value)> {
    let mut sequence = Vec::new();
    for message in body.get("messages").and_then(Value::as_array).into_iter().flatten() {
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
    sequence
}
