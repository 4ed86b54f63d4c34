//! A secret in memory: wiped on drop, never printed, read through one function.

use std::fmt;

use secrecy::{ExposeSecret, SecretString};
use subtle::ConstantTimeEq;

/// A text that must not be shown. It has no `Display` and no `Serialize`.
#[derive(Clone)]
pub struct Secret(SecretString);

/// The reason why a text is no secret that a header can contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecretFlaw {
    /// It is empty.
    Empty,
    /// It contains spaces, line breaks or other characters that no key has.
    Unprintable,
}

impl Secret {
    /// Stores `text` as a secret if a header can contain it.
    pub fn check_text(text: String) -> Result<Self, SecretFlaw> {
        if text.is_empty() {
            return Err(SecretFlaw::Empty);
        }
        if text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Ok(Self::new(text));
        }
        Err(SecretFlaw::Unprintable)
    }

    /// Stores the text of a file as a secret, without one line break at its end, as editors and `echo` add it.
    pub fn check_file(mut text: String) -> Result<Self, SecretFlaw> {
        for end in ['\n', '\r'] {
            if text.ends_with(end) {
                text.pop();
            }
        }
        Self::check_text(text)
    }

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

    #[test]
    fn a_file_contains_one_secret_and_at_most_one_line_break() {
        for (text, wanted) in [
            ("k", Ok("k")),
            ("k\n", Ok("k")),
            ("k\r\n", Ok("k")),
            ("", Err(SecretFlaw::Empty)),
            ("\n", Err(SecretFlaw::Empty)),
            ("k\n\n", Err(SecretFlaw::Unprintable)),
            ("k k", Err(SecretFlaw::Unprintable)),
            ("ké", Err(SecretFlaw::Unprintable)),
        ] {
            let read = Secret::check_file(text.to_owned());
            assert_eq!(read.as_ref().map(Secret::reveal), wanted.as_ref().copied(), "{text:?}");
        }
    }
}
