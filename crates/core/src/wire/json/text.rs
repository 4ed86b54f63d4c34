//! JSON strings: decoding, checking and writing.

use std::{
    borrow::Cow,
    fmt::{self, Write as _},
};

use serde::{
    Deserialize,
    de::{IgnoredAny, Visitor},
};

use super::skip;
use crate::{conversation::Text, work};

/// Returns `true` if a JSON string, quotes included, has no visible character. Reads up to the first one.
pub fn is_blank(string: &[u8]) -> bool {
    let mut rest = string.get(1..string.len().saturating_sub(1)).unwrap_or_default();
    loop {
        work::count(1);
        rest = match rest {
            [] => return true,
            [b' ' | b'\n' | b'\r' | b'\t', rest @ ..] | [b'\\', b'n' | b'r' | b't' | b'f', rest @ ..] => rest,
            // Escapes are rare here, so decoding the whole string is good enough.
            [b'\\', b'u', ..] => {
                return String::from_utf8_lossy(&decode_string(string))
                    .chars()
                    .all(char::is_whitespace);
            }
            [first, ..] if first.is_ascii() => return false,
            _ => {
                let head = rest.get(..rest.len().min(4)).unwrap_or_default();
                let letter = head.utf8_chunks().next().and_then(|chunk| chunk.valid().chars().next());
                match letter.filter(|letter| letter.is_whitespace()) {
                    Some(letter) => rest.get(letter.len_utf8()..).unwrap_or_default(),
                    None => return false,
                }
            }
        };
    }
}

/// Decodes a JSON string, which includes its quotes. Returns an empty text for anything else.
pub(super) fn decode_string(string: &[u8]) -> Text<'_> {
    work::count_bytes(string.len());
    let inside = string.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\""));
    match inside {
        // Nearly all strings: without a backslash they decode to themselves.
        Some(inside) if memchr::memchr(b'\\', inside).is_none() => Cow::Borrowed(inside),
        Some(_) => serde_json::from_slice(string).map_or_else(|_| Cow::default(), |Decoded(text)| Cow::Owned(text)),
        None => Cow::default(),
    }
}

/// A string that is decoded as bytes, so that a lone surrogate is no error.
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
        work::count(bytes.len());
        Ok(Decoded(bytes.to_vec()))
    }
}

/// Returns `true` if `text` is one JSON object.
pub fn is_object(text: &[u8]) -> bool {
    work::count(text.len());
    // The first byte excludes most texts before the full parse.
    let start = text.iter().position(|byte| !byte.is_ascii_whitespace());
    start.and_then(|at| text.get(at)) == Some(&b'{') && serde_json::from_slice::<IgnoredAny>(text).is_ok()
}

/// Rewrites JSON text without white space between values and with only the necessary escapes.
///
/// A string with a lone surrogate stays as it is.
pub fn compact_json(json: &[u8]) -> String {
    let mut out = String::with_capacity(json.len());
    let mut rest = json;
    while let Some((first, after)) = rest.split_first() {
        work::count(1);
        if *first != b'"' {
            if !first.is_ascii_whitespace() {
                out.push(char::from(*first));
            }
            rest = after;
            continue;
        }
        // Broken text loses nothing: a string without an end reaches to the end of the text.
        let end = skip::string_end(rest, 1).unwrap_or(rest.len());
        let (string, after) = rest.split_at_checked(end).unwrap_or((rest, &[]));
        match std::str::from_utf8(&decode_string(string)) {
            Ok(text) => out.push_str(&quote_string(text)),
            Err(_) => out.push_str(&String::from_utf8_lossy(string)),
        }
        rest = after;
    }
    out
}

/// Writes `text` as a JSON string, quotes included.
pub fn quote_string(text: &str) -> String {
    format!("\"{}\"", escape_string(text))
}

/// Writes `text` as the inside of a JSON string.
pub fn escape_string(text: &str) -> String {
    work::count(text.len());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blank_is_what_shows_nothing() {
        for text in [
            "",
            " ",
            r"\n\t \r\f",
            "\u{a0}\u{2003} ",
            r"\u0020\u00a0",
            " \u{3000}\\n",
        ] {
            assert!(is_blank(format!("\"{text}\"").as_bytes()), "{text:?}");
        }
        for text in [
            "a",
            " a",
            r"\\",
            r"\b",
            r"\u0061",
            "é",
            "\u{2003}漢",
            r"\n\ud83d",
            "\u{200b}",
        ] {
            assert!(!is_blank(format!("\"{text}\"").as_bytes()), "{text:?}");
        }
    }
}
