//! The bytes that a fix changes, old and new, and a view of the file before or after it.

use std::io::{self, Read, Seek, SeekFrom};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use crate::{
    printable::printable_name,
    sessions::{ByteRun, EditFault, EditedFile, OverlaidFile, SessionEdit},
};

/// Bytes of a blank that are compared at once.
const CHUNK: usize = 1024 * 1024;
/// Bytes of all changes of one fix, of which each is kept old and new. Runs of one byte count as one.
const CHANGED_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Bytes of an edit that a person is shown.
const SAMPLE_BYTES: usize = 80;

/// Returns the first bytes of a run, for a person.
pub(super) fn sample_of_run(run: &ByteRun) -> String {
    match run {
        ByteRun::Bytes(bytes) => sample_of(bytes),
        ByteRun::Fill(byte, count) => format!("{count} times {}", sample_of(&[*byte])),
    }
}

fn run_document(run: &ByteRun) -> Value {
    match run {
        ByteRun::Bytes(bytes) => json!(STANDARD.encode(bytes)),
        ByteRun::Fill(byte, count) => json!({ "byte": byte, "count": count }),
    }
}

fn run_of_document(document: &Value) -> Option<ByteRun> {
    match document {
        Value::String(text) => STANDARD.decode(text).ok().map(ByteRun::Bytes),
        run => Some(ByteRun::Fill(
            u8::try_from(run["byte"].as_u64()?).ok()?,
            run["count"].as_u64()?,
        )),
    }
}

/// A place of the file whose bytes change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ByteChange {
    pub(super) at: u64,
    pub(super) old: ByteRun,
    pub(super) new: ByteRun,
}

impl ByteChange {
    fn end(&self) -> u64 {
        self.at.saturating_add(self.old.count_bytes())
    }

    /// Returns the change for the manifest.
    pub(super) fn document(&self) -> Value {
        json!({ "at": self.at, "old": run_document(&self.old), "new": run_document(&self.new) })
    }

    /// Reads a change of a manifest. `None` if it is none.
    pub(super) fn from_document(document: &Value) -> Option<Self> {
        let change = Self {
            at: document["at"].as_u64()?,
            old: run_of_document(&document["old"])?,
            new: run_of_document(&document["new"])?,
        };
        (change.old.count_bytes() == change.new.count_bytes()).then_some(change)
    }
}

/// A side of changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChangeSide {
    /// The bytes before the fix.
    Old,
    /// The bytes after it.
    New,
}

impl ChangeSide {
    const fn run_of(self, change: &ByteChange) -> &ByteRun {
        match self {
            Self::Old => &change.old,
            Self::New => &change.new,
        }
    }
}

/// All changes of a fix.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FileChanges {
    /// In the order of the file, and none overlaps another.
    pub(super) overwrites: Vec<ByteChange>,
    /// Bytes behind the old end of the file: whole lines.
    pub(super) appended: Vec<u8>,
    /// Bytes of the file before.
    pub(super) size_before: u64,
}

impl FileChanges {
    /// Reads the old bytes of a plan. Fails if the plan does not fit the file, or is too large.
    pub(super) fn resolve(edits: &[SessionEdit], file: &mut (impl Read + Seek)) -> io::Result<Self> {
        let size_before = file.seek(SeekFrom::End(0))?;
        let edited = EditedFile::with_edits(&mut *file, edits).map_err(refuse_edit)?;
        let mut changes = Self {
            appended: edited.appended_bytes().to_vec(),
            size_before,
            ..Self::default()
        };
        let mut kept = changes.appended.len();
        for edit in edits {
            kept += match edit {
                SessionEdit::Overwrite { at, new } => changes.add_overwrite(*at, new, file)?,
                SessionEdit::Blank { at, len } => changes.add_blank(*at, *len, file)?,
                SessionEdit::Append { .. } => 0,
            };
            if kept > CHANGED_BYTES_MAX {
                return Err(too_large());
            }
        }
        changes.overwrites.sort_by_key(|change| change.at);
        let ends = changes.overwrites.iter().map(ByteChange::end);
        let starts = changes.overwrites.iter().map(|change| change.at).skip(1);
        if ends.zip(starts).any(|(end, start)| end > start) {
            return Err(unfit());
        }
        Ok(changes)
    }

