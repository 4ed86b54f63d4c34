//! Edits of a session file that never move a byte, and a view of the file after them.

use std::{
    collections::BTreeMap,
    io::{self, ErrorKind, Read, Seek, SeekFrom},
    ops::Range,
};

/// Most overwrites of one file.
pub const OVERWRITES_MAX: usize = 1 << 20;

/// One edit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionEdit {
    /// Bytes are overwritten by as many others.
    Overwrite {
        /// Offset of the first one.
        at: u64,
        /// The new bytes.
        new: Vec<u8>,
    },
    /// Bytes are overwritten by spaces.
    Blank {
        /// Offset of the first one.
        at: u64,
        /// Their number.
        len: u64,
    },
    /// A record is appended at the end of the file, on a line of its own.
    Append {
        /// The record, without line feed.
        record: Vec<u8>,
    },
}

/// The reason why an edit is none that moves no byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EditFault {
    /// It goes beyond the end of the file.
    #[error("an edit of {len} bytes at byte {at} goes beyond the end of the file, which is at byte {end}")]
    BeyondEnd {
        /// Offset of its first byte.
        at: u64,
        /// Its bytes.
        len: u64,
        /// The end of the file, and of what is appended.
        end: u64,
    },
    /// It overwrites a line feed between appended records.
    #[error("an edit at byte {at} joins two appended records")]
    JoinsRecords {
        /// Offset of its first byte.
        at: u64,
    },
    /// The appended record is empty, or has a line feed.
    #[error("an appended record is empty, or has more than one line")]
    NoRecord,
    /// There are too many.
    #[error("there are more than {OVERWRITES_MAX} overwrites")]
    TooMany,
}

/// The new bytes of an overwrite.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Patch {
    Bytes(Vec<u8>),
    Spaces(u64),
}

/// The part of a patch that a reader takes.
enum PatchPart<'p> {
    Bytes(&'p [u8]),
    Spaces,
}

impl Patch {
    fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Spaces(len) => *len,
        }
    }

    /// Divides the patch. The first part has `len` bytes, or all.
    fn split_at(self, len: u64) -> (Self, Self) {
        match self {
            Self::Bytes(mut bytes) => {
                let rest = bytes.split_off(to_index(len).min(bytes.len()));
                (Self::Bytes(bytes), Self::Bytes(rest))
            }
            Self::Spaces(all) => (Self::Spaces(all.min(len)), Self::Spaces(all.saturating_sub(len))),
        }
    }

    /// Returns the part that begins at `from`.
    fn part(&self, from: u64) -> PatchPart<'_> {
        match self {
            Self::Bytes(bytes) => PatchPart::Bytes(bytes.get(to_index(from)..).unwrap_or_default()),
            Self::Spaces(_) => PatchPart::Spaces,
        }
    }
}

/// A file as it is after some edits. Of bytes that two of them overwrite, the later edit counts.
#[derive(Debug)]
pub struct EditedFile<F> {
    file: F,
    /// Bytes of the file itself.
    len: u64,
    /// The present place of the reader, in the edited file.
    at: u64,
    /// The place of `file`. `None` if it is not known.
    file_at: Option<u64>,
    /// Disjoint overwrites of the file, by their first byte.
    patches: BTreeMap<u64, Patch>,
    /// All that is appended: records with their line feeds.
    tail: Vec<u8>,
    /// The records in it.
    records: Vec<Range<usize>>,
    /// `true` if the file has bytes, and the last one is no line feed.
    lacks_line_end: bool,
}

impl<F: Read + Seek> EditedFile<F> {
    /// Creates the view of a file without edits.
    ///
    /// # Errors
    ///
    /// Those of `file`.
    pub fn new(mut file: F) -> io::Result<Self> {
        let len = file.seek(SeekFrom::End(0))?;
        let mut last = [b'\n'];
        if let Some(at) = len.checked_sub(1) {
            file.seek(SeekFrom::Start(at))?;
            file.read_exact(&mut last)?;
        }
        Ok(Self {
            file,
            len,
            at: 0,
            file_at: None,
            patches: BTreeMap::new(),
            tail: Vec::new(),
            records: Vec::new(),
            lacks_line_end: last != *b"\n",
        })
    }

    /// Creates the view of a file after `edits`.
    ///
    /// # Errors
    ///
    /// Those of `file`, and an [`EditFault`] of the kind `InvalidInput`.
    pub fn with_edits(file: F, edits: &[SessionEdit]) -> io::Result<Self> {
        let mut edited = Self::new(file)?;
        for edit in edits {
            let added = edited.add_edit(edit.clone());
            added.map_err(|fault| io::Error::new(ErrorKind::InvalidInput, fault))?;
        }
        Ok(edited)
    }
}

impl<F> EditedFile<F> {
    /// Returns the bytes of the edited file.
    pub fn edited_len(&self) -> u64 {
        self.len.saturating_add(self.tail.len() as u64)
    }

    /// Returns the bytes that are appended: a line feed if the file lacks one, then each record with one.
    pub fn appended_bytes(&self) -> &[u8] {
        &self.tail
    }

    /// Returns the edits in the order of the file: disjoint overwrites, then what is appended.
    pub fn merged_edits(&self) -> Vec<SessionEdit> {
        let patches = self.patches.iter().map(|(&at, patch)| match patch {
            Patch::Bytes(new) => SessionEdit::Overwrite { at, new: new.clone() },
            Patch::Spaces(len) => SessionEdit::Blank { at, len: *len },
        });
        let records = self.records.iter().map(|range| SessionEdit::Append {
            record: self.tail.get(range.clone()).unwrap_or_default().to_vec(),
        });
        patches.chain(records).collect()
    }

