//! The name of a session without a label: a hash of the beginning of its history.
#![cfg_attr(
    not(test),
    warn(clippy::indexing_slicing, clippy::string_slice, clippy::arithmetic_side_effects)
)]

use super::SessionRequest;
use crate::{
    conversation::{BodyField, Outline},
    digest::Digest,
    splice::Span,
    wire::json::{Json, JsonKind},
};

/// Bytes of the first text that are hashed, together with its length. Many begin with a note of the client.
const TEXT_BYTES: usize = 1024;
/// Bytes of any other part that are hashed, together with its length. A client writes the same in most conversations.
const PART_BYTES: usize = 128;
/// The longest message that is parsed, in bytes. A longer one is hashed from its start.
const MESSAGE_BYTES_MAX: usize = 64 * 1024;

/// Returns the hash of the model family, the instructions, the tools and the first text of the user.
///
/// `None` if the body has no user message.
pub(super) fn history_hash(request: &SessionRequest<'_>) -> Option<[u8; 32]> {
    let (json, outline) = (Json::new(request.body), request.outline);
    let first = request.first_text?;
    let model = outline.field(BodyField::Model).map(|model| json.decode_string(model));
    let path_model = request.path_model.map(str::as_bytes).unwrap_or_default();
    let mut hash = Digest::new_unkeyed();
    let bytes = |span: Option<Span>| span.map(|span| json.bytes(span)).unwrap_or_default();
    for (part, bytes_max) in [
        (model_family(model.as_deref().unwrap_or(path_model)), PART_BYTES),
        (bytes(outline.system), PART_BYTES),
        (bytes(outline.field(BodyField::Tools)), PART_BYTES),
        (json.bytes(first), TEXT_BYTES),
    ] {
        // The length separates long parts that begin alike.
        hash.update(&part.len().to_le_bytes());
        hash.update(part.get(..part.len().min(bytes_max)).unwrap_or_default());
    }
    Some(hash.finish())
}

/// Returns a model's name without its provider and version: a session may switch between versions.
fn model_family(model: &[u8]) -> &[u8] {
    let name = model.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    // A name that begins with a digit, such as `4o`, consists of nothing else.
    let end = name.iter().position(u8::is_ascii_digit).filter(|end| *end > 0);
    let family = name.get(..end.unwrap_or(name.len())).unwrap_or_default();
    family.strip_suffix(b"-").unwrap_or(family)
}

/// Returns the span of the user's first text in a body. `None` if the body has no user message.
pub fn first_text(body: &[u8], outline: &Outline) -> Option<Span> {
    let message = outline.first_user?;
    Some(text_of(Json::new(body), message))
}

/// Returns the span of a message's first text.
///
/// Clients change the rest during a session: cache markers, and a string that becomes a list of one block.
fn text_of(json: Json<'_>, message: Span) -> Span {
    if message.len() > MESSAGE_BYTES_MAX {
        return message;
    }
    let [content, parts] = json.members(message, ["content", "parts"]);
    let Some(content) = content.or(parts) else {
        return message;
    };
    if json.kind(content) != JsonKind::Array {
        return content;
    }
    let mut first = None;
    let walked = json.for_each_element(content, |block| {
        first.get_or_insert(block);
    });
    let text = first.filter(|block| walked.is_ok() && json.kind(*block) == JsonKind::Object);
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
            assert_eq!(model_family(model.as_bytes()), name.as_bytes(), "{model}");
        }
    }
}
