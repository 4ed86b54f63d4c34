//! The `response` of a call: an object, or any value under a name of its own (Gemini, 2026-11).

use crate::wire::{
    content::{CONTENT_DEPTH_MAX, Content},
    json::{deeper_than, has_overflow},
};

/// Returns a content as a response takes it. A value that is no object is named where it is written.
pub(crate) fn fit_content(content: &str) -> String {
    let content = Content::new(content);
    let bytes = content.bytes();
    // A struct of the provider's holds doubles, and no more than a hundred levels.
    if deeper_than(bytes, CONTENT_DEPTH_MAX).is_some() || has_overflow(bytes) {
        return content.into_text();
    }
    content.into_json()
}
