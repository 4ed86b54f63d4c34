//! A file with other bytes laid over its own, and with bytes behind its end.

use std::{
    collections::BTreeMap,
    io::{self, ErrorKind, Read, Seek, SeekFrom},
};

/// Bytes of one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ByteRun {
    /// Any bytes.
    Bytes(Vec<u8>),
    /// One byte, over and over.
    Fill(u8, u64),
}

impl ByteRun {
    /// Returns the number of bytes.
    pub fn count_bytes(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Fill(_, count) => *count,
        }
    }

    /// Copies the bytes from an offset on over those of `buffer`, as far as both reach.
    pub fn copy_from(&self, offset: u64, buffer: &mut [u8]) {
        match self {
            Self::Bytes(bytes) => {
                let bytes = bytes.get(to_index(offset)..).unwrap_or_default();
                buffer.iter_mut().zip(bytes).for_each(|(place, byte)| *place = *byte);
            }
            Self::Fill(byte, count) => {
                let left = to_index(count.saturating_sub(offset)).min(buffer.len());
                buffer.get_mut(..left).unwrap_or_default().fill(*byte);
            }
        }
    }

    /// Divides the run. The first part has `len` bytes, or all.
    pub(super) fn split_at(self, len: u64) -> (Self, Self) {
        match self {
            Self::Bytes(mut bytes) => {
                let rest = bytes.split_off(to_index(len).min(bytes.len()));
                (Self::Bytes(bytes), Self::Bytes(rest))
            }
            Self::Fill(byte, all) => (
                Self::Fill(byte, all.min(len)),
                Self::Fill(byte, all.saturating_sub(len)),
            ),
        }
    }

    /// Returns one of the bytes. `None` beyond the last.
    pub(super) fn byte_at(&self, place: u64) -> Option<u8> {
        match self {
            Self::Bytes(bytes) => bytes.get(to_index(place)).copied(),
            Self::Fill(byte, count) => (place < *count).then_some(*byte),
        }
    }
}

/// A file, read with runs of other bytes over its own, and with a tail behind them.
#[derive(Debug)]
pub struct OverlaidFile<F> {
    file: F,
    /// Bytes of the file itself that are read.
    len: u64,
    /// The present place of the reader.
    at: u64,
    /// The place of `file`. `None` if it is not known.
    file_at: Option<u64>,
    /// Disjoint runs within the file, by their first byte.
    pub(super) runs: BTreeMap<u64, ByteRun>,
    /// The bytes behind the last one of the file.
    pub(super) tail: Vec<u8>,
}

impl<F> OverlaidFile<F> {
    /// Creates the view of the first `len` bytes of a file. The runs lie within them, and none overlaps another.
    pub fn new(file: F, len: u64, runs: BTreeMap<u64, ByteRun>, tail: Vec<u8>) -> Self {
        Self {
            file,
            len,
            at: 0,
            file_at: None,
            runs,
            tail,
        }
    }

    /// Returns the bytes that are read of the file itself.
    pub(super) const fn file_len(&self) -> u64 {
        self.len
    }

    /// Returns the bytes of the view.
    pub(super) fn full_len(&self) -> u64 {
        self.len.saturating_add(self.tail.len() as u64)
    }

    #[cfg(test)]
    pub(super) const fn file_mut(&mut self) -> &mut F {
        &mut self.file
    }
}

impl<F: Read + Seek> Read for OverlaidFile<F> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = match self.len.checked_sub(self.at) {
            Some(left) if left > 0 => {
                let wanted = buffer.len().min(to_index(left));
                self.read_file(buffer.get_mut(..wanted).unwrap_or_default())?
            }
            _ => {
                let from = to_index(self.at.saturating_sub(self.len));
                self.tail.get(from..).unwrap_or_default().read(buffer)?
            }
        };
        self.at = self.at.saturating_add(read as u64);
        Ok(read)
    }
}

impl<F: Read + Seek> OverlaidFile<F> {
    /// Reads bytes of the file itself, and lays the runs over them.
    fn read_file(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        if self.file_at != Some(self.at) {
            self.file_at = None;
            self.file.seek(SeekFrom::Start(self.at))?;
        }
        let read = self.file.read(buffer)?;
        if read == 0 {
            return Err(io::Error::new(ErrorKind::UnexpectedEof, "the file has become shorter"));
        }
        let (start, end) = (self.at, self.at.saturating_add(read as u64));
        self.file_at = Some(end);
        let first = self.runs.range(..=start).next_back().map_or(start, |(&at, _)| at);
        for (&at, run) in self.runs.range(first..end) {
            let from = at.max(start);
            let until = at.saturating_add(run.count_bytes()).min(end);
            let place = to_index(from.saturating_sub(start))..to_index(until.saturating_sub(start));
            if let Some(bytes) = buffer.get_mut(place) {
                run.copy_from(from.saturating_sub(at), bytes);
            }
        }
        Ok(read)
    }
}

impl<F> Seek for OverlaidFile<F> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::End(by) => self.full_len().checked_add_signed(by),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
        };
        self.at = at.ok_or_else(|| io::Error::new(ErrorKind::InvalidInput, "a place before the first byte"))?;
        Ok(self.at)
    }
}

/// Returns a number of bytes in memory. A larger one is that of no buffer.
pub(super) fn to_index(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}
