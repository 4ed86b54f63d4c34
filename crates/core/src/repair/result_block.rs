//! Stored results: cut out of one body and inserted into a later one.

use std::sync::LazyLock;

use memchr::memmem::Finder;

use crate::{
    splice::{Edit, EditList, Piece, Span},
    wire::{
        Format,
        json::{Json, JsonKind},
    },
    work,
};

/// Searchers for the member that is removed, and for escapes by which its key may be hidden.
static CACHE_CONTROL: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"cache_control"));
static UNICODE_ESCAPE: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\\u"));

/// Returns the result at `result` without `cache_control`. `None` if it is no object, or not UTF-8.
pub fn cut_block(body: &[u8], result: Span) -> Option<String> {
    let json = Json::new(body);
    if json.kind(result) != JsonKind::Object {
        return None;
    }
    // Most results have no `cache_control`. A key may be written with escapes, so `\u` needs the full search.
    let bytes = result.of(body);
    work::count_bytes(bytes.len());
    if CACHE_CONTROL.find(bytes).is_none() && UNICODE_ESCAPE.find(bytes).is_none() {
        return std::str::from_utf8(bytes).ok().map(ToOwned::to_owned);
    }
    // Anthropic accepts four breakpoints in a body, and a restored one could be the fifth.
    let mut edits = json.remove_member(result, "cache_control");
    for content in ["content", "output"] {
        let Some(list) = json
            .member(result, content)
            .filter(|list| json.kind(*list) == JsonKind::Array)
        else {
            continue;
        };
        json.for_each_element(list, |block| {
            if json.kind(block) == JsonKind::Object {
                edits.extend(json.remove_member(block, "cache_control"));
            }
        })
        .ok()?;
    }
    let list = EditList::new(edits, body.len()).ok()?;
    // Only removals, so the rest of the block stays byte for byte.
    let bytes = apply_removals(body, result, list.as_slice());
    String::from_utf8(bytes).ok()
}

/// Returns `true` if a stored result contains the id of this call.
pub fn names_call(block: &str, id: &[u8]) -> bool {
    let json = Json::new(block.as_bytes());
    let Ok(root) = json.root_span() else { return false };
    // The formats differ in the member, and a stored block does not record its format.
    ["tool_use_id", "tool_call_id", "call_id", "id"].into_iter().any(|key| {
        json.member(root, key)
            .is_some_and(|value| *json.decode_string(value) == *id)
    })
}

/// Returns content without `cache_control` in its blocks. `content` is JSON.
pub fn without_cache_control(content: &str) -> String {
    let json = Json::new(content.as_bytes());
    let Some(list) = json.root_span().ok().filter(|root| json.kind(*root) == JsonKind::Array) else {
        return content.to_owned();
    };
    let mut edits = Vec::new();
    let walked = json.for_each_element(list, |block| {
        if json.kind(block) == JsonKind::Object {
            edits.extend(json.remove_member(block, "cache_control"));
        }
    });
    let edits = walked.ok().and_then(|()| EditList::new(edits, content.len()).ok());
    let bare =
        edits.and_then(|edits| String::from_utf8(apply_removals(content.as_bytes(), list, edits.as_slice())).ok());
    // Content that cannot be edited is still the result.
    bare.unwrap_or_else(|| content.to_owned())
}

/// Returns the bytes of `span` without the removed ranges, which lie inside it.
fn apply_removals(body: &[u8], span: Span, edits: &[Edit]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(span.len());
    let mut at = span.start;
    work::count_bytes(span.len());
    for edit in edits {
        work::count(1);
        bytes.extend_from_slice(Span::new(at, edit.span.start).of(body));
        at = edit.span.end;
    }
    bytes.extend_from_slice(Span::new(at, span.end).of(body));
    bytes
}

/// Returns a stored result with the id that its call has in this body, and with a content that the provider takes.
pub(super) fn block_with_id(format: Format, block: &str, id: Option<Piece>) -> Vec<Piece> {
    work::count_bytes(block.len());
    let json = Json::new(block.as_bytes());
    let Ok(root) = json.root_span() else {
        return vec![Piece::Made(block.to_owned())];
    };
    let set_id = id.and_then(|id| format.set_result_id(json, root, id));
    // Stored as the client sent it, so its content is fixed here as in a body.
    let set_content = format.set_data_as_text(json, root);
    let mut edits: Vec<Edit> = set_id.into_iter().chain(set_content).collect();
    edits.sort_by_key(|edit| edit.span);
    // The block is not part of the body, so its bytes are copied and not referred to by span.
    let text = |range: std::ops::Range<usize>| Piece::Made(block.get(range).unwrap_or_default().to_owned());
    let (mut all, mut from) = (Vec::new(), 0);
    for edit in edits {
        work::count(edit.pieces.len());
        all.push(text(from..edit.span.start));
        all.extend(edit.pieces);
        from = edit.span.end;
    }
    all.push(text(from..block.len()));
    all
}
