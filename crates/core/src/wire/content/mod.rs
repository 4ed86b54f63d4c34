//! Contents of posted tool results: any JSON, converted into the content of a format's tool result.
//!
//! A tool service does not know the format of the conversation in which its result is used. Content that the format
//! takes stays as it was posted, byte for byte, since providers cache it and bind thinking to it. Blocks that the
//! format writes differently are translated, and everything else becomes text.

mod blocks;
mod mcp_blocks;
mod members;
mod user_media;

use std::borrow::Cow;

pub(super) use blocks::{BlockFormat, fit_blocks, has_image};
pub(crate) use mcp_blocks::readable_blocks;
pub(super) use members::{MemberCheck, has_members, is_base64_string, is_string};
pub(crate) use user_media::{image_label, media_label, user_media};

use crate::{
    splice::Span,
    wire::json::{self, Json, JsonKind, compact_json, quote_string, replace_lone_surrogates},
};

/// The deepest nesting of a posted content. Deeper contents, stored before this limit existed, are inserted as text.
pub const CONTENT_DEPTH_MAX: usize = 64;

/// A posted content without lone surrogates.
pub(super) struct PostedContent<'a>(Cow<'a, str>);

impl<'a> PostedContent<'a> {
    pub(super) fn new(content: &'a str) -> Self {
        // Strict readers refuse the whole request for one lone surrogate.
        Self(replace_lone_surrogates(content))
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    pub(super) fn as_json(&self) -> Json<'_> {
        Json::new(self.as_bytes())
    }

    /// Returns the span and the type of the value.
    pub(super) fn root_value(&self) -> (Span, JsonKind) {
        let json = self.as_json();
        // The ledger stores valid JSON only. An empty span reads as `Kind::Other`, which becomes text.
        let root = json.root_span().unwrap_or(Span::at(0));
        (root, json.kind(root))
    }

    /// Returns the content as it is.
    pub(super) fn into_json(self) -> String {
        self.0.into_owned()
    }

    /// Returns the content's JSON as a text.
    pub(super) fn into_text(self) -> String {
        json_as_text(self.as_bytes())
    }
}

/// Returns JSON as a JSON string for a model to read, without white space and needless escapes.
pub(super) fn json_as_text(json: &[u8]) -> String {
    quote_string(&compact_json(json))
}

/// Reports whether the string at `span` has a visible character.
pub(super) fn has_visible_text(json: Json<'_>, span: Span) -> bool {
    is_string(json, span) && !json::is_blank(json.bytes(span))
}
