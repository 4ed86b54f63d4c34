//! A list of texts becomes one text, with a blank line between two of them.
//!
//! `DeepSeek`'s own converter (deepseek-recipe 0.2.0) joins texts so: the model reads what it would have read. vLLM
//! joins them by a line break, `LiteLLM` without anything, which makes one word of two. An empty text leaves no line.
//! Markers of parts go with the parts: a server that takes texts only has no place for them.

use crate::{
    mend::{
        body::{BlockList, MendBody},
        candidate::{Candidate, MendChange},
        join_contents::BLANK_LINE,
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
                pieces.push(Piece::Constant(BLANK_LINE));
            }
            pieces.push(Piece::Original(text));
        }
        let edit = Edit {
            span: list.span,
            pieces: json::enclose("\"", pieces, "\""),
        };
        Some(Candidate::of_message(list.message, "", MendChange::Edit(vec![edit])))
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
