//! A list of texts becomes one text, with a line break between two of them.
//!
//! Servers join them themselves, some without anything between them (`LiteLLM`), some with a line break (vLLM). Two texts
//! that a client keeps apart are two to the model as well, so a line break is the safer choice. Markers of parts go with
//! the parts: a server that takes texts only has no place for them.

use crate::{
    mend::{
        body::{BlockList, MendBody},
        candidate::{Candidate, Change},
    },
    splice::{Edit, Piece, Span},
    wire::{HistoryShape, json},
    work,
};

/// Returns the messages whose content is a list of nothing but texts.
pub(in crate::mend) fn find(body: &MendBody<'_>) -> Vec<Candidate> {
    match body.wire.format.history() {
        HistoryShape::Chat => {}
        // Content is a list of blocks in these formats.
        HistoryShape::Messages | HistoryShape::Items | HistoryShape::Contents => return Vec::new(),
    }
    let one_text = |list: &BlockList<'_>| {
        let texts = texts_of(body, list)?;
        let mut pieces = Vec::new();
        for text in texts.into_iter().filter(|text| !text.is_empty()) {
            work::count(1);
            if !pieces.is_empty() {
                pieces.push(Piece::Constant(r"\n"));
            }
            pieces.push(Piece::Original(text));
        }
        let edit = Edit {
            span: list.span,
            pieces: json::enclose("\"", pieces, "\""),
        };
        Some(Candidate::of_message(list.message, "", Change::Edit(vec![edit])))
    };
    body.lists.iter().filter_map(one_text).collect()
}

/// Returns the insides of the texts of a list. `None` if something else stands in it.
fn texts_of(body: &MendBody<'_>, list: &BlockList<'_>) -> Option<Vec<Span>> {
    let json = body.json;
    work::count(list.blocks.len());
    let texts = list.blocks.iter().map(|block| {
        let text = json.string_member(block.span, "text")?;
        (*block.kind == *b"text").then(|| json.string_inside(text))
    });
    texts.collect()
}
