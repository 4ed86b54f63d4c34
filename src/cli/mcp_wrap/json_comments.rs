//! JSON as editors' settings have it, with comments, trailing commas and a byte-order mark, read as plain JSON.

/// The mark at the beginning of a file that says UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Returns the text with blanks in place of comments, trailing commas and the byte-order mark.
///
/// It has as many bytes and lines, so that places in it are places in `text`. What is no JSON otherwise stays so.
pub(super) fn blank_comments(text: &[u8]) -> Vec<u8> {
    let mut plain = text.to_vec();
    if text.starts_with(BYTE_ORDER_MARK) {
        blank_range(&mut plain, 0, BYTE_ORDER_MARK.len());
    }
    // The last comma, as long as only blanks and comments have come after it.
    let mut comma = None;
    let mut at = 0;
    while let Some(&byte) = plain.get(at) {
        let rest = text.get(at..).unwrap_or_default();
        let length = match byte {
            b'"' => string_len(rest),
            b'/' => match comment_len(rest) {
                Some(length) => {
                    blank_range(&mut plain, at, length);
                    at = at.saturating_add(length);
                    continue;
                }
                None => 1,
            },
            b'}' | b']' => {
                if let Some(comma) = comma {
                    blank_range(&mut plain, comma, 1);
                }
                1
            }
            _ => 1,
        };
        if !byte.is_ascii_whitespace() {
            comma = (byte == b',').then_some(at);
        }
        at = at.saturating_add(length);
    }
    plain
}

/// Returns the length of the string at the beginning of `text`, or of the rest if it does not end.
fn string_len(text: &[u8]) -> usize {
    let mut is_escaped = false;
    for (index, byte) in text.iter().enumerate().skip(1) {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => return index.saturating_add(1),
            _ => {}
        }
    }
    text.len()
}

/// Returns the length of the comment at the beginning of `text`. `None` if there is none, or if it does not end.
fn comment_len(text: &[u8]) -> Option<usize> {
    match text.get(1)? {
        b'/' => Some(text.iter().position(|byte| *byte == b'\n').unwrap_or(text.len())),
        b'*' => {
            let inside = text.get(2..)?;
            let end = inside.windows(2).position(|pair| pair == b"*/")?;
            end.checked_add(4)
        }
        _ => None,
    }
}

/// Writes blanks over a range, apart from its line ends.
fn blank_range(text: &mut [u8], from: usize, length: usize) {
    let range = text.get_mut(from..from.saturating_add(length)).unwrap_or_default();
    for byte in range.iter_mut().filter(|byte| !matches!(byte, b'\n' | b'\r')) {
        *byte = b' ';
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_trailing_commas_become_blanks() {
        for (text, plain) in [
            ("{}", "{}"),
            ("\u{feff}{}", "   {}"),
            ("{// a \"b\n}", "{       \n}"),
            ("{/* a\r\n, */}", "{    \r\n    }"),
            (r#"{"a//b": "/* \" */"}"#, r#"{"a//b": "/* \" */"}"#),
            (r#"{"a": [1, 2 , /* , */ ], }"#, r#"{"a": [1, 2           ]  }"#),
            (r#"{"a": 1, // b"#, r#"{"a": 1,     "#),
            // Not JSON before, nor after.
            ("{/* a}", "{/* a}"),
            (r#"{"a"#, r#"{"a"#),
            ("[1,,]", "[1, ]"),
            ("[1,,,]", "[1,, ]"),
            ("{\"a\": /}", "{\"a\": /}"),
        ] {
            let found = blank_comments(text.as_bytes());
            assert_eq!(String::from_utf8(found).unwrap(), plain, "{text}");
        }
    }
}
