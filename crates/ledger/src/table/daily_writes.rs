//! The number of records that were written for each principal since a day ago: none can fill a ledger with them.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use crate::{
    digest_cache::{DigestCache, Lifetime},
    principal::Principal,
};

/// The most records that are written for one principal in a day. Further ones are in memory only.
const WRITES_MAX: u32 = 5_000;
/// The most principals whose writes are counted.
const COUNTED_MAX: u64 = 20_000;
/// The time over which writes are counted.
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The counted writes of one table, or of several that share the count. The handle is cheap to clone.
#[derive(Clone, Debug)]
pub struct DailyWrites(DigestCache<Principal, Arc<AtomicU32>>);

impl DailyWrites {
    /// Creates a count without any writes.
    pub fn new() -> Self {
        Self(DigestCache::new(COUNTED_MAX, Lifetime::SinceWrite(DAY)))
    }

    /// Counts a record. Returns `false` if it must not be written.
    pub fn count_one(&self, principal: Principal) -> bool {
        let written = self.0.get_or_insert_with(&principal, Arc::default);
        written.fetch_add(1, Ordering::Relaxed) < WRITES_MAX
    }
}

impl Default for DailyWrites {
    fn default() -> Self {
        Self::new()
    }
}
