//! The likely cause of a text that is not JSON, with its place.

use serde::de::IgnoredAny;
use serde_json::error::Category;

/// Starts of texts that are often given in place of a body, with their description.
const KNOWN_STARTS: [(&[u8], &str); 9] = [
    (
        b"\xef\xbb\xbf",
        "it begins with a byte order mark; save it as UTF-8 without one",
    ),
    (b"\xff\xfe", "it is UTF-16; save it as UTF-8"),
    (b"\x1f\x8b", "it is compressed; unpack it with gunzip first"),
    (b"data:", "it is a stream of events, so an answer and not a request"),
    (b"event:", "it is a stream of events, so an answer and not a request"),
    (
        b"POST ",
        "it begins with the head of an HTTP request; keep only the body",
    ),
    (b"HTTP/", "it is an HTTP answer, and not the body of a request"),
    (b"curl ", "it is a command; keep only the text of its --data"),
    (b"<", "it is HTML or XML"),
];

/// Returns the place and the likely cause of the first fault.
pub(in crate::cli) fn describe_fault(bytes: &[u8]) -> String {
    let text = bytes.trim_ascii();
    if text.is_empty() {
        return "it is empty".to_owned();
    }
    if let Some((_, cause)) = KNOWN_STARTS.iter().find(|(start, _)| text.starts_with(start)) {
        return (*cause).to_owned();
    }
    match serde_json::from_slice::<IgnoredAny>(bytes) {
        Err(error) => describe_error(&error, bytes),
        // The own reader is stricter in a few places.
        Ok(_) => "its text is not valid UTF-8, or a string has a broken escape".to_owned(),
    }
}

/// Returns `true` for the beginning of an object that ends in the middle.
pub(super) fn is_cut_object(text: &[u8]) -> bool {
    let is_cut = |error: serde_json::Error| error.classify() == Category::Eof;
    text.starts_with(b"{") && serde_json::from_slice::<IgnoredAny>(text).is_err_and(is_cut)
}

/// Returns the place of a parser's error in `bytes` and its likely cause.
fn describe_error(error: &serde_json::Error, bytes: &[u8]) -> String {
    let place = format!("line {}, column {}", error.line(), error.column());
    if error.classify() == Category::Eof {
        return format!("{place}: it ends in the middle, so it may have been cut");
    }
    if ends_with_comma(read_to(bytes, error.line(), error.column())) {
        return format!("{place}: trailing comma");
    }
    let message = error.to_string();
    // The message ends with the place, which comes first here.
    let reason = message.split(" at line ").next().unwrap_or_default();
    if reason == "trailing characters" {
        return format!("{place}: more text follows the JSON; in JSONL, each line is one JSON value");
    }
    format!("{place}: {reason}")
}

/// Returns the text up to and with a place of a parser. Lines and columns count from 1, columns in bytes.
fn read_to(bytes: &[u8], line: usize, column: usize) -> &[u8] {
    let rows = bytes.split_inclusive(|&byte| byte == b'\n');
    let before: usize = rows.take(line.saturating_sub(1)).map(<[u8]>::len).sum();
    bytes.get(..before + column).unwrap_or(bytes)
}

/// Returns true if a comma stands before the closing bracket at the end. The parser's own words do not name the comma.
fn ends_with_comma(text: &[u8]) -> bool {
    let inside = text.strip_suffix(b"}").or_else(|| text.strip_suffix(b"]"));
    inside.is_some_and(|inside| inside.trim_ascii_end().ends_with(b","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_has_its_place_and_a_cause() {
        for (text, wanted) in [
            (&b" \n"[..], "it is empty"),
            (b"{\"messages\": [", "line 1, column 14: it ends in the middle"),
            (
                b"{\"a\": 1}\n{\"b\": 2}",
                "line 2, column 1: more text follows the JSON",
            ),
            (b"{\n  \"a\": 1,\n}", "line 3, column 1: trailing comma"),
            (b"[1, 2, ]", "line 1, column 8: trailing comma"),
            (b"{\"a\": ]", "line 1, column 7: expected value"),
            (b"{\"a\": 1, b}", "line 1, column 10: key must be a string"),
            (b"data: {\"type\": \"message_start\"}", "a stream of events"),
            (b"POST /v1/messages HTTP/1.1", "the head of an HTTP request"),
            (b"hello", "line 1, column 1: expected value"),
        ] {
            let found = describe_fault(text);
            assert!(found.contains(wanted), "{found}");
        }
    }
}
