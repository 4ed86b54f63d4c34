//! Real content of a body: user text, tool results and calls, and the search for lost content.

use std::collections::BTreeMap;

use serde_json::Value;

use super::history::{History, histories};

/// The source of a text.
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

/// Number of occurrences of every text.
pub type Texts = BTreeMap<(Kind, String), usize>;

/// Collects every text of every history of a body in any format.
pub fn texts(body: &Value) -> Texts {
    let mut found = Texts::new();
    for history in histories(body) {
        match history {
            History::Messages(list) => items_of(list).for_each(|message| collect_message(message, &mut found)),
            History::Input(Value::String(words)) => add_text(Kind::User, words, &mut found),
            History::Input(list) => items_of(list).for_each(|item| collect_item(item, &mut found)),
            History::Contents(list) => items_of(list).for_each(|content| collect_content(content, &mut found)),
        }
    }
    found
}

fn items_of(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

/// Collects the texts of a Messages, Chat Completions or Responses message.
fn collect_message(message: &Value, found: &mut Texts) {
    let role = message.get("role").and_then(Value::as_str).unwrap_or_default();
    let kind = match role {
        "user" => Kind::User,
        "tool" => Kind::Result,
        "assistant" => Kind::Assistant,
        _ => return,
    };
    collect_value(kind, message.get("content"), found);
    for call in message.get("tool_calls").into_iter().flat_map(items_of) {
        for pointer in ["/function/arguments", "/custom/input"] {
            collect_strings(Kind::Input, call.pointer(pointer), found);
        }
    }
}

/// Collects the texts of a Responses item.
fn collect_item(item: &Value, found: &mut Texts) {
    let kind = item.get("type").and_then(Value::as_str).unwrap_or("message");
    if kind == "message" {
        return collect_message(item, found);
    }
    let output = kind.ends_with("_output");
    let keys: &[&str] = if output {
        &["output", "tools", "result"]
    } else {
        &["arguments", "input", "action", "operation", "code"]
    };
    for key in keys {
        collect_strings(if output { Kind::Result } else { Kind::Input }, item.get(key), found);
    }
}

/// Collects the texts of a Gemini content.
fn collect_content(content: &Value, found: &mut Texts) {
    let model = content.get("role").and_then(Value::as_str) == Some("model");
    let kind = if model { Kind::Assistant } else { Kind::User };
    for part in content.get("parts").into_iter().flat_map(items_of) {
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
            add_text(kind, text.unwrap_or_default(), found);
        }
        for (call, response) in [
            ("functionCall", "functionResponse"),
            ("function_call", "function_response"),
        ] {
            collect_strings(Kind::Input, part.get(call).and_then(|call| call.get("args")), found);
            collect_strings(
                Kind::Result,
                part.get(response).and_then(|own| own.get("response")),
                found,
            );
        }
    }
}

fn collect_value(kind: Kind, value: Option<&Value>, found: &mut Texts) {
    match value {
        Some(Value::String(text)) => add_text(kind, text, found),
        Some(Value::Array(blocks)) => {
            for block in blocks {
                match block.get("type").and_then(Value::as_str).unwrap_or_default() {
                    "tool_result" => collect_value(Kind::Result, block.get("content"), found),
                    "tool_use" => collect_strings(Kind::Input, block.get("input"), found),
                    _ => {
                        for pointer in ["/text", "/source/data", "/image_url/url", "/image_url"] {
                            let text = block.pointer(pointer).and_then(Value::as_str);
                            add_text(kind, text.unwrap_or_default(), found);
                        }
                    }
                }
            }
        }
        _ => {}
    }
}

fn add_text(kind: Kind, text: &str, found: &mut Texts) {
    if !text.trim().is_empty() {
        *found.entry((kind, text.to_owned())).or_default() += 1;
    }
}

/// Collects every string inside a value, except type names.
fn collect_strings(kind: Kind, value: Option<&Value>, found: &mut Texts) {
    match value {
        Some(Value::String(text)) => add_text(kind, text, found),
        Some(Value::Array(items)) => items.iter().for_each(|item| collect_strings(kind, Some(item), found)),
        Some(Value::Object(members)) => {
            let telling = members.iter().filter(|(key, _)| kind == Kind::Input || *key != "type");
            telling.for_each(|(_, item)| collect_strings(kind, Some(item), found));
        }
        _ => {}
    }
}

/// Returns the texts of `before` that are in no string of the histories of `after`.
pub fn lost(before: &Value, after: &Value) -> Vec<(Kind, String)> {
    let mut strings = String::new();
    for history in histories(after) {
        let (History::Messages(list) | History::Input(list) | History::Contents(list)) = history;
        collect_all_strings(list, &mut strings);
    }
    let mut missing: Vec<(Kind, String)> = texts(before)
        .into_keys()
        .filter(|(kind, text)| !contains_text(&strings, *kind, text))
        .collect();
    if !missing.is_empty() {
        let mut inner = String::new();
        collect_quoted_json(&strings, &mut inner);
        missing.retain(|(_, text)| !inner.contains(text));
    }
    missing
}

/// Reports whether `text` is present. An input that is JSON in a string may be present as the object it encodes.
fn contains_text(strings: &str, kind: Kind, text: &str) -> bool {
    if strings.contains(text) {
        return true;
    }
    let meant: Option<Value> = serde_json::from_str(text).ok().filter(|_| kind == Kind::Input);
    let mut parts = Texts::new();
    collect_strings(Kind::Input, meant.as_ref(), &mut parts);
    !parts.is_empty() && parts.into_keys().all(|(_, part)| strings.contains(&part))
}

/// Collects the strings of JSON that begins a line of `strings`: a value that is quoted as text.
fn collect_quoted_json(strings: &str, into: &mut String) {
    let starts = strings.match_indices(['{', '[']).filter(|(at, _)| {
        let before = strings[..*at].chars().next_back();
        before.is_none_or(|letter| matches!(letter, '\n' | '\0'))
    });
    for (at, _) in starts {
        let value = serde_json::Deserializer::from_str(&strings[at..])
            .into_iter::<Value>()
            .next();
        if let Some(Ok(value)) = value {
            collect_all_strings(&value, into);
        }
    }
}

fn collect_all_strings(value: &Value, into: &mut String) {
    match value {
        Value::String(text) => {
            into.push_str(text);
            into.push('\0');
        }
        Value::Array(items) => items.iter().for_each(|item| collect_all_strings(item, into)),
        Value::Object(members) => members.values().for_each(|item| collect_all_strings(item, into)),
        _ => {}
    }
}

/// Returns the histories as one sequence of decoded blocks with their roles, as prefix caches and bound signatures see
/// them.
///
/// A string is one text block. A chat message, a Responses item and a Gemini part are one block each.
pub fn blocks(body: &Value) -> Vec<(String, Value)> {
    let mut sequence = Vec::new();
    for history in histories(body) {
        match history {
            History::Messages(list) => items_of(list).for_each(|message| block(message, &mut sequence)),
            History::Input(Value::Array(list)) => {
                sequence.extend(list.iter().map(|item| ("item".to_owned(), item.clone())));
            }
            History::Input(words) => sequence.push(("user".to_owned(), words.clone())),
            History::Contents(list) => items_of(list).for_each(|content| {
                let model = content.get("role").and_then(Value::as_str) == Some("model");
                let role = if model { "model" } else { "user" };
                let parts = content.get("parts").into_iter().flat_map(items_of);
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
