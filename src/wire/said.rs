//! The text of a result whose content is one plain text.

use crate::{
    conversation::Text,
    splice::Span,
    wire::json::{Json, Kind},
};

/// Returns the text of a content that is a string, or a list of exactly one text block.
pub(super) fn plain(json: Json<'_>, content: Span) -> Option<Text<'_>> {
    match json.kind(content) {
        Kind::String => Some(json.decode(content)),
        Kind::Array => {
            let (mut blocks, mut first) = (0_usize, None);
            let walked = json.elements(content, |block| {
                blocks = blocks.saturating_add(1);
                first = first.or(Some(block));
            });
            let block = first.filter(|block| walked.is_ok() && blocks == 1 && json.kind(*block) == Kind::Object)?;
            // The types are `text`, `input_text` and `output_text`.
            let kind = json.member(block, "type")?;
            let is_text = json.decode(kind).ends_with(b"text");
            let text = json.member(block, "text").filter(|_| is_text)?;
            (json.kind(text) == Kind::String).then(|| json.decode(text))
        }
        _ => None,
    }
}

/// Returns the text of a result's `member`, as [`plain`] does.
pub(super) fn plain_in<'a>(json: Json<'a>, result: Span, member: &str) -> Option<Text<'a>> {
    plain(json, json.member(result, member)?)
}
