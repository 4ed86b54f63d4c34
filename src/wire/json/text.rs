//! JSON strings: decode, judge and write them.
#![cfg_attr(
    not(test),
    warn(clippy::indexing_slicing, clippy::string_slice, clippy::arithmetic_side_effects)
)]

use std::{
    borrow::Cow,
    fmt::{self, Write as _},
};

use serde::{
    Deserialize,
    de::{IgnoredAny, Visitor},
};

use crate::conversation::Text;

/// Whether a JSON string (quotes included) holds no visible character.
pub fn is_blank(string: &[u8]) -> bool {
    // Most texts begin with a visible letter, and are not decoded to see it.
    if string
        .get(1)
        .is_some_and(|first| first.is_ascii_graphic() && !matches!(first, b'"' | b'\\'))
    {
        return false;
    }
    String::from_utf8_lossy(&decode(string))
        .chars()
        .all(char::is_whitespace)
}

/// The decoded bytes of a JSON string, quotes included; empty for anything else.
pub(super) fn decode(string: &[u8]) -> Text<'_> {
    let inside = string.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\""));
    match inside {
        Some(inside) if memchr::memchr(b'\\', inside).is_none() => Cow::Borrowed(inside),
        Some(_) => serde_json::from_slice(string).map_or_else(|_| Cow::default(), |Decoded(text)| Cow::Owned(text)),
        None => Cow::default(),
    }
}

/// A string decoded as bytes, so that a lone surrogate is no error.
struct Decoded(Vec<u8>);

impl<'de> Deserialize<'de> for Decoded {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_byte_buf(DecodedVisitor)
    }
}

struct DecodedVisitor;

impl Visitor<'_> for DecodedVisitor {
    type Value = Decoded;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Decoded, E> {
        Ok(Decoded(bytes.to_vec()))
    }
}

/// Whether `text` is one JSON object.
pub fn is_object(text: &[u8]) -> bool {
    let start = text.iter().position(|byte| !byte.is_ascii_whitespace());
    start.and_then(|at| text.get(at)) == Some(&b'{') && serde_json::from_slice::<IgnoredAny>(text).is_ok()
}

/// `text` as a JSON string, quotes included.
pub fn quoted(text: &str) -> String {
    format!("\"{}\"", escaped(text))
}

/// `text` as the inside of a JSON string.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{0}'..='\u{1f}' => {
                // Writing to a string cannot fail.
                let _ = write!(out, "\\u{:04x}", u32::from(letter));
            }
            _ => out.push(letter),
        }
    }
    out
}
