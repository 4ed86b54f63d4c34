//! Bounded caches in memory whose keys are digests.
//!
//! One compiled form serves all types. Otherwise the compiler makes a copy of moka for each pair of types: 36 copies took
//! a fifth of the time to compile the crate, and a request ran through many of them.

use std::{any::Any, fmt, hash, marker::PhantomData, sync::Arc, time::Duration};

use moka::{Entry, ops::compute::Op, sync::Cache};

use antiphon_core::digest::DigestHashBuilder;

/// The bytes of a key: one digest or two, and what else tells the keys of a type apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyBytes {
    digests: [[u8; 32]; 2],
    tag: u8,
}

impl KeyBytes {
    /// Returns the bytes of a key. A key with one digest has zeros in place of the second.
    pub const fn new(digests: [[u8; 32]; 2], tag: u8) -> Self {
        Self { digests, tag }
    }
}

impl hash::Hash for KeyBytes {
    fn hash<H: hash::Hasher>(&self, state: &mut H) {
        // The hasher takes the first bytes of each part.
        for digest in &self.digests {
            state.write(digest);
        }
    }
}

/// A key of a cache. A type that is [`OneDigest`], and a pair of such types, is one.
pub trait DigestKey {
    /// Returns the bytes of the key, which no other key of its type has.
    fn key_bytes(&self) -> KeyBytes;
}

/// A key that is one digest.
pub trait OneDigest {
    /// Returns the digest.
    fn digest(&self) -> [u8; 32];

    /// Returns the key of a digest.
    fn from_digest(digest: [u8; 32]) -> Self;
}

impl OneDigest for [u8; 32] {
    fn digest(&self) -> [u8; 32] {
        *self
    }

    fn from_digest(digest: [u8; 32]) -> Self {
        digest
    }
}

impl<D: OneDigest> DigestKey for D {
    fn key_bytes(&self) -> KeyBytes {
        KeyBytes::new([self.digest(), [0; 32]], 0)
    }
}

impl<A: OneDigest, B: OneDigest> DigestKey for (A, B) {
    fn key_bytes(&self) -> KeyBytes {
        KeyBytes::new([self.0.digest(), self.1.digest()], 0)
    }
}

/// The lifetime of an entry.
#[derive(Clone, Copy, Debug)]
pub enum Lifetime {
    /// Until its space is needed.
    Unlimited,
    /// Until this time after the last write.
    SinceWrite(Duration),
    /// Until this time after the last read or write.
    SinceUse(Duration),
}

/// The change of an entry.
#[derive(Debug)]
pub enum EntryChange<V> {
    /// Stores this value.
    Put(V),
    /// Leaves the entry as it is.
    Keep,
    /// Removes the entry.
    Remove,
}

type SharedValue = Arc<dyn Any + Send + Sync>;
type CacheEntries = Cache<KeyBytes, SharedValue, DigestHashBuilder>;

/// A bounded cache. When it is full, an entry that is seldom read leaves it.
pub struct DigestCache<K, V> {
    entries: CacheEntries,
    types: PhantomData<fn(K) -> V>,
}

impl<K, V> DigestCache<K, V> {
    const fn build(entries: CacheEntries) -> Self {
        Self {
            entries,
            types: PhantomData,
        }
    }
}

impl<K, V> Clone for DigestCache<K, V> {
    /// Returns another handle of the same entries.
    fn clone(&self) -> Self {
        Self::build(self.entries.clone())
    }
}

impl<K, V> fmt::Debug for DigestCache<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The values may belong to conversations.
        write!(f, "DigestCache({} entries)", self.entries.entry_count())
    }
}

impl<K: DigestKey, V: Clone + Send + Sync + 'static> DigestCache<K, V> {
    /// Makes a cache of at most `entries_max` entries.
    pub fn new(entries_max: u64, lifetime: Lifetime) -> Self {
        Self::build(build_entries(entries_max, lifetime, None))
    }

    /// Makes a cache whose values have at most `bytes_max` bytes in all, as `weigh` counts them.
    pub fn with_byte_limit(
        bytes_max: u64,
        lifetime: Lifetime,
        weigh: impl Fn(&V) -> usize + Send + Sync + 'static,
    ) -> Self {
        let weigh = move |value: &SharedValue| value.downcast_ref::<V>().map_or(0, &weigh);
        Self::build(build_entries(bytes_max, lifetime, Some(Box::new(weigh))))
    }

    /// Returns the value of a key.
    pub fn get(&self, key: &K) -> Option<V> {
        self.entries
            .get(&key.key_bytes())
            .and_then(|value| downcast_value(&value))
    }

    /// Returns `true` if the key has a value. That is no use of the entry.
    pub fn contains_key(&self, key: &K) -> bool {
        self.entries.contains_key(&key.key_bytes())
    }

    /// Stores a value in place of an earlier one.
    pub fn insert(&self, key: &K, value: V) {
        self.entries.insert(key.key_bytes(), Arc::new(value));
    }

    /// Removes an entry. Returns its value, if it had one.
    pub fn remove(&self, key: &K) -> Option<V> {
        self.entries
            .remove(&key.key_bytes())
            .and_then(|value| downcast_value(&value))
    }

    /// Stores a value, unless the key has one. Returns `true` if it was stored.
    pub fn insert_new(&self, key: &K, value: V) -> bool {
        insert_new(&self.entries, key.key_bytes(), Arc::new(value)).1
    }

    /// Returns the value of a key. If it has none, one is made and stored. All who ask at once get the same one.
    pub fn get_or_insert_with(&self, key: &K, make: impl FnOnce() -> V) -> V {
        self.get(key).unwrap_or_else(|| {
            let made = make();
            let (stored, _) = insert_new(&self.entries, key.key_bytes(), Arc::new(made.clone()));
            downcast_value(&stored).unwrap_or(made)
        })
    }

    /// Changes the entry of a key. Changes of one key exclude each other.
    pub fn change(&self, key: &K, change: impl FnOnce(Option<V>) -> EntryChange<V>) {
        let mut change = Some(change);
        change_entry(&self.entries, key.key_bytes(), &mut |known| {
            // It is called once.
            match change
                .take()
                .map(|change| change(known.and_then(|value| downcast_value(&value))))
            {
                Some(EntryChange::Put(value)) => Op::Put(Arc::new(value)),
                Some(EntryChange::Keep) | None => Op::Nop,
                Some(EntryChange::Remove) => Op::Remove,
            }
        });
    }

    /// Returns the values.
    pub fn values(&self) -> impl Iterator<Item = V> {
        self.entries.iter().filter_map(|(_, value)| downcast_value(&value))
    }

    /// Removes the entries over the limit, which otherwise leave the cache a moment later.
    pub fn evict(&self) {
        self.entries.run_pending_tasks();
    }
}

