//! The oracle for one content of a Gemini body.

use super::{Base, PartSeen, Seen, elements, last, members, string, text};

type Fields<'a> = [(Vec<u8>, &'a [u8])];

pub(super) fn content<'a>(base: &Base<'a>, content: &'a [u8]) -> Option<Seen> {
    let fields = members(content)?;
    let model = string(last(&fields, "role")) == b"model";
    let mut parts = Vec::new();
    for (_, list) in fields.iter().filter(|(key, _)| key == b"parts") {
        // Every list under the key is read, so that its shape counts. The last one wins.
        parts.clear();
        if list.first() == Some(&b'[') {
            for element in elements(list)? {
                parts.push(part(base, element, model)?);
            }
        }
    }
    let listed = last(&fields, "parts").is_some_and(|list| list.first() == Some(&b'['));
    let shape = if listed { "blocks" } else { "opaque" };
    let role = if model { "assistant" } else { "user" };
    Some((base.span(content), role, shape, parts))
}

fn part<'a>(base: &Base<'a>, part: &'a [u8], model: bool) -> Option<PartSeen> {
    let fields = if part.first() == Some(&b'{') {
        members(part)?
    } else {
        Vec::new()
    };
    let call = named(&fields, ["functionCall", "function_call"]).ok()?;
    let response = named(&fields, ["functionResponse", "function_response"]).ok()?;
    let signed = !string(either(&fields, ["thoughtSignature", "thought_signature"])).is_empty();
    let (kind, id) = match (call, response) {
        (Some(id), _) if model => ("call", id),
        (None, Some(id)) => ("result", id),
        (None, None) if signed && model => ("thinking", Vec::new()),
        (Some(id), _) => ("other", id),
        (None, None) => ("other", Vec::new()),
    };
    let id = if kind == "other" { String::new() } else { text(&id) };
    Some((base.span(part), kind, id))
}

/// The error for an object that cannot be read.
struct Broken;

/// Returns the id of a call or response, if there is one.
fn named(fields: &Fields<'_>, names: [&str; 2]) -> Result<Option<Vec<u8>>, Broken> {
    let mut found = None;
    for (key, value) in fields {
        if names.iter().any(|name| key == name.as_bytes()) {
            found = match value.first() {
                Some(b'{') => Some(string(last(&members(value).ok_or(Broken)?, "id"))),
                _ => None,
            };
        }
    }
    Ok(found)
}

/// Returns the last value under either spelling.
fn either<'a>(fields: &Fields<'a>, names: [&str; 2]) -> Option<&'a [u8]> {
    let is = |key: &[u8]| names.iter().any(|name| key == name.as_bytes());
    fields.iter().rev().find(|(key, _)| is(key)).map(|(_, value)| *value)
}
