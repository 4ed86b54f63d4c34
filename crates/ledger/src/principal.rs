//! The principal: the owner of records, a keyed hash of what identifies a client.

use std::fmt;

use antiphon_core::digest::keyed_digest_of;

use crate::digest_cache::OneDigest;

/// Context of the key derivation for a ledger's principals.
const PRINCIPAL_KEY_CONTEXT: &str = "antiphon principal v1";

/// The key of every principal's hash. Without it, a principal reveals nothing about the secret, not even to a guess.
#[derive(Clone)]
pub struct PrincipalKey([u8; 32]);

impl PrincipalKey {
    /// Creates a key from 32 secret bytes: random ones, unless principals must outlive the process.
    pub const fn new(key: [u8; 32]) -> Self {
        Self(key)
    }

    /// Derives the key from a ledger's secret. Principals stay the same for as long as the ledger exists.
    pub fn from_ledger_secret(secret: &[u8; 32]) -> Self {
        Self(blake3::derive_key(PRINCIPAL_KEY_CONTEXT, secret))
    }
}

impl fmt::Debug for PrincipalKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PrincipalKey(***)")
    }
}

/// The bytes of a [`Principal`], as stores hold them.
pub type PrincipalHash = [u8; 32];

/// The identity of a client: a keyed hash of the bare secret, or of the name of a client token.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Principal([u8; 32]);

impl Principal {
    /// The principal of clients without a credential.
    pub const NONE: Self = Self([0; 32]);

    /// Returns the principal of the secrets that a client presents. Neither their order nor a repetition matters.
    pub fn of_secrets<S: AsRef<[u8]> + Ord>(key: &PrincipalKey, secrets: impl Iterator<Item = S>) -> Self {
        let mut secrets: Vec<S> = secrets.collect();
        secrets.sort_unstable();
        // Some clients send one key in two headers.
        secrets.dedup();
        if secrets.is_empty() {
            return Self::NONE;
        }
        Self::hash_parts(key, b"secret", secrets.iter().map(AsRef::as_ref))
    }

    /// Returns the principal of the client token with this name.
    pub fn of_token(key: &PrincipalKey, name: &str) -> Self {
        Self::hash_parts(key, b"token", [name.as_bytes()].into_iter())
    }

    /// Returns the principal of the token that the proxy writes for commands of its own user.
    pub fn of_local_token(key: &PrincipalKey) -> Self {
        Self::hash_parts(key, b"local token", std::iter::empty())
    }

    /// Returns the principal of the links to the task page.
    pub fn of_task_links(key: &PrincipalKey) -> Self {
        Self::hash_parts(key, b"task links", std::iter::empty())
    }

    /// Returns the principal that all clients share.
    pub fn of_all_clients(key: &PrincipalKey) -> Self {
        Self::hash_parts(key, b"single", std::iter::empty())
    }

    /// Returns the principal of a user within `within`, isolated from all others. Clients without a credential stay
    /// [`NONE`](Self::NONE), whatever user they name.
    pub fn of_user(key: &PrincipalKey, within: Self, user: &[u8]) -> Self {
        // A user name alone must never select stored data.
        if within == Self::NONE {
            return Self::NONE;
        }
        Self::hash_parts(key, b"user", [&within.0[..], user].into_iter())
    }

    /// Returns the principal of a tool service itself.
    pub fn of_service(key: &PrincipalKey, name: &str) -> Self {
        Self::hash_parts(key, b"service", [name.as_bytes()].into_iter())
    }

    /// Restores a principal from its stored hash.
    pub const fn from_bytes(hash: [u8; 32]) -> Self {
        Self(hash)
    }

    /// Returns the hash, which reveals nothing about the secret.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    fn hash_parts<'p>(key: &PrincipalKey, kind: &'p [u8], parts: impl Iterator<Item = &'p [u8]>) -> Self {
        // The kind comes first, so that a token's name never equals a secret.
        Self(keyed_digest_of(&key.0, [kind].into_iter().chain(parts)))
    }
}

impl fmt::Debug for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Self::NONE {
            "Principal(none)"
        } else {
            "Principal(…)"
        })
    }
}

impl OneDigest for Principal {
    fn digest(&self) -> [u8; 32] {
        *self.as_bytes()
    }

    fn from_digest(digest: [u8; 32]) -> Self {
        Self::from_bytes(digest)
    }
}
