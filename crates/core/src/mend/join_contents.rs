//! One content from those of several messages: texts are joined by a blank line, lists appended.

use super::body::{MendBody, MendMessage};
use crate::{
    splice::{Edit, Piece, Span},
    wire::json::{self, JsonKind, ListElement},
    work,
};

/// The blank line between two texts, inside a JSON string.
pub(super) const BLANK_LINE: &str = r"\n\n";

/// Returns the edits of the first message that append the contents of the others to its own.
///
/// `None` if a content is neither a text, a list nor `null`.
pub(super) fn join_contents(body: &MendBody<'_>, messages: &[MendMessage<'_>]) -> Option<Vec<Edit>> {
    let (first, later) = messages.split_first()?;
    let json = body.json;
    work::count(messages.len());
    let content_of =
        |message: &MendMessage<'_>| message.content.filter(|content| json.kind(*content) != JsonKind::Null);
    let own = content_of(first);
    let others: Vec<Span> = later.iter().filter_map(content_of).collect();
    let kinds = || own.iter().chain(&others).map(|content| json.kind(*content));
    if !kinds().all(|kind| matches!(kind, JsonKind::String | JsonKind::Array)) {
        return None;
    }
    let edits = if kinds().any(|kind| kind == JsonKind::Array) {
        append_blocks(body, first, own, &others)
    } else {
        append_texts(body, first, own, &others)
    };
    Some(edits)
}

/// Appends texts. The escapes of each stay as they are.
fn append_texts(body: &MendBody<'_>, first: &MendMessage<'_>, own: Option<Span>, others: &[Span]) -> Vec<Edit> {
    let json = body.json;
    let mut is_empty = own.is_none_or(|own| json.string_inside(own).is_empty());
    let mut pieces = Vec::new();
    work::count(others.len());
    for inside in others.iter().map(|text| json.string_inside(*text)) {
        if inside.is_empty() {
            continue;
        }
        if !is_empty {
            pieces.push(Piece::Constant(BLANK_LINE));
        }
        pieces.push(Piece::Original(inside));
        is_empty = false;
    }
    if pieces.is_empty() {
        return Vec::new();
    }
    vec![match own {
        Some(own) => Edit {
            span: Span::at(json.string_inside(own).end),
            pieces,
        },
        None => json.set_member(first.span, "content", json::enclose("\"", pieces, "\"")),
    }]
}

/// Appends blocks. A text becomes a block, an empty one goes: providers refuse a block without a text.
fn append_blocks(body: &MendBody<'_>, first: &MendMessage<'_>, own: Option<Span>, others: &[Span]) -> Vec<Edit> {
    let json = body.json;
    let blocks_of = |content: &Span| match json.kind(*content) {
        JsonKind::Array => {
            let blocks = json.elements(*content);
            let (from, to) = (blocks.first()?.start, blocks.last()?.end);
            Some(vec![Piece::Original(Span::new(from, to))])
        }
        _ if json.string_inside(*content).is_empty() => None,
        _ => Some(body.text_block(first.author, vec![Piece::Original(*content)])),
    };
    let mut added: Vec<Vec<Piece>> = others.iter().filter_map(blocks_of).collect();
    work::count(added.len());
    let Some(list) = own.filter(|own| json.kind(*own) == JsonKind::Array) else {
        added.splice(0..0, own.as_ref().and_then(blocks_of));
        return vec![json.set_member(first.span, "content", json::write_list(added))];
    };
    let blocks = json.elements(list);
    let kept = (0..blocks.len()).map(|at| ListElement::Kept(at, Vec::new()));
    let wanted = kept.chain(added.into_iter().map(ListElement::New)).collect();
    json::rebuild_list(list, &blocks, wanted)
}
