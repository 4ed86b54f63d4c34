//! The writer of messages of the Chat Completions format.

use crate::{
    splice::{Edit, Piece, Span},
    wire::{
        Format,
        json::{self, Json, JsonKind},
        openai_chat::read::is_data,
        quote::{QuotedPiece, quote_result},
    },
};

/// Types of parts in a result that a user message may contain unchanged.
const CARRIED_TYPES: [&[u8]; 3] = [b"image_url", b"input_audio", b"file"];

/// Writes a placeholder as a tool message.
pub(crate) fn write_placeholder(id: Piece, text: &'static str) -> Vec<Piece> {
    write_tool_message(id, json::constant_string(text))
}

/// Writes a real result that was not in the body. `content` is JSON that the message takes.
pub(crate) fn write_result(id: Piece, content: String) -> Vec<Piece> {
    write_tool_message(id, vec![Piece::Made(content)])
}

fn write_tool_message(id: Piece, content: Vec<Piece>) -> Vec<Piece> {
    // Without `name`, which xAI takes in user messages only.
    let mut pieces = vec![Piece::Constant(r#"{"role":"tool","tool_call_id":"#), id];
    pieces.extend(json::enclose(r#","content":"#, content, "}"));
    pieces
}

/// Writes a result as a user message.
pub(crate) fn write_quote(json: Json<'_>, result: Span, id: &str, name: Option<&str>) -> Vec<Piece> {
    let mut quoted = quote_content(json, result, id, name);
    // Without an image or file a plain string is enough, which every server takes.
    let content = match quoted.as_mut_slice() {
        [QuotedPiece::Text(string)] => std::mem::take(string),
        _ => json::write_list(write_parts(quoted)),
    };
    json::enclose(r#"{"role":"user","content":"#, content, "}")
}

/// Writes a result as content parts.
pub(crate) fn write_quote_parts(json: Json<'_>, result: Span, id: &str, name: Option<&str>) -> Vec<Vec<Piece>> {
    write_parts(quote_content(json, result, id, name))
}

fn quote_content(json: Json<'_>, result: Span, id: &str, name: Option<&str>) -> Vec<QuotedPiece> {
    quote_result(json, id, name, json.member(result, "content"), &CARRIED_TYPES)
}

fn write_parts(quoted: Vec<QuotedPiece>) -> Vec<Vec<Piece>> {
    let parts = quoted.into_iter().map(|piece| piece.into_block(Format::OpenAiChat));
    parts.collect()
}

/// Inserts content parts before the content of the message at `span`.
pub(crate) fn insert_parts_before(json: Json<'_>, span: Span, mut front: Vec<Vec<Piece>>) -> Edit {
    let content = json
        .member(span, "content")
        .map(|content| (content, json.kind(content)));
    match content {
        Some((content, JsonKind::Array)) => {
            let mut pieces = json::join_elements(front);
            if !json.is_empty(content) {
                pieces.push(Piece::Constant(","));
            }
            Edit {
                span: Span::at(content.start.saturating_add(1)),
                pieces,
            }
        }
        // The string becomes a part in a list; its own bytes do not change.
        Some((content, JsonKind::String)) => {
            let part = QuotedPiece::Text(vec![Piece::Original(content)]).into_block(Format::OpenAiChat);
            front.push(part);
            let pieces = json::write_list(front);
            Edit { span: content, pieces }
        }
        // Null or missing content has nothing to preserve.
        _ => json.set_member(span, "content", json::write_list(front)),
    }
}

/// Writes the content of the result at `span` as a text: the JSON of its object or list, in its own bytes.
pub(crate) fn set_content_as_text(json: Json<'_>, span: Span) -> Option<Edit> {
    let content = json.member(span, "content")?;
    let text = std::str::from_utf8(json.bytes(content)).ok()?;
    Some(Edit {
        span: content,
        pieces: vec![Piece::Made(json::quote_string(text))],
    })
}

/// Writes the content of the result at `span` as a text, if it is data that no server takes.
pub(crate) fn set_data_as_text(json: Json<'_>, span: Span) -> Option<Edit> {
    let content = json.member(span, "content")?;
    if is_data(json, content) {
        set_content_as_text(json, span)
    } else {
        None
    }
}

/// Removes an empty `tool_calls` list (`Invalid 'messages[2].tool_calls': empty array`).
pub(crate) fn drop_empty_calls(json: Json<'_>, span: Span) -> Vec<Edit> {
    json.remove_member(span, "tool_calls")
}

/// Returns `true` if the assistant message at `span` has reasoning. An empty text counts as present.
pub(crate) fn has_reasoning(json: Json<'_>, span: Span) -> bool {
    let reasoning = json.member(span, "reasoning_content");
    // Clients that serialize missing members write null.
    reasoning.is_some_and(|value| json.kind(value) != JsonKind::Null)
}

/// Sets the reasoning of the assistant message at `span`.
pub(crate) fn set_reasoning(json: Json<'_>, span: Span, text: &str) -> Edit {
    json.set_member(span, "reasoning_content", vec![Piece::Made(json::quote_string(text))])
}

/// Returns `true` if the call at `span` has a thought signature of Gemini's models.
pub(crate) fn is_signed(json: Json<'_>, span: Span) -> bool {
    let google = json
        .member(span, "extra_content")
        .and_then(|extra| json.member(extra, "google"));
    google.is_some_and(|google| !json.member_text(google, "thought_signature").is_empty())
}

/// Sets the thought signature of the call at `span`: `extra_content.google.thought_signature`.
pub(crate) fn set_signature(json: Json<'_>, span: Span, signature: &str) -> Edit {
    let object = |at: Span| json.kind(at) == JsonKind::Object;
    let value = vec![Piece::Made(json::quote_string(signature))];
    let Some(extra) = json.member(span, "extra_content").filter(|extra| object(*extra)) else {
        let value = json::enclose(r#"{"google":{"thought_signature":"#, value, "}}");
        return json.set_member(span, "extra_content", value);
    };
    // What else the client keeps there stays as it is.
    match json.member(extra, "google").filter(|google| object(*google)) {
        Some(google) => json.set_member(google, "thought_signature", value),
        None => json.set_member(extra, "google", json::enclose(r#"{"thought_signature":"#, value, "}")),
    }
}
