//! The facts that are kept of a record: its place, its links, and the ids of its calls and results. No text is kept.

use std::hash::Hasher as _;

use crate::{
    sessions::{finding::ID_BYTES_MAX, link_id::LinkId, paged_list::PagedList},
    work,
};

/// Hashes bytes for comparisons inside one file.
pub(super) fn hash_bytes<'b>(texts: impl IntoIterator<Item = &'b [u8]>) -> u64 {
    // Fixed keys: the same file must give the same plan.
    let mut hash = std::hash::DefaultHasher::new();
    for text in texts {
        hash.write_usize(text.len());
        hash.write(text);
    }
    // Zero stands for none.
    hash.finish().max(1)
}

/// A hash of six bytes, for comparisons of few records.
pub(super) type ShortHash = [u8; 6];

/// Hashes bytes for comparisons of few records inside one file.
pub(super) fn short_hash<'b>(texts: impl IntoIterator<Item = &'b [u8]>) -> ShortHash {
    hash_bytes(texts)
        .to_le_bytes()
        .first_chunk()
        .copied()
        .unwrap_or_default()
}

/// The marks of a record.
pub(super) mod mark {
    /// A message of a conversation.
    pub(in super::super) const MESSAGE: u16 = 1;
    /// An answer of the model. Without it a message is the user's.
    pub(in super::super) const ASSISTANT: u16 = 1 << 1;
    /// A record of a sub-agent.
    pub(in super::super) const SIDECHAIN: u16 = 1 << 2;
    /// The client skips its line.
    pub(in super::super) const SKIPPED: u16 = 1 << 3;
    /// The beginning of the conversation after a compaction.
    pub(in super::super) const BOUNDARY: u16 = 1 << 4;
    /// It has text, or another block that is neither a call nor a result.
    pub(in super::super) const TEXT: u16 = 1 << 5;
    /// It has results.
    pub(in super::super) const RESULTS: u16 = 1 << 6;
    /// Its id is a uuid, so that another record can be made to follow it.
    pub(in super::super) const REAL_UUID: u16 = 1 << 7;
    /// The id of its parent takes 36 bytes, so that another one fits.
    pub(in super::super) const REAL_PARENT: u16 = 1 << 8;
    /// A copy of another record with the same id.
    pub(in super::super) const COPY: u16 = 1 << 9;
    /// Another record has the same id.
    pub(in super::super) const NAMESAKE: u16 = 1 << 10;
}

/// The facts about one record.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RecordEntry {
    /// Offset of the record in the file.
    pub(super) byte: u64,
    /// Its line.
    pub(super) line: u64,
    /// Its id.
    pub(super) uuid: LinkId,
    /// The id of the record that it follows.
    pub(super) parent: LinkId,
    /// Hash of the answer's id, which all its records share. Zero if there is none.
    pub(super) message: u64,
    /// Hash of parent and message, to tell copies from other records.
    pub(super) content: ShortHash,
    /// Number of the parts of all records before it.
    pub(super) parts: u32,
    /// Its length in bytes.
    pub(super) len: u32,
    /// Its marks.
    pub(super) marks: u16,
}

impl RecordEntry {
    /// Returns `true` if it has all of these marks.
    pub(super) const fn has(&self, marks: u16) -> bool {
        self.marks & marks == marks
    }
}

/// The kind of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PartSort {
    /// A call of a tool, with the form of its input.
    Call(InputShape),
    /// The result of a call.
    Result,
    /// A result that says that there is none.
    LostResult,
    /// A call of the provider.
    ServerCall,
    /// A result of the provider.
    ServerResult,
    /// Thinking that the provider did not sign.
    ForeignThinking,
}

/// The form of a call's input and name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InputShape {
    /// An object, and a legal name.
    Sound,
    /// Text.
    Text,
    /// Null, an empty list, or none.
    Empty,
    /// Another value.
    Other,
    /// A name that the provider refuses.
    BadName,
}

/// One call, result or other part that is judged.
#[derive(Clone, Copy, Debug)]
pub(super) struct PartEntry {
    /// Offset of the id's text among all ids.
    id_at: u32,
    /// Hash of the id. Zero if it has none.
    pub(super) id: u64,
    /// Offset of the block in its record.
    pub(super) at: u32,
    /// Length of the block.
    pub(super) len: u32,
    id_len: u8,
    /// `true` if the provider takes the id.
    pub(super) is_legal_id: bool,
    /// `true` if its fix fits in its place.
    pub(super) fits: bool,
    /// The kind.
    pub(super) sort: PartSort,
}

