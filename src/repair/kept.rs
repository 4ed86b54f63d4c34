//! Results that are kept: cut out of one body, put back into a later one.

use crate::{
    splice::{Edit, EditList, Piece, Span},
    wire::{
        Format,
        json::{Json, Kind},
    },
};

/// The result at `result` without `cache_control`; none where it is no object in plain text.
pub fn cut(body: &[u8], result: Span) -> Option<String> {
    let json = Json::new(body);
    if json.kind(result) != Kind::Object {
        return None;
    }
    let mut edits = json.unset(result, "cache_control");
    for content in ["content", "output"] {
        let Some(list) = json
            .member(result, content)
            .filter(|list| json.kind(*list) == Kind::Array)
        else {
            continue;
        };
        json.elements(list, |block| {
            if json.kind(block) == Kind::Object {
                edits.extend(json.unset(block, "cache_control"));
            }
        })
        .ok()?;
    }
    let list = EditList::new(edits, body.len()).ok()?;
    let bytes = inside(body, result, list.as_slice());
    String::from_utf8(bytes).ok()
}

/// The bytes of `span` with the edits, which lie inside it and only remove.
fn inside(body: &[u8], span: Span, edits: &[Edit]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(span.len());
    let mut at = span.start;
    for edit in edits {
        bytes.extend_from_slice(Span::new(at, edit.span.start).of(body));
        at = edit.span.end;
    }
    bytes.extend_from_slice(Span::new(at, span.end).of(body));
    bytes
}

/// A kept result under the id that its call has in this body.
pub(super) fn put(format: Format, block: &str, id: Option<Piece>) -> Vec<Piece> {
    let json = Json::new(block.as_bytes());
    let edit = json
        .root()
        .ok()
        .zip(id)
        .and_then(|(root, id)| format.set_result_id(json, root, id));
    let Some(Edit { span, pieces }) = edit else {
        return vec![Piece::Made(block.to_owned())];
    };
    let text = |range: std::ops::Range<usize>| Piece::Made(block.get(range).unwrap_or_default().to_owned());
    let mut all = vec![text(0..span.start)];
    all.extend(pieces);
    all.push(text(span.end..block.len()));
    all
}
