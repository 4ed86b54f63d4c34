//! The URL of the proxy: from a flag, a variable or the configuration.

use http::{Uri, uri::Scheme};

use super::{arguments::ProxyFlags, error::ResultError};
use crate::{
    cli::{banner::reachable_address, config::load_chosen, proxy_trust::ProxyTrust},
    config::process_environment,
};

/// Variable with the URL of the proxy.
const URL_VARIABLE: &str = "ANTIPHON_URL";

/// The URL of a proxy without a slash at its end, and the certificates that are accepted there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ProxyUrl {
    url: String,
    trust: ProxyTrust,
}

impl ProxyUrl {
    /// Returns the URL as text.
    pub(super) fn as_str(&self) -> &str {
        &self.url
    }

    /// Returns the certificates that are accepted from the proxy.
    pub(super) fn trust(&self) -> ProxyTrust {
        self.trust.clone()
    }

    /// Finds the proxy by flags, variables and the configuration.
    pub(super) fn find(flags: &ProxyFlags) -> Result<Self, ResultError> {
        if let Some(url) = &flags.url {
            return Self::parse("--url", url);
        }
        // A flag overrides a variable, also one for another setting of the same thing.
        let variable = process_environment(URL_VARIABLE).filter(|_| flags.config.is_none());
        if let Some(url) = variable {
            return Self::parse(URL_VARIABLE, &url);
        }
        let server = load_chosen(flags.config.clone())?.config.server;
        let address = reachable_address(server.listen);
        Ok(match server.tls {
            // The request contains a token, so the proxy must have the very certificate of the configuration.
            Some(tls) => Self {
                url: format!("https://{address}"),
                trust: ProxyTrust::Configured(tls.certificate()),
            },
            None => Self {
                url: format!("http://{address}"),
                trust: ProxyTrust::System,
            },
        })
    }

    /// Parses a URL that `origin` gave. The error does not repeat it, since it may contain a password.
    fn parse(origin: &str, text: &str) -> Result<Self, ResultError> {
        let url = text.parse::<Uri>().ok();
        let parsed = url.as_ref().and_then(base_url);
        let trusted = |url| Self {
            url,
            trust: ProxyTrust::System,
        };
        parsed.map(trusted).ok_or_else(|| {
            ResultError::Unusable(format!(
                "{origin}: expected the http:// or https:// URL of the proxy, without user, password and query"
            ))
        })
    }
}

/// Returns the URL to which a path can be added. `None` if there is no such URL.
fn base_url(url: &Uri) -> Option<String> {
    let scheme = url
        .scheme()
        .filter(|scheme| [Scheme::HTTP, Scheme::HTTPS].contains(scheme))?;
    let authority = url.authority().filter(|authority| !authority.host().is_empty())?;
    let is_plain = !authority.as_str().contains('@') && url.query().is_none();
    // A gateway in front may have its own path.
    let path = url.path().trim_end_matches('/');
    is_plain.then(|| format!("{scheme}://{authority}{path}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_a_base_without_credentials() {
        for (text, wanted) in [
            ("http://127.0.0.1:4747", "http://127.0.0.1:4747"),
            ("http://[::1]:4747/#top", "http://[::1]:4747"),
            ("https://gateway.example/antiphon/", "https://gateway.example/antiphon"),
        ] {
            assert_eq!(ProxyUrl::parse("--url", text).unwrap().as_str(), wanted);
        }
        for wrong in [
            "",
            "/x",
            "127.0.0.1:4747",
            "ftp://h",
            "http://",
            "http://u:p@h",
            "http://h?a=b",
        ] {
            let error = ProxyUrl::parse("--url", wrong).unwrap_err().to_string();
            assert!(
                error.starts_with("--url: expected") && !error.contains("u:p"),
                "{wrong}: {error}"
            );
        }
    }
}
