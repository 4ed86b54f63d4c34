//! The records that were seen, by their hashes, to find the ones that stand there twice.

use std::collections::{HashMap, HashSet};

use super::marks::has_identity;
use crate::digest::DigestHashBuilder;

/// The hash of a record: long enough that no two different ones have the same, even if one is chosen for it.
type RecordHash = [u8; 16];

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
    read: HashSet<RecordHash, DigestHashBuilder>,
    skipped: HashMap<RecordHash, RecordPlace, DigestHashBuilder>,
}

impl SeenRecords {
    /// Notes a record, which the client reads or skips.
    pub(super) fn note(&mut self, record: &[u8], place: RecordPlace, is_skipped: bool) -> Sighting {
        let digest: [u8; 32] = blake3::hash(record).into();
        let Some(&hash) = digest.first_chunk::<16>() else {
            return Sighting::New;
        };
        let earlier = self.skipped.get(&hash).copied();
        let is_known = self.read.contains(&hash) || earlier.is_some();
        if !is_known || !has_identity(record) {
            if is_skipped {
                self.skipped.insert(hash, place);
            } else {
                self.read.insert(hash);
            }
            return Sighting::New;
        }
        match earlier {
            // The line that the client reads stays as it is.
            Some(earlier) if !is_skipped => {
                self.skipped.remove(&hash);
                self.read.insert(hash);
                Sighting::Replaces(earlier)
            }
            _ => Sighting::Repeats,
        }
    }
}
