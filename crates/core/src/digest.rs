//! Hashes of lists of texts, and of JSON values. Each text is preceded by its length, so that no two lists have the same
//! input. Maps whose keys are such hashes need no second hash of them: [`DigestHashBuilder`].

use serde_json::Value;

use crate::work;

/// A hash that accepts texts.
pub trait HashTexts {
    /// Adds a text with its length in front.
    fn add_text(&mut self, text: &[u8]);
}

impl HashTexts for blake3::Hasher {
    fn add_text(&mut self, text: &[u8]) {
        work::count_bytes(text.len());
        self.update(&(text.len() as u64).to_le_bytes());
        self.update(text);
    }
}

/// The longest input of a [`Digest`] that is hashed at once, in bytes.
const WHOLE_BYTES_MAX: usize = 1024;

/// A BLAKE3 hash of a short input, with or without a key. The result is that of [`blake3::Hasher`].
///
/// It collects the input and hashes it at once, since each update of a hash costs about as much as hashing 20 bytes. It
/// passes a longer input on to such a hasher.
pub struct Digest<'k> {
    key: Option<&'k [u8; 32]>,
    waiting: Vec<u8>,
    hasher: Option<Box<blake3::Hasher>>,
}

impl<'k> Digest<'k> {
    /// Creates the hash of an empty input without a key.
    pub fn new_unkeyed() -> Self {
        Self::with_key(None)
    }

    /// Creates the hash of an empty input under a key.
    pub fn new_keyed(key: &'k [u8; 32]) -> Self {
        Self::with_key(Some(key))
    }

    fn with_key(key: Option<&'k [u8; 32]>) -> Self {
        Self {
            key,
            waiting: Vec::with_capacity(WHOLE_BYTES_MAX / 4),
            hasher: None,
        }
    }

    /// Adds bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        if self.waiting.len().saturating_add(bytes.len()) > WHOLE_BYTES_MAX {
            let key = self.key;
            let new = || match key {
                Some(key) => blake3::Hasher::new_keyed(key),
                None => blake3::Hasher::new(),
            };
            let hasher = self.hasher.get_or_insert_with(|| Box::new(new()));
            hasher.update(&self.waiting);
            self.waiting.clear();
            if bytes.len() > WHOLE_BYTES_MAX {
                hasher.update(bytes);
                return;
            }
        }
        self.waiting.extend_from_slice(bytes);
    }

    /// Returns the hash.
    pub fn finish(self) -> [u8; 32] {
        let hash = match (self.hasher, self.key) {
            (Some(mut hasher), _) => hasher.update(&self.waiting).finalize(),
            (None, Some(key)) => blake3::keyed_hash(key, &self.waiting),
            (None, None) => blake3::hash(&self.waiting),
        };
        hash.into()
    }
}

impl HashTexts for Digest<'_> {
    fn add_text(&mut self, text: &[u8]) {
        work::count_bytes(text.len());
        self.update(&(text.len() as u64).to_le_bytes());
        self.update(text);
    }
}

/// Hashes a value with sorted members, numbers by value, and no blanks. The parser bounds the depth.
pub fn hash_value(value: &Value, hash: &mut blake3::Hasher) {
    work::count(1);
    match value {
        Value::Null => hash.add_text(b"null"),
        Value::Bool(said) => hash.add_text(if *said { b"true" } else { b"false" }),
        Value::Number(number) => {
            // Some clients write 1 as 1.0. Floats above 2^53 round, so large numbers count by their digits.
            let whole = number
                .as_f64()
                .filter(|value| value.fract() == 0.0 && value.abs() < 1e15);
            match whole {
                // 1.0 equals 1, and -0 equals 0.
                Some(value) => hash.add_text(format!("{}", value + 0.0).as_bytes()),
                None => hash.add_text(number.to_string().as_bytes()),
            }
        }
        Value::String(text) => {
            // The quote distinguishes the text "1" from the number.
            hash.update(b"\"");
            hash.add_text(text.as_bytes());
        }
        Value::Array(list) => {
            hash.update(b"[");
            hash.add_text(&(list.len() as u64).to_le_bytes());
            for value in list {
                hash_value(value, hash);
            }
        }
        Value::Object(members) => {
            hash.update(b"{");
            hash.add_text(&(members.len() as u64).to_le_bytes());
            let mut members: Vec<_> = members.iter().collect();
            // Clients that parse and write a body may reorder its members.
            members.sort_unstable_by_key(|(key, _)| *key);
            for (key, value) in members {
                hash.add_text(key.as_bytes());
                hash_value(value, hash);
            }
        }
    }
}

