//! The end of a JSON object in damaged text: where it ends, that it goes on, or where it is no JSON.
//!
//! Control characters within it are no error here, since a file may have them by damage. They are counted.

use crate::{wire::json::Nesting, work};

/// The end of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ScanEnd {
    /// The object ends before this offset.
    Whole(usize),
    /// The text ends inside of the object, and `in_string` inside of a string of it.
    Open {
        /// `true` if the end of the text is inside of a string.
        in_string: bool,
    },
    /// The byte at this offset cannot follow.
    Broken(usize),
}

/// The place in the grammar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// A value must follow.
    Value,
    /// A value, or the end of an array.
    ValueOrEnd,
    /// A key must follow.
    Key,
    /// A key, or the end of an object.
    KeyOrEnd,
    /// The colon after a key.
    Colon,
    /// A comma, or the end of a container.
    CommaOrEnd,
    /// Inside of a string, which may be a key.
    String {
        /// `true` for a key.
        is_key: bool,
    },
    /// After the backslash in a string.
    Escape {
        /// `true` in a key.
        is_key: bool,
    },
    /// Inside of a number or a word.
    Scalar,
}

/// A scan that goes on when more text is there.
///
/// Digits and words are not read closely: a whole object still has to pass the full parse.
#[derive(Debug)]
pub(super) struct ObjectScan {
    open: Nesting,
    place: Place,
    /// The offset of the next byte.
    pub(super) at: usize,
    /// Control characters between the brackets that JSON does not accept there.
    pub(super) controls: usize,
}

impl ObjectScan {
    /// Creates the scan of the object that begins at `from`.
    pub(super) const fn new(from: usize) -> Self {
        Self {
            open: Nesting::new(),
            place: Place::Value,
            at: from,
            controls: 0,
        }
    }

    /// Scans on. `text` begins with the bytes of the scan so far.
    pub(super) fn run(&mut self, text: &[u8]) -> ScanEnd {
        while let Some(&byte) = text.get(self.at) {
            work::count(1);
            if byte < b' ' && self.is_control(byte) {
                self.controls = self.controls.saturating_add(1);
                if let Place::Scalar = self.place {
                    self.place = Place::CommaOrEnd;
                }
                self.at = self.at.saturating_add(1);
                continue;
            }
            let Some(next) = self.place_after(byte) else {
                return ScanEnd::Broken(self.at);
            };
            self.place = next;
            self.at = self.at.saturating_add(1);
            if next == Place::CommaOrEnd && self.open.innermost_is_object().is_none() {
                return ScanEnd::Whole(self.at);
            }
        }
        ScanEnd::Open {
            in_string: matches!(self.place, Place::String { .. }),
        }
    }

    /// Returns `true` for a control character that is a fault at this place, but not for one after a backslash.
    const fn is_control(&self, byte: u8) -> bool {
        match self.place {
            Place::String { .. } => true,
            Place::Escape { .. } => false,
            _ => !matches!(byte, b'\t' | b'\n' | b'\r'),
        }
    }

    /// Returns the place after a byte. `None` if it cannot follow.
    fn place_after(&mut self, byte: u8) -> Option<Place> {
        let is_blank = matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
        match self.place {
            Place::String { is_key } => Some(match byte {
                b'\\' => Place::Escape { is_key },
                b'"' if is_key => Place::Colon,
                b'"' => Place::CommaOrEnd,
                _ => self.place,
            }),
            Place::Escape { is_key } => {
                let is_escape = matches!(byte, b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' | b'u');
                is_escape.then_some(Place::String { is_key })
            }
            Place::Scalar if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'+' | b'.') => Some(Place::Scalar),
            Place::Scalar if is_blank => Some(Place::CommaOrEnd),
            Place::Scalar | Place::CommaOrEnd if matches!(byte, b',' | b'}' | b']') => self.after_value(byte),
            place if is_blank => Some(place),
            Place::Value | Place::ValueOrEnd => self.begin_value(byte),
            Place::Key | Place::KeyOrEnd if byte == b'"' => Some(Place::String { is_key: true }),
            Place::KeyOrEnd if byte == b'}' => self.close_container(),
            Place::Colon if byte == b':' => Some(Place::Value),
            _ => None,
        }
    }

    fn begin_value(&mut self, byte: u8) -> Option<Place> {
        match byte {
            b'"' => Some(Place::String { is_key: false }),
            b'{' => {
                self.open.push(true);
                Some(Place::KeyOrEnd)
            }
            b'[' => {
                self.open.push(false);
                Some(Place::ValueOrEnd)
            }
            b']' if self.place == Place::ValueOrEnd => self.close_container(),
            _ => (byte.is_ascii_alphanumeric() || byte == b'-').then_some(Place::Scalar),
        }
    }

    /// Passes what follows a value: a comma, or the bracket that fits.
    fn after_value(&mut self, byte: u8) -> Option<Place> {
        let in_object = self.open.innermost_is_object()?;
        match byte {
            b',' if in_object => Some(Place::Key),
            b',' => Some(Place::Value),
            _ => (in_object == (byte == b'}')).then(|| self.close_container()).flatten(),
        }
    }

    fn close_container(&mut self) -> Option<Place> {
        self.open.pop();
        Some(Place::CommaOrEnd)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scans_end_where_the_object_does() {
        let open = |in_string| ScanEnd::Open { in_string };
        for (text, wanted) in [
            ("{}", ScanEnd::Whole(2)),
            (r#"{"a":1} x"#, ScanEnd::Whole(7)),
            (r#"{ "a" : [ 1 , {"b":[]} , "}" ] }{"#, ScanEnd::Whole(32)),
            (r#"{"a":-1.5e+3,"b":true,"c":"\"\\\u0041"}"#, ScanEnd::Whole(39)),
            ("{\"a\":\"x\ny\"}", ScanEnd::Whole(11)),
            ("{\"a\":1\u{b}}", ScanEnd::Whole(8)),
            (r#"{"a":"x"#, open(true)),
            (r#"{"a"#, open(true)),
            (r#"{"a":"x\"#, open(false)),
            (r#"{"a":["#, open(false)),
            ("{", open(false)),
            (r#"{"a":"x{"b":1}"#, ScanEnd::Broken(9)),
            (r#"{"a":1]"#, ScanEnd::Broken(6)),
            (r#"{"a":1,}"#, ScanEnd::Broken(7)),
            (r#"{"a" 1}"#, ScanEnd::Broken(5)),
            (r#"{"a":1 2}"#, ScanEnd::Broken(7)),
            (r#"{"a":"\x"}"#, ScanEnd::Broken(7)),
            ("{\"a\":\"\\\n\"}", ScanEnd::Broken(7)),
        ] {
            assert_eq!(ObjectScan::new(0).run(text.as_bytes()), wanted, "{text:?}");
            // Byte by byte it ends at the same place.
            let mut scan = ObjectScan::new(0);
            let steps = (1..=text.len()).map(|end| scan.run(text.as_bytes().get(..end).unwrap_or_default()));
            let end = steps.into_iter().find(|end| !matches!(end, ScanEnd::Open { .. }));
            let end = end.unwrap_or_else(|| scan.run(text.as_bytes()));
            assert_eq!(end, wanted, "{text:?} byte by byte");
        }
    }

    #[test]
    fn control_characters_are_counted() {
        let text = b"{\"a\":\"\n\t\x1b\",\n\x0b\"b\":2\x00}";
        let mut scan = ObjectScan::new(0);
        assert_eq!(scan.run(text), ScanEnd::Whole(text.len()));
        assert_eq!(scan.controls, 5);
    }
}
