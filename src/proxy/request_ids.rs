//! The ids of requests, which are in every answer and log line.

use std::{
    hash::{BuildHasher, RandomState},
    sync::atomic::{AtomicU64, Ordering},
};

use uuid::{Builder, fmt::Hyphenated};

use crate::clock;

/// Generator of request ids: UUIDs of version 7.
///
/// Their random bits are a keyed hash of a counter. The system's own random numbers would cost one system call per id.
#[derive(Debug, Default)]
pub(super) struct RequestIds {
    key: RandomState,
    count: AtomicU64,
}

impl RequestIds {
    /// Returns a new id in its text form.
    pub(super) fn next_id(&self) -> String {
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        // An id has 74 random bits, and one hash has 64.
        let [high, low] = [0_u8, 1].map(|half| u128::from(self.key.hash_one((count, half))));
        let random = ((high << 64) | low).to_be_bytes();
        let random = random.first_chunk().copied().unwrap_or_default();
        let millis = u64::try_from(clock::unix_time().as_millis()).unwrap_or(u64::MAX);
        let id = Builder::from_unix_timestamp_millis(millis, &random);
        // Written in place: `to_string` goes through a formatter.
        let mut text = [0; Hyphenated::LENGTH];
        id.into_uuid().hyphenated().encode_lower(&mut text).to_owned()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use uuid::{Uuid, Variant};

    use super::*;

    #[test]
    fn ids_are_uuids_of_version_7_and_all_differ() {
        let ids = RequestIds::default();
        let made: HashSet<String> = (0..10_000).map(|_| ids.next_id()).collect();
        assert_eq!(made.len(), 10_000);
        for id in made {
            let id: Uuid = id.parse().unwrap();
            assert_eq!((id.get_version_num(), id.get_variant()), (7, Variant::RFC4122));
            let (seconds, _) = id.get_timestamp().unwrap().to_unix();
            assert!(clock::unix_time().as_secs() - seconds < 60);
        }
    }
}
