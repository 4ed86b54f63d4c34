//! The key under which the operator's credentials are hashed, to be recognised by other replicas.

use std::fmt;

use super::profile::Credential;
use crate::digest::HashTexts;

/// The context of the key. It never changes: replicas of two versions must make the same hashes.
const KEY_CONTEXT: &str = "antiphon 2026-11 hashes of the operator's credentials";

/// The key of credentials' hashes. Without it, a hash reveals nothing about the credential, not even to a guess.
#[derive(Clone)]
pub struct CredentialKey([u8; 32]);

impl CredentialKey {
    /// Derives the key from a ledger's secret, which all replicas of the ledger have.
    pub fn from_ledger_secret(secret: &[u8; 32]) -> Self {
        Self(blake3::derive_key(KEY_CONTEXT, secret))
    }

    /// Returns the hash of a credential at an upstream. `None` if its source has yet to supply it.
    pub fn hash_credential(&self, upstream: &str, credential: &Credential) -> Option<[u8; 32]> {
        let mut hash = blake3::Hasher::new_keyed(&self.0);
        hash.add_text(upstream.as_bytes());
        let (form, parts) = match credential {
            Credential::Key(secret) => ("key", vec![secret.reveal()]),
            Credential::Bearer(secret) => ("bearer", vec![secret.reveal()]),
            Credential::Aws(keys) => {
                let texts = [
                    keys.access_key_id.reveal(),
                    keys.secret_access_key.reveal(),
                    &keys.region,
                    &keys.service,
                ];
                ("aws", texts.to_vec())
            }
            Credential::Awaited { .. } => return None,
        };
        hash.add_text(form.as_bytes());
        for part in parts {
            hash.add_text(part.as_bytes());
        }
        Some(hash.finalize().into())
    }
}

impl fmt::Debug for CredentialKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CredentialKey(***)")
    }
}
