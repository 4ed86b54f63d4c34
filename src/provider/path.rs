//! The check that a request path has only one meaning. A path is refused or forwarded unchanged, never decoded for
//! others.

/// Returns `true` if a path has only one meaning, so that the proxy's decision holds for every later reader.
pub(crate) fn is_unambiguous(path: &str) -> bool {
    // The usual path needs no closer look. Without an early exit the loop runs on many bytes at once.
    let is_plain = |byte: u8| byte.is_ascii_graphic() & !matches!(byte, b'\\' | b'%' | b';');
    let has_dots = path.starts_with('.') || path.as_bytes().windows(2).any(|pair| pair == b"/.");
    if !path.starts_with("//") && !has_dots && path.bytes().fold(true, |all, byte| all & is_plain(byte)) {
        return true;
    }
    // Some servers read a backslash as a slash.
    if path.starts_with("//") || path.bytes().any(|byte| byte == b'\\' || byte.is_ascii_control()) {
        return false;
    }
    let mut segments = path.split('/').peekable();
    while let Some(segment) = segments.next() {
        let in_model = segment == "model";
        if is_dot_segment(segment) || !has_plain_escapes(segment, EncodedSlashes::Refused) {
            return false;
        }
        // AWS clients write the slash of an ARN as %2F, and do so nowhere else.
        let arn =
            |next: &&str| in_model && (next.starts_with("arn:") || next.to_ascii_lowercase().starts_with("arn%3a"));
        if let Some(model) = segments.next_if(arn)
            && (model.contains("..") || !has_plain_escapes(model, EncodedSlashes::InArn))
        {
            return false;
        }
    }
    true
}

/// Returns `true` if a segment is `.` or `..`, escaped or not, with or without parameters (`..;x`).
fn is_dot_segment(segment: &str) -> bool {
    let plain = segment.replace("%2e", ".").replace("%2E", ".");
    let end = plain
        .find(';')
        .or_else(|| plain.to_ascii_lowercase().find("%3b"))
        .unwrap_or(plain.len());
    plain.get(..end).is_some_and(|name| name == "." || name == "..")
}

/// The rule for encoded slashes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum EncodedSlashes {
    Refused,
    InArn,
}

/// Returns `true` unless an escape hides a separator, a control character, or another escape of a separator or dot.
fn has_plain_escapes(segment: &str, slashes: EncodedSlashes) -> bool {
    segment.split('%').skip(1).all(|escape| {
        let code = escape.get(..2).map(str::to_ascii_lowercase);
        match code.as_deref() {
            Some("2f") => slashes == EncodedSlashes::InArn,
            // Encoded dots are harmless inside a name, and whole dot segments are rejected elsewhere.
            Some("2e") => slashes == EncodedSlashes::Refused,
            // c0 and c1 begin overlong forms of ASCII characters, which are never valid UTF-8.
            Some("5c" | "7f" | "c0" | "c1") => false,
            Some("25") => !hides_separator(&escape[2..]),
            Some(code) => !matches!(u8::from_str_radix(code, 16), Ok(0..=0x1f)),
            None => true,
        }
    })
}

/// Returns `true` if the text after `%25`, decoded repeatedly, is a dot, a slash or a backslash.
fn hides_separator(after: &str) -> bool {
    let mut rest = after;
    while let Some(deeper) = rest.strip_prefix("25") {
        rest = deeper;
    }
    rest.get(..2)
        .is_some_and(|code| matches!(code.to_ascii_lowercase().as_str(), "2e" | "2f" | "5c"))
}
