//! Results that are too long for a request: their beginning and their end are inserted, with the place of the rest.

use std::borrow::Cow;

use super::late_texts::readable_text;
use crate::wire::{
    json::{Json, JsonKind, quote_string},
    readable_blocks,
};

/// The share of the beginning in a shortened result: two parts of three.
const BEGINNING: (usize, usize) = (2, 3);

/// Returns a posted content as a request contains it: with blocks that some format has, and of at most about `max` bytes.
/// `id` is the call's id, `content` is JSON.
pub fn requested_result<'c>(content: &'c str, id: &str, max: usize) -> Cow<'c, str> {
    match readable_blocks(content) {
        Cow::Borrowed(content) => shorten_result(content, id, max),
        Cow::Owned(content) => Cow::Owned(shorten_result(&content, id, max).into_owned()),
    }
}

/// Returns a posted content of at most about `max` bytes. `id` is the call's id, `content` is JSON.
///
/// A longer content becomes text. A list with an image or another block that is no text stays as it is: a part of such
/// a block is worth nothing.
fn shorten_result<'c>(content: &'c str, id: &str, max: usize) -> Cow<'c, str> {
    if content.len() <= max || has_other_blocks(content) {
        return Cow::Borrowed(content);
    }
    let text = readable_text(content);
    if text.len() <= max {
        return Cow::Borrowed(content);
    }
    let first = max / BEGINNING.1 * BEGINNING.0;
    let begin = boundary_before(&text, first);
    let end = boundary_before(&text, text.len().saturating_sub(max.saturating_sub(first)));
    let (Some(beginning), Some(ending)) = (text.get(..begin), text.get(end..)) else {
        return Cow::Borrowed(content);
    };
    let left_out = end.saturating_sub(begin);
    let shortened = format!(
        "{beginning}\n\n[antiphon: {left_out} of the {} bytes of this result are left out here. POST /ledger/v1/lookup \
         with {{\"call_ids\": [{}]}} returns all of it.]\n\n{ending}",
        text.len(),
        quote_string(id),
    );
    Cow::Owned(quote_string(&shortened))
}

/// Returns the last boundary of a character at or before `at`.
fn boundary_before(text: &str, at: usize) -> usize {
    (0..=at).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}

/// Returns `true` if a content is a list with a block that is no text.
fn has_other_blocks(content: &str) -> bool {
    let json = Json::new(content.as_bytes());
    let Ok(root) = json.root_span() else { return false };
    if json.kind(root) != JsonKind::Array {
        return false;
    }
    let mut found = false;
    let walked = json.for_each_element(root, |block| {
        let kind = json.string_member(block, "type").map(|kind| json.decode_string(kind));
        found |= kind.is_some_and(|kind| !kind.ends_with(b"text"));
    });
    found && walked.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_keeps_its_beginning_and_its_end() {
        let text = format!("BEGIN{}END", "é".repeat(5_000));
        let content = quote_string(&text);
        let short = shorten_result(&content, "call_1", 1_000);
        let short: String = serde_json::from_str(&short).unwrap();
        assert!(short.starts_with("BEGINé") && short.ends_with("éEND"), "{short}");
        assert!(
            short.contains("of the 10008 bytes") && short.contains("\"call_1\""),
            "{short}"
        );
        assert!(short.len() < 1_300, "{}", short.len());
    }

    #[test]
    fn short_contents_and_images_stay() {
        let image = format!(r#"[{{"type":"image","data":"{}"}}]"#, "A".repeat(2_000));
        for content in ["\"x\"", "{\"a\":1}", &image] {
            assert_eq!(shorten_result(content, "c", 1_000), content);
        }
        let object = format!(r#"{{"rows":"{}"}}"#, "x".repeat(2_000));
        let short = shorten_result(&object, "c", 1_000);
        let text: String = serde_json::from_str(&short).unwrap();
        assert!(text.starts_with("{\"rows\":\"xxx") && text.ends_with("xx\"}"), "{text}");
    }
}
