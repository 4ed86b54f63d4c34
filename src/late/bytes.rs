//! The byte format of records: a version, a kind, then the fields in order. Variable fields begin with their length.
//!
//! These bytes are stored in ledger files: changing one breaks every existing file.

use std::time::Duration;

use bytes::Bytes;

use crate::ledger::Moment;

/// A record under construction.
#[derive(Debug)]
pub(super) struct Writer(Vec<u8>);

impl Writer {
    /// Begins a record with its version and kind.
    pub(super) fn new(version: u8, what: u8) -> Self {
        Self(vec![version, what])
    }

    /// Writes a field of fixed length.
    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// Writes a field of variable length.
    pub(super) fn text(&mut self, text: &[u8]) {
        // Always 64 bits, so that a file means the same on every platform.
        self.bytes(&(text.len() as u64).to_le_bytes());
        self.bytes(text);
    }

    pub(super) fn flag(&mut self, flag: bool) {
        self.0.push(u8::from(flag));
    }

    pub(super) fn hash(&mut self, hash: &[u8; 32]) {
        self.bytes(hash);
    }

    /// Writes a flag, and the hash if there is one.
    pub(super) fn maybe(&mut self, hash: Option<&[u8; 32]>) {
        self.flag(hash.is_some());
        if let Some(hash) = hash {
            self.hash(hash);
        }
    }

    pub(super) fn moment(&mut self, moment: Moment) {
        self.bytes(&moment.as_secs().to_le_bytes());
        self.bytes(&moment.subsec_nanos().to_le_bytes());
    }

    /// Writes the position of `value` in a list.
    ///
    /// A value outside the list is written as 255, and the record cannot be read again.
    pub(super) fn place<T: PartialEq + Copy>(&mut self, list: &[T], value: T) {
        let place = list.iter().position(|known| *known == value);
        self.0
            .push(place.and_then(|place| u8::try_from(place).ok()).unwrap_or(u8::MAX));
    }

    /// Returns the finished record.
    pub(super) fn done(self) -> Bytes {
        Bytes::from(self.0)
    }
}

/// The unread rest of a record.
#[derive(Debug)]
pub(super) struct Reader<'b>(&'b [u8]);

impl<'b> Reader<'b> {
    /// Begins to read a record. Returns `None` if its version or kind is another.
    pub(super) fn new(bytes: &'b [u8], version: u8, what: u8) -> Option<Self> {
        match bytes.split_first_chunk() {
            Some(([of, is], rest)) if (*of, *is) == (version, what) => Some(Self(rest)),
            _ => None,
        }
    }

    /// Reads a field of fixed length. Returns `None` if the record is cut off.
    pub(super) fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*bytes)
    }

    /// Reads a field of variable length.
    pub(super) fn text(&mut self) -> Option<&'b [u8]> {
        let length = usize::try_from(u64::from_le_bytes(self.bytes()?)).ok()?;
        // Checked: a damaged length must not panic, and must not allocate.
        let (text, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(text)
    }

    /// Reads a field of variable length as UTF-8.
    pub(super) fn words(&mut self) -> Option<String> {
        std::str::from_utf8(self.text()?).ok().map(str::to_owned)
    }

    pub(super) fn flag(&mut self) -> Option<bool> {
        match self.bytes()? {
            [0] => Some(false),
            [1] => Some(true),
            // Only these two are written: anything else is damage.
            _ => None,
        }
    }

    pub(super) fn hash(&mut self) -> Option<[u8; 32]> {
        self.bytes()
    }

    // The outer option is `None` if the record is damaged, the inner one if the field is empty.
    #[expect(
        clippy::option_option,
        reason = "one says that the record is broken, the other that the field is empty"
    )]
    pub(super) fn maybe(&mut self) -> Option<Option<[u8; 32]>> {
        if self.flag()? {
            self.hash().map(Some)
        } else {
            Some(None)
        }
    }

    pub(super) fn moment(&mut self) -> Option<Moment> {
        let seconds = u64::from_le_bytes(self.bytes()?);
        let nanos = u32::from_le_bytes(self.bytes()?);
        // More nanoseconds would carry into the seconds, and `Duration::new` panics if those overflow.
        (nanos < 1_000_000_000).then(|| Duration::new(seconds, nanos))
    }

    /// Reads a position, and returns the value at it in a list.
    pub(super) fn place<T: Copy>(&mut self, list: &[T]) -> Option<T> {
        let [place] = self.bytes()?;
        list.get(usize::from(place)).copied()
    }

    /// Checks that nothing is left: trailing bytes mean damage.
    pub(super) fn end(self) -> Option<()> {
        self.0.is_empty().then_some(())
    }
}
