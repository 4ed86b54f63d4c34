//! Limits of common JSON readers, which valid text may exceed: nesting, and the range of a double.

use super::skip;

use crate::work;

/// Returns the offset of the first bracket that is nested deeper than `limit`. `None` if there is none.
pub fn deeper_than(json: &[u8], limit: usize) -> Option<usize> {
    let mut depth = 0_usize;
    outside_strings(json).find_map(|(at, byte)| {
        match byte {
            b'{' | b'[' => depth = depth.saturating_add(1),
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        (depth > limit).then_some(at)
    })
}

/// Reports whether the text contains a number that is too large for a double, such as `1e400`.
pub fn has_overflow(json: &[u8]) -> bool {
    let mut start = None;
    outside_strings(json)
        // The blank ends a number at the end of the text.
        .chain([(json.len(), b' ')])
        .any(|(at, byte)| {
            if byte.is_ascii_digit() || matches!(byte, b'-' | b'+' | b'.' | b'e' | b'E') {
                start.get_or_insert(at);
                return false;
            }
            let number = start.take().and_then(|start| json.get(start..at));
            let number = number.and_then(|number| std::str::from_utf8(number).ok());
            // The `e` of a word such as `true` does not parse as a number.
            number.is_some_and(|number| number.parse::<f64>().is_ok_and(f64::is_infinite))
        })
}

/// Returns the bytes outside strings with their offsets.
fn outside_strings(json: &[u8]) -> impl Iterator<Item = (usize, u8)> {
    let mut at = 0_usize;
    std::iter::from_fn(move || {
        loop {
            work::count(1);
            let (here, byte) = (at, *json.get(at)?);
            at = at.saturating_add(1);
            if byte != b'"' {
                return Some((here, byte));
            }
            at = skip::string_end(json, at)?;
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_bracket_that_is_too_deep_is_found() {
        let deep = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        for (json, limit, wanted) in [
            ("1", 0, None),
            ("[]", 0, Some(0)),
            (r#"{"a":[1,{}],"b":[]}"#, 2, Some(8)),
            (r#"{"a":[1,{}],"b":[]}"#, 3, None),
            (r#"["[[[[","\"[[["]"#, 1, None),
            ("[[],[],[]]", 2, None),
        ] {
            assert_eq!(deeper_than(json.as_bytes(), limit), wanted, "{json} {limit}");
        }
        assert_eq!(deeper_than(deep(64).as_bytes(), 64), None);
        assert_eq!(deeper_than(deep(65).as_bytes(), 64), Some(64));
        assert_eq!(deeper_than(deep(100_000).as_bytes(), 64), Some(64));
    }

    #[test]
    fn numbers_beyond_a_double_are_found() {
        for json in ["1e400", "[1,-1E+999]", r#"{"a":true,"b":1e309}"#] {
            assert!(has_overflow(json.as_bytes()), "{json}");
        }
        for json in [
            "1e300",
            "true",
            r#"{"e":"1e400"}"#,
            "12345678901234567890",
            "[1e-400,null]",
        ] {
            assert!(!has_overflow(json.as_bytes()), "{json}");
        }
        assert!(has_overflow("9".repeat(400).as_bytes()));
    }
}
