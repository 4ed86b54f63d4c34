//! The writer of messages of the Chat Completions format.

use crate::{
    splice::{Edit, Piece, Span},
    wire::{
        json::{Json, JsonKind},
        quote::{self, QuotedPiece},
    },
};

/// Types of parts in a result that a user message may contain unchanged.
const CARRIED_TYPES: [&[u8]; 3] = [b"image_url", b"input_audio", b"file"];

/// Writes a placeholder as a tool message.
pub(crate) fn write_placeholder(id: Piece, text: &'static str) -> Vec<Piece> {
    // Without `name`, which xAI takes in user messages only.
    vec![
        Piece::Constant(r#"{"role":"tool","tool_call_id":"#),
        id,
        Piece::Constant(r#","content":""#),
        Piece::Constant(text),
        Piece::Constant(r#""}"#),
    ]
}

/// Writes a real result that was not in the body. `content` is JSON that the message takes.
pub(crate) fn write_result(id: Piece, content: String) -> Vec<Piece> {
    let head = Piece::Constant(r#"{"role":"tool","tool_call_id":"#);
    vec![
        head,
        id,
        Piece::Constant(r#","content":"#),
        Piece::Made(content),
        Piece::Constant("}"),
    ]
}

/// Writes a result as a user message.
pub(crate) fn write_quote(json: Json<'_>, result: Span, id: &str, name: Option<&str>) -> Vec<Piece> {
    let mut quoted = quote::quote_result(json, id, name, json.member(result, "content"), &CARRIED_TYPES);
    let mut pieces = vec![Piece::Constant(r#"{"role":"user","content":"#)];
    // Without an image or file a plain string is enough, which every server takes.
    if let [QuotedPiece::Text(text)] = quoted.as_mut_slice() {
        pieces.push(Piece::Constant("\""));
        pieces.append(text);
        pieces.push(Piece::Constant("\"}"));
    } else {
        pieces.push(Piece::Constant("["));
        pieces.extend(write_parts(quoted));
        pieces.push(Piece::Constant("]}"));
    }
    pieces
}

/// Writes a result as content parts, joined by commas.
pub(crate) fn write_quote_parts(json: Json<'_>, result: Span, id: &str, name: Option<&str>) -> Vec<Piece> {
    write_parts(quote::quote_result(
        json,
        id,
        name,
        json.member(result, "content"),
        &CARRIED_TYPES,
    ))
}

fn write_parts(quoted: Vec<QuotedPiece>) -> Vec<Piece> {
    let mut pieces = Vec::new();
    for (index, part) in quoted.into_iter().enumerate() {
        if index > 0 {
            pieces.push(Piece::Constant(","));
        }
        match part {
            QuotedPiece::Block(span) => pieces.push(Piece::Original(span)),
            QuotedPiece::Text(text) => {
                pieces.push(Piece::Constant(r#"{"type":"text","text":""#));
                pieces.extend(text);
                pieces.push(Piece::Constant(r#""}"#));
            }
        }
    }
    pieces
}

/// Inserts content parts before the content of the message at `span`.
pub(crate) fn insert_parts_before(json: Json<'_>, span: Span, front: Vec<Piece>) -> Edit {
    let content = json
        .member(span, "content")
        .map(|content| (content, json.kind(content)));
    match content {
        Some((content, JsonKind::Array)) => {
            let mut pieces = front;
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
            let mut pieces = vec![Piece::Constant("[")];
            pieces.extend(front);
            pieces.extend([Piece::Constant(r#",{"type":"text","text":"#), Piece::Original(content)]);
            pieces.push(Piece::Constant("}]"));
            Edit { span: content, pieces }
        }
        // Null or missing content has nothing to preserve.
        _ => {
            let mut pieces = vec![Piece::Constant("[")];
            pieces.extend(front);
            pieces.push(Piece::Constant("]"));
            json.set_member(span, "content", pieces)
        }
    }
}

/// Replaces the id of the call at `span`.
pub(crate) fn set_call_id(json: Json<'_>, span: Span, id: Piece) -> Edit {
    json.set_member(span, "id", vec![id])
}

/// Replaces the call id of the tool message at `span`.
pub(crate) fn set_result_id(json: Json<'_>, span: Span, id: Piece) -> Edit {
    json.set_member(span, "tool_call_id", vec![id])
}

/// Removes an empty `tool_calls` list (`Invalid 'messages[2].tool_calls': empty array`).
pub(crate) fn drop_empty_calls(json: Json<'_>, span: Span) -> Vec<Edit> {
    json.remove_member(span, "tool_calls")
}
