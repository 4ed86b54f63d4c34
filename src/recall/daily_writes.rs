//! The number of records that were written for each caller since a day ago: no caller can fill a ledger with them.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use crate::{
    auth::{Caller, Principal},
    digest_cache::{DigestCache, Lifetime},
};

/// The most records that are written for one caller in a day. Further ones are in memory only.
const WRITES_MAX: u32 = 5_000;
/// The most callers whose writes are counted.
const COUNTED_MAX: u64 = 20_000;
/// The time over which writes are counted.
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The counted writes of one kind of record.
#[derive(Debug)]
pub(super) struct DailyWrites(DigestCache<Principal, Arc<AtomicU32>>);

impl DailyWrites {
    pub(super) fn new() -> Self {
        Self(DigestCache::new(COUNTED_MAX, Lifetime::SinceWrite(DAY)))
    }

    /// Counts a record. Returns `false` if it must not be written.
    pub(super) fn count_one(&self, caller: Caller) -> bool {
        let written = self.0.get_or_insert_with(&caller.principal(), Arc::default);
        written.fetch_add(1, Ordering::Relaxed) < WRITES_MAX
    }
}
