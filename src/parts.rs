//! Hashes over lists of parts: each goes in with its length in front, so that no two lists read alike.

/// A hash that takes parts.
pub(crate) trait Parts {
    /// Adds a part.
    fn part(&mut self, part: &[u8]);
}

impl Parts for blake3::Hasher {
    fn part(&mut self, part: &[u8]) {
        self.update(&(part.len() as u64).to_le_bytes());
        self.update(part);
    }
}

/// The hash of a list of parts.
#[cfg(feature = "server")]
pub(crate) fn hash_of<'p>(parts: impl IntoIterator<Item = &'p [u8]>) -> [u8; 32] {
    hashed(blake3::Hasher::new(), parts)
}

/// The hash of a list of parts under a key.
#[cfg(feature = "server")]
pub(crate) fn keyed_hash_of<'p>(key: &[u8; 32], parts: impl IntoIterator<Item = &'p [u8]>) -> [u8; 32] {
    hashed(blake3::Hasher::new_keyed(key), parts)
}

#[cfg(feature = "server")]
fn hashed<'p>(mut hash: blake3::Hasher, parts: impl IntoIterator<Item = &'p [u8]>) -> [u8; 32] {
    for part in parts {
        hash.part(part);
    }
    hash.finalize().into()
}

#[cfg(all(test, feature = "server"))]
mod tests {
    use super::*;

    #[test]
    fn no_two_lists_read_alike() {
        let lists: [&[&[u8]]; 5] = [&[b"ab", b"c"], &[b"a", b"bc"], &[b"abc"], &[b"abc", b""], &[]];
        for (index, one) in lists.iter().enumerate() {
            for other in &lists[..index] {
                assert_ne!(hash_of(one.iter().copied()), hash_of(other.iter().copied()));
            }
        }
    }
}
