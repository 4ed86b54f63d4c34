//! Blanks at the very end of the last message of the assistant go.

use crate::{
    conversation::Role,
    mend::{
        body::{BlockList, MendBody},
        candidate::{Candidate, MendChange},
        string_end::visible_end,
        texts,
        wordless::{BlockWords, words_of},
    },
    splice::{Edit, Span},
    wire::{
        HistoryShape,
        json::{self, JsonKind, ListElement},
    },
    work,
};

/// Returns the last message, if it is the assistant's and its text ends with blanks.
pub(in crate::mend) fn find(body: &MendBody<'_>) -> Vec<Candidate> {
    match body.wire.format.history() {
        HistoryShape::Messages | HistoryShape::Chat => {}
        // No provider of these formats looks at the end of a text.
        HistoryShape::Items | HistoryShape::Contents => return Vec::new(),
    }
    let Some((at, last)) = body.messages.iter().enumerate().next_back() else {
        return Vec::new();
    };
    let Some(content) = last
        .content
        .filter(|_| last.author == Role::Assistant && last.calls.is_empty())
    else {
        return Vec::new();
    };
    let list = body.lists.iter().rev().find(|list| list.message == at);
    let edits = match (body.json.kind(content), list) {
        (JsonKind::String, _) => trim_text(body, content),
        (JsonKind::Array, Some(list)) => trim_list(body, list),
        _ => Vec::new(),
    };
    if edits.is_empty() {
        return Vec::new();
    }
    vec![Candidate::of_message(at, "", MendChange::Edit(edits))]
}

/// Returns the edit of a text. Of one that has nothing else the constant text is left, and an empty one stays.
fn trim_text(body: &MendBody<'_>, text: Span) -> Vec<Edit> {
    let inside = body.json.string_inside(text);
    let end = visible_end(body.json.bytes(inside));
    let blanks = Span::new(inside.start.saturating_add(end), inside.end);
    if blanks.is_empty() {
        return Vec::new();
    }
    if end == 0 {
        let pieces = json::constant_string(texts::EMPTY);
        return vec![Edit { span: text, pieces }];
    }
    vec![Edit {
        span: blanks,
        pieces: Vec::new(),
    }]
}

/// Returns the edits of a list that ends with a text. A text of blanks behind another text goes.
fn trim_list(body: &MendBody<'_>, list: &BlockList<'_>) -> Vec<Edit> {
    let json = body.json;
    work::count(list.blocks.len());
    let mut kept = list.blocks.len();
    while let Some([before, last]) = kept
        .checked_sub(2)
        .and_then(|from| list.blocks.get(from..kept))
        .and_then(|pair| pair.first_chunk::<2>())
    {
        if words_of(body, last) != BlockWords::Nothing || *before.kind != *b"text" {
            break;
        }
        kept = kept.saturating_sub(1);
    }
    let text = kept
        .checked_sub(1)
        .and_then(|at| list.blocks.get(at))
        .filter(|block| *block.kind == *b"text")
        .and_then(|block| json.string_member(block.span, "text"));
    let mut inside = text.map_or_else(Vec::new, |text| trim_text(body, text));
    if inside.is_empty() && kept == list.blocks.len() {
        return Vec::new();
    }
    let mut wanted: Vec<ListElement> = (0..kept).map(|at| ListElement::Kept(at, Vec::new())).collect();
    if let Some(ListElement::Kept(_, edits)) = wanted.last_mut() {
        edits.append(&mut inside);
    }
    let spans: Vec<_> = list.blocks.iter().map(|block| block.span).collect();
    json::rebuild_list(list.span, &spans, wanted)
}