    /// Adds an edit, whose offsets are those of the edited file.
    ///
    /// # Errors
    ///
    /// An edit that moves bytes, or is no edit of this file.
    pub fn add_edit(&mut self, edit: SessionEdit) -> Result<(), EditFault> {
        match edit {
            SessionEdit::Overwrite { at, new } => self.overwrite(at, Patch::Bytes(new)),
            SessionEdit::Blank { at, len } => self.overwrite(at, Patch::Spaces(len)),
            SessionEdit::Append { record } => self.append(&record),
        }
    }

    fn append(&mut self, record: &[u8]) -> Result<(), EditFault> {
        if record.is_empty() || memchr::memchr(b'\n', record).is_some() {
            return Err(EditFault::NoRecord);
        }
        if self.tail.is_empty() && self.lacks_line_end {
            self.tail.push(b'\n');
        }
        let start = self.tail.len();
        self.tail.extend_from_slice(record);
        self.records.push(start..self.tail.len());
        self.tail.push(b'\n');
        Ok(())
    }

    fn overwrite(&mut self, at: u64, patch: Patch) -> Result<(), EditFault> {
        let (len, end) = (patch.len(), self.edited_len());
        if at.checked_add(len).is_none_or(|last| last > end) {
            return Err(EditFault::BeyondEnd { at, len, end });
        }
        let (in_file, in_tail) = patch.split_at(self.len.saturating_sub(at));
        if in_tail.len() > 0 {
            self.overwrite_tail(at.max(self.len), &in_tail)?;
        }
        if in_file.len() > 0 {
            self.add_patch(at, in_file);
        }
        if self.patches.len() > OVERWRITES_MAX {
            return Err(EditFault::TooMany);
        }
        Ok(())
    }

    /// Overwrites bytes of one appended record.
    fn overwrite_tail(&mut self, at: u64, patch: &Patch) -> Result<(), EditFault> {
        let start = to_index(at.saturating_sub(self.len));
        let end = start.saturating_add(to_index(patch.len()));
        let is_inside = |record: &Range<usize>| record.start <= start && end <= record.end;
        let index = self.records.partition_point(|record| record.end <= start);
        let has_feed = matches!(patch, Patch::Bytes(bytes) if memchr::memchr(b'\n', bytes).is_some());
        if has_feed || !self.records.get(index).is_some_and(is_inside) {
            return Err(EditFault::JoinsRecords { at });
        }
        if let Some(bytes) = self.tail.get_mut(start..end) {
            patch_bytes(bytes, &patch.part(0));
        }
        Ok(())
    }

    /// Adds an overwrite of the file itself. It replaces what earlier ones say about the same bytes.
    fn add_patch(&mut self, mut at: u64, mut patch: Patch) {
        let end = at.saturating_add(patch.len());
        // An earlier patch begins before this one and reaches into it.
        let before = self
            .patches
            .range(..at)
            .next_back()
            .map(|(&start, patch)| (start, patch.len()));
        if let Some((start, len)) = before
            && start.saturating_add(len) > at
            && let Some(old) = self.patches.remove(&start)
        {
            let (first, rest) = old.split_at(at.saturating_sub(start));
            self.patches.insert(start, first);
            self.patches.insert(at, rest);
        }
        // Earlier patches begin inside of this one.
        while let Some((&start, _)) = self.patches.range(at..end).next() {
            let Some(old) = self.patches.remove(&start) else { break };
            let (_, rest) = old.split_at(end.saturating_sub(start));
            if rest.len() > 0 {
                self.patches.insert(end, rest);
            }
        }
        // Patches of one kind that touch each other become one.
        let before = self
            .patches
            .range(..at)
            .next_back()
            .map(|(&start, patch)| (start, patch.len()));
        if let Some((start, len)) = before
            && start.saturating_add(len) == at
        {
            match (self.patches.get_mut(&start), &mut patch) {
                (Some(Patch::Spaces(old)), Patch::Spaces(new)) => {
                    *new = new.saturating_add(*old);
                    at = start;
                }
                (Some(Patch::Bytes(old)), Patch::Bytes(new)) => {
                    old.append(new);
                    return;
                }
                _ => {}
            }
        }
        self.patches.insert(at, patch);
    }
}

impl<F: Read + Seek> Read for EditedFile<F> {
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

impl<F: Read + Seek> EditedFile<F> {
    /// Reads bytes of the file itself, and puts the patches over them.
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
        let first = self.patches.range(..=start).next_back().map_or(start, |(&at, _)| at);
        for (&at, patch) in self.patches.range(first..end) {
            let from = at.max(start);
            let until = at.saturating_add(patch.len()).min(end);
            let place = to_index(from.saturating_sub(start))..to_index(until.saturating_sub(start));
            if let Some(bytes) = buffer.get_mut(place) {
                patch_bytes(bytes, &patch.part(from.saturating_sub(at)));
            }
        }
        Ok(read)
    }
}

impl<F> Seek for EditedFile<F> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::End(by) => self.edited_len().checked_add_signed(by),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
        };
        self.at = at.ok_or_else(|| io::Error::new(ErrorKind::InvalidInput, "a place before the first byte"))?;
        Ok(self.at)
    }
}

fn patch_bytes(bytes: &mut [u8], part: &PatchPart<'_>) {
    match part {
        PatchPart::Spaces => bytes.fill(b' '),
        PatchPart::Bytes(new) => bytes.iter_mut().zip(*new).for_each(|(old, new)| *old = *new),
    }
}

/// Returns a number of bytes in memory. A larger one is that of no buffer.
fn to_index(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}
