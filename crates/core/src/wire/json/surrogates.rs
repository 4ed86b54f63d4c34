//! Lone surrogates: escapes such as `\ud800` without their other half. Strict readers refuse them.

use std::borrow::Cow;

use crate::work;

/// The escape of U+FFFD, which has the length of the escape that it replaces.
pub const REPLACEMENT: &str = "\\ufffd";
/// Number of bytes in an escape with four digits.
const ESCAPE: usize = REPLACEMENT.len();

/// Replaces every lone surrogate in valid JSON text by U+FFFD. All other bytes stay as they are.
pub fn replace_lone_surrogates(json: &str) -> Cow<'_, str> {
    let mut mended = String::new();
    let mut copied = 0_usize;
    while let Some(escape) = find_lone_surrogate(json.as_bytes(), copied) {
        mended.push_str(json.get(copied..escape).unwrap_or_default());
        mended.push_str(REPLACEMENT);
        copied = escape.saturating_add(ESCAPE);
    }
    // Nearly all texts have no lone surrogate, and are not copied.
    if copied == 0 {
        return Cow::Borrowed(json);
    }
    mended.push_str(json.get(copied..).unwrap_or_default());
    Cow::Owned(mended)
}

/// Returns the place of the first lone surrogate at or after `from`, which is not inside of an escape.
pub fn find_lone_surrogate(json: &[u8], from: usize) -> Option<usize> {
    let mut at = from;
    loop {
        let rest = json.get(at..).unwrap_or_default();
        let Some(found) = memchr::memchr(b'\\', rest) else {
            work::count_bytes(rest.len());
            return None;
        };
        work::count_bytes(found.saturating_add(1));
        let escape = at.saturating_add(found);
        let after = escape.saturating_add(ESCAPE);
        at = match code_unit(json, escape) {
            Some(0xD800..=0xDBFF) if matches!(code_unit(json, after), Some(0xDC00..=0xDFFF)) => {
                after.saturating_add(ESCAPE)
            }
            Some(0xD800..=0xDFFF) => return Some(escape),
            Some(_) => after,
            // A short escape is a backslash and one letter, which may be a backslash itself.
            None => escape.saturating_add(2),
        };
    }
}

/// Returns the UTF-16 code unit of the escape at `at`. `None` if there is no escape with four digits.
fn code_unit(json: &[u8], at: usize) -> Option<u16> {
    let digits = json.get(at..)?.strip_prefix(b"\\u")?.get(..4)?;
    let digits = std::str::from_utf8(digits).ok()?;
    // The parser below accepts a sign, JSON does not.
    let are_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    are_hex.then(|| u16::from_str_radix(digits, 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lone_surrogates_are_replaced() {
        let rows = [
            (r#""\ud800""#, r#""\ufffd""#),
            (r#""\uDFFFa""#, r#""\ufffda""#),
            (r#""a\ud83d\ude00b""#, r#""a\ud83d\ude00b""#),
            (r#""\ud83d\ud83d\ude00""#, r#""\ufffd\ud83d\ude00""#),
            (r#""\ude00\ud83d""#, r#""\ufffd\ufffd""#),
            (r#""\ud800\n\u0041\\ud800""#, r#""\ufffd\n\u0041\\ud800""#),
            (r#"{"\udc00":["é","\ud8"]}"#, r#"{"\ufffd":["é","\ud8"]}"#),
            ("\"plain é\"", "\"plain é\""),
        ];
        for (json, wanted) in rows {
            assert_eq!(replace_lone_surrogates(json), wanted, "{json}");
            let is_same = matches!(replace_lone_surrogates(json), Cow::Borrowed(_));
            assert_eq!(is_same, json == wanted, "{json}");
        }
    }
}
