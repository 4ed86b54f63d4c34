//! The state that all handles of the store share.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{
    calls::{awaited_calls::AwaitedTable, match_queue::MatchQueue, posted_results::PostedResults},
    cancels::WatchedLanes,
    compactions::Compactions,
    feed::FeedSender,
    outbox::Outbox,
    parts::LateParts,
    readers::Readers,
    settings::LateSettings,
};
use crate::{
    auth::Principal,
    digest_cache::{DigestCache, DigestKey, Lifetime},
    ledger::{LedgerChanges, Moment, RecordKey},
    table::{TableParts, VerifiedCallers},
    telemetry::Telemetry,
};

/// Entries of each cache. A forgotten entry costs a redundant write, or a wrong `attached` flag.
const CACHE_ENTRIES_MAX: u64 = 100_000;
/// Lifetime of an entry in these caches: 24 hours.
const CACHE_TTL: Duration = Duration::from_secs(24 * 60 * 60);

/// State that all handles share.
pub(super) struct LateStoreInner {
    pub(super) parts: Arc<LateParts>,
    /// The changes of other processes, by which caches know that they are out of date.
    pub(super) changes: LedgerChanges,
    /// Hashes of the observations of calls that are recorded, or on their way to the ledger.
    pub(super) recorded: DigestCache<[u8; 32], ()>,
    /// Hashes of lanes and sessions that were left, with the time.
    pub(super) left_at: DigestCache<[u8; 32], Moment>,
    pub(super) posted: PostedResults,
    pub(super) feed: FeedSender,
    /// The end of each caller's cooldown after a failed read of its posted results.
    pub(super) load_cooldowns: DigestCache<Principal, Instant>,
    pub(super) readers: Readers,
    /// Calls whose posted results were put into a request while the ledger failed, with the digests of the results.
    pub(super) in_requests: DigestCache<RecordKey, [u8; 32]>,
    /// Calls that compactions may have removed from the history of their lane.
    pub(super) compactions: Compactions,
    /// Parked results of known owners.
    pub(super) awaited: AwaitedTable,
    /// Parked results whose matches settle at a known time.
    pub(super) match_queue: Arc<MatchQueue>,
    /// Lanes whose calls can be cancelled.
    pub(super) watched_lanes: WatchedLanes,
    /// Messages that are to be sent.
    pub(super) outbox: Outbox,
}

impl LateStoreInner {
    /// Creates the state over the ledger of `table_parts`.
    pub(super) fn new(
        table_parts: &TableParts,
        callers: VerifiedCallers,
        settings: LateSettings,
        telemetry: Telemetry,
    ) -> Self {
        let parts = Arc::new(LateParts::new(table_parts, callers, settings, telemetry));
        Self {
            compactions: Compactions::new(&parts),
            readers: Readers::new(&parts),
            outbox: Outbox::new(&parts),
            recorded: bounded_cache(),
            left_at: bounded_cache(),
            posted: PostedResults::default(),
            changes: parts.ledger.changes(),
            feed: FeedSender::default(),
            load_cooldowns: bounded_cache(),
            in_requests: bounded_cache(),
            awaited: AwaitedTable::default(),
            match_queue: Arc::default(),
            watched_lanes: WatchedLanes::default(),
            parts,
        }
    }
}

/// Creates a bounded cache whose entries expire.
fn bounded_cache<K: DigestKey, V: Clone + Send + Sync + 'static>() -> DigestCache<K, V> {
    DigestCache::new(CACHE_ENTRIES_MAX, Lifetime::SinceWrite(CACHE_TTL))
}