    /// Adds an overwrite, without the bytes at its ends that stay the same. Returns the bytes that are kept for it.
    fn add_overwrite(&mut self, at: u64, new: &[u8], file: &mut (impl Read + Seek)) -> io::Result<usize> {
        let old = self.read_old(at, new.len(), file)?;
        let pairs = || old.iter().zip(new);
        let Some(first) = pairs().position(|(old, new)| old != new) else {
            return Ok(0);
        };
        let same_behind = pairs().rev().take_while(|(old, new)| old == new).count();
        let range = first..new.len().saturating_sub(same_behind);
        let (old, new) = (old.get(range.clone()), new.get(range));
        let (old, new) = (old.unwrap_or_default().to_vec(), new.unwrap_or_default().to_vec());
        let kept = new.len();
        self.overwrites.push(ByteChange {
            at: at.saturating_add(u64::try_from(first).unwrap_or(u64::MAX)),
            old: ByteRun::Bytes(old),
            new: ByteRun::Bytes(new),
        });
        Ok(kept)
    }

    /// Adds spaces in the place of other bytes. Returns the bytes that are kept for them.
    fn add_blank(&mut self, at: u64, len: u64, file: &mut (impl Read + Seek)) -> io::Result<usize> {
        let (mut kept, mut done) = (0, 0);
        while done < len {
            let count = usize::try_from(len.saturating_sub(done)).unwrap_or(CHUNK).min(CHUNK);
            let place = at.saturating_add(done);
            let old = self.read_old(place, count, file)?;
            let spaces = ByteRun::Fill(b' ', length(&old));
            done = done.saturating_add(length(&old));
            match old.first() {
                Some(b' ') if old.iter().all(|other| *other == b' ') => {}
                // Runs of NUL bytes may be as large as a disk.
                Some(byte) if old.iter().all(|other| other == byte) => self.push_fill(place, *byte, length(&old)),
                _ => {
                    kept += old.len();
                    self.overwrites.push(ByteChange {
                        at: place,
                        old: ByteRun::Bytes(old),
                        new: spaces,
                    });
                }
            }
            if kept > CHANGED_BYTES_MAX {
                break;
            }
        }
        Ok(kept)
    }

    /// Adds spaces in the place of a run of one byte, or makes the last such run longer.
    fn push_fill(&mut self, at: u64, byte: u8, count: u64) {
        if let Some(last) = self.overwrites.last_mut() {
            let end = last.end();
            if let (ByteRun::Fill(known, old), ByteRun::Fill(b' ', new)) = (&mut last.old, &mut last.new)
                && *known == byte
                && end == at
            {
                (*old, *new) = (old.saturating_add(count), new.saturating_add(count));
                return;
            }
        }
        self.overwrites.push(ByteChange {
            at,
            old: ByteRun::Fill(byte, count),
            new: ByteRun::Fill(b' ', count),
        });
    }

    fn read_old(&self, at: u64, count: usize, file: &mut (impl Read + Seek)) -> io::Result<Vec<u8>> {
        let end = u64::try_from(count).ok().and_then(|count| at.checked_add(count));
        if end.is_none_or(|end| end > self.size_before) {
            return Err(unfit());
        }
        file.seek(SeekFrom::Start(at))?;
        let mut old = vec![0; count];
        file.read_exact(&mut old)?;
        Ok(old)
    }

    /// Returns `true` if nothing changes.
    pub(super) fn is_empty(&self) -> bool {
        self.overwrites.is_empty() && self.appended.is_empty()
    }

