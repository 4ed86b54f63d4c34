//! Messages and blocks that say nothing.

use super::body::{Block, BlockList, MendBody, MendMessage};
use crate::{
    splice::Span,
    wire::{
        HistoryShape,
        json::{self, JsonKind},
    },
    work,
};

/// The words of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockWords {
    /// Nothing: a text of blanks.
    Nothing,
    /// Thoughts of the model, which no reader counts as words.
    Thoughts,
    /// Words, or something that is no text.
    Something,
}

/// Returns the words of a block. A signed part (Gemini) says something, even without words: it must come back.
pub(super) fn words_of(body: &MendBody<'_>, block: &Block<'_>) -> BlockWords {
    let json = body.json;
    let is_text = match (body.wire.format.history(), &*block.kind) {
        (HistoryShape::Messages | HistoryShape::Chat, b"thinking" | b"redacted_thinking") => {
            return BlockWords::Thoughts;
        }
        (HistoryShape::Messages | HistoryShape::Chat | HistoryShape::Contents, b"text")
        | (HistoryShape::Items, b"input_text" | b"output_text" | b"text") => true,
        (HistoryShape::Messages | HistoryShape::Chat | HistoryShape::Items | HistoryShape::Contents, _) => false,
    };
    if !is_text {
        return BlockWords::Something;
    }
    let [text, signature, snake, thought] =
        json.members(block.span, ["text", "thoughtSignature", "thought_signature", "thought"]);
    let is_blank = text
        .and_then(|text| json.only_string(text))
        .is_some_and(|text| json::is_blank(json.bytes(text)));
    if is_blank && signature.is_none() && snake.is_none() && thought.is_none() {
        BlockWords::Nothing
    } else {
        BlockWords::Something
    }
}

/// Returns `true` if the content of a message says nothing. `list` is its list of blocks, if it has one.
pub(super) fn has_no_words(body: &MendBody<'_>, message: &MendMessage<'_>, list: Option<&BlockList<'_>>) -> bool {
    message.content.is_none_or(|content| match body.json.kind(content) {
        JsonKind::String => json::is_blank(body.json.bytes(content)),
        JsonKind::Null => true,
        JsonKind::Array => list.is_some_and(|list| {
            work::count(list.blocks.len());
            let mut blocks = list.blocks.iter();
            blocks.all(|block| words_of(body, block) == BlockWords::Nothing)
        }),
        JsonKind::Object | JsonKind::Other => false,
    })
}

/// Returns `true` if an object has members with a value apart from these. `null` and `[]` are no values.
pub(super) fn has_members_beside(body: &MendBody<'_>, object: Span, known: &[&str]) -> bool {
    let json = body.json;
    let mut found = false;
    let walked = json.for_each_member(object, |key, value| {
        work::count(known.len());
        let is_known = known.iter().any(|name| *key == *name.as_bytes());
        found |= !is_known && !is_void(body, value);
    });
    walked.is_err() || found
}

/// Returns `true` for `null`, `""` and `[]`.
pub(super) fn is_void(body: &MendBody<'_>, value: Span) -> bool {
    match body.json.kind(value) {
        JsonKind::Null => true,
        JsonKind::String => body.json.string_inside(value).is_empty(),
        JsonKind::Array => body.json.is_empty(value),
        JsonKind::Object | JsonKind::Other => false,
    }
}