/// Parts among which the call of a result is looked for, so that its id is kept once.
const NEAR_PARTS: u32 = 16;

/// The records of a file, in its order.
#[derive(Debug, Default)]
pub(super) struct EntryList {
    records: PagedList<RecordEntry>,
    parts: PagedList<PartEntry>,
    ids: PagedList<u8>,
}

impl EntryList {
    /// Returns the number of records.
    pub(super) fn count(&self) -> u32 {
        u32::try_from(self.records.len()).unwrap_or(u32::MAX)
    }

    /// Returns a record. One without marks if there is none at that place.
    pub(super) fn entry(&self, index: u32) -> RecordEntry {
        let index = usize::try_from(index).unwrap_or(usize::MAX);
        self.records.get(index).unwrap_or_default()
    }

    /// Adds marks to a record.
    pub(super) fn add_marks(&mut self, index: u32, marks: u16) {
        let index = usize::try_from(index).unwrap_or(usize::MAX);
        if let Some(entry) = self.records.get_mut(index) {
            entry.marks |= marks;
        }
    }

    /// Adds a record. Its parts must have been added before, from `parts` on.
    pub(super) fn push(&mut self, entry: RecordEntry) {
        self.records.push(entry);
    }

    /// Returns the number of parts so far.
    pub(super) fn part_count(&self) -> u32 {
        u32::try_from(self.parts.len()).unwrap_or(u32::MAX)
    }

    /// Adds a part of the next record.
    pub(super) fn push_part(&mut self, sort: PartSort, id: &[u8], at: u32, len: u32, fits: bool) {
        let is_letter = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        let hash = if id.is_empty() { 0 } else { hash_bytes([id]) };
        let (id_at, id_len) = self.keep_id(hash, id);
        self.parts.push(PartEntry {
            id_at,
            id: hash,
            at,
            len,
            id_len,
            is_legal_id: !id.is_empty() && id.len() <= ID_BYTES_MAX && id.iter().all(is_letter),
            fits,
            sort,
        });
    }

    /// Keeps the text of an id. Returns its place among all ids, and its length.
    fn keep_id(&mut self, hash: u64, id: &[u8]) -> (u32, u8) {
        let kept = id.get(..id.len().min(ID_BYTES_MAX)).unwrap_or_default();
        let count = self.part_count();
        let near = (count.saturating_sub(NEAR_PARTS)..count).rev();
        work::count(1);
        if let Some(part) = near.filter_map(|number| self.part(number)).find(|part| part.id == hash) {
            return (part.id_at, part.id_len);
        }
        // Ids of more than 4 GiB have no text. They are judged by their hashes.
        match (u32::try_from(self.ids.len()), u8::try_from(kept.len())) {
            (Ok(start), Ok(len)) => {
                for byte in kept {
                    self.ids.push(*byte);
                }
                (start, len)
            }
            _ => (0, 0),
        }
    }

    /// Returns the numbers of a record's parts.
    pub(super) fn part_numbers(&self, index: u32) -> std::ops::Range<u32> {
        let start = self.entry(index).parts;
        let next = index.saturating_add(1);
        let end = if next < self.count() {
            self.entry(next).parts
        } else {
            self.part_count()
        };
        start..end.max(start)
    }

    /// Returns a part by its number.
    pub(super) fn part(&self, number: u32) -> Option<PartEntry> {
        self.parts.get(usize::try_from(number).ok()?)
    }

    /// Returns the parts of a record.
    pub(super) fn parts_of(&self, index: u32) -> impl Iterator<Item = PartEntry> {
        self.part_numbers(index).filter_map(|number| self.part(number))
    }

    /// Returns the id of a part as text.
    pub(super) fn id_text(&self, part: &PartEntry) -> String {
        let start = usize::try_from(part.id_at).unwrap_or(usize::MAX);
        let text: Vec<u8> = self.ids.iter_from(start).take(usize::from(part.id_len)).collect();
        String::from_utf8_lossy(&text).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tools measure sessions by the gigabyte, so a record must stay small.
    #[test]
    fn a_record_takes_few_bytes() {
        assert!(size_of::<RecordEntry>() <= 72, "{}", size_of::<RecordEntry>());
        assert!(size_of::<PartEntry>() <= 24, "{}", size_of::<PartEntry>());
    }
}
