//! The headers and the payload of one of Amazon's frames, and the event in a frame of Bedrock's `InvokeModel`.

use std::borrow::Cow;

use memchr::memmem;

use super::amazon_framer::frame_lengths;
use crate::{
    wire::facts::{read_object, skip_value},
    work,
};

/// Bytes in front of the headers: both lengths and their checksum.
const PRELUDE_BYTES: usize = 12;
/// Bytes behind the payload: the checksum of the frame.
const SUM_BYTES: usize = 4;

/// One frame. Members that it lacks are empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AmazonFrame<'a> {
    /// Its `:message-type`: `event`, `exception` or `error`.
    pub kind: &'a [u8],
    /// Its `:event-type`, `:exception-type` or `:error-code`.
    pub name: &'a [u8],
    /// Its `:error-message`, which only an `error` has.
    pub message: &'a [u8],
    /// Its payload, as far as received.
    pub payload: &'a [u8],
}

impl<'a> AmazonFrame<'a> {
    /// Reads a frame, or its beginning with all of its headers.
    pub fn read(bytes: &'a [u8]) -> Self {
        let mut frame = Self::default();
        let Some((lengths, _)) = bytes.split_first_chunk() else {
            return frame;
        };
        let [total, headers] = frame_lengths(*lengths).map(|length| usize::try_from(length).unwrap_or(usize::MAX));
        let whole = bytes.get(..total.saturating_sub(SUM_BYTES)).unwrap_or(bytes);
        let inner = whole.get(PRELUDE_BYTES..).unwrap_or_default();
        let Some((headers, payload)) = inner.split_at_checked(headers) else {
            return frame;
        };
        frame.payload = payload;
        let mut rest = headers;
        while let Some((name, value, after)) = split_header(rest) {
            work::count(1);
            rest = after;
            match name {
                b":message-type" => frame.kind = value,
                b":error-message" => frame.message = value,
                b":event-type" | b":exception-type" | b":error-code" => frame.name = value,
                _ => {}
            }
        }
        frame
    }

    /// Returns `true` for a frame that ends the stream with an error.
    pub fn is_error(&self) -> bool {
        matches!(self.kind, b"exception" | b"error")
    }

    /// Returns the name of the error as Amazon writes it in a header: `ThrottlingException` for `throttlingException`.
    pub fn error_name(&self) -> String {
        let name = String::from_utf8_lossy(self.name);
        let mut letters = name.chars();
        let first = letters.next().map(|first| first.to_ascii_uppercase());
        first.into_iter().chain(letters).collect()
    }

    /// Returns the event of an `InvokeModel` stream, which is base64 in the member `bytes`. Empty for any other frame.
    ///
    /// Of a payload that is cut off, this is the beginning of the event.
    pub fn chunk_event(&self, is_cut_off: bool) -> Vec<u8> {
        const MEMBER: &[u8] = b"\"bytes\":\"";
        if self.name != b"chunk" {
            return Vec::new();
        }
        if is_cut_off {
            let text =
                memmem::find(self.payload, MEMBER).and_then(|at| self.payload.get(at.saturating_add(MEMBER.len())..));
            return decode_base64(text.unwrap_or_default());
        }
        let mut text = Cow::default();
        read_object(self.payload, |cursor, key| {
            if key == b"bytes" {
                text = cursor.read_text()?;
                return Ok(());
            }
            skip_value(cursor)
        });
        decode_base64(&text)
    }
}

/// Splits off the first header. Returns its name, its value and the rest; `None` at the end, or if it cannot be read.
fn split_header(headers: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let (length, rest) = headers.split_first()?;
    let (name, rest) = rest.split_at_checked(usize::from(*length))?;
    let (kind, rest) = rest.split_first()?;
    let (length, rest) = match kind {
        // The two values of a boolean.
        0 | 1 => (0, rest),
        // Numbers of one, two and four bytes; of eight bytes, and a time.
        2 => (1, rest),
        3 => (2, rest),
        4 => (4, rest),
        5 | 8 => (8, rest),
        // Bytes and text, behind their length.
        6 | 7 => {
            let (length, rest) = rest.split_first_chunk()?;
            (usize::from(u16::from_be_bytes(*length)), rest)
        }
        // A UUID.
        9 => (16, rest),
        _ => return None,
    };
    let (value, rest) = rest.split_at_checked(length)?;
    Some((name, value, rest))
}

/// Decodes base64, up to the first byte that belongs to none. Lenient, and the core has no such dependency.
pub(crate) fn decode_base64(text: &[u8]) -> Vec<u8> {
    work::count_bytes(text.len());
    let mut plain = Vec::with_capacity(text.len().div_ceil(4).saturating_mul(3));
    for digits in text.chunks(4) {
        let (mut group, mut count) = (0_u32, 0_usize);
        for digit in digits.iter().map_while(|byte| base64_digit(*byte)) {
            group = (group << 6) | u32::from(digit);
            count = count.saturating_add(1);
        }
        for _ in count..4 {
            group <<= 6;
        }
        let [_, bytes @ ..] = group.to_be_bytes();
        plain.extend(bytes.iter().take(count.saturating_sub(1)));
        if count < 4 {
            break;
        }
    }
    plain
}

