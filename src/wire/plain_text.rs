//! The text of a result whose content is one plain text.

use crate::{
    conversation::Text,
    splice::Span,
    wire::json::{Json, JsonKind},
};

/// Returns the text of a content that is a string, or a list of exactly one text block.
pub(super) fn plain_text(json: Json<'_>, content: Span) -> Option<Text<'_>> {
    match json.kind(content) {
        JsonKind::String => Some(json.decode_string(content)),
        JsonKind::Array => {
            let (mut blocks, mut first) = (0_usize, None);
            let walked = json.for_each_element(content, |block| {
                blocks = blocks.saturating_add(1);
                first = first.or(Some(block));
            });
            let block = first.filter(|block| walked.is_ok() && blocks == 1 && json.kind(*block) == JsonKind::Object)?;
            // The types are `text`, `input_text` and `output_text`.
            let kind = json.member(block, "type")?;
            let is_text = json.decode_string(kind).ends_with(b"text");
            let text = json.member(block, "text").filter(|_| is_text)?;
            (json.kind(text) == JsonKind::String).then(|| json.decode_string(text))
        }
        _ => None,
    }
}

/// Returns the text of a result's `member`, as [`plain`] does.
pub(super) fn member_text<'a>(json: Json<'a>, result: Span, member: &str) -> Option<Text<'a>> {
    plain_text(json, json.member(result, member)?)
}
