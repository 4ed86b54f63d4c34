//! Edits of a session file that never move a byte, and a view of the file after them.

use std::{
    collections::BTreeMap,
    io::{self, ErrorKind, Read, Seek, SeekFrom},
    ops::Range,
};

use super::overlay::{ByteRun, OverlaidFile, to_index};

/// Most overwrites of one file.
pub const OVERWRITES_MAX: usize = 1 << 20;

/// Most bytes that edits append, which are kept until they are written.
pub(super) const APPENDED_BYTES_MAX: usize = 64 * 1024 * 1024;

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
    /// It overwrites a line feed before an appended record, or makes one that was appended needless.
    #[error("an edit at byte {at} changes the line feeds between appended records")]
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
    /// Too much is appended.
    #[error("more than 64 MiB would be appended")]
    TooLarge,
}

/// A file as it is after some edits. Of bytes that two of them overwrite, the later edit counts.
#[derive(Debug)]
pub struct EditedFile<F> {
    /// The file with the new bytes over its own, and with all that is appended: records with their line feeds.
    view: OverlaidFile<F>,
    /// The records that are appended, by their places in the tail of the view.
    records: Vec<Range<usize>>,
    /// The last byte of the file itself. `None` if it has none.
    last: Option<u8>,
}

impl<F: Read + Seek> EditedFile<F> {
    /// Creates the view of a file without edits.
    ///
    /// # Errors
    ///
    /// Those of `file`.
    pub fn new(mut file: F) -> io::Result<Self> {
        let len = file.seek(SeekFrom::End(0))?;
        let mut last = None;
        if let Some(at) = len.checked_sub(1) {
            let mut byte = [0];
            file.seek(SeekFrom::Start(at))?;
            file.read_exact(&mut byte)?;
            last = byte.first().copied();
        }
        Ok(Self {
            view: OverlaidFile::new(file, len, BTreeMap::new(), Vec::new()),
            records: Vec::new(),
            last,
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
        self.view.full_len()
    }

    /// Returns the bytes that are appended: a line feed if the file lacks one, then each record with one.
    pub fn appended_bytes(&self) -> &[u8] {
        &self.view.tail
    }

    /// Returns the edits in the order of the file: disjoint overwrites, then what is appended.
    pub fn merged_edits(&self) -> Vec<SessionEdit> {
        let overwrites = self.view.runs.iter().map(|(&at, run)| match run {
            ByteRun::Bytes(new) => SessionEdit::Overwrite { at, new: new.clone() },
            // An edit fills with spaces alone.
            ByteRun::Fill(_, len) => SessionEdit::Blank { at, len: *len },
        });
        let records = self.records.iter().map(|range| SessionEdit::Append {
            record: self.view.tail.get(range.clone()).unwrap_or_default().to_vec(),
        });
        overwrites.chain(records).collect()
    }

    /// Adds an edit, whose offsets are those of the edited file.
    ///
    /// # Errors
    ///
    /// An edit that moves bytes, or is no edit of this file.
    pub fn add_edit(&mut self, edit: SessionEdit) -> Result<(), EditFault> {
        match edit {
            SessionEdit::Overwrite { at, new } => self.overwrite(at, ByteRun::Bytes(new)),
            SessionEdit::Blank { at, len } => self.overwrite(at, ByteRun::Fill(b' ', len)),
            SessionEdit::Append { record } => self.append(&record),
        }
    }

    fn append(&mut self, record: &[u8]) -> Result<(), EditFault> {
        if record.is_empty() || memchr::memchr(b'\n', record).is_some() {
            return Err(EditFault::NoRecord);
        }
        if self.view.tail.len().saturating_add(record.len()) > APPENDED_BYTES_MAX {
            return Err(EditFault::TooLarge);
        }
        if self.view.tail.is_empty() && !self.ends_line() {
            self.view.tail.push(b'\n');
        }
        let start = self.view.tail.len();
        self.view.tail.extend_from_slice(record);
        self.records.push(start..self.view.tail.len());
        self.view.tail.push(b'\n');
        Ok(())
    }

    fn overwrite(&mut self, at: u64, run: ByteRun) -> Result<(), EditFault> {
        let (len, end, file_len) = (run.count_bytes(), self.edited_len(), self.view.file_len());
        if at.checked_add(len).is_none_or(|last| last > end) {
            return Err(EditFault::BeyondEnd { at, len, end });
        }
        let (in_file, in_tail) = run.split_at(file_len.saturating_sub(at));
        // The first appended record has a line feed before it if the file has none.
        let last = file_len.checked_sub(1).and_then(|last| last.checked_sub(at));
        let last = last.and_then(|last| in_file.byte_at(last));
        if !self.view.tail.is_empty() && last.is_some_and(|last| (last == b'\n') != self.ends_line()) {
            return Err(EditFault::JoinsRecords { at });
        }
        if in_tail.count_bytes() > 0 {
            self.overwrite_tail(at.max(file_len), &in_tail)?;
        }
        if in_file.count_bytes() > 0 {
            self.add_run(at, in_file);
        }
        if self.view.runs.len() > OVERWRITES_MAX {
            return Err(EditFault::TooMany);
        }
        Ok(())
    }

    /// Returns `true` if the file is empty, or ends with a line feed after the edits so far.
    fn ends_line(&self) -> bool {
        let Some(last) = self.view.file_len().checked_sub(1) else {
            return true;
        };
        let edited = self.view.runs.range(..=last).next_back();
        let edited = edited.and_then(|(&at, run)| run.byte_at(last.saturating_sub(at)));
        edited.or(self.last) == Some(b'\n')
    }

    /// Overwrites bytes of one appended record.
    fn overwrite_tail(&mut self, at: u64, run: &ByteRun) -> Result<(), EditFault> {
        let start = to_index(at.saturating_sub(self.view.file_len()));
        let end = start.saturating_add(to_index(run.count_bytes()));
        let is_inside = |record: &Range<usize>| record.start <= start && end <= record.end;
        let index = self.records.partition_point(|record| record.end <= start);
        let has_feed = matches!(run, ByteRun::Bytes(bytes) if memchr::memchr(b'\n', bytes).is_some());
        if has_feed || !self.records.get(index).is_some_and(is_inside) {
            return Err(EditFault::JoinsRecords { at });
        }
        if let Some(bytes) = self.view.tail.get_mut(start..end) {
            run.copy_from(0, bytes);
        }
        Ok(())
    }

    /// Adds new bytes of the file itself. They replace what earlier edits say about the same bytes.
    fn add_run(&mut self, at: u64, run: ByteRun) {
        let end = at.saturating_add(run.count_bytes());
        // An earlier run begins before this one and reaches into it.
        if let Some((start, len)) = self.run_before(at)
            && start.saturating_add(len) > at
            && let Some(old) = self.view.runs.remove(&start)
        {
            let (first, rest) = old.split_at(at.saturating_sub(start));
            self.view.runs.insert(start, first);
            self.view.runs.insert(at, rest);
        }
        // Earlier runs begin inside of this one.
        while let Some((&start, _)) = self.view.runs.range(at..end).next() {
            let Some(old) = self.view.runs.remove(&start) else {
                break;
            };
            let (_, rest) = old.split_at(end.saturating_sub(start));
            if rest.count_bytes() > 0 {
                self.view.runs.insert(end, rest);
            }
        }
        self.join_run(at, run);
    }

    /// Adds a run where none is. Runs of one kind that touch each other become one.
    fn join_run(&mut self, at: u64, mut run: ByteRun) {
        if let Some((start, len)) = self.run_before(at)
            && start.saturating_add(len) == at
        {
            match (self.view.runs.get_mut(&start), &mut run) {
                (Some(ByteRun::Fill(known, old)), ByteRun::Fill(byte, new)) if known == byte => {
                    *old = old.saturating_add(*new);
                    return;
                }
                (Some(ByteRun::Bytes(old)), ByteRun::Bytes(new)) => {
                    old.append(new);
                    return;
                }
                _ => {}
            }
        }
        self.view.runs.insert(at, run);
    }

    /// Returns the first byte and the length of the run that begins before a place.
    fn run_before(&self, at: u64) -> Option<(u64, u64)> {
        let before = self.view.runs.range(..at).next_back();
        before.map(|(&start, run)| (start, run.count_bytes()))
    }
}

impl<F: Read + Seek> Read for EditedFile<F> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.view.read(buffer)
    }
}

