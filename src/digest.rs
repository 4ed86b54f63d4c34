//! Hashes of lists of texts, and of JSON values. Each text is preceded by its length, so that no two lists have the same
//! input. Maps whose keys are such hashes need no second hash of them: [`DigestKeys`].

use serde_json::Value;

use crate::work;

/// A hash that accepts texts.
pub(crate) trait HashTexts {
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

/// Hashes a value with sorted members, numbers by value, and no blanks. The parser bounds the depth.
pub(crate) fn hash_value(value: &Value, hash: &mut blake3::Hasher) {
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

/// A hasher for maps in memory whose keys are keyed hashes, or contain one. Clients cannot choose such a key.
#[cfg(feature = "server")]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DigestKeys;

#[cfg(feature = "server")]
impl std::hash::BuildHasher for DigestKeys {
    type Hasher = DigestKeyHasher;

    fn build_hasher(&self) -> DigestKeyHasher {
        DigestKeyHasher(0)
    }
}

/// The hash of one key: the first bytes of each of its parts.
#[cfg(feature = "server")]
#[derive(Debug)]
pub(crate) struct DigestKeyHasher(u64);

#[cfg(feature = "server")]
impl std::hash::Hasher for DigestKeyHasher {
    fn write(&mut self, bytes: &[u8]) {
        // Rotated, so that two equal parts do not cancel each other.
        let start = bytes
            .first_chunk()
            .copied()
            .map_or(bytes.len() as u64, u64::from_le_bytes);
        self.0 = self.0.rotate_left(5) ^ start;
    }

    fn write_usize(&mut self, _: usize) {
        // The length of a part, which is the same in all keys of a map.
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Hashes a list of texts.
#[cfg(feature = "server")]
pub(crate) fn digest_of<'t>(texts: impl IntoIterator<Item = &'t [u8]>) -> [u8; 32] {
    hash_texts(blake3::Hasher::new(), texts)
}

/// Hashes a list of texts under a key.
#[cfg(feature = "server")]
pub(crate) fn keyed_digest_of<'t>(key: &[u8; 32], texts: impl IntoIterator<Item = &'t [u8]>) -> [u8; 32] {
    hash_texts(blake3::Hasher::new_keyed(key), texts)
}

#[cfg(feature = "server")]
fn hash_texts<'t>(mut hash: blake3::Hasher, texts: impl IntoIterator<Item = &'t [u8]>) -> [u8; 32] {
    for text in texts {
        hash.add_text(text);
    }
    hash.finalize().into()
}

#[cfg(all(test, feature = "server"))]
mod tests {
    use super::*;

    #[test]
    fn keys_that_differ_in_a_digest_differ_in_their_hash() {
        use std::hash::BuildHasher as _;

        let digest = |text: &[u8]| digest_of([text]);
        let keys = [digest(b"a"), digest(b"b"), digest(b"c")];
        let hashes = keys.map(|key| DigestKeys.hash_one(key));
        let pairs = keys.map(|key| DigestKeys.hash_one((key, key, true)));
        let all: std::collections::HashSet<u64> = hashes.into_iter().chain(pairs).collect();
        assert_eq!(all.len(), 6);
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