impl<K: OneDigest, V: Clone + Send + Sync + 'static> DigestCache<K, V> {
    /// Returns the entries.
    pub fn iter(&self) -> impl Iterator<Item = (K, V)> {
        let entries = self.entries.iter();
        entries.filter_map(|(key, value)| Some((K::from_digest(key.digests[0]), downcast_value(&value)?)))
    }
}

/// Returns a value as the type that the cache stores.
fn downcast_value<V: Clone + 'static>(value: &SharedValue) -> Option<V> {
    value.downcast_ref().cloned()
}

// What follows is compiled once.

type Weigh = Box<dyn Fn(&SharedValue) -> usize + Send + Sync>;

fn build_entries(capacity: u64, lifetime: Lifetime, weigh: Option<Weigh>) -> CacheEntries {
    let cache = Cache::builder().max_capacity(capacity);
    let cache = match lifetime {
        Lifetime::Unlimited => cache,
        Lifetime::SinceWrite(time) => cache.time_to_live(time),
        Lifetime::SinceUse(time) => cache.time_to_idle(time),
    };
    let cache = match weigh {
        Some(weigh) => cache.weigher(move |_, value| u32::try_from(weigh(value)).unwrap_or(u32::MAX)),
        None => cache,
    };
    cache.build_with_hasher(DigestHashBuilder::new())
}

fn insert_new(entries: &CacheEntries, key: KeyBytes, value: SharedValue) -> (SharedValue, bool) {
    let entry = entries.entry(key).or_insert(value);
    let is_new = entry.is_fresh();
    (entry.into_value(), is_new)
}

fn change_entry(entries: &CacheEntries, key: KeyBytes, change: &mut dyn FnMut(Option<SharedValue>) -> Op<SharedValue>) {
    drop(
        entries
            .entry(key)
            .and_compute_with(|known| change(known.map(Entry::into_value))),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNLIMITED: Lifetime = Lifetime::Unlimited;

    #[test]
    fn a_value_is_read_as_it_was_stored() {
        let cache = DigestCache::<[u8; 32], String>::new(10, UNLIMITED);
        assert_eq!(cache.get(&[1; 32]), None);
        cache.insert(&[1; 32], "a".to_owned());
        assert!(!cache.insert_new(&[1; 32], "b".to_owned()));
        assert_eq!(cache.get_or_insert_with(&[1; 32], || "c".to_owned()), "a");
        assert_eq!(cache.get_or_insert_with(&[2; 32], || "d".to_owned()), "d");
        cache.change(&[1; 32], |known| EntryChange::Put(known.unwrap() + "e"));
        cache.change(&[3; 32], |known| known.map_or(EntryChange::Keep, EntryChange::Put));
        cache.insert(&[4; 32], "f".to_owned());
        cache.change(&[4; 32], |_| EntryChange::Remove);
        let mut all: Vec<_> = cache.iter().collect();
        all.sort();
        assert_eq!(all, [([1; 32], "ae".to_owned()), ([2; 32], "d".to_owned())]);
        assert_eq!(cache.remove(&[1; 32]).as_deref(), Some("ae"));
        assert!(!cache.contains_key(&[1; 32]) && cache.contains_key(&[2; 32]));
        cache.remove(&[2; 32]);
        assert!(cache.iter().next().is_none());
        assert!(!format!("{cache:?}").contains("ae"));
    }

    #[test]
    fn a_lifetime_begins_with_the_last_write_or_use() {
        let times = |lifetime| {
            let cache = DigestCache::<[u8; 32], ()>::new(10, lifetime);
            let policy = cache.entries.policy();
            (policy.time_to_live(), policy.time_to_idle())
        };
        let time = Duration::from_secs(7);
        assert_eq!(times(Lifetime::Unlimited), (None, None));
        assert_eq!(times(Lifetime::SinceWrite(time)), (Some(time), None));
        assert_eq!(times(Lifetime::SinceUse(time)), (None, Some(time)));
    }

    #[test]
    fn the_weights_bound_a_cache() {
        let cache = DigestCache::<[u8; 32], Vec<u8>>::with_byte_limit(1000, UNLIMITED, Vec::len);
        for byte in 0..100 {
            cache.insert(&[byte; 32], vec![0; 100]);
            cache.evict();
        }
        let kept = cache.iter().map(|(_, value)| value.len()).sum::<usize>();
        assert!((500..=1000).contains(&kept), "{kept}");
    }
}
