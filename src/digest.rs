//! Hashes over lists of texts. Each text is prefixed with its length, so that two different lists never hash alike.

/// A hash that accepts texts.
pub(crate) trait Digest {
    /// Adds a text.
    fn add(&mut self, text: &[u8]);
}

impl Digest for blake3::Hasher {
    fn add(&mut self, text: &[u8]) {
        self.update(&(text.len() as u64).to_le_bytes());
        self.update(text);
    }
}

/// Returns the hash of a list of texts.
#[cfg(feature = "server")]
pub(crate) fn digest_of<'t>(texts: impl IntoIterator<Item = &'t [u8]>) -> [u8; 32] {
    hashed(blake3::Hasher::new(), texts)
}

/// Returns the keyed hash of a list of texts.
#[cfg(feature = "server")]
pub(crate) fn keyed_digest_of<'t>(key: &[u8; 32], texts: impl IntoIterator<Item = &'t [u8]>) -> [u8; 32] {
    hashed(blake3::Hasher::new_keyed(key), texts)
}

#[cfg(feature = "server")]
fn hashed<'t>(mut hash: blake3::Hasher, texts: impl IntoIterator<Item = &'t [u8]>) -> [u8; 32] {
    for text in texts {
        hash.add(text);
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
                assert_ne!(digest_of(one.iter().copied()), digest_of(other.iter().copied()));
            }
        }
    }
}
