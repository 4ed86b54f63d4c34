//! The in-memory caches of the store.

use std::time::Duration;

use moka::sync::Cache;

/// Entries of each cache. A forgotten entry costs a redundant write, or a wrong `attached` flag.
const CACHE_ENTRIES_MAX: u64 = 100_000;
/// Lifetime of an entry in these caches: 24 hours.
const CACHE_TTL: Duration = Duration::from_secs(24 * 60 * 60);

/// Creates a bounded cache whose entries expire.
pub(super) fn bounded_cache<K, V>() -> Cache<K, V>
where
    K: std::hash::Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    Cache::builder()
        .max_capacity(CACHE_ENTRIES_MAX)
        .time_to_live(CACHE_TTL)
        .build()
}
