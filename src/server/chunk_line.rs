//! The grammar of a chunk-size line: RFC 9112, 7.1 and 7.1.1.

/// Returns the size of the chunk that a line without its end announces. `None` if the line is malformed.
///
/// hyper is lenient with what follows the size. Another server may read such a line in another way.
pub(super) fn parse_size_line(line: &[u8]) -> Option<u64> {
    let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    let (digits, mut rest) = line.split_at_checked(digits)?;
    let size = u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    while !rest.is_empty() {
        rest = skip_extension(rest)?;
    }
    Some(size)
}

/// Returns what follows the first extension. `None` if it is malformed.
fn skip_extension(bytes: &[u8]) -> Option<&[u8]> {
    let after_semicolon = skip_blanks(bytes).strip_prefix(b";")?;
    let after_name = skip_token(skip_blanks(after_semicolon))?;
    let Some(value) = skip_blanks(after_name).strip_prefix(b"=") else {
        return Some(after_name);
    };
    let value = skip_blanks(value);
    match value.strip_prefix(b"\"") {
        Some(quoted) => skip_quoted(quoted),
        None => skip_token(value),
    }
}

fn skip_blanks(bytes: &[u8]) -> &[u8] {
    let blanks = bytes.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    bytes.get(blanks..).unwrap_or_default()
}

/// Returns what follows a token. `None` if there is no token.
fn skip_token(bytes: &[u8]) -> Option<&[u8]> {
    let is_token_byte = |byte: &&u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    let length = bytes.iter().take_while(is_token_byte).count();
    bytes.get(length..).filter(|_| length > 0)
}

/// Returns what follows the closing quote. `None` if there is none, or if a byte is not allowed between quotes.
fn skip_quoted(mut bytes: &[u8]) -> Option<&[u8]> {
    loop {
        let (byte, mut rest) = bytes.split_first()?;
        match byte {
            b'"' => return Some(rest),
            b'\\' => {
                let (escaped, after) = rest.split_first()?;
                rest = Some(after).filter(|_| is_text_byte(*escaped))?;
            }
            byte if is_text_byte(*byte) => {}
            _ => return None,
        }
        bytes = rest;
    }
}

/// Returns `true` for a byte that may be between quotes: no control byte but a tab.
const fn is_text_byte(byte: u8) -> bool {
    matches!(byte, b'\t' | b' '..=b'~' | 0x80..)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_grammar_of_the_rfc_is_a_size_line() {
        let good: [(&[u8], u64); 8] = [
            (b"0", 0),
            (b"00a", 10),
            (b"2;a", 2),
            (b"2;a=b;c", 2),
            (b"2 ; a = b\t;c", 2),
            (b"2;a=\"\"", 2),
            (b"2;a=\"x;y\\\"\t[\xc3\"", 2),
            (b"FFFFFFFFFFFFFFFF", u64::MAX),
        ];
        for (line, size) in good {
            assert_eq!(
                parse_size_line(line),
                Some(size),
                "{:?}",
                line.escape_ascii().to_string()
            );
        }
        let bad: [&[u8]; 17] = [
            b"",
            b"x",
            b"-2",
            b"+2",
            b"0x2",
            b"2 ",
            b"2\t",
            b"2;",
            b"2;a;",
            b"2;a=",
            b"2;[",
            b"2;a\0b",
            b"2;a b",
            b"2;a=\"b",
            b"2;a=\"b\"c",
            b"2;a=\"\\\"",
            b"10000000000000000",
        ];
        for line in bad {
            assert_eq!(parse_size_line(line), None, "{:?}", line.escape_ascii().to_string());
        }
    }
}