/// Builds the hashes of keys that are digests, or contain one, for maps in memory.
///
/// Such a key needs no hash of all its bytes. A client without a credential can compute some keys, so each map mixes them
/// with a random number.
#[derive(Clone, Copy, Debug)]
pub struct DigestHashBuilder {
    seed: u64,
}

impl DigestHashBuilder {
    /// Creates the builder of one map.
    pub fn new() -> Self {
        let seed = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0);
        Self { seed }
    }
}

impl Default for DigestHashBuilder {
    fn default() -> Self {
        Self::new()
    }
}

impl std::hash::BuildHasher for DigestHashBuilder {
    type Hasher = DigestHasher;

    fn build_hasher(&self) -> DigestHasher {
        DigestHasher(self.seed)
    }
}

/// Hashes one key by the first eight bytes of each of its parts.
#[derive(Debug)]
pub struct DigestHasher(u64);

impl std::hash::Hasher for DigestHasher {
    fn write(&mut self, bytes: &[u8]) {
        const ODD: u64 = 0x9E37_79B9_7F4A_7C15;
        // A part without a digest, such as an address, may be shorter.
        let start = bytes.first_chunk().copied().unwrap_or_else(|| {
            let mut start = [0; 8];
            start.iter_mut().zip(bytes).for_each(|(slot, byte)| *slot = *byte);
            start
        });
        let start = u64::from_le_bytes(start);
        // Both halves of the product, so that every bit of a part changes the low bits, by which maps choose a place.
        let product = u128::from(self.0 ^ start).wrapping_mul(u128::from(ODD));
        let [low, high] = [0, 64].map(|shift| u64::try_from((product >> shift) & u128::from(u64::MAX)));
        self.0 = low.unwrap_or_default() ^ high.unwrap_or_default();
    }

    fn write_usize(&mut self, _: usize) {
        // The length of a part, which is the same in all keys of a map.
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Hashes a list of texts.
pub fn digest_of<'t>(texts: impl IntoIterator<Item = &'t [u8]>) -> [u8; 32] {
    hash_texts(Digest::new_unkeyed(), texts)
}

/// Hashes a list of texts under a key.
pub fn keyed_digest_of<'t>(key: &[u8; 32], texts: impl IntoIterator<Item = &'t [u8]>) -> [u8; 32] {
    hash_texts(Digest::new_keyed(key), texts)
}

fn hash_texts<'t>(mut hash: Digest<'_>, texts: impl IntoIterator<Item = &'t [u8]>) -> [u8; 32] {
    for text in texts {
        hash.add_text(text);
    }
    hash.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_differ_in_a_digest_differ_in_their_hash() {
        use std::hash::BuildHasher as _;

        let digest = |text: &[u8]| digest_of([text]);
        let keys = [digest(b"a"), digest(b"b"), digest(b"c")];
        let builder = DigestHashBuilder::new();
        let hashes = keys.map(|key| builder.hash_one(key));
        let pairs = keys.map(|key| builder.hash_one((key, key, true)));
        let all: std::collections::HashSet<u64> = hashes.into_iter().chain(pairs).collect();
        assert_eq!(all.len(), 6);
        // Two maps place one key differently.
        assert_ne!(DigestHashBuilder::new().hash_one(keys[0]), builder.hash_one(keys[0]));
    }

    #[test]
    fn a_digest_is_that_of_a_hasher() {
        let text: Vec<u8> = (0..5000_u32).map(|number| number.to_le_bytes()[0]).collect();
        let key = [7; 32];
        for lengths in [
            &[][..],
            &[0],
            &[5, 9],
            &[1024],
            &[1000, 24],
            &[1000, 25, 3],
            &[1025, 1],
            &[3, 3000, 1024, 900],
        ] {
            let mut ours = [Digest::new_unkeyed(), Digest::new_keyed(&key)];
            let mut theirs = [blake3::Hasher::new(), blake3::Hasher::new_keyed(&key)];
            for length in lengths {
                for (digest, hasher) in ours.iter_mut().zip(&mut theirs) {
                    digest.update(&text[..*length]);
                    hasher.update(&text[..*length]);
                }
            }
            let theirs = theirs.map(|hasher| *hasher.finalize().as_bytes());
            assert_eq!(ours.map(Digest::finish), theirs, "{lengths:?}");
        }
    }

    #[test]
    fn no_two_lists_read_alike() {
        let lists: [&[&[u8]]; 5] = [&[b"ab", b"c"], &[b"a", b"bc"], &[b"abc"], &[b"abc", b""], &[]];
        for (index, one) in lists.iter().enumerate() {
            for other in &lists[..index] {
                assert_ne!(digest_of(one.iter().copied()), digest_of(other.iter().copied()));
            }
        }
    }
}
