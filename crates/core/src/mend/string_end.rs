//! The end of what can be seen in a JSON string.

use crate::work;

/// Returns the offset behind the last visible character of the inside of a JSON string. `0` if there is none.
///
/// Reads forward: only so is it certain which backslash begins an escape.
pub(super) fn visible_end(inside: &[u8]) -> usize {
    let mut end = 0;
    let mut at = 0_usize;
    while let Some(rest) = inside.get(at..).filter(|rest| !rest.is_empty()) {
        work::count(1);
        let (length, is_blank) = first_letter(rest);
        at = at.saturating_add(length);
        if !is_blank {
            end = at;
        }
    }
    end
}

/// Returns the number of bytes of the first character, and `true` if it is a blank.
fn first_letter(rest: &[u8]) -> (usize, bool) {
    match rest {
        [b'\\', b'n' | b'r' | b't' | b'f', ..] => (2, true),
        [b'\\', b'u', digits @ ..] => {
            let digits = digits.get(..4).and_then(|digits| std::str::from_utf8(digits).ok());
            let code = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
            let is_blank = code.and_then(char::from_u32).is_some_and(char::is_whitespace);
            (6, is_blank)
        }
        [b'\\', ..] => (2, false),
        [first, ..] if first.is_ascii() => (1, first.is_ascii_whitespace()),
        _ => {
            let head = rest.get(..rest.len().min(4)).unwrap_or_default();
            let valid = head.utf8_chunks().next().and_then(|chunk| chunk.valid().chars().next());
            valid.map_or((1, false), |letter| (letter.len_utf8(), letter.is_whitespace()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blanks_in_all_spellings_are_behind_the_end() {
        let cases: [(&str, usize); 13] = [
            ("", 0),
            ("so", 2),
            ("so  ", 2),
            (r"so \n\t\r\f", 2),
            (r"so\u0020\u000A\u00a0\u2003", 2),
            ("so\u{a0}\u{3000}", 2),
            (r"so\\n", 5),
            (r"so\\ ", 4),
            (r"so\\\n", 4),
            (r#"so\" "#, 4),
            (r" \n ", 0),
            (r"\ud83d\ude00 ", 12),
            ("\u{e9} \u{1f600} ", 7),
        ];
        for (inside, end) in cases {
            assert_eq!(visible_end(inside.as_bytes()), end, "{inside}");
        }
        assert_eq!(
            visible_end(b"so\\"),
            4,
            "a string that is no JSON ends anywhere behind its text"
        );
    }
}
