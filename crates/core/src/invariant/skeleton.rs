//! A message without its texts: the members by which calls and results pair, and nothing else.

use crate::{
    splice::Span,
    wire::{
        Unreadable,
        json::{self, Json, JsonKind},
    },
    work,
};

/// Strings that are kept: they name calls, results, kinds and authors.
const KEPT: [&str; 13] = [
    "type",
    "role",
    "id",
    "call_id",
    "tool_use_id",
    "tool_call_id",
    "approval_request_id",
    "name",
    "toolset_name",
    "tool_id",
    "caller_id",
    "execution",
    "server_name",
];

/// Lists of a message whose elements may be calls or results.
const LISTS: [&str; 3] = ["content", "parts", "tool_calls"];

/// Objects of a block that name the call.
const NAMING: [&str; 7] = [
    "function",
    "custom",
    "functionCall",
    "function_call",
    "functionResponse",
    "function_response",
    "caller",
];

/// Other members: of their values only the type is kept, or that a text is not blank.
const SHADOWS: [&str; 9] = [
    "text",
    "content",
    "input",
    "arguments",
    "args",
    "output",
    "refusal",
    "thoughtSignature",
    "thought_signature",
];

/// The text that stands for any other.
const TEXT: &str = r#"".""#;

/// The member that stands for all that are not known.
const OTHERS: &str = r#""others":0"#;

/// Writes the object at `message` without its texts.
pub(super) fn write_skeleton(json: Json<'_>, message: Span) -> Result<Vec<u8>, Unreadable> {
    let mut out = Vec::new();
    write_object(json, message, 0, &mut out)?;
    Ok(out)
}

/// Writes an object. `depth` is 0 for the message, 1 for its blocks, and 2 for objects inside of them.
fn write_object(json: Json<'_>, object: Span, depth: usize, out: &mut Vec<u8>) -> Result<(), Unreadable> {
    out.push(b'{');
    let (mut is_first, mut has_others, mut walked) = (true, false, Ok(()));
    json.for_each_member(object, |key, value| {
        if walked.is_err() {
            return;
        }
        let Some(key) = known_key(key) else {
            has_others |= json.kind(value) != JsonKind::Null;
            return;
        };
        if !is_first {
            out.push(b',');
        }
        is_first = false;
        out.extend_from_slice(json::quote_string(key).as_bytes());
        out.push(b':');
        walked = write_member(json, key, value, depth, out);
    })?;
    // A message with an image alone is not empty.
    if has_others {
        out.extend_from_slice(if is_first { b"" } else { b"," });
        out.extend_from_slice(OTHERS.as_bytes());
    }
    out.push(b'}');
    walked
}

/// Writes the value of a member.
fn write_member(json: Json<'_>, key: &str, value: Span, depth: usize, out: &mut Vec<u8>) -> Result<(), Unreadable> {
    let bytes = json.bytes(value);
    match json.kind(value) {
        JsonKind::String if KEPT.contains(&key) => {
            work::count_bytes(bytes.len());
            out.extend_from_slice(bytes);
        }
        // A blank text is a fault at some servers, and an empty signature is none.
        JsonKind::String if json::is_blank(bytes) => out.extend_from_slice(br#""""#),
        JsonKind::String => out.extend_from_slice(TEXT.as_bytes()),
        JsonKind::Array if depth == 0 && LISTS.contains(&key) => return write_list(json, value, out),
        JsonKind::Array => out.extend_from_slice(b"[]"),
        JsonKind::Object if depth < 2 && NAMING.contains(&key) => return write_object(json, value, 2, out),
        JsonKind::Object => out.extend_from_slice(b"{}"),
        // Null counts as missing in some members. A number is nowhere an id.
        JsonKind::Null => out.extend_from_slice(b"null"),
        JsonKind::Other => out.push(b'0'),
    }
    Ok(())
}

/// Writes a list of blocks. The number of its elements stays.
fn write_list(json: Json<'_>, list: Span, out: &mut Vec<u8>) -> Result<(), Unreadable> {
    out.push(b'[');
    let (mut is_first, mut walked) = (true, Ok(()));
    json.for_each_element(list, |element| {
        if walked.is_err() {
            return;
        }
        if !is_first {
            out.push(b',');
        }
        is_first = false;
        match json.kind(element) {
            JsonKind::Object => walked = write_object(json, element, 1, out),
            _ => out.extend_from_slice(TEXT.as_bytes()),
        }
    })?;
    out.push(b']');
    walked
}

/// Returns the key among those that are kept. `None` for any other.
fn known_key(key: &[u8]) -> Option<&'static str> {
    let known = KEPT.iter().chain(&LISTS).chain(&NAMING).chain(&SHADOWS);
    known.copied().find(|known| known.as_bytes() == key)
}
