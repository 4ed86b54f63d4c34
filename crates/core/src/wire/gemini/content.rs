//! The `response` of a call: an object, or any value under a key of its own (Gemini, 2026-11).

use crate::{
    splice::Span,
    wire::{
        content::{BlockFormat, CONTENT_DEPTH_MAX, PostedContent, fit_blocks, has_image, image_label},
        json::{Json, deeper_than, has_overflow, quote_string},
    },
};

/// The blocks of a posted list, which are plain JSON here.
struct ResponseBlocks;

/// Fits a posted content to a response. The writer puts a value that is not an object under a key.
pub(crate) fn fit_content(content: &str) -> String {
    let content = PostedContent::new(content);
    let bytes = content.as_bytes();
    // The provider reads it into a protobuf `Struct`: numbers are doubles, with a hundred levels at most.
    if deeper_than(bytes, CONTENT_DEPTH_MAX).is_some() || has_overflow(bytes) {
        return content.into_text();
    }
    let (root, _) = content.root_value();
    if has_image(content.as_json(), root) {
        return fit_blocks(content, &ResponseBlocks);
    }
    content.into_json()
}

impl BlockFormat for ResponseBlocks {
    fn takes_block(&self, json: Json<'_>, block: Span) -> bool {
        *json.member_text(block, "type") != *b"image"
    }

    fn text_block(&self, string: &str) -> String {
        format!(r#"{{"type":"text","text":{string}}}"#)
    }

    /// Returns the label of the image: its base64 would be read as text.
    fn image_block(&self, media: &str, data: &str) -> Option<String> {
        Some(self.text_block(&quote_string(&image_label(media, data))))
    }
}
