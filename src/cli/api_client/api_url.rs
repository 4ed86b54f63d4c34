//! The URL of an API of the proxy: from a flag, a variable or the configuration.
#![expect(clippy::doc_markdown, reason = "doc comments are help texts on a terminal")]

use std::{net::SocketAddr, path::PathBuf};

use http::{Uri, uri::Scheme};

use super::error::ClientError;
use crate::{
    cli::{banner::reachable_address, config::load_chosen, proxy_trust::ProxyTrust},
    config::process_environment,
    provider,
    server::tls::ListenerTls,
};

/// Flags that find the proxy.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct ProxyFlags {
    /// URL of the proxy [env: ANTIPHON_URL] [default: the configured server.listen, http://127.0.0.1:4747]
    #[arg(long, value_name = "URL")]
    pub(in crate::cli) url: Option<String>,
    /// Configuration file with the address of the proxy [env: ANTIPHON_CONFIG] [default: none needed]
    #[arg(short, long, value_name = "FILE", conflicts_with = "url")]
    pub(in crate::cli) config: Option<PathBuf>,
}

/// Flags that find the admin listener.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct AdminFlags {
    /// URL of the admin listener [default: the configured server.admin_listen, http://127.0.0.1:4748]
    #[arg(long, value_name = "URL")]
    pub(in crate::cli) url: Option<String>,
    /// Configuration file with the address of the admin listener [env: ANTIPHON_CONFIG] [default: none needed]
    #[arg(short, long, value_name = "FILE", conflicts_with = "url")]
    pub(in crate::cli) config: Option<PathBuf>,
}

/// Variable with the URL of the proxy.
const URL_VARIABLE: &str = "ANTIPHON_URL";

/// The URL of a listener without a slash at its end, and the certificates that are accepted there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::cli) struct ApiUrl {
    url: String,
    trust: ProxyTrust,
}

impl ApiUrl {
    /// Returns the URL as text.
    pub(in crate::cli) fn as_str(&self) -> &str {
        &self.url
    }

    /// Returns `true` if the proxy is on this machine.
    pub(in crate::cli) fn is_loopback(&self) -> bool {
        let url = self.url.parse::<Uri>().ok();
        url.as_ref().and_then(Uri::host).is_some_and(provider::is_loopback)
    }

    /// Returns the certificates that are accepted from the proxy.
    pub(in crate::cli) fn trust(&self) -> ProxyTrust {
        if self.url.starts_with("http://") {
            ProxyTrust::Nobody
        } else {
            self.trust.clone()
        }
    }

    /// Finds the proxy by flags, variables and the configuration.
    pub(in crate::cli) fn of_proxy(flags: &ProxyFlags) -> Result<Self, ClientError> {
        if let Some(url) = &flags.url {
            return Self::parse("--url", url);
        }
        // A flag overrides a variable, also one for another setting of the same thing.
        let variable = process_environment(URL_VARIABLE).filter(|_| flags.config.is_none());
        if let Some(url) = variable {
            return Self::parse(URL_VARIABLE, &url);
        }
        let server = load_chosen(flags.config.clone())?.config.server;
        Ok(Self::of_listener(server.listen, server.tls.as_ref()))
    }

    /// Finds the admin listener by flags and the configuration.
    pub(in crate::cli) fn of_admin(flags: &AdminFlags) -> Result<Self, ClientError> {
        if let Some(url) = &flags.url {
            return Self::parse("--url", url);
        }
        let config = load_chosen(flags.config.clone())?.config;
        Ok(Self::of_listener(config.admin_listen, config.admin_tls.as_ref()))
    }

    fn of_listener(listen: SocketAddr, tls: Option<&ListenerTls>) -> Self {
        let address = reachable_address(listen);
        match tls {
            // The request contains a token, so the proxy must have the very certificate of the configuration.
            Some(tls) => Self {
                url: format!("https://{address}"),
                trust: ProxyTrust::Configured(tls.certificate()),
            },
            None => Self {
                url: format!("http://{address}"),
                trust: ProxyTrust::System,
            },
        }
    }

    /// Parses a URL that `origin` gave. The error does not repeat it, since it may contain a password.
    fn parse(origin: &str, text: &str) -> Result<Self, ClientError> {
        let url = text.parse::<Uri>().ok();
        let parsed = url.as_ref().and_then(base_url);
        let trusted = |url| Self {
            url,
            trust: ProxyTrust::System,
        };
        parsed.map(trusted).ok_or_else(|| {
            ClientError::Unusable(format!(
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
            assert_eq!(ApiUrl::parse("--url", text).unwrap().as_str(), wanted);
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
            let error = ApiUrl::parse("--url", wrong).unwrap_err().to_string();
            assert!(
                error.starts_with("--url: expected") && !error.contains("u:p"),
                "{wrong}: {error}"
            );
        }
    }
}
