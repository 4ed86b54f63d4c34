//! Names in client certificates, and the clients that they stand for.

use std::{collections::BTreeMap, fmt, str::FromStr, sync::Arc};

/// Longest name that is read or configured, in bytes. A URI of SPIFFE has at most 2048.
const NAME_BYTES_MAX: usize = 2048;

/// One subject alternative name of a client certificate.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CertificateName {
    /// A DNS name in lower case. `*` is no pattern here: it matches only itself.
    Dns(String),
    /// A URI, compared byte for byte.
    Uri(String),
    /// An email address, compared byte for byte.
    Email(String),
}

impl CertificateName {
    /// Returns a DNS name, which is compared without regard to case. `None` if no certificate may contain it.
    pub fn from_dns(text: &str) -> Option<Self> {
        is_name(text).then(|| Self::Dns(text.to_ascii_lowercase()))
    }

    /// Returns a URI. `None` if no certificate may contain it.
    pub fn from_uri(text: &str) -> Option<Self> {
        is_name(text).then(|| Self::Uri(text.to_owned()))
    }

    /// Returns an email address. `None` if no certificate may contain it.
    pub fn from_email(text: &str) -> Option<Self> {
        is_name(text).then(|| Self::Email(text.to_owned()))
    }
}

/// Returns `true` for a text of printable ASCII characters without spaces.
fn is_name(text: &str) -> bool {
    !text.is_empty() && text.len() <= NAME_BYTES_MAX && text.bytes().all(|byte| byte.is_ascii_graphic())
}

impl fmt::Display for CertificateName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Dns(text) | Self::Uri(text) | Self::Email(text)) = self;
        f.write_str(text)
    }
}

/// The error for a text that is no name of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a DNS name, a URI or an email address, as the client certificate contains it")]
pub struct CertificateNameError;

impl FromStr for CertificateName {
    type Err = CertificateNameError;

    fn from_str(text: &str) -> Result<Self, CertificateNameError> {
        // A colon makes it a URI: no DNS name has one, and an email address only in quotes.
        let parsed = if text.contains(':') {
            Self::from_uri(text)
        } else if text.contains('@') {
            Self::from_email(text)
        } else {
            Self::from_dns(text)
        };
        parsed.ok_or(CertificateNameError)
    }
}

/// Names of the verified client certificate of a connection. Each request on it carries them. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateNames(Arc<[CertificateName]>);

impl From<Vec<CertificateName>> for CertificateNames {
    fn from(names: Vec<CertificateName>) -> Self {
        Self(names.into())
    }
}

/// The clients that certificates stand for: the name of a client by a name of its certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CertificateClients(BTreeMap<CertificateName, String>);

impl CertificateClients {
    /// Creates the map.
    pub const fn new(clients: BTreeMap<CertificateName, String>) -> Self {
        Self(clients)
    }

    /// Returns `true` if no certificate stands for a client.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the names of the clients. A client with several names of certificates is listed for each.
    pub fn clients(&self) -> impl Iterator<Item = &str> {
        self.0.values().map(String::as_str)
    }

    /// Returns the client that a certificate stands for. `None` if it is none, or more than one.
    pub fn find_client(&self, names: &CertificateNames) -> Option<&str> {
        let mut found = names.0.iter().filter_map(|name| self.0.get(name));
        let first = found.next()?;
        // A certificate for two clients could use the records of both.
        found.all(|other| other == first).then_some(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_stands_for_the_client_that_lists_one_of_its_names() {
        let listed = [
            ("ci.example.org", "ci"),
            ("spiffe://example.org/agent", "agent"),
            ("ann@example.org", "ann"),
            ("ci2.example.org", "ci"),
        ];
        let known = listed.map(|(text, client)| (text.parse().unwrap(), client.to_owned()));
        let known = CertificateClients::new(known.into());
        let dns = |text: &str| CertificateName::from_dns(text).unwrap();
        for (names, wanted) in [
            (vec![dns("CI.example.org")], Some("ci")),
            (vec![dns("other.example.org"), dns("ci.example.org")], Some("ci")),
            (vec![dns("ci.example.org"), dns("ci2.example.org")], Some("ci")),
            (vec!["spiffe://example.org/agent".parse().unwrap()], Some("agent")),
            (
                vec![CertificateName::from_email("ann@example.org").unwrap()],
                Some("ann"),
            ),
            // Two clients.
            (vec![dns("ci.example.org"), "ann@example.org".parse().unwrap()], None),
            // The same text as another kind of name.
            (vec![CertificateName::from_uri("ci.example.org").unwrap()], None),
            (vec![dns("ann@example.org")], None),
            (vec!["SPIFFE://example.org/agent".parse().unwrap()], None),
            (vec![dns("*.example.org")], None),
            (vec![], None),
        ] {
            assert_eq!(known.find_client(&names.clone().into()), wanted, "{names:?}");
        }
        assert_eq!(
            CertificateClients::default().find_client(&vec![dns("ci.example.org")].into()),
            None
        );
    }

    #[test]
    fn texts_that_no_certificate_contains_are_refused() {
        let long = "a".repeat(NAME_BYTES_MAX + 1);
        for wrong in ["", "a b", "a\0b", "münchen.example", &long] {
            assert_eq!(wrong.parse::<CertificateName>(), Err(CertificateNameError), "{wrong}");
        }
    }
}
