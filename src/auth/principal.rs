//! The caller: the identity of a client, derived from the secret that it presents and never from a body alone.

use std::{borrow::Cow, collections::BTreeSet, sync::LazyLock};

use http::{HeaderMap, HeaderName};

pub use antiphon_ledger::principal::{Principal, PrincipalHash, PrincipalKey};

use crate::{
    digest_cache::{DigestKey, KeyBytes, OneDigest as _},
    provider::{ProviderKind, decode_query},
};

/// The query parameter in which Google's clients may send their key.
pub(crate) const KEY_PARAMETER: &str = "key";

/// Longest user name in bytes. Longer names are refused.
pub const USER_BYTES_MAX: usize = 256;

/// Rules for the identity of callers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PrincipalSettings {
    /// `true` for one principal for all clients. Allowed only if the proxy listens on loopback.
    pub is_single: bool,
    /// The header in which a trusted intermediary names the user.
    pub user_header: Option<HeaderName>,
    /// `true` if the user named in a body is trusted.
    pub trust_body_user: bool,
}

impl PrincipalSettings {
    /// Returns `true` if a principal may have users.
    pub const fn has_users(&self) -> bool {
        self.user_header.is_some() || self.trust_body_user
    }
}

/// The identity of the client of one exchange.
///
/// Access on behalf of a client takes this value: the ledger, the session table, pinned results, learned facts.
/// Services, operators and clearing have their own types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Caller {
    principal: Principal,
    account: Principal,
    /// `true` if many clients send the credential, so that it identifies nobody.
    is_shared: bool,
}

impl Caller {
    /// Creates the caller for an account without users.
    pub const fn of_account(principal: Principal) -> Self {
        Self {
            principal,
            account: principal,
            is_shared: false,
        }
    }

    /// Restores the caller with this principal, which is a user within the account or the account itself.
    pub const fn of_user(principal: Principal, account: Principal) -> Self {
        Self {
            principal,
            account,
            is_shared: false,
        }
    }

    /// Returns the same caller, whose credential many clients send if `is_shared` is set.
    #[must_use]
    pub const fn with_shared_credential(self, is_shared: bool) -> Self {
        Self { is_shared, ..self }
    }

    /// Returns `true` if many clients send this credential: neither a session's name nor a user's tells them apart.
    pub const fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// Returns the owner of everything that is stored for this caller.
    pub const fn principal(&self) -> Principal {
        self.principal
    }

    /// Returns the bytes of the principal, for hashes.
    pub const fn principal_bytes(&self) -> &[u8; 32] {
        self.principal.as_bytes()
    }

    /// Returns the account without the user. The operator's settings name accounts.
    pub const fn account(&self) -> Principal {
        self.account
    }

    /// Returns `true` if the client presented a credential. Nothing is stored for callers without one.
    pub fn is_authenticated(&self) -> bool {
        self.principal != Principal::NONE
    }

    /// Re-scopes to a user within the account. A caller without a credential has no users.
    #[must_use]
    pub fn with_user(self, key: &PrincipalKey, user: &[u8]) -> Self {
        Self {
            principal: Principal::of_user(key, self.account, user),
            ..self
        }
    }
}

impl From<Caller> for Principal {
    fn from(caller: Caller) -> Self {
        caller.principal()
    }
}

/// The headers in which clients send their credentials.
struct CredentialHeaders {
    names: Vec<&'static str>,
    /// The bit of each length that a name has. It excludes most headers of a request at once.
    lengths: u64,
}

// Taken from the table of providers, so that a new provider's header is never forgotten.
static CREDENTIAL_HEADERS: LazyLock<CredentialHeaders> = LazyLock::new(|| {
    let names: BTreeSet<&str> = ProviderKind::ALL.map(ProviderKind::credential_header).into();
    let bits = names.iter().map(|name| length_bit(name));
    CredentialHeaders {
        lengths: bits.fold(0, |all, bit| all | bit),
        names: names.into_iter().collect(),
    }
});

/// Returns the bit of a name's length. Lengths from 63 on share the last bit.
fn length_bit(name: &str) -> u64 {
    1 << name.len().min(63)
}

