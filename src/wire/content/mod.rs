//! Contents of tool results from outside a conversation: any JSON, made into what a format's tool result takes.
//!
//! A tool service does not know the format of the conversation that its result goes into. What the format takes stays as
//! it was posted, byte for byte: providers cache and bind what they have seen. Blocks that the format writes otherwise
//! are translated, everything else becomes text.
#![cfg_attr(
    not(test),
    warn(clippy::indexing_slicing, clippy::string_slice, clippy::arithmetic_side_effects)
)]

mod blocks;
mod members;

use std::borrow::Cow;

pub(super) use blocks::{Blocks, Fit, fit};
pub(super) use members::{Check, has_members, is_base64_string, is_string, kind_of, string_of};

use crate::{
    splice::Span,
    wire::json::{self, Json, Kind, compact, mend_surrogates, quoted},
};

/// The deepest nesting that a posted content may have. A deeper one, from before there was a limit, is put in as text.
pub const CONTENT_DEPTH_MAX: usize = 64;

/// A content without lone surrogates.
pub(super) struct Content<'a>(Cow<'a, str>);

impl<'a> Content<'a> {
    pub(super) fn new(content: &'a str) -> Self {
        Self(mend_surrogates(content))
    }

    pub(super) fn bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    pub(super) fn json(&self) -> Json<'_> {
        Json::new(self.bytes())
    }

    /// Returns the one value and its type.
    pub(super) fn root(&self) -> (Span, Kind) {
        let json = self.json();
        let root = json.root().unwrap_or(Span::at(0));
        (root, json.kind(root))
    }

    /// Returns the content as it is.
    pub(super) fn into_json(self) -> String {
        self.0.into_owned()
    }

    /// Returns its JSON as a text.
    pub(super) fn into_text(self) -> String {
        as_text(self.bytes())
    }
}

/// Returns JSON as a text that a model can read, quotes included: without white space and needless escapes.
pub(super) fn as_text(json: &[u8]) -> String {
    quoted(&compact(json))
}

/// Returns a list of blocks that are JSON already; an empty text if there are none.
pub(super) fn list(blocks: &[String]) -> String {
    if blocks.is_empty() {
        return "\"\"".to_owned();
    }
    format!("[{}]", blocks.join(","))
}

/// Reports whether the string at `span` has a visible character.
pub(super) fn is_spoken(json: Json<'_>, span: Span) -> bool {
    json.kind(span) == Kind::String && !json::is_blank(json.bytes(span))
}
