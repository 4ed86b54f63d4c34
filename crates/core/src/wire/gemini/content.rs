//! The `response` of a call: an object, or any value under a key of its own (Gemini, 2026-11).

use crate::wire::{
    content::{CONTENT_DEPTH_MAX, PostedContent},
    json::{deeper_than, has_overflow},
};

/// Fits a posted content to a response. The writer puts a value that is not an object under a key.
pub(crate) fn fit_content(content: &str) -> String {
    let content = PostedContent::new(content);
    let bytes = content.as_bytes();
    // The provider reads it into a protobuf `Struct`: numbers are doubles, with a hundred levels at most.
    if deeper_than(bytes, CONTENT_DEPTH_MAX).is_some() || has_overflow(bytes) {
        return content.into_text();
    }
    content.into_json()
}
