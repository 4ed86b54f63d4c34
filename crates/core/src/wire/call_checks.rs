//! Checks of a call's input and name that the readers make in passing.

use crate::{
    conversation::{InputFault, NameFault},
    splice::Span,
    wire::{
        Format, Unreadable,
        json::{Cursor, Json, JsonKind},
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

/// Passes the name of a call, and returns its fault if it is missing, null or empty.
pub(crate) fn read_name_fault(cursor: &mut Cursor<'_>) -> Result<Option<NameFault>, Unreadable> {
    let kind = cursor.peek_kind();
    let name = cursor.skip_bytes()?;
    Ok(match kind {
        JsonKind::Null => Some(NameFault::Missing),
        JsonKind::String => (name == br#""""#).then_some(NameFault::Empty),
        // The provider decides about a name that is no text.
        JsonKind::Object | JsonKind::Array | JsonKind::Other => None,
    })
}

/// Returns the fault of a tool's name at `name`: no characters, or one that providers reject. `None` if it is no text.
pub(crate) fn character_fault(format: Format, json: Json<'_>, name: Span) -> Option<NameFault> {
    let is_legal = |byte: &u8| format.takes_in_name(*byte);
    let inside = json.bytes(json.string_inside(name));
    work::count(inside.len());
    // Nearly all names are legal as they are written, and need no decoding.
    let is_plain = !inside.is_empty() && inside.iter().all(is_legal);
    if json.kind(name) != JsonKind::String || is_plain {
        return None;
    }
    let decoded = json.decode_string(name);
    if decoded.is_empty() {
        return Some(NameFault::Empty);
    }
    (!decoded.iter().all(is_legal)).then_some(NameFault::Illegal)
}
