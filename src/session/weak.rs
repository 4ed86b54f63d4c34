//! The name of a session that nobody names: a hash of how its history begins.
#![cfg_attr(
    not(test),
    warn(clippy::indexing_slicing, clippy::string_slice, clippy::arithmetic_side_effects)
)]

use super::Asked;
use crate::{
    conversation::BodyField,
    splice::Span,
    wire::json::{Json, Kind},
};

/// Bytes of each part that are hashed, beside its length.
const HEAD_BYTES: usize = 1024;
/// A message up to this size is looked into; of a larger one the head is hashed as it stands.
const MESSAGE_BYTES_MAX: usize = 64 * 1024;

/// The hash of model family, instructions, tools and the user's first words; none where the body has no user.
pub(super) fn hash(asked: &Asked<'_>) -> Option<[u8; 32]> {
    let (json, outline) = (Json::new(asked.body), asked.outline);
    let first = words(json, outline.first_user?);
    let model = outline.field(BodyField::Model).map(|model| json.decode(model));
    let path_model = asked.path_model.map(str::as_bytes).unwrap_or_default();
    let mut hash = blake3::Hasher::new();
    let bytes = |span: Option<Span>| span.map(|span| json.bytes(span)).unwrap_or_default();
    for part in [
        family(model.as_deref().unwrap_or(path_model)),
        bytes(outline.system),
        bytes(outline.field(BodyField::Tools)),
        json.bytes(first),
    ] {
        hash.update(&part.len().to_le_bytes());
        hash.update(part.get(..part.len().min(HEAD_BYTES)).unwrap_or_default());
    }
    Some(hash.finalize().into())
}

/// A model's name up to its version, without who serves it: a session may change between versions.
fn family(model: &[u8]) -> &[u8] {
    let name = model.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    let end = name.iter().position(u8::is_ascii_digit).filter(|end| *end > 0);
    let family = name.get(..end.unwrap_or(name.len())).unwrap_or_default();
    family.strip_suffix(b"-").unwrap_or(family)
}

/// The first text of a message. What stands around it changes while the session goes on: cache markers, and whether a
/// text is a string or a list of one block.
fn words(json: Json<'_>, message: Span) -> Span {
    if message.len() > MESSAGE_BYTES_MAX {
        return message;
    }
    let content = json
        .member(message, "content")
        .or_else(|| json.member(message, "parts"));
    let Some(content) = content else {
        return message;
    };
    if json.kind(content) != Kind::Array {
        return content;
    }
    let mut first = None;
    let walked = json.elements(content, |block| {
        first.get_or_insert(block);
    });
    let text = first.filter(|block| walked.is_ok() && json.kind(*block) == Kind::Object);
    text.and_then(|block| json.member(block, "text")).unwrap_or(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_is_a_name_without_version() {
        for (model, name) in [
            ("claude-sonnet-4-5-20250929", "claude-sonnet"),
            ("anthropic/claude-opus-4-1", "claude-opus"),
            ("gpt-5.1-codex", "gpt"),
            ("o3", "o"),
            ("models/gemini-3-pro", "gemini"),
            ("4o", "4o"),
            ("mistral-large-latest", "mistral-large-latest"),
            ("", ""),
        ] {
            assert_eq!(family(model.as_bytes()), name.as_bytes(), "{model}");
        }
    }
}