impl CredentialHeaders {
    fn contains(&self, name: &str) -> bool {
        self.lengths & length_bit(name) != 0 && self.names.contains(&name)
    }
}

/// Returns every bare secret of a request: the values of credential headers, without `Bearer`, and of the query
/// parameter `key`.
pub fn presented_secrets<'r>(headers: &'r HeaderMap, query: Option<&'r str>) -> impl Iterator<Item = Cow<'r, [u8]>> {
    // One pass: each look-up would hash a name.
    let known = &*CREDENTIAL_HEADERS;
    let credentials = headers.iter().filter(|(name, _)| known.contains(name.as_str()));
    let in_headers = credentials.map(|(_, value)| {
        // A scheme is not part of the secret, in whichever header it appears.
        Cow::Borrowed(strip_scheme(value.as_bytes()))
    });
    let pairs = query.unwrap_or_default().split('&');
    let in_query = pairs.filter_map(|pair| {
        let (name, value) = pair.split_once('=')?;
        (*decode_query(name) == *KEY_PARAMETER.as_bytes()).then(|| decode_query(value))
    });
    // An empty secret would make all its senders one principal.
    in_headers.chain(in_query).filter(|secret| !secret.is_empty())
}

/// Returns the principal of the presented credentials. One secret is one principal, whichever header or parameter carries
/// it.
pub fn principal_of_credentials(key: &PrincipalKey, headers: &HeaderMap, query: Option<&str>) -> Principal {
    Principal::of_secrets(key, presented_secrets(headers, query))
}

/// Prefixes of credentials that expire within hours, so that the principal changes with each renewal: signed tokens,
/// Anthropic's and Google's OAuth tokens.
const SHORT_LIVED_PREFIXES: [&[u8]; 3] = [b"eyJ", b"sk-ant-oat", b"ya29."];

/// Returns `true` if a request presents a credential that will expire.
pub fn is_short_lived(headers: &HeaderMap) -> bool {
    // OAuth tokens are never sent in the query.
    presented_secrets(headers, None).any(|secret| SHORT_LIVED_PREFIXES.iter().any(|begin| secret.starts_with(begin)))
}

fn strip_scheme(value: &[u8]) -> &[u8] {
    const BEARER: &[u8] = b"bearer ";
    // Blanks around a header's value are not part of it.
    let value = value.trim_ascii();
    match value.split_at_checked(BEARER.len()) {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case(BEARER) => rest.trim_ascii(),
        _ => value,
    }
}

