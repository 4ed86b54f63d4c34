//! What one server-sent event says: its name and its data (WHATWG HTML, "Interpreting an event stream").
#![cfg_attr(
    not(test),
    warn(clippy::indexing_slicing, clippy::string_slice, clippy::arithmetic_side_effects)
)]

use std::borrow::Cow;

/// One server-sent event, read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event<'a> {
    /// The value of its last `event` field; empty where there is none.
    pub name: &'a [u8],
    /// Its `data` fields, joined by LF; empty where there is none. Copied only where there are several.
    pub data: Cow<'a, [u8]>,
    /// Whether a comment stands in it.
    pub comment: bool,
}

impl<'a> Event<'a> {
    /// Reads the bytes of one event, with or without the empty line at its end. A byte order mark is the caller's to
    /// take off.
    pub fn read(bytes: &'a [u8]) -> Self {
        let mut event = Self::default();
        let mut some = false;
        let mut rest = bytes;
        while !rest.is_empty() {
            let (line, behind) = first_line(rest);
            rest = behind;
            let (field, value) = field(line);
            match field {
                b"data" if some => {
                    let joined = event.data.to_mut();
                    joined.push(b'\n');
                    joined.extend_from_slice(value);
                }
                b"data" => (event.data, some) = (Cow::Borrowed(value), true),
                b"event" => event.name = value,
                b"" if !line.is_empty() => event.comment = true,
                _ => {}
            }
        }
        event
    }
}

/// The first line without its end, and what stands behind that end.
fn first_line(bytes: &[u8]) -> (&[u8], &[u8]) {
    let length = memchr::memchr2(b'\n', b'\r', bytes).unwrap_or(bytes.len());
    let (line, end) = bytes.split_at_checked(length).unwrap_or((bytes, &[]));
    let behind = match end {
        [b'\r', b'\n', behind @ ..] | [_, behind @ ..] => behind,
        [] => end,
    };
    (line, behind)
}

/// Name and value of a field; a comment has no name.
fn field(line: &[u8]) -> (&[u8], &[u8]) {
    let Some((name, value)) = memchr::memchr(b':', line).and_then(|colon| line.split_at_checked(colon)) else {
        return (line, &[]);
    };
    let value = value.get(1..).unwrap_or_default();
    (name, value.strip_prefix(b" ").unwrap_or(value))
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
            let event = Event::read(bytes.as_bytes());
            let read = (event.name, &*event.data, event.comment);
            assert_eq!(read, (name.as_bytes(), data.as_bytes(), comment), "{bytes:?}");
        }
    }
}
