//! A secret in memory: wiped on drop, never printed, read through one function.

use std::fmt;

use secrecy::{ExposeSecret, SecretString};
use subtle::ConstantTimeEq;

/// A text that must not be shown. It has no `Display` and no `Serialize`.
#[derive(Clone)]
pub struct Secret(SecretString);

impl Secret {
    /// Stores `text` as a secret.
    pub fn new(text: String) -> Self {
        Self(text.into())
    }

    /// Returns the text. For a header that goes upstream, a signature or a hash, and nothing else.
    pub fn reveal(&self) -> &str {
        self.0.expose_secret()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(***)")
    }
}

impl PartialEq for Secret {
    /// Compares in constant time. Only the length can leak.
    fn eq(&self, other: &Self) -> bool {
        self.reveal().as_bytes().ct_eq(other.reveal().as_bytes()).into()
    }
}

impl Eq for Secret {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_equal_to_itself_and_never_shown() {
        let secret = Secret::new("sk-canary".to_owned());
        assert_eq!(secret, Secret::new("sk-canary".to_owned()));
        assert_ne!(secret, Secret::new("sk-canarz".to_owned()));
        assert_ne!(secret, Secret::new("sk-canary0".to_owned()));
        assert_eq!(format!("{secret:?} {secret:#?}"), "Secret(***) Secret(***)");
        assert_eq!(secret.reveal(), "sk-canary");
    }
}
