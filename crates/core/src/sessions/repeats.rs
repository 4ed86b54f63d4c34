//! The records that were seen, by their hashes, to find the ones that stand there twice.

use std::{
    collections::{HashMap, HashSet},
    hash::{BuildHasher as _, Hasher as _, RandomState},
};

use crate::{digest::DigestHashBuilder, work};

/// The hash of a record, and that of its length and of the member that no two records have alike.
///
/// Nobody can choose two records with one hash, since the keys are random ones.
type RecordHash = [u8; 12];

/// The sets of hashes: one grows at a time, so that there is never room for twice as many of all.
const SHARDS: usize = 16;

/// The place of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RecordPlace {
    /// The line.
    pub(super) line: u64,
    /// Offset in the file.
    pub(super) byte: u64,
    /// Its bytes.
    pub(super) len: u64,
}

/// The relation of a record to the ones before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sighting {
    /// It is the first of its kind.
    New,
    /// It repeats an earlier one.
    Repeats,
    /// The client reads it, and skips the earlier one at this place.
    Replaces(RecordPlace),
}

/// The hashes of the records so far.
#[derive(Debug, Default)]
pub(super) struct SeenRecords {
    keys: RandomState,
    read: [HashSet<RecordHash, DigestHashBuilder>; SHARDS],
    skipped: HashMap<RecordHash, RecordPlace, DigestHashBuilder>,
}

impl SeenRecords {
    /// Notes a record, which the client reads or skips. `identity` is the member by which no two records are alike.
    pub(super) fn note(&mut self, record: &[u8], identity: &[u8], place: RecordPlace, is_skipped: bool) -> Sighting {
        let hash = self.hash_record(record, identity);
        let earlier = self.skipped.get(&hash).copied();
        let shard = usize::from(hash.first().copied().unwrap_or_default()) % SHARDS;
        let Some(read) = self.read.get_mut(shard) else {
            return Sighting::New;
        };
        match earlier {
            // The line that the client reads stays as it is.
            Some(earlier) if !is_skipped => {
                self.skipped.remove(&hash);
                read.insert(hash);
                Sighting::Replaces(earlier)
            }
            Some(_) => Sighting::Repeats,
            None if is_skipped => {
                if read.contains(&hash) {
                    return Sighting::Repeats;
                }
                self.skipped.insert(hash, place);
                Sighting::New
            }
            None if read.insert(hash) => Sighting::New,
            None => Sighting::Repeats,
        }
    }

    fn hash_record(&self, record: &[u8], identity: &[u8]) -> RecordHash {
        work::count_bytes(record.len());
        let (mut whole, mut own) = (self.keys.build_hasher(), self.keys.build_hasher());
        whole.write(record);
        own.write(identity);
        own.write_usize(record.len());
        let mut hash = RecordHash::default();
        let bytes = whole
            .finish()
            .to_le_bytes()
            .into_iter()
            .chain(own.finish().to_le_bytes());
        hash.iter_mut().zip(bytes).for_each(|(slot, byte)| *slot = byte);
        hash
    }
}
