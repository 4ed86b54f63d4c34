//! Names that clients, models and services chose, as operators read them: escaped and shortened.

use std::fmt::Write as _;

use crate::telemetry::dashboard::LateCallLabel;

/// The most characters of a name. A longer one loses its middle, because ids often differ at their ends.
const CHARS_MAX: usize = 80;
/// Characters of a long name that stay at its end.
const END_CHARS: usize = 24;

/// Returns a name without anything that could disturb a terminal or mislead a reader.
pub fn printable_name(name: &[u8]) -> String {
    let mut text = String::new();
    for chunk in name.utf8_chunks() {
        for letter in chunk.valid().chars() {
            // Quotes mislead nobody, and many names contain them.
            if matches!(letter, '\'' | '"') {
                text.push(letter);
            } else {
                // Also escapes letters that change the direction of the text around them.
                text.extend(letter.escape_debug());
            }
        }
        for byte in chunk.invalid() {
            // Writing to a string cannot fail.
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    let letters = text.chars().count();
    if letters <= CHARS_MAX {
        return text;
    }
    let begin = text.chars().take(CHARS_MAX - END_CHARS - 1);
    let end = text.chars().skip(letters - END_CHARS);
    begin.chain(std::iter::once('…')).chain(end).collect()
}

/// Returns the label of a call for the dashboard.
pub(super) fn call_label(call_id: &[u8], tool: Option<&[u8]>) -> LateCallLabel {
    LateCallLabel {
        call_id: printable_name(call_id),
        tool: tool.map(printable_name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_names_are_escaped_and_long_ones_shortened() {
        for (name, shown) in [
            (&b"toolu_01A"[..], "toolu_01A"),
            (b"it's \"x\"", "it's \"x\""),
            (b"a\x1b[31m\nb", "a\\u{1b}[31m\\nb"),
            ("a\u{202e}b".as_bytes(), "a\\u{202e}b"),
            (b"a\xffb", "a\\xffb"),
            ("größe 图".as_bytes(), "größe 图"),
            (b"", ""),
        ] {
            assert_eq!(printable_name(name), shown);
        }
        let long = [&[b'a'; 100][..], &[b'z'; 100]].concat();
        let shown = printable_name(&long);
        assert_eq!(shown, format!("{}…{}", "a".repeat(55), "z".repeat(24)));
        assert_eq!(printable_name(&[b'a'; 80]), "a".repeat(80));
    }
}
