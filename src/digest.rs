//! Hashes of lists of texts. Each text is preceded by its length, so that no two lists have the same input.

/// A hash that accepts texts.
pub(crate) trait HashTexts {
    /// Adds a text with its length in front.
    fn add_text(&mut self, text: &[u8]);
}

impl HashTexts for blake3::Hasher {
    fn add_text(&mut self, text: &[u8]) {
        self.update(&(text.len() as u64).to_le_bytes());
        self.update(text);
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
    fn no_two_lists_read_alike() {
        let lists: [&[&[u8]]; 5] = [&[b"ab", b"c"], &[b"a", b"bc"], &[b"abc"], &[b"abc", b""], &[]];
        for (index, one) in lists.iter().enumerate() {
            for other in &lists[..index] {
                assert_ne!(digest_of(one.iter().copied()), digest_of(other.iter().copied()));
            }
        }
    }
}
