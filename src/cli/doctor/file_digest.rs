//! The SHA-256 of a file, taken while it is read.

use std::io::{self, Read};

use sha2::{Digest as _, Sha256};

/// A reader that takes the digest of everything that passes.
pub(super) struct DigestReader<R> {
    input: R,
    digest: Sha256,
}

impl<R: Read> DigestReader<R> {
    pub(super) fn new(input: R) -> Self {
        Self {
            input,
            digest: Sha256::new(),
        }
    }

    /// Reads what is left. Returns the digest of all bytes in hexadecimal.
    pub(super) fn finish(mut self) -> io::Result<String> {
        let mut buffer = vec![0; 256 * 1024];
        while self.read(&mut buffer)? > 0 {}
        let digest: [u8; 32] = self.digest.finalize().into();
        Ok(blake3::Hash::from_bytes(digest).to_hex().to_string())
    }
}

impl<R: Read> Read for DigestReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.input.read(buffer)?;
        self.digest.update(buffer.get(..read).unwrap_or_default());
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_is_that_of_all_bytes() {
        let empty = DigestReader::new(&b""[..]).finish().unwrap();
        assert_eq!(
            empty,
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        );
        let mut half = DigestReader::new(&b"abc"[..]);
        half.read_exact(&mut [0; 2]).unwrap();
        let digest = half.finish().unwrap();
        assert_eq!(
            digest,
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }
}
