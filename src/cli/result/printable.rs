//! Texts of others on a terminal: ids and names may contain anything.

use std::fmt::Write as _;

/// Returns a text on one line and without characters that control a terminal: each becomes its escape, as in Rust.
pub(super) fn printable_text(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        if letter.is_control() || is_invisible(letter) {
            // Writing into a String cannot fail.
            let _ = write!(out, "{}", letter.escape_default());
        } else {
            out.push(letter);
        }
    }
    out
}

/// Returns `true` for characters without a width, which break lines, hide text or turn its direction.
const fn is_invisible(letter: char) -> bool {
    matches!(
        letter,
        '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_controls_the_terminal() {
        for (text, wanted) in [
            ("call_0", "call_0"),
            ("f\u{fc}r \u{1f600}", "f\u{fc}r \u{1f600}"),
            ("a\u{1b}[31m\nb", "a\\u{1b}[31m\\nb"),
            ("\u{9b}x\u{202e}y\u{7f}", "\\u{9b}x\\u{202e}y\\u{7f}"),
        ] {
            assert_eq!(printable_text(text), wanted);
        }
    }
}
