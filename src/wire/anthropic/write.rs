//! The writer of blocks and messages of the Messages format.

use crate::{
    splice::{Edit, Piece, Span},
    wire::{
        json::{self, Json, JsonKind},
        quote::{self, QuotedPiece},
    },
};

/// Types of blocks in a result that a user message may contain unchanged.
const CARRIED_TYPES: [&[u8]; 3] = [b"image", b"document", b"search_result"];

/// Writes a placeholder as a result.
pub(crate) fn write_placeholder(id: Piece, toolset: Option<Span>, text: &'static str) -> Vec<Piece> {
    let mut pieces = vec![Piece::Constant(r#"{"type":"tool_result","tool_use_id":"#), id];
    // A result without the `toolset_name` of its call is rejected.
    if let Some(toolset) = toolset {
        pieces.extend([Piece::Constant(r#","toolset_name":"#), Piece::Original(toolset)]);
    }
    pieces.extend([
        Piece::Constant(r#","content":""#),
        Piece::Constant(text),
        Piece::Constant(r#"","is_error":true}"#),
    ]);
    pieces
}

/// Writes a real result that was not in the body. `content` is JSON that the block takes.
pub(crate) fn write_result(id: Piece, toolset: Option<Span>, content: String, failed: bool) -> Vec<Piece> {
    let mut pieces = vec![Piece::Constant(r#"{"type":"tool_result","tool_use_id":"#), id];
    if let Some(toolset) = toolset {
        pieces.extend([Piece::Constant(r#","toolset_name":"#), Piece::Original(toolset)]);
    }
    pieces.extend([Piece::Constant(r#","content":"#), Piece::Made(content)]);
    pieces.push(Piece::Constant(if failed { r#","is_error":true}"# } else { "}" }));
    pieces
}

/// Writes a result as blocks of user text.
pub(crate) fn write_quote(json: Json<'_>, result: Span, id: &str, name: Option<&str>) -> Vec<Vec<Piece>> {
    let mut quoted = quote::quote_result(json, id, name, json.member(result, "content"), &CARRIED_TYPES);
    // A cache breakpoint of the result must stay behind all of it, which is on the last block.
    let last = quoted.pop();
    let mut blocks: Vec<Vec<Piece>> = quoted.into_iter().map(|piece| write_block(piece, None)).collect();
    blocks.extend(last.map(|piece| write_block(piece, json.member(result, "cache_control"))));
    blocks
}

fn write_block(quoted: QuotedPiece, cache_control: Option<Span>) -> Vec<Piece> {
    match quoted {
        QuotedPiece::Block(span) => vec![Piece::Original(span)],
        QuotedPiece::Text(text) => {
            let mut pieces = vec![Piece::Constant(r#"{"type":"text","text":""#)];
            pieces.extend(text);
            pieces.push(Piece::Constant("\""));
            if let Some(marker) = cache_control {
                pieces.extend([Piece::Constant(r#","cache_control":"#), Piece::Original(marker)]);
            }
            pieces.push(Piece::Constant("}"));
            pieces
        }
    }
}

/// Writes a text block around a JSON string of the body.
pub(crate) fn write_text_block(string: Span) -> Vec<Piece> {
    vec![
        Piece::Constant(r#"{"type":"text","text":"#),
        Piece::Original(string),
        Piece::Constant("}"),
    ]
}

/// Writes a message with `blocks`.
pub(crate) fn write_message(role: &'static str, blocks: Vec<Vec<Piece>>) -> Vec<Piece> {
    let mut pieces = vec![
        Piece::Constant(r#"{"role":""#),
        Piece::Constant(role),
        Piece::Constant(r#"","content":"#),
    ];
    pieces.extend(json::write_list(blocks));
    pieces.push(Piece::Constant("}"));
    pieces
}

/// Replaces the content of the message at `span` by a list of `blocks`.
pub(crate) fn set_content(json: Json<'_>, span: Span, blocks: Vec<Vec<Piece>>) -> Edit {
    json.set_member(span, "content", json::write_list(blocks))
}

/// Writes a user message with one constant text.
pub(crate) fn write_text_message(text: &'static str) -> Vec<Piece> {
    vec![
        Piece::Constant(r#"{"role":"user","content":""#),
        Piece::Constant(text),
        Piece::Constant(r#""}"#),
    ]
}

/// Replaces the id of the call at `span`.
pub(crate) fn set_call_id(json: Json<'_>, span: Span, id: Piece) -> Edit {
    json.set_member(span, "id", vec![id])
}

/// Replaces the id of the result at `span`.
pub(crate) fn set_result_id(json: Json<'_>, span: Span, id: Piece) -> Edit {
    json.set_member(span, "tool_use_id", vec![id])
}

/// Sets an empty object as the input of the call at `span`.
pub(crate) fn set_empty_input(json: Json<'_>, span: Span) -> Edit {
    json.set_member(span, "input", vec![Piece::Constant("{}")])
}

/// Replaces a string as the input of the call at `span` by the object that the string contains as JSON.
///
/// If it contains none, the documented form `{"INVALID_JSON": "<raw>"}` is used (Fine-grained tool streaming, 2026-11).
pub(crate) fn set_text_input(json: Json<'_>, span: Span) -> Option<Edit> {
    let string = json.member(span, "input")?;
    let text = json.decode_string(string);
    let object = std::str::from_utf8(&text)
        .ok()
        .filter(|text| json::is_object(text.as_bytes()));
    let pieces = match object {
        Some(object) => vec![Piece::Made(object.trim().to_owned())],
        None => vec![
            Piece::Constant(r#"{"INVALID_JSON":"#),
            Piece::Original(string),
            Piece::Constant("}"),
        ],
    };
    Some(Edit { span: string, pieces })
}

/// Sets a text as the content of the error result at `span`.
pub(crate) fn set_error_text(json: Json<'_>, span: Span, text: &'static str) -> Edit {
    json.set_member(span, "content", json::constant_string(text))
}

/// Sets `thinking.block_binding.prefix_mismatch_behavior: "drop_block"`.
///
/// `None` if the body has a `block_binding` of its own or switches thinking off.
pub(crate) fn drop_bound_thinking(json: Json<'_>) -> Option<Edit> {
    const BINDING: &str = r#"{"prefix_mismatch_behavior":"drop_block"}"#;
    let root = json.root_span().ok()?;
    // Adding `thinking` "changes nothing else, since models with preserved thinking think adaptively by default" (Fix a
    // thinking block bound to a different conversation, 2026-11).
    let Some(thinking) = json.member(root, "thinking") else {
        let value = vec![
            Piece::Constant(r#"{"type":"adaptive","block_binding":"#),
            Piece::Constant(BINDING),
            Piece::Constant("}"),
        ];
        return Some(json.set_member(root, "thinking", value));
    };
    let off = || {
        let kind = json.member(thinking, "type");
        kind.is_some_and(|kind| *json.decode_string(kind) == *b"disabled")
    };
    let free = json.kind(thinking) == JsonKind::Object && json.member(thinking, "block_binding").is_none() && !off();
    free.then(|| json.set_member(thinking, "block_binding", vec![Piece::Constant(BINDING)]))
}
