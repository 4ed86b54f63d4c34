//! The byte format of records: a version, a kind, then the fields in order. Variable fields begin with their length.
//!
//! These bytes are stored in ledger files: changing one breaks every existing file.

use std::time::Duration;

use bytes::Bytes;

use crate::ledger::Moment;

/// A record under construction.
#[derive(Debug)]
pub(in crate::late) struct RecordWriter(Vec<u8>);

impl RecordWriter {
    /// Begins a record with its version and kind.
    pub(in crate::late) fn new(version: u8, what: u8) -> Self {
        Self(vec![version, what])
    }

    /// Writes a field of fixed length.
    pub(in crate::late) fn write_bytes(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// Writes a field of variable length.
    pub(in crate::late) fn write_text(&mut self, text: &[u8]) {
        // Always 64 bits, so that a file means the same on every platform.
        self.write_number(text.len() as u64);
        self.write_bytes(text);
    }

    pub(in crate::late) fn write_number(&mut self, number: u64) {
        self.write_bytes(&number.to_le_bytes());
    }

    pub(in crate::late) fn write_flag(&mut self, flag: bool) {
        self.0.push(u8::from(flag));
    }

    /// Writes a flag, and the hash if there is one.
    pub(in crate::late) fn write_optional_hash(&mut self, hash: Option<&[u8; 32]>) {
        self.write_flag(hash.is_some());
        if let Some(hash) = hash {
            self.write_bytes(hash);
        }
    }

    pub(in crate::late) fn write_moment(&mut self, moment: Moment) {
        self.write_number(moment.as_secs());
        self.write_bytes(&moment.subsec_nanos().to_le_bytes());
    }

    /// Writes the position of `value` in a list.
    ///
    /// A value outside the list is written as 255, and the record cannot be read again.
    pub(in crate::late) fn write_position<T: PartialEq + Copy>(&mut self, list: &[T], value: T) {
        let place = list.iter().position(|known| *known == value);
        self.0
            .push(place.and_then(|place| u8::try_from(place).ok()).unwrap_or(u8::MAX));
    }

    /// Returns the finished record.
    pub(in crate::late) fn into_bytes(self) -> Bytes {
        Bytes::from(self.0)
    }
}

/// The unread rest of a record.
#[derive(Debug)]
pub(in crate::late) struct RecordReader<'b> {
    version: u8,
    rest: &'b [u8],
}

impl<'b> RecordReader<'b> {
    /// Begins to read a record. Returns `None` if its version is unknown, or its kind is another.
    pub(in crate::late) fn new(bytes: &'b [u8], latest: u8, what: u8) -> Option<Self> {
        match bytes.split_first_chunk() {
            Some(([version, is], rest)) if (1..=latest).contains(version) && *is == what => Some(Self {
                version: *version,
                rest,
            }),
            _ => None,
        }
    }

    /// Returns the format version of the record.
    pub(in crate::late) const fn version(&self) -> u8 {
        self.version
    }

    /// Reads a number.
    pub(in crate::late) fn read_number(&mut self) -> Option<u64> {
        self.read_bytes().map(u64::from_le_bytes)
    }

    /// Reads a field of fixed length. Returns `None` if the record is cut off.
    pub(in crate::late) fn read_bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (bytes, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(*bytes)
    }

    /// Reads a field of variable length.
    pub(in crate::late) fn read_text(&mut self) -> Option<&'b [u8]> {
        let length = usize::try_from(self.read_number()?).ok()?;
        // Checked: a damaged length must not panic, and must not allocate.
        let (text, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(text)
    }

    /// Reads a field of variable length as UTF-8.
    pub(in crate::late) fn read_utf8(&mut self) -> Option<String> {
        std::str::from_utf8(self.read_text()?).ok().map(str::to_owned)
    }

    pub(in crate::late) fn read_flag(&mut self) -> Option<bool> {
        match self.read_bytes()? {
            [0] => Some(false),
            [1] => Some(true),
            // Only these two are written: anything else is damage.
            _ => None,
        }
    }

    // The outer option is `None` if the record is damaged, the inner one if the field is empty.
    #[expect(
        clippy::option_option,
        reason = "one says that the record is broken, the other that the field is empty"
    )]
    pub(in crate::late) fn read_optional_hash(&mut self) -> Option<Option<[u8; 32]>> {
        if self.read_flag()? {
            self.read_bytes().map(Some)
        } else {
            Some(None)
        }
    }

    pub(in crate::late) fn read_moment(&mut self) -> Option<Moment> {
        let seconds = self.read_number()?;
        let nanos = u32::from_le_bytes(self.read_bytes()?);
        // More nanoseconds would carry into the seconds, and `Duration::new` panics if those overflow.
        (nanos < 1_000_000_000).then(|| Duration::new(seconds, nanos))
    }

    /// Reads a position, and returns the value at it in a list.
    pub(in crate::late) fn read_position<T: Copy>(&mut self, list: &[T]) -> Option<T> {
        let [place] = self.read_bytes()?;
        list.get(usize::from(place)).copied()
    }

    /// Checks that nothing is left: trailing bytes mean damage.
    pub(in crate::late) fn expect_end(self) -> Option<()> {
        self.rest.is_empty().then_some(())
    }
}
