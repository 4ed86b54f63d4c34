//! Names and texts that clients, models, providers and services chose, as operators read them: escaped and shortened.

use std::fmt::Write as _;

/// The most characters of a name.
const NAME_CHARS_MAX: usize = 80;
/// The most characters of a name in a log line.
const WORD_CHARS_MAX: usize = 40;

/// Returns a text on one line, without anything that could disturb a terminal or mislead a reader.
pub(crate) fn printable_text(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    text.chars().for_each(|letter| push_escaped(&mut out, letter));
    out
}

/// Returns a text on one line with its blanks and backslashes as they are: prose, or JSON with escapes of its own.
pub(crate) fn printable_line(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '\n' | '\r' | '\t' => out.push(' '),
            '\\' => out.push(letter),
            _ => push_escaped(&mut out, letter),
        }
    }
    out
}

/// Returns a name of at most 80 characters. A longer one loses its middle, because ids often differ at their ends.
pub(crate) fn printable_name(name: &[u8]) -> String {
    escape_name(name, NAME_CHARS_MAX)
}

/// Returns a name for a log line: one word of at most 40 characters, and `-` for an empty name.
pub(crate) fn printable_word(name: &[u8]) -> String {
    to_word(escape_name(name, WORD_CHARS_MAX))
}

/// Returns a printable name as one word of a log line, like [`printable_word`], without escaping it twice.
pub(crate) fn to_word(mut text: String) -> String {
    if text.is_empty() {
        return "-".to_owned();
    }
    // A line separates its columns by spaces, and the calls in a field by commas: a name must not add one.
    if text.contains([' ', ',']) {
        text = text.replace(' ', "\\u{20}").replace(',', "\\u{2c}");
    }
    shorten_text(text, WORD_CHARS_MAX)
}

/// Returns a name with escapes, and with at most `chars_max` characters.
fn escape_name(name: &[u8], chars_max: usize) -> String {
    // Most names are shown as they are.
    let is_plain = |byte: &u8| matches!(byte, b' '..=b'~') && *byte != b'\\';
    if name.len() <= chars_max && name.iter().all(is_plain) {
        return String::from_utf8_lossy(name).into_owned();
    }
    let shortened = without_middle(name, chars_max);
    let mut text = String::new();
    for chunk in shortened.as_deref().unwrap_or(name).utf8_chunks() {
        chunk.valid().chars().for_each(|letter| push_escaped(&mut text, letter));
        for byte in chunk.invalid() {
            // Writing to a string cannot fail.
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    shorten_text(text, chars_max)
}

/// Returns the begin and the end of a name that is far too long, with every character that could be shown.
fn without_middle(name: &[u8], chars_max: usize) -> Option<Vec<u8>> {
    // A character has 4 bytes at most. Without this cut, a name of megabytes would be escaped for nothing.
    let bytes = chars_max.saturating_mul(4);
    let (begin, end) = (name.get(..bytes)?, name.get(name.len().checked_sub(bytes)?..)?);
    (name.len() > bytes.saturating_mul(2)).then(|| [begin, end].concat())
}

/// Returns a text with at most `chars_max` characters.
fn shorten_text(text: String, chars_max: usize) -> String {
    let letters = text.chars().count();
    if letters <= chars_max {
        return text;
    }
    let end_chars = chars_max.saturating_mul(3) / 10;
    let begin = text.chars().take(chars_max.saturating_sub(end_chars.saturating_add(1)));
    let end = text.chars().skip(letters.saturating_sub(end_chars));
    begin.chain(std::iter::once('…')).chain(end).collect()
}

/// Adds a character, or its escape as in Rust if it has no shape of its own.
fn push_escaped(text: &mut String, letter: char) {
    // Quotes mislead nobody, and many names contain them.
    if matches!(letter, '\'' | '"') {
        text.push(letter);
    } else {
        // Also escapes letters that change the direction of the text around them.
        text.extend(letter.escape_debug());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_names_are_escaped() {
        for (name, shown) in [
            (&b"toolu_01A"[..], "toolu_01A"),
            (b"it's \"x\"", "it's \"x\""),
            (b"a\x1b[31m\nb", "a\\u{1b}[31m\\nb"),
            ("a\u{202e}b".as_bytes(), "a\\u{202e}b"),
            ("a\u{2066}b\u{200b}".as_bytes(), "a\\u{2066}b\\u{200b}"),
            ("\u{9b}x\u{7f}".as_bytes(), "\\u{9b}x\\u{7f}"),
            ("\u{1f600} größe 图".as_bytes(), "\u{1f600} größe 图"),
            (b"", ""),
        ] {
            assert_eq!(printable_name(name), shown);
            assert_eq!(printable_text(std::str::from_utf8(name).unwrap()), shown);
        }
        assert_eq!(printable_name(b"a\xffb"), "a\\xffb");
    }

    #[test]
    fn lines_keep_their_blanks_and_backslashes() {
        for (line, shown) in [
            ("{\"a\": \"b\\n\\\"\"}", "{\"a\": \"b\\n\\\"\"}"),
            ("a\nb\tc\r\n", "a b c  "),
            ("a\u{1b}[31m\u{202e}", "a\\u{1b}[31m\\u{202e}"),
            ("größe 图 — …", "größe 图 — …"),
        ] {
            assert_eq!(printable_line(line), shown);
        }
    }

    #[test]
    fn long_names_lose_their_middle() {
        let long = [&[b'a'; 100][..], &[b'z'; 100]].concat();
        let shown = printable_name(&long);
        assert_eq!(shown, format!("{}…{}", "a".repeat(55), "z".repeat(24)));
        assert_eq!(printable_name(&[b'a'; 80]), "a".repeat(80));
        let shown = printable_word(&long);
        assert_eq!(shown, format!("{}…{}", "a".repeat(27), "z".repeat(12)));
        // Cut within a character of several bytes at both ends of the middle.
        let huge = ["x", &"图".repeat(1_000_000), "y"].concat();
        let shown = printable_word(huge.as_bytes());
        assert_eq!(shown, format!("x{}…{}y", "图".repeat(26), "图".repeat(11)));
    }

    #[test]
    fn words_of_a_log_line_stay_one_word() {
        for (name, shown) in [
            (&b"bash"[..], "bash"),
            (b"", "-"),
            (b"a b, c", "a\\u{20}b\\u{2c}\\u{20}c"),
            (b"\x1b]0;t\x07", "\\u{1b}]0;t\\u{7}"),
        ] {
            assert_eq!(printable_word(name), shown);
        }
        assert_eq!(to_word(printable_name(b"a\x1bb c")), "a\\u{1b}b\\u{20}c");
        assert_eq!(to_word(String::new()), "-");
        let escaped = printable_word(&[b' '; 40]);
        assert_eq!(escaped.chars().count(), WORD_CHARS_MAX);
    }
}
