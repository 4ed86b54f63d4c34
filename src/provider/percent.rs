//! Percent-encoding in the target of a request: its parts as bytes, since they may contain anything.

use std::borrow::Cow;

/// Decodes a name or value of a query. Invalid escapes stay unchanged.
pub(crate) fn decode_query(text: &str) -> Cow<'_, [u8]> {
    percent_decode(text, b' ')
}

/// Decodes a segment of a path: `%20` is a blank, `+` is itself.
pub(crate) fn decode_segment(text: &str) -> Cow<'_, [u8]> {
    percent_decode(text, b'+')
}

fn percent_decode(text: &str, plus: u8) -> Cow<'_, [u8]> {
    // The usual case needs no copy.
    if !text.contains(['%', '+']) {
        return Cow::Borrowed(text.as_bytes());
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let escape = after.split_at_checked(2).filter(|_| *first == b'%');
        let escaped = escape.and_then(|(digits, after)| {
            // `from_str_radix` alone would accept `%+1`.
            let digits = str::from_utf8(digits).ok().filter(|digits| !digits.starts_with('+'))?;
            Some((u8::from_str_radix(digits, 16).ok()?, after))
        });
        let (byte, after) = escaped.unwrap_or((if *first == b'+' { plus } else { *first }, after));
        bytes.push(byte);
        rest = after;
    }
    Cow::Owned(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_escaped_is_meant(bytes in any::<Vec<u8>>(), text in "[ -~é]{0,20}") {
            let escaped: Vec<String> = bytes.iter().map(|byte| format!("%{byte:02X}")).collect();
            let escaped = escaped.concat();
            prop_assert_eq!(decode_query(&escaped), bytes);
            prop_assert!(decode_query(&text).len() <= text.len());
        }
    }
}