impl DigestKey for Caller {
    fn key_bytes(&self) -> KeyBytes {
        KeyBytes::new(
            [self.principal.digest(), self.account.digest()],
            u8::from(self.is_shared),
        )
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;
    use crate::ledger::{RecordKey, RecordKind};

    fn of(headers: &[(&str, &str)], query: Option<&str>) -> Principal {
        let pair = |(name, value): &(&str, &str)| {
            (
                name.parse::<HeaderName>().unwrap(),
                value.parse::<HeaderValue>().unwrap(),
            )
        };
        let headers: HeaderMap = headers.iter().map(pair).collect();
        principal_of_credentials(&PrincipalKey::new([7; 32]), &headers, query)
    }

    type Form<'t> = (&'t [(&'t str, &'t str)], Option<&'t str>);

    #[test]
    fn one_secret_is_one_principal_whatever_carries_it() {
        let k = of(&[("x-api-key", "K%1")], None);
        let forms: &[Form<'_>] = &[
            (&[("authorization", "Bearer K%1")], None),
            (&[("authorization", "bearer  K%1 ")], None),
            (&[("x-goog-api-key", "K%1")], None),
            (&[("api-key", "K%1")], None),
            (&[], Some("key=K%1")),
            (&[], Some("alt=sse&key=K%251&x")),
            (&[], Some("k%65y=%4b%251")),
            (
                &[("authorization", "Bearer K%1"), ("x-api-key", "K%1")],
                Some("key=K%1"),
            ),
        ];
        for (headers, query) in forms {
            assert_eq!(of(headers, *query), k, "{headers:?} {query:?}");
        }
        let two = of(&[("x-api-key", "K%1"), ("authorization", "Bearer L")], None);
        assert_eq!(of(&[("x-api-key", "L"), ("authorization", "K%1")], None), two);
        let others = [
            two,
            of(&[("x-api-key", "L")], None),
            of(&[("x-api-key", "K%1 L")], None),
            of(&[("x-api-key", "K%1L")], None),
            Principal::of_token(&PrincipalKey::new([7; 32]), "K%1"),
            principal_of_credentials(&PrincipalKey::new([8; 32]), &HeaderMap::new(), Some("key=K%251")),
            Principal::NONE,
        ];
        assert!(others.iter().all(|other| *other != k));
        assert_eq!(others.iter().collect::<BTreeSet<_>>().len(), others.len());
    }

    #[test]
    fn nothing_presented_is_nobody() {
        for query in [
            None,
            Some(""),
            Some("key"),
            Some("key="),
            Some("monkey=K"),
            Some("alt=key"),
        ] {
            assert_eq!(
                of(&[("cookie", "a"), ("x-api-key", "  ")], query),
                Principal::NONE,
                "{query:?}"
            );
        }
        let shown = format!(
            "{:?} {:?}",
            of(&[("api-key", "canary")], None),
            PrincipalKey::new([7; 32])
        );
        assert_eq!(shown, "Principal(…) PrincipalKey(***)");
    }

    #[test]
    fn a_user_is_a_principal_of_its_own() {
        let key = PrincipalKey::new([7; 32]);
        let (one, two) = (Principal::of_token(&key, "a"), Principal::of_token(&key, "b"));
        let user = |within, name: &str| Principal::of_user(&key, within, name.as_bytes());
        let all = [
            one,
            two,
            user(one, "ann"),
            user(one, "ben"),
            user(two, "ann"),
            user(user(one, "ann"), "ann"),
            user(one, ""),
            Principal::of_token(&key, "ann"),
            Principal::of_service(&key, "a"),
            Principal::of_all_clients(&key),
            Principal::NONE,
        ];
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
        assert_eq!(user(one, "ann"), user(one, "ann"));
        assert_eq!(user(Principal::NONE, "ann"), Principal::NONE);
        let who = Caller::of_account(one).with_user(&key, b"ann");
        assert_eq!((who.principal, who.account), (user(one, "ann"), one));
        assert_eq!(who.with_user(&key, b"ben").principal, user(one, "ben"));
        let ours = PrincipalKey::from_ledger_secret(&[1; 32]);
        assert_ne!(
            Principal::of_token(&ours, "a"),
            Principal::of_token(&PrincipalKey::from_ledger_secret(&[2; 32]), "a")
        );
    }

    #[test]
    fn tokens_that_run_out_are_told_by_how_they_begin() {
        for (value, so) in [
            ("Bearer eyJhbGciOi", true),
            ("Bearer sk-ant-oat01-x", true),
            ("ya29.a0", true),
            ("Bearer sk-ant-api03-x", false),
            ("sk-proj-eyJ", false),
        ] {
            let headers = [("authorization".parse::<HeaderName>().unwrap(), value.parse().unwrap())];
            assert_eq!(is_short_lived(&headers.into_iter().collect()), so, "{value}");
        }
    }

    #[test]
    fn each_part_of_a_cache_key_counts() {
        let principals = [1, 2].map(|byte| Principal::from_bytes([byte; 32]));
        let [one, two] = principals;
        let key = |kind, principal, name| RecordKey::new(kind, principal, [name; 32]).key_bytes();
        let keys = [
            key(RecordKind::Call, one, 1),
            key(RecordKind::Delivery, one, 1),
            key(RecordKind::Call, two, 1),
            key(RecordKind::Call, one, 2),
            Caller::of_account(one).key_bytes(),
            Caller::of_user(one, two).key_bytes(),
            Caller::of_user(two, one).key_bytes(),
            Caller::of_account(one).with_shared_credential(true).key_bytes(),
            one.key_bytes(),
            (two, [3; 32]).key_bytes(),
            ([3; 32], two).key_bytes(),
        ];
        for (at, key) in keys.iter().enumerate() {
            assert!(!keys[..at].contains(key), "{at}");
        }
    }
}
