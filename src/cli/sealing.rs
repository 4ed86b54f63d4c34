//! Texts that only their user can read again: encrypted with a key from a token.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use base64::{Engine as _, engine::general_purpose::STANDARD};

use crate::{auth::Secret, upstream::random_bytes};

/// A key that comes from a token.
pub(super) struct SealingKey([u8; 32]);

impl SealingKey {
    /// Derives the key of one use. The token has far more than 128 bits of entropy, so that no slow hash is needed.
    pub(super) fn of_token(usage: &str, token: &Secret) -> Self {
        Self(blake3::derive_key(usage, token.reveal().as_bytes()))
    }

    /// Encrypts bytes. They can be read only with the same token, and under the same name. `None` if the system has no
    /// random bytes.
    pub(super) fn seal(&self, plain: Vec<u8>, name: &str) -> Option<String> {
        let mut sealed = plain;
        let random = random_bytes().ok()?;
        let nonce: [u8; NONCE_LEN] = random.get(..NONCE_LEN)?.try_into().ok()?;
        let nonce_in_use = Nonce::assume_unique_for_key(nonce);
        self.cipher()?
            .seal_in_place_append_tag(nonce_in_use, Aad::from(name.as_bytes()), &mut sealed)
            .ok()?;
        sealed.splice(..0, nonce);
        Some(STANDARD.encode(sealed))
    }

    /// Decrypts bytes. `None` if another token has encrypted them, or if they are damaged.
    pub(super) fn open(&self, sealed: &str, name: &str) -> Option<Vec<u8>> {
        let sealed = STANDARD.decode(sealed).ok()?;
        let (nonce, rest) = sealed.split_at_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut rest = rest.to_vec();
        let plain = self
            .cipher()?
            .open_in_place(nonce, Aad::from(name.as_bytes()), &mut rest)
            .ok()?;
        Some(plain.to_vec())
    }

    fn cipher(&self) -> Option<LessSafeKey> {
        UnboundKey::new(&AES_256_GCM, &self.0).ok().map(LessSafeKey::new)
    }
}