    /// Returns the bytes of the file after the fix.
    pub(super) fn size_after(&self) -> u64 {
        self.size_before.saturating_add(length(&self.appended))
    }

    /// Returns the number of bytes that are overwritten.
    pub(super) fn count_overwritten(&self) -> u64 {
        let counts = self.overwrites.iter().map(|change| change.new.count_bytes());
        counts.fold(0, u64::saturating_add)
    }

    /// Returns the file as it was before the fix or will be after it, whichever of both it is now.
    pub(super) fn view<F: Read + Seek>(&self, file: F, side: ChangeSide) -> impl Read {
        let runs = self
            .overwrites
            .iter()
            .map(|change| (change.at, side.run_of(change).clone()));
        let tail = match side {
            ChangeSide::Old => Vec::new(),
            ChangeSide::New => self.appended.clone(),
        };
        OverlaidFile::new(file, self.size_before, runs.collect(), tail)
    }

    /// Writes one side of each overwrite.
    pub(super) fn write_side(
        &self,
        side: ChangeSide,
        mut write: impl FnMut(u64, &[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        for change in &self.overwrites {
            match side.run_of(change) {
                ByteRun::Bytes(bytes) => write(change.at, bytes)?,
                run @ ByteRun::Fill(_, count) => {
                    let mut done = 0;
                    while done < *count {
                        let size = usize::try_from(count.saturating_sub(done)).unwrap_or(CHUNK).min(CHUNK);
                        let mut chunk = vec![0; size];
                        run.copy_from(done, &mut chunk);
                        write(change.at.saturating_add(done), &chunk)?;
                        done = done.saturating_add(length(&chunk));
                    }
                }
            }
        }
        Ok(())
    }
}

/// Returns at most 80 bytes, for a person.
pub(super) fn sample_of(bytes: &[u8]) -> String {
    let shown = bytes.get(..SAMPLE_BYTES).unwrap_or(bytes);
    let more = if shown.len() < bytes.len() { "…" } else { "" };
    format!("\"{}\"{more}", printable_name(shown))
}

fn length(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

/// Returns the error for the user if an edit is refused.
fn refuse_edit(error: io::Error) -> io::Error {
    match error.get_ref().and_then(|inner| inner.downcast_ref()) {
        Some(EditFault::TooLarge) => too_large(),
        Some(_) => unfit(),
        None => error,
    }
}

/// Returns the error of a fix that changes too much.
pub(super) fn too_large() -> io::Error {
    let told = "the fix would change more than 64 MiB of the file, so nothing is written";
    io::Error::new(io::ErrorKind::FileTooLarge, told)
}

fn unfit() -> io::Error {
    let told = "the plan does not fit the file, so nothing is written: please report this";
    io::Error::new(io::ErrorKind::InvalidData, told)
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    fn view_of(changes: &FileChanges, file: &[u8], side: ChangeSide, step: usize) -> Vec<u8> {
        let mut reader = changes.view(Cursor::new(file), side);
        let (mut seen, mut buffer) = (Vec::new(), vec![0; step]);
        loop {
            match reader.read(&mut buffer).unwrap() {
                0 => return seen,
                read => seen.extend_from_slice(&buffer[..read]),
            }
        }
    }

    /// A file, its edits, and the file after them.
    type EditRow = (&'static [u8], Vec<SessionEdit>, &'static [u8]);

    #[test]
    fn changes_are_laid_over_the_file_whatever_the_steps() {
        let overwrite = |at, new: &[u8]| SessionEdit::Overwrite { at, new: new.to_vec() };
        let append = |record: &[u8]| SessionEdit::Append {
            record: record.to_vec(),
        };
        let rows: Vec<EditRow> = vec![
            (b"abcdef\n", vec![overwrite(0, b"aXcYef")], b"aXcYef\n"),
            (b"ab\0\0\0f\n", vec![SessionEdit::Blank { at: 2, len: 3 }], b"ab   f\n"),
            (
                b"abcdef\n",
                vec![SessionEdit::Blank { at: 3, len: 3 }, overwrite(0, b"z")],
                b"zbc   \n",
            ),
            (b"{}\n", vec![append(b"{1}"), append(b"{2}")], b"{}\n{1}\n{2}\n"),
            (
                b"{}\n{torn",
                vec![SessionEdit::Blank { at: 3, len: 5 }, append(b"{1}")],
                b"{}\n     \n{1}\n",
            ),
            (b"", vec![append(b"{1}")], b"{1}\n"),
            (b"same\n", vec![overwrite(0, b"same")], b"same\n"),
        ];
        for (file, edits, wanted) in rows {
            let changes = FileChanges::resolve(&edits, &mut Cursor::new(file)).unwrap();
            assert_eq!(changes.size_after(), wanted.len() as u64, "{edits:?}");
            assert_eq!(changes.is_empty(), file == wanted, "{edits:?}");
            for step in 1..12 {
                assert_eq!(
                    view_of(&changes, file, ChangeSide::New, step),
                    wanted,
                    "{edits:?} {step}"
                );
                assert_eq!(
                    view_of(&changes, wanted, ChangeSide::Old, step),
                    file,
                    "{edits:?} {step}"
                );
            }
            let mut written = file.to_vec();
            let write = |at: u64, bytes: &[u8]| {
                let at = usize::try_from(at).unwrap();
                written[at..at + bytes.len()].copy_from_slice(bytes);
                Ok(())
            };
            changes.write_side(ChangeSide::New, write).unwrap();
            written.extend_from_slice(&changes.appended);
            assert_eq!(written, wanted, "{edits:?}");
            let documents = changes
                .overwrites
                .iter()
                .map(|change| ByteChange::from_document(&change.document()));
            assert_eq!(documents.collect::<Option<Vec<_>>>(), Some(changes.overwrites.clone()));
        }
    }

    #[test]
    fn a_long_run_of_one_byte_is_kept_as_one() {
        let file = [&b"{}\n"[..], &vec![0; 3 * CHUNK + 5], b"\n"].concat();
        let len = (3 * CHUNK + 5) as u64;
        let changes = FileChanges::resolve(&[SessionEdit::Blank { at: 3, len }], &mut Cursor::new(&file)).unwrap();
        let whole = ByteChange {
            at: 3,
            old: ByteRun::Fill(0, len),
            new: ByteRun::Fill(b' ', len),
        };
        assert_eq!(changes.overwrites, [whole]);
        let after = view_of(&changes, &file, ChangeSide::New, 4096);
        assert!(after[3..file.len() - 1].iter().all(|byte| *byte == b' '));
        assert_eq!(view_of(&changes, &after, ChangeSide::Old, 4096), file);
    }

    #[test]
    fn a_plan_that_does_not_fit_is_refused() {
        let file = b"abcdef\n";
        let append = |record: &[u8]| SessionEdit::Append {
            record: record.to_vec(),
        };
        for edits in [
            vec![SessionEdit::Overwrite {
                at: 5,
                new: b"xyz".to_vec(),
            }],
            vec![SessionEdit::Blank { at: 7, len: 1 }],
            vec![SessionEdit::Blank {
                at: u64::MAX,
                len: u64::MAX,
            }],
            vec![
                SessionEdit::Blank { at: 0, len: 3 },
                SessionEdit::Blank { at: 2, len: 2 },
            ],
            vec![append(b"{}\n{}")],
        ] {
            let error = FileChanges::resolve(&edits, &mut Cursor::new(file)).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{edits:?}");
        }
        let large = vec![b'x'; CHANGED_BYTES_MAX + 1];
        let error = FileChanges::resolve(&[append(&large)], &mut Cursor::new(file)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
    }
}
