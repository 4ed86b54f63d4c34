//! Checks of a call's input and name that the readers make in passing.

use crate::{
    conversation::{InputFault, rules::is_word},
    splice::Span,
    wire::{
        Format,
        json::{Json, JsonKind},
    },
    work,
};

/// Returns the fault of a call's input where an object is required. `None` if it is one.
pub(crate) fn object_fault(json: Json<'_>, input: Option<Span>) -> Option<InputFault> {
    let Some(input) = input else {
        return Some(InputFault::Empty);
    };
    match json.kind(input) {
        JsonKind::Object => None,
        JsonKind::Null => Some(InputFault::Empty),
        // PHP clients write an empty object as `[]`.
        JsonKind::Array if json.is_empty(input) => Some(InputFault::Empty),
        JsonKind::String => Some(InputFault::Text),
        _ => Some(InputFault::NotObject),
    }
}

/// Returns `true` if a tool's name at `name` has a character that providers reject, or none at all.
///
/// `OpenAI` and Anthropic: `^[a-zA-Z0-9_-]+$`, in the error texts of both. Gemini also takes dots and colons
/// (`FunctionDeclaration`, 2026-11).
pub(crate) fn has_illegal_character(format: Format, json: Json<'_>, name: Span) -> bool {
    let is_legal = |byte: &u8| is_word(*byte) || (format == Format::Gemini && matches!(byte, b'.' | b':'));
    let inside = json.bytes(json.string_inside(name));
    work::count(inside.len());
    // Nearly all names are legal as they are written, and need no decoding.
    let is_plain = !inside.is_empty() && inside.iter().all(is_legal);
    json.kind(name) == JsonKind::String && !is_plain && {
        let decoded = json.decode_string(name);
        decoded.is_empty() || !decoded.iter().all(is_legal)
    }
}
