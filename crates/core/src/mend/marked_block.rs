//! Marked text in the place of a block.

use super::{
    body::{Block, BlockList, MendBody},
    candidate::{BlockPlace, Candidate, MendChange},
};
use crate::{
    conversation::Role,
    splice::{Edit, Piece, Span},
    wire::{
        HistoryShape,
        json::{self, JsonKind},
    },
    work,
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

/// The digits of base64.
const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Writes a text in the place of a block that shows `source`, an image or a document.
///
/// A result of Gemini takes media only: there the text is a document of plain text, under the name that the response
/// may use.
pub(super) fn quote_media(body: &MendBody<'_>, list: &BlockList<'_>, block: &Block<'_>, mark: String) -> Edit {
    let is_plain = match body.wire.format.history() {
        HistoryShape::Contents => !list.of_result,
        HistoryShape::Messages | HistoryShape::Chat | HistoryShape::Items => true,
    };
    if is_plain {
        return quote(body, list.message, block.span, vec![Piece::Made(mark)]);
    }
    let name = std::str::from_utf8(&block.kind)
        .ok()
        .and_then(|kind| body.json.member(block.span, kind))
        .and_then(|source| body.json.string_member(source, "displayName"));
    let mut pieces = vec![Piece::Constant(r#"{"inlineData":{"mimeType":"text/plain""#)];
    if let Some(name) = name {
        pieces.extend([Piece::Constant(r#","displayName":"#), Piece::Original(name)]);
    }
    let data = format!(r#","data":"{}"}}}}"#, in_base64(mark.as_bytes()));
    pieces.push(Piece::Made(data));
    Edit {
        span: block.span,
        pieces,
    }
}

/// Returns the bytes in base64.
fn in_base64(bytes: &[u8]) -> String {
    work::count_bytes(bytes.len());
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let [first, second, third] = [0, 1, 2].map(|at| u32::from(group.get(at).copied().unwrap_or_default()));
        let bits = (first << 16) | (second << 8) | third;
        for (at, shift) in [18, 12, 6, 0].into_iter().enumerate() {
            let digit = usize::try_from((bits >> shift) & 63).unwrap_or_default();
            let digit = DIGITS.get(digit).copied().unwrap_or_default();
            text.push(if at <= group.len() { char::from(digit) } else { '=' });
        }
    }
    text
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
