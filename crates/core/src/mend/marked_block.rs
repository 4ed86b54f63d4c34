//! Marked text in the place of a block.

use super::{
    body::MendBody,
    candidate::{BlockPlace, Candidate, MendChange},
};
use crate::{
    conversation::Role,
    splice::{Edit, Piece, Span},
    wire::json::{self, JsonKind},
};

/// Returns the candidate that is a block, with edits that may go beyond it.
pub(super) fn candidate(body: &MendBody<'_>, place: BlockPlace, edits: Vec<Edit>) -> Candidate {
    let list = body.lists.get(place.list);
    let block = list.and_then(|list| list.blocks.get(place.at));
    let class = block
        .map(|block| String::from_utf8_lossy(&block.kind))
        .unwrap_or_default();
    let message = list.map_or(0, |list| list.message);
    Candidate {
        hash: block.map(|block| body.hash_of(block.span)),
        ..Candidate::of_block(message, place, &class, MendChange::Edit(edits))
    }
}

/// Writes a text in the place of a block. `inside` is the inside of its string.
pub(super) fn quote(body: &MendBody<'_>, message: usize, block: Span, inside: Vec<Piece>) -> Edit {
    let author = body.messages.get(message).map_or(Role::User, |message| message.author);
    let mut string = json::enclose("\"", inside, "\"");
    // A cache marker stays: without it the provider would forget the prefix up to here.
    let marker = body.json.member(block, "cache_control");
    if let Some(marker) = marker.filter(|marker| body.json.kind(*marker) == JsonKind::Object) {
        string.extend([Piece::Constant(r#","cache_control":"#), Piece::Original(marker)]);
    }
    Edit {
        span: block,
        pieces: body.text_block(author, string),
    }
}
