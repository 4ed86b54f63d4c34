//! Client tokens: named permissions to use the operator's credentials. Stored as hashes, compared in constant time.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    str::FromStr,
};

use sha2::{Digest, Sha256};
use subtle::{ConditionallySelectable, ConstantTimeEq};

use super::{
    certificate_names::{CertificateClients, CertificateNames},
    owner::parse_hex,
};

/// Prefix of a written hash.
const HASH_PREFIX: &str = "sha256:";
/// Prefix of every token that `antiphon config token` makes.
pub const TOKEN_PREFIX: &str = "antiphon_";
/// Marker for "no entry".
const NO_ENTRY: u64 = u64::MAX;

/// The SHA-256 of a client token. Tokens are random, so no slower hash is needed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct TokenHash([u8; 32]);

impl TokenHash {
    /// Hashes a token.
    pub fn hash_token(token: &[u8]) -> Self {
        Self(Sha256::digest(token).into())
    }

    /// Compares in constant time.
    pub fn matches(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl fmt::Display for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HASH_PREFIX)?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenHash(…)")
    }
}

/// The error for a text that is not a hash. The text may be a token, so it is never repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected sha256: and 64 hexadecimal digits")]
pub struct TokenHashParseError;

impl FromStr for TokenHash {
    type Err = TokenHashParseError;

    fn from_str(text: &str) -> Result<Self, TokenHashParseError> {
        let halves = text
            .strip_prefix(HASH_PREFIX)
            .and_then(|digits| digits.split_at_checked(32));
        let bytes = halves.and_then(|(high, low)| Some([parse_hex(high)?, parse_hex(low)?]));
        let hash = bytes.and_then(|halves| halves.as_flattened().try_into().ok());
        hash.map(Self).ok_or(TokenHashParseError)
    }
}

/// The limits of one client token.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenLimits {
    /// The upstreams that it may use. Empty for all.
    pub upstreams: Vec<String>,
    /// The number of its exchanges at the same time; `None` for any number.
    pub max_concurrent: Option<usize>,
    /// The part of an upstream's retry budget that it may use, in percent; `None` for the default.
    pub retry_percent: Option<u8>,
}

impl TokenLimits {
    /// Returns `true` if the token may use the upstream of this name.
    pub fn allows_upstream(&self, upstream: &str) -> bool {
        self.upstreams.is_empty() || self.upstreams.iter().any(|name| name == upstream)
    }
}

/// The known client tokens, and the client certificates that stand for one.
#[derive(Clone, Debug, Default)]
pub struct ClientTokens {
    entries: Vec<(String, TokenHash)>,
    certificates: CertificateClients,
    /// Limits by the token's name.
    limits: BTreeMap<String, TokenLimits>,
}

impl ClientTokens {
    /// Creates the list from names and hashes.
    pub fn new(entries: Vec<(String, TokenHash)>) -> Self {
        Self {
            entries,
            ..Self::default()
        }
    }

    /// Returns the same tokens with these client certificates.
    #[must_use]
    pub fn with_certificates(self, certificates: CertificateClients) -> Self {
        Self { certificates, ..self }
    }

    /// Returns the same tokens with these limits, by the names of tokens.
    #[must_use]
    pub fn with_limits(self, limits: BTreeMap<String, TokenLimits>) -> Self {
        Self { limits, ..self }
    }

    /// Returns the limits of the token with this name; `None` if it has none.
    pub fn find_limits(&self, name: &str) -> Option<&TokenLimits> {
        self.limits.get(name)
    }

    /// Returns every name with limits.
    pub const fn limits(&self) -> &BTreeMap<String, TokenLimits> {
        &self.limits
    }

    /// Returns `true` if no client is configured, neither by a token nor by a certificate.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.certificates.is_empty()
    }

    /// Returns `true` if a client certificate may identify a client.
    pub fn has_certificates(&self) -> bool {
        !self.certificates.is_empty()
    }

    /// Returns the names of all clients, once each.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let by_token = self.entries.iter().map(|(name, _)| name.as_str());
        let by_token: BTreeSet<&str> = by_token.chain(self.certificates.clients()).collect();
        by_token.into_iter()
    }

    /// Returns the name of the client for which a certificate stands; `None` if it stands for none or several.
    pub fn find_by_certificate(&self, names: &CertificateNames) -> Option<&str> {
        self.certificates.find_client(names)
    }

    /// Returns the name of a presented token; `None` if it is unknown. Compares every entry, so that the time reveals
    /// nothing.
    pub fn find_name(&self, presented: &[u8]) -> Option<&str> {
        let TokenHash(hash) = TokenHash::hash_token(presented);
        let mut found = NO_ENTRY;
        for (place, (_, TokenHash(known))) in (0_u64..).zip(&self.entries) {
            // No early exit: the time must not depend on the entry that matches.
            found.conditional_assign(&place, known.ct_eq(&hash));
        }
        let place = usize::try_from(found).ok()?;
        self.entries.get(place).map(|(name, _)| name.as_str())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_hash_is_read_as_it_is_written_and_nothing_else_is() {
        // printf %s antiphon_0 | sha256sum
        let written = "sha256:d3c037b9d7d9dfb130eec88d77c88858f5d900b0bc0e01af7b74363caafa0bae";
        let hash = TokenHash::hash_token(b"antiphon_0");
        assert_eq!(hash.to_string(), written);
        assert_eq!(hash.to_string().parse(), Ok(hash));
        assert_eq!(
            hash.to_string().to_uppercase().replace("SHA256", "sha256").parse(),
            Ok(hash)
        );
        let bare = written.trim_start_matches("sha256:");
        let longer = format!("{written}0");
        for wrong in [
            "",
            "sha256:",
            bare,
            &longer,
            &written[..70],
            &written.replace('f', "g"),
            "antiphon_0",
        ] {
            assert_eq!(wrong.parse::<TokenHash>(), Err(TokenHashParseError), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn a_token_is_known_by_its_own_name_only(tokens in prop::collection::btree_set("[ -~]{1,40}", 1..8), other in "[ -~]{0,40}") {
            let tokens: Vec<String> = tokens.into_iter().collect();
            let entry = |(i, token): (usize, &String)| (format!("t{i}"), TokenHash::hash_token(token.as_bytes()));
            let known = ClientTokens::new(tokens.iter().enumerate().map(entry).collect());
            for (i, token) in tokens.iter().enumerate() {
                let name = format!("t{i}");
                prop_assert_eq!(known.find_name(token.as_bytes()), Some(name.as_str()));
            }
            if !tokens.contains(&other) {
                prop_assert_eq!(known.find_name(other.as_bytes()), None);
            }
            prop_assert!(ClientTokens::default().find_name(other.as_bytes()).is_none());
        }
    }
}
