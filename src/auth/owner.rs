//! The owner: a public name for a principal, from which the principal cannot be derived.

use std::{fmt, str::FromStr};

use super::Principal;

/// Context of the key derivation.
const OWNER_KEY_CONTEXT: &str = "antiphon owner v1";

/// The key of all owner names.
#[derive(Clone)]
pub struct OwnerKey([u8; 32]);

impl OwnerKey {
    /// Derives the key from a ledger's secret.
    pub fn from_ledger_secret(secret: &[u8; 32]) -> Self {
        Self(blake3::derive_key(OWNER_KEY_CONTEXT, secret))
    }
}

impl fmt::Debug for OwnerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OwnerKey(***)")
    }
}

/// The public name of a call's principal, as tool services see it: `x-antiphon-owner`. It narrows a request and never
/// authorizes one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Owner([u8; 16]);

impl Owner {
    /// Returns the owner name of a principal.
    pub fn of_principal(key: &OwnerKey, principal: Principal) -> Self {
        let hash = blake3::keyed_hash(&key.0, principal.as_bytes());
        // 128 bits rule out collisions and keep the header short.
        let (name, _) = hash.as_bytes().split_at(16);
        Self(name.try_into().unwrap_or_default())
    }

    /// Creates an owner from its bytes.
    pub const fn new(name: [u8; 16]) -> Self {
        Self(name)
    }

    /// Returns the bytes.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The error for a text that is not an owner name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected 32 hexadecimal digits")]
pub struct OwnerParseError;

impl FromStr for Owner {
    type Err = OwnerParseError;

    fn from_str(text: &str) -> Result<Self, OwnerParseError> {
        parse_hex(text).map(Self).ok_or(OwnerParseError)
    }
}

/// Parses 32 hexadecimal digits; `None` for any other text.
pub(super) fn parse_hex(text: &str) -> Option<[u8; 16]> {
    // `from_str_radix` alone would accept a leading `+`.
    let is_hex = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let number = u128::from_str_radix(text, 16).ok().filter(|_| is_hex);
    number.map(u128::to_be_bytes)
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;

    use super::*;
    use crate::auth::{PrincipalKey, principal::principal_of_credentials};

    #[test]
    fn an_owner_is_read_as_it_is_shown_and_depends_on_the_key() {
        let key = PrincipalKey::new([7; 32]);
        let (one, two) = (Principal::of_token(&key, "a"), Principal::of_token(&key, "b"));
        let owners = OwnerKey::from_ledger_secret(&[1; 32]);
        let shown = Owner::of_principal(&owners, one).to_string();
        assert_eq!(shown.len(), 32);
        assert_eq!(shown.parse(), Ok(Owner::of_principal(&owners, one)));
        assert_eq!(shown.to_uppercase().parse(), Ok(Owner::of_principal(&owners, one)));
        assert_ne!(Owner::of_principal(&owners, one), Owner::of_principal(&owners, two));
        assert_ne!(
            Owner::of_principal(&owners, one),
            Owner::of_principal(&OwnerKey::from_ledger_secret(&[2; 32]), one)
        );
        assert_ne!(
            Owner::of_principal(&owners, principal_of_credentials(&key, &HeaderMap::new(), None)),
            Owner::of_principal(&owners, one)
        );
        for wrong in [
            "",
            &shown[1..],
            &format!("{shown}0"),
            &format!("+{}", &shown[1..]),
            &shown.replace(|_| true, "g"),
        ] {
            assert_eq!(wrong.parse::<Owner>(), Err(OwnerParseError), "{wrong}");
        }
    }
}