const fn base64_digit(byte: u8) -> Option<u8> {
    Some(match byte {
        b'A'..=b'Z' => byte.wrapping_sub(b'A'),
        b'a'..=b'z' => byte.wrapping_sub(b'a').wrapping_add(26),
        b'0'..=b'9' => byte.wrapping_sub(b'0').wrapping_add(52),
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a frame with these headers, as bytes, and this payload. Its checksums are wrong.
    fn frame(headers: &[u8], payload: &[u8]) -> Vec<u8> {
        let length = |bytes: usize| u32::try_from(bytes).unwrap().to_be_bytes();
        let total = length(headers.len() + payload.len() + 16);
        [&total, &length(headers.len())[..], b"sums", headers, payload, b"sums"].concat()
    }

    #[test]
    fn headers_of_every_type_are_passed() {
        let kinds: [&[u8]; 10] = [
            b"\x01a\x00",
            b"\x01a\x01",
            b"\x01a\x02x",
            b"\x01a\x03xx",
            b"\x01a\x04xxxx",
            b"\x01a\x05xxxxxxxx",
            b"\x01a\x06\x00\x02xx",
            b"\x01a\x07\x00\x02xx",
            b"\x01a\x08xxxxxxxx",
            b"\x01a\x09xxxxxxxxxxxxxxxx",
        ];
        let named: &[u8] = b"\x0b:event-type\x07\x00\x05chunk\x0d:message-type\x07\x00\x05event";
        for before in kinds {
            let bytes = frame(&[before, named].concat(), b"{}");
            let read = AmazonFrame::read(&bytes);
            assert_eq!(
                (read.kind, read.name, read.payload),
                (&b"event"[..], &b"chunk"[..], &b"{}"[..])
            );
            // A payload may be missing in part, and headers of an unknown type end the walk.
            let read = AmazonFrame::read(&bytes[..bytes.len() - 5]);
            assert_eq!(
                (read.kind, read.name, read.payload),
                (&b"event"[..], &b"chunk"[..], &b"{"[..])
            );
            let read = AmazonFrame::read(&bytes[..20]);
            assert_eq!(read, AmazonFrame::default());
        }
        let bytes = frame(&[named, b"\x01a\x0a", named].concat(), b"");
        assert_eq!(AmazonFrame::read(&bytes).name, b"chunk");
        assert_eq!(AmazonFrame::read(b"\0\0\0"), AmazonFrame::default());
    }

    #[test]
    fn base64_is_decoded_up_to_its_end() {
        for (text, plain) in [
            ("", ""),
            ("Zg==", "f"),
            ("Zm8=", "fo"),
            ("Zm9v", "foo"),
            ("Zm9vYg", "foob"),
            ("Zm9vY", "foo"),
            ("Zm9v\"}", "foo"),
            ("Zm9=vYmE", "fo"),
        ] {
            assert_eq!(decode_base64(text.as_bytes()), plain.as_bytes(), "{text}");
        }
        assert_eq!(decode_base64(b"+/+/"), [0xfb, 0xff, 0xbf]);
    }

    #[test]
    fn a_payload_that_is_cut_off_has_the_beginning_of_its_event() {
        let frame = |name, payload| AmazonFrame {
            kind: b"event",
            name,
            message: b"",
            payload,
        };
        for (payload, cut, event) in [
            (r#"{"bytes":"Zm9v","p":"abc"}"#, false, "foo"),
            (r#"{"p":"abc", "bytes" : "Zm9v"}"#, false, "foo"),
            (r#"{"bytes":"Zm9\u0076"}"#, false, "foo"),
            (r#"{"bytes":7}"#, false, ""),
            ("Zm9v", false, ""),
            (r#"{"bytes":"Zm9vYm"#, true, "foob"),
            (r#"{"p":"Zm"#, true, ""),
        ] {
            assert_eq!(
                frame(b"chunk", payload.as_bytes()).chunk_event(cut),
                event.as_bytes(),
                "{payload}"
            );
        }
        assert_eq!(frame(b"metadata", br#"{"bytes":"Zm9v"}"#).chunk_event(false), b"");
        let named = |name: &'static str| frame(name.as_bytes(), b"").error_name();
        assert_eq!(named("throttlingException"), "ThrottlingException");
        assert_eq!(
            (named("InternalFailure"), named("")),
            ("InternalFailure".to_owned(), String::new())
        );
    }
}
