//! The oracle of the scanner: an independent reader that uses `serde_json` raw values, level by level.
//!
//! It is slow and simple on purpose: every level is parsed in full, and spans come from the addresses of sub-slices.

mod contents;
mod items;

use std::fmt;

use antiphon_core::{
    conversation::{Content, Conversation, PartKind, Role},
    wire::{Format, Wire},
};
use serde::{
    Deserializer as _,
    de::{Deserialize, DeserializeSeed, MapAccess, SeqAccess, Visitor},
};
use serde_json::value::RawValue;

/// A message: span, role, shape of its content, and parts.
pub type Seen = ((usize, usize), &'static str, &'static str, Vec<PartSeen>);
/// A part: span, kind, and its id, lossily decoded.
pub type PartSeen = ((usize, usize), &'static str, String);

/// Converts the scanner's reading into the oracle's form.
pub fn from_conversation(conversation: &Conversation<'_>) -> Vec<Seen> {
    let message = |message: &antiphon_core::conversation::Message| {
        let role = match message.role {
            Role::User => "user",
            Role::Assistant => "assistant",
            Role::Tool => "tool",
            Role::System => "system",
        };
        let content = match message.content {
            Content::Blocks(_) => "blocks",
            Content::Text(_) => "text",
            Content::Opaque => "opaque",
        };
        let parts = conversation.parts_of(message).iter().map(|part| {
            let (kind, id): (_, &[u8]) = match &part.kind {
                PartKind::Call(call) => ("call", &call.id),
                PartKind::Result(result) => ("result", &result.id),
                PartKind::ServerCall(call) => ("server_call", &call.id),
                PartKind::ServerResult(id) => ("server_result", id),
                PartKind::Thinking => ("thinking", b""),
                PartKind::Compaction => ("compaction", b""),
                PartKind::Other => ("other", b""),
            };
            ((part.span.start, part.span.end), kind, text(id))
        });
        ((message.span.start, message.span.end), role, content, parts.collect())
    };
    conversation.messages.iter().map(message).collect()
}

/// Reads `body`. `None` if it is not JSON or not in the shape of the format.
pub fn read(body: &[u8], wire: Wire) -> Option<Vec<Seen>> {
    let format = wire.format;
    let whole: &RawValue = serde_json::from_slice(body).ok()?;
    let base = Base(body);
    let top = members(whole.get().as_bytes())?;
    let keys: &[&[u8]] = match format {
        Format::Anthropic | Format::OpenAiChat => &[b"messages"],
        Format::OpenAiResponses => &[b"input", b"items"],
        Format::Gemini => &[b"contents"],
    };
    let mut histories = top.iter().filter(|(key, _)| keys.contains(&key.as_slice()));
    let (first, second) = (histories.next(), histories.next());
    let lists: Vec<&[u8]> = first.iter().map(|(_, list)| *list).collect();
    match format {
        Format::OpenAiResponses if items::are_interactions(&top, &lists) => return None,
        Format::Anthropic | Format::OpenAiChat | Format::OpenAiResponses | Format::Gemini => {}
    }
    let Some((_, history)) = first else {
        return Some(Vec::new());
    };
    if second.is_some() {
        return None;
    }
    match (format, history.first()) {
        // A text, or null; a single content.
        (Format::OpenAiResponses, Some(b'"' | b'n')) | (Format::Gemini, Some(b'{')) => return Some(Vec::new()),
        (Format::OpenAiResponses, first) if first != Some(&b'[') => return None,
        (Format::Anthropic | Format::OpenAiChat | Format::OpenAiResponses | Format::Gemini, _) => {}
    }
    let mut shells = items::Shells::default();
    elements(history)?
        .into_iter()
        .map(|message| match format {
            Format::Anthropic | Format::OpenAiChat => base.message(message, format),
            Format::OpenAiResponses => items::item(&base, message, wire.dialect, &mut shells),
            Format::Gemini => contents::content(&base, message),
        })
        .collect()
}

struct Base<'a>(&'a [u8]);

impl<'a> Base<'a> {
    fn span(&self, part: &[u8]) -> (usize, usize) {
        let start = part.as_ptr() as usize - self.0.as_ptr() as usize;
        (start, start + part.len())
    }

    fn message(&self, message: &'a [u8], format: Format) -> Option<Seen> {
        let fields = members(message)?;
        let role = match &*string(last(&fields, "role")) {
            b"user" => "user",
            b"assistant" => "assistant",
            b"tool" => match format {
                Format::OpenAiChat => "tool",
                Format::Anthropic | Format::OpenAiResponses | Format::Gemini => "system",
            },
            _ => "system",
        };
        let content = last(&fields, "content").filter(|content| matches!(content.first(), Some(b'[' | b'"')));
        let shape = match content.and_then(|content| content.first()) {
            Some(b'[') => "blocks",
            Some(_) => "text",
            None => "opaque",
        };
        let parts = match format {
            Format::Anthropic => self.blocks(&fields, role)?,
            Format::OpenAiChat => self.calls(&fields, role, message)?,
            Format::OpenAiResponses | Format::Gemini => Vec::new(),
        };
        Some((self.span(message), role, shape, parts))
    }

