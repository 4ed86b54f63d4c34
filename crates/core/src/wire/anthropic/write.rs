//! The writer of blocks and messages of the Messages format.

use crate::{
    splice::{Edit, Piece, Span},
    wire::{
        Format,
        json::{self, Json, JsonKind},
        quote::quote_result,
    },
};

/// Types of blocks in a result that a user message may contain unchanged.
const CARRIED_TYPES: [&[u8]; 3] = [b"image", b"document", b"search_result"];

/// Writes a placeholder as a result.
pub(crate) fn write_placeholder(id: Piece, toolset: Option<Span>, text: &'static str) -> Vec<Piece> {
    write_tool_result(id, toolset, json::constant_string(text), true)
}

/// Writes a real result that was not in the body. `content` is JSON that the block takes.
pub(crate) fn write_result(id: Piece, toolset: Option<Span>, content: String, failed: bool) -> Vec<Piece> {
    write_tool_result(id, toolset, vec![Piece::Made(content)], failed)
}

fn write_tool_result(id: Piece, toolset: Option<Span>, content: Vec<Piece>, failed: bool) -> Vec<Piece> {
    let mut pieces = vec![Piece::Constant(r#"{"type":"tool_result","tool_use_id":"#), id];
    // A result without the `toolset_name` of its call is rejected.
    if let Some(toolset) = toolset {
        pieces.extend([Piece::Constant(r#","toolset_name":"#), Piece::Original(toolset)]);
    }
    let end = if failed { r#","is_error":true}"# } else { "}" };
    pieces.extend(json::enclose(r#","content":"#, content, end));
    pieces
}

/// Writes a result as blocks of user text.
pub(crate) fn write_quote(json: Json<'_>, result: Span, id: &str, name: Option<&str>) -> Vec<Vec<Piece>> {
    let quoted = quote_result(json, id, name, json.member(result, "content"), &CARRIED_TYPES);
    let blocks = quoted.into_iter().map(|piece| piece.into_block(Format::Anthropic));
    let mut blocks: Vec<Vec<Piece>> = blocks.collect();
    // A cache breakpoint of the result must stay after all of it, which is on the last block: a text.
    if let (Some(marker), Some(last)) = (json.member(result, "cache_control"), blocks.last_mut()) {
        last.pop();
        let start = r#","cache_control":"#;
        last.extend(json::enclose(start, vec![Piece::Original(marker)], "}"));
    }
    blocks
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
        let start = r#"{"type":"adaptive","block_binding":"#;
        let value = json::enclose(start, vec![Piece::Constant(BINDING)], "}");
        return Some(json.set_member(root, "thinking", value));
    };
    let free = json.kind(thinking) == JsonKind::Object
        && json.member(thinking, "block_binding").is_none()
        && *json.member_text(thinking, "type") != *b"disabled";
    free.then(|| json.set_member(thinking, "block_binding", vec![Piece::Constant(BINDING)]))
}

/// Writes a block of thinking.
pub(crate) fn write_thinking(text: &str, signature: &str) -> String {
    let (text, signature) = (json::quote_string(text), json::quote_string(signature));
    format!(r#"{{"type":"thinking","thinking":{text},"signature":{signature}}}"#)
}

/// Puts blocks of thinking in front of the content of the message at `span`. Without any, an empty one.
///
/// `blocks` is JSON, with commas between them. `None` if it is not, or if the content is no list with a block.
pub(crate) fn put_thinking(json: Json<'_>, span: Span, blocks: &str) -> Option<Edit> {
    let content = json.member(span, "content")?;
    if json.kind(content) != JsonKind::Array || json.is_empty(content) {
        return None;
    }
    let mut front = if blocks.is_empty() {
        write_thinking("", "")
    } else {
        blocks.to_owned()
    };
    json::validate(format!("[{front}]").as_bytes()).ok()?;
    front.push(',');
    Some(Edit {
        span: Span::at(content.start.saturating_add(1)),
        pieces: vec![Piece::Made(front)],
    })
}

/// Returns `true` if the body names no container. A container without an id is a new one.
pub(crate) fn lacks_container(json: Json<'_>) -> bool {
    let Ok(root) = json.root_span() else { return false };
    json.member(root, "container")
        .is_none_or(|container| match json.kind(container) {
            JsonKind::Object => json.member_text(container, "id").is_empty(),
            _ => json.decode_string(container).is_empty(),
        })
}

/// Sets the container of the body. `None` if the body is no object.
pub(crate) fn set_container(json: Json<'_>, id: &str) -> Option<Edit> {
    let root = json.root_span().ok()?;
    let value = vec![Piece::Made(json::quote_string(id))];
    let object = json
        .member(root, "container")
        .filter(|found| json.kind(*found) == JsonKind::Object);
    // The object may name skills, which must stay.
    Some(match object {
        Some(object) => json.set_member(object, "id", value),
        None => json.set_member(root, "container", value),
    })
}