impl<F> Seek for EditedFile<F> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.view.seek(to)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;
    use crate::sessions::{seed, stand_ins::SeededDice};

    /// A file in memory, edited at once.
    struct Model {
        bytes: Vec<u8>,
        len: usize,
        records: Vec<Range<usize>>,
    }

    impl Model {
        fn apply(&mut self, edit: &SessionEdit) -> bool {
            let (at, new) = match edit {
                SessionEdit::Overwrite { at, new } => (*at, new.clone()),
                SessionEdit::Blank { at, len } => (*at, vec![b' '; usize::try_from(*len).unwrap()]),
                SessionEdit::Append { record } => {
                    if record.is_empty() || record.contains(&b'\n') {
                        return false;
                    }
                    if self.records.is_empty() && self.bytes.last().is_some_and(|last| *last != b'\n') {
                        self.bytes.push(b'\n');
                    }
                    self.records.push(self.bytes.len()..self.bytes.len() + record.len());
                    self.bytes.extend([record.as_slice(), b"\n"].concat());
                    return true;
                }
            };
            let Ok(start) = usize::try_from(at) else { return false };
            let Some(end) = start.checked_add(new.len()).filter(|end| *end <= self.bytes.len()) else {
                return false;
            };
            if new.is_empty() {
                return true;
            }
            let (first, feed) = (
                start.max(self.len),
                new[(start.max(self.len) - start).min(new.len())..].contains(&b'\n'),
            );
            let fits = |range: &Range<usize>| range.start <= first && end <= range.end;
            if end > self.len && (!self.records.iter().any(fits) || feed) {
                return false;
            }
            let is_last = self.len > 0 && (start..end).contains(&(self.len - 1));
            let (last, is_feed) = (self.len.saturating_sub(1), |byte: Option<&u8>| byte == Some(&b'\n'));
            let new_last = new.get(last.saturating_sub(start));
            if is_last && !self.records.is_empty() && is_feed(new_last) != is_feed(self.bytes.get(last)) {
                return false;
            }
            self.bytes.splice(start..end, new);
            true
        }
    }

    fn roll_edit(dice: &mut SeededDice, len: usize) -> SessionEdit {
        let at = (dice.roll(len + 3) as u64).saturating_sub(1);
        match dice.roll(8) {
            0 => SessionEdit::Append {
                record: b"{\"ab\":12}"[..dice.roll(10)].to_vec(),
            },
            1 => SessionEdit::Append {
                record: b"a\nb".to_vec(),
            },
            2..5 => SessionEdit::Blank {
                at,
                len: dice.roll(9) as u64,
            },
            _ => SessionEdit::Overwrite {
                at,
                new: b"XYZ\nUVW"[..dice.roll(8)].to_vec(),
            },
        }
    }

    fn read_all(edited: &mut EditedFile<Cursor<Vec<u8>>>) -> Vec<u8> {
        let mut all = Vec::new();
        edited.rewind().unwrap();
        edited.read_to_end(&mut all).unwrap();
        all
    }

    #[test]
    fn an_edited_file_reads_as_if_it_was_written() {
        let seed = seed::seed();
        println!("SEED={seed}");
        let mut dice = SeededDice(seed);
        for round in 0..2_000 {
            let mut bytes: Vec<u8> = (0..dice.roll(40)).map(|_| b"abc\n"[dice.roll(4)]).collect();
            let original = bytes.clone();
            let mut edited = EditedFile::new(Cursor::new(original.clone())).unwrap();
            let (len, records) = (bytes.len(), Vec::new());
            let mut model = Model { bytes, len, records };
            for _ in 0..dice.roll(12) {
                let edit = roll_edit(&mut dice, model.bytes.len());
                let before = model.bytes.clone();
                let is_added = edited.add_edit(edit.clone()).is_ok();
                assert_eq!(is_added, model.apply(&edit), "{round}: {edit:?}");
                if !is_added {
                    model.bytes = before;
                }
            }
            bytes = model.bytes;
            assert_eq!(read_all(&mut edited), bytes, "{round}");
            assert_eq!(edited.edited_len(), bytes.len() as u64, "{round}");
            assert_eq!(edited.appended_bytes(), &bytes[len..], "{round}");
            // Any part of it reads alike.
            let start = dice.roll(bytes.len() + 1);
            let mut part = vec![0; dice.roll(bytes.len() - start + 1)];
            edited.seek(SeekFrom::Start(start as u64)).unwrap();
            edited.read_exact(&mut part).unwrap();
            assert_eq!(part, bytes[start..start + part.len()], "{round}");
            let end = edited.seek(SeekFrom::End(0)).unwrap();
            assert_eq!((end, edited.read(&mut [0]).unwrap()), (bytes.len() as u64, 0));
            // The merged edits are disjoint, within the file, and the same file.
            let merged = edited.merged_edits();
            let mut again = EditedFile::with_edits(Cursor::new(original), &merged).unwrap();
            assert_eq!(read_all(&mut again), bytes, "{round}: {merged:?}");
            let mut passed = 0;
            for edit in &merged {
                let (at, bytes) = match edit {
                    SessionEdit::Overwrite { at, new } => (*at, new.len() as u64),
                    SessionEdit::Blank { at, len } => (*at, *len),
                    SessionEdit::Append { .. } => (len as u64, 0),
                };
                assert!(at >= passed && at + bytes <= len as u64, "{round}: {merged:?}");
                passed = at + bytes;
            }
        }
    }

    /// All records together count, and one that is refused leaves the file as it is.
    #[test]
    fn what_is_appended_has_a_limit() {
        let mut edited = EditedFile::new(Cursor::new(b"{}\n".to_vec())).unwrap();
        let append = |len: usize| SessionEdit::Append {
            record: vec![b'1'; len],
        };
        // A line feed ends each record.
        for (len, added) in [
            (APPENDED_BYTES_MAX / 2 - 1, Ok(())),
            (APPENDED_BYTES_MAX / 2 + 1, Err(EditFault::TooLarge)),
            (APPENDED_BYTES_MAX / 2, Ok(())),
            (1, Err(EditFault::TooLarge)),
        ] {
            let before = edited.edited_len();
            assert_eq!(edited.add_edit(append(len)), added, "{len}");
            let grown = if added.is_ok() { len as u64 + 1 } else { 0 };
            assert_eq!(edited.edited_len(), before + grown, "{len}");
        }
    }

    #[test]
    fn places_before_the_file_and_shorter_files_are_faults() {
        let mut edited = EditedFile::new(Cursor::new(b"abc".to_vec())).unwrap();
        assert!(edited.seek(SeekFrom::Current(-1)).is_err());
        assert_eq!(edited.seek(SeekFrom::End(-1)).unwrap(), 2);
        assert_eq!(
            edited.add_edit(SessionEdit::Blank { at: 2, len: u64::MAX }),
            Err(EditFault::BeyondEnd {
                at: 2,
                len: u64::MAX,
                end: 3
            })
        );
        edited.view.file_mut().get_mut().truncate(1);
        let read = edited.read(&mut [0; 9]).map_err(|error| error.kind());
        assert_eq!(read, Err(ErrorKind::UnexpectedEof));
    }
}
