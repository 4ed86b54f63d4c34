//! The fields of one server-sent event (WHATWG HTML, "Interpreting an event stream").

use std::borrow::Cow;

/// One parsed server-sent event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SseEvent<'a> {
    /// The value of its last `event` field; empty if it has none.
    pub name: &'a [u8],
    /// Its `data` fields, joined by LF; empty if it has none. Several fields are copied, a single one is borrowed.
    pub data: Cow<'a, [u8]>,
    /// The value of its last `id` field. `None` if it has none that counts: one with a NUL does not.
    pub id: Option<&'a [u8]>,
    /// The value of its last `retry` field, in milliseconds. `None` if it has none that is a number.
    pub retry: Option<u64>,
    /// Set if the event contains a comment.
    pub has_comment: bool,
}

impl<'a> SseEvent<'a> {
    /// Reads the bytes of one event, with or without the empty line at its end.
    ///
    /// The caller removes a byte order mark.
    pub fn read(bytes: &'a [u8]) -> Self {
        let mut event = Self::default();
        // An empty `data` field counts: the next one is joined to it by LF.
        let mut some = false;
        let mut rest = bytes;
        while !rest.is_empty() {
            let (line, after) = split_line(rest);
            rest = after;
            let (field, value) = split_field(line);
            match field {
                b"data" if some => {
                    let joined = event.data.to_mut();
                    joined.push(b'\n');
                    joined.extend_from_slice(value);
                }
                b"data" => (event.data, some) = (Cow::Borrowed(value), true),
                b"event" => event.name = value,
                b"id" if memchr::memchr(0, value).is_none() => event.id = Some(value),
                b"retry" => event.retry = read_digits(value).or(event.retry),
                // A line that begins with a colon has an empty field name.
                b"" if !line.is_empty() => event.has_comment = true,
                _ => {}
            }
        }
        event
    }
}

/// Splits off the first line. Returns it without its end, and the bytes after that end.
fn split_line(bytes: &[u8]) -> (&[u8], &[u8]) {
    let length = memchr::memchr2(b'\n', b'\r', bytes).unwrap_or(bytes.len());
    let (line, end) = bytes.split_at_checked(length).unwrap_or((bytes, &[]));
    let after = match end {
        [b'\r', b'\n', after @ ..] | [_, after @ ..] => after,
        [] => end,
    };
    (line, after)
}

/// Splits a line into field name and value. A comment has an empty name.
fn split_field(line: &[u8]) -> (&[u8], &[u8]) {
    let Some((name, value)) = memchr::memchr(b':', line).and_then(|colon| line.split_at_checked(colon)) else {
        return (line, &[]);
    };
    // After the colon exactly one blank belongs to the syntax, not to the value.
    let value = value.get(1..).unwrap_or_default();
    (name, value.strip_prefix(b" ").unwrap_or(value))
}

/// Reads a number that consists of digits alone.
fn read_digits(text: &[u8]) -> Option<u64> {
    // A sign would be read, too.
    let text = Some(text).filter(|text| !text.starts_with(b"+"))?;
    std::str::from_utf8(text).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_as_a_browser_reads_them() {
        for (bytes, name, data, comment) in [
            ("data: a\n\n", "", "a", false),
            ("event: x\ndata:a\n\n", "x", "a", false),
            ("event: x\r\ndata:  a\r\ndata: b\r\n\r\n", "x", " a\nb", false),
            ("data\rdata: b\rdata\r\r", "", "\nb\n", false),
            (": ping\n\n", "", "", true),
            ("id: 7\nretry: 1\n:\ndata: {\"a\":\":\"}\n", "", "{\"a\":\":\"}", true),
            ("event: x\nevent: y\nDATA: a\n data: b\n\n", "y", "", false),
            ("\n", "", "", false),
            ("data: open", "", "open", false),
        ] {
            let event = SseEvent::read(bytes.as_bytes());
            let read = (event.name, &*event.data, event.has_comment);
            assert_eq!(read, (name.as_bytes(), data.as_bytes(), comment), "{bytes:?}");
        }
    }

    #[test]
    fn ids_and_pauses_are_read() {
        for (bytes, id, retry) in [
            ("data: a\n\n", None, None),
            ("id: 7\nretry: 1500\ndata\n\n", Some("7"), Some(1500)),
            ("id\nretry: 1\nretry: +2\nretry: \n\n", Some(""), Some(1)),
            ("id: a\nid: b\0\nretry: 99999999999999999999\n\n", Some("a"), None),
        ] {
            let event = SseEvent::read(bytes.as_bytes());
            assert_eq!((event.id, event.retry), (id.map(str::as_bytes), retry), "{bytes:?}");
        }
    }
}
