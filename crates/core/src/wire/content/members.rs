//! The members of blocks, and their comparison with a schema.

use crate::{
    splice::Span,
    wire::json::{Json, JsonKind},
};

/// A test of one value against a schema.
pub(crate) type MemberCheck = fn(Json<'_>, Span) -> bool;

/// Reports whether the value at `object` is an object with all members of `must`, any of `may` and no others.
///
/// Each value must pass the check of its member.
pub(crate) fn has_members(
    json: Json<'_>,
    object: Span,
    must: &[(&str, MemberCheck)],
    may: &[(&str, MemberCheck)],
) -> bool {
    // Providers refuse members that their schema does not list.
    let mut missing: Vec<&str> = must.iter().map(|(name, _)| *name).collect();
    let mut fits = json.kind(object) == JsonKind::Object;
    let walked = json.for_each_member(object, |key, value| {
        let known = must.iter().chain(may).find(|(name, _)| name.as_bytes() == key);
        fits &= known.is_some_and(|(_, check)| check(json, value));
        missing.retain(|name| name.as_bytes() != key);
    });
    fits && walked.is_ok() && missing.is_empty()
}

/// Reports whether the value at `span` is a string.
pub(crate) fn is_string(json: Json<'_>, span: Span) -> bool {
    json.kind(span) == JsonKind::String
}

/// Reports whether the value at `span` is a string of base64, padded and without white space.
pub(crate) fn is_base64_string(json: Json<'_>, span: Span) -> bool {
    is_string(json, span) && is_base64(&json.decode_string(span))
}

/// Reports whether these bytes are base64, padded and without white space.
pub(super) fn is_base64(data: &[u8]) -> bool {
    let digits = data.strip_suffix(b"==").or_else(|| data.strip_suffix(b"="));
    let digits = digits.unwrap_or(data);
    let are_digits = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    !digits.is_empty() && data.len().is_multiple_of(4) && digits.iter().all(are_digits)
}
