//! The text of a result whose content is one plain text.

use crate::{
    conversation::Text,
    splice::Span,
    wire::json::{Json, JsonKind},
};

/// Returns the text of a content that is a string, or a list of exactly one text block.
///
/// `None` also if `is_wanted` returns `false` for the string, quotes included.
pub(super) fn plain_text(json: Json<'_>, content: Span, is_wanted: fn(&[u8]) -> bool) -> Option<Text<'_>> {
    let string = match json.kind(content) {
        JsonKind::String => content,
        JsonKind::Array => {
            let [block] = json.elements(content)[..] else {
                return None;
            };
            // The types are `text`, `input_text` and `output_text`.
            let [kind, text] = json.members(block, ["type", "text"]);
            let is_text = kind.is_some_and(|kind| json.decode_string(kind).ends_with(b"text"));
            text.filter(|_| is_text).and_then(|text| json.only_string(text))?
        }
        _ => return None,
    };
    is_wanted(json.bytes(string)).then(|| json.decode_string(string))
}

/// Returns the text of a result's `member`, as [`plain_text`] does.
pub(super) fn member_text<'a>(
    json: Json<'a>,
    result: Span,
    member: &str,
    is_wanted: fn(&[u8]) -> bool,
) -> Option<Text<'a>> {
    plain_text(json, json.member(result, member)?, is_wanted)
}