    fn blocks(&self, fields: &[(Vec<u8>, &'a [u8])], role: &str) -> Option<Vec<PartSeen>> {
        // Every list under the key is read, so that its shape counts. The last one wins.
        let mut parts = Vec::new();
        for (_, content) in fields.iter().filter(|(key, _)| key == b"content") {
            parts = match content.first() {
                Some(b'[') => elements(content)?
                    .into_iter()
                    .map(|block| self.block(block, role))
                    .collect::<Option<_>>()?,
                Some(b'"') => vec![(self.span(content), "other", String::new())],
                _ => Vec::new(),
            };
        }
        Some(parts)
    }

    fn block(&self, block: &'a [u8], role: &str) -> Option<PartSeen> {
        let fields = if block.first() == Some(&b'{') {
            members(block)?
        } else {
            Vec::new()
        };
        let kind = string(last(&fields, "type"));
        let assistant = role == "assistant";
        let (id, answers) = (last(&fields, "id"), last(&fields, "tool_use_id"));
        let (kind, id) = match &*kind {
            b"tool_use" if assistant => ("call", id),
            b"tool_result" if role != "system" => ("result", answers),
            b"tool_use" | b"tool_result" => ("other", None),
            b"thinking" | b"redacted_thinking" => ("thinking", None),
            b"compaction" => ("compaction", None),
            kind if kind.ends_with(b"_tool_use") && assistant => ("server_call", id),
            kind if kind.ends_with(b"_tool_result") && assistant => ("server_result", answers),
            _ => ("other", None),
        };
        Some((self.span(block), kind, text(&string(id))))
    }

    fn calls(&self, fields: &[(Vec<u8>, &'a [u8])], role: &str, message: &'a [u8]) -> Option<Vec<PartSeen>> {
        let mut calls = Vec::new();
        for (_, list) in fields.iter().filter(|(key, _)| key == b"tool_calls") {
            calls.clear();
            if list.first() == Some(&b'n') {
                continue;
            }
            for call in elements(list)? {
                calls.push((self.span(call), "call", text(&string(last(&members(call)?, "id")))));
            }
        }
        Some(match role {
            "assistant" => calls,
            "tool" => vec![(
                self.span(message),
                "result",
                text(&string(last(fields, "tool_call_id"))),
            )],
            _ => Vec::new(),
        })
    }
}

fn last<'a>(fields: &[(Vec<u8>, &'a [u8])], name: &str) -> Option<&'a [u8]> {
    fields
        .iter()
        .rev()
        .find(|(key, _)| key == name.as_bytes())
        .map(|(_, value)| *value)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns the decoded bytes of a string. Empty for any other value.
fn string(value: Option<&[u8]>) -> Vec<u8> {
    struct Bytes(Vec<u8>);
    impl<'de> Deserialize<'de> for Bytes {
        fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
            struct Visit;
            impl Visitor<'_> for Visit {
                type Value = Bytes;
                fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    f.write_str("a string")
                }
                fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Bytes, E> {
                    Ok(Bytes(bytes.to_vec()))
                }
            }
            from.deserialize_byte_buf(Visit)
        }
    }
    let string = value.filter(|value| value.first() == Some(&b'"'));
    string
        .and_then(|value| serde_json::from_slice(value).ok())
        .map_or_else(Vec::new, |Bytes(bytes)| bytes)
}

fn members(object: &[u8]) -> Option<Vec<(Vec<u8>, &[u8])>> {
    serde_json::Deserializer::from_slice(object)
        .deserialize_map(Members)
        .ok()
}

fn elements(array: &[u8]) -> Option<Vec<&[u8]>> {
    serde_json::Deserializer::from_slice(array)
        .deserialize_seq(Elements)
        .ok()
}

struct Members;

impl<'de> Visitor<'de> for Members {
    type Value = Vec<(Vec<u8>, &'de [u8])>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::new();
        while let Some(key) = map.next_key_seed(Raw)? {
            members.push((string(Some(key)), map.next_value_seed(Raw)?));
        }
        Ok(members)
    }
}

struct Elements;

impl<'de> Visitor<'de> for Elements {
    type Value = Vec<&'de [u8]>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut elements = Vec::new();
        while let Some(element) = list.next_element_seed(Raw)? {
            elements.push(element);
        }
        Ok(elements)
    }
}

/// A value's own bytes, without the whitespace around it.
struct Raw;

impl<'de> DeserializeSeed<'de> for Raw {
    type Value = &'de [u8];

    fn deserialize<D: serde::Deserializer<'de>>(self, from: D) -> Result<&'de [u8], D::Error> {
        <&'de RawValue>::deserialize(from).map(|value| value.get().as_bytes())
    }
}
