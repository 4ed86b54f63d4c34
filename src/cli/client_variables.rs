//! Variables that point LLM clients at the proxy, for `run` and `env`.

use std::net::SocketAddr;

use crate::{config::process_environment, provider::Routes};

/// Variables that clients read: name, upstream, and the path that the client expects after its base URL.
///
/// `GEMINI_API_BASE` is that of `LiteLLM`, which does not read Google's own variable.
const BASE_URL_VARIABLES: [(&str, &str, &str); 4] = [
    ("ANTHROPIC_BASE_URL", "anthropic", ""),
    ("OPENAI_BASE_URL", "openai", ""),
    ("GOOGLE_GEMINI_BASE_URL", "gemini", ""),
    ("GEMINI_API_BASE", "gemini", "/v1beta"),
];

/// A variable that contains the base URL of an upstream at the proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BaseUrlVariable {
    pub(super) name: &'static str,
    pub(super) upstream: &'static str,
    pub(super) url: String,
}

/// Returns the variables of all upstreams that exist, for a proxy at the URL `root`.
pub(super) fn base_url_variables(routes: &Routes, root: &str) -> Vec<BaseUrlVariable> {
    let urls = routes.base_urls(root);
    let variable = |(name, upstream, path): (&'static str, &'static str, &'static str)| {
        let (_, url) = urls.iter().find(|(known, _)| known == upstream)?;
        Some(BaseUrlVariable {
            name,
            upstream,
            url: format!("{url}{path}"),
        })
    };
    BASE_URL_VARIABLES.into_iter().filter_map(variable).collect()
}

/// Returns the `NO_PROXY` variables with the proxy's address added, or nothing if no forward proxy is set.
///
/// Without them clients would send requests for this machine to the forward proxy, which cannot reach it.
pub(super) fn no_proxy_variables(at: SocketAddr) -> Vec<(&'static str, String)> {
    // Some clients use the one for https:// for every request, also to this machine.
    const PROXIES: [&str; 6] = [
        "HTTP_PROXY",
        "http_proxy",
        "HTTPS_PROXY",
        "https_proxy",
        "ALL_PROXY",
        "all_proxy",
    ];
    const LISTS: [&str; 2] = ["NO_PROXY", "no_proxy"];
    if PROXIES.iter().all(|name| process_environment(name).is_none()) {
        return Vec::new();
    }
    // Clients differ in the spelling that they read, so each list that is set is extended.
    let known = |name: &'static str| Some((name, extended_list(&process_environment(name)?, at)));
    let known: Vec<_> = LISTS.into_iter().filter_map(known).collect();
    if known.is_empty() {
        return vec![(LISTS[0], at.ip().to_string())];
    }
    known
}

/// Adds the proxy's address to a list of hosts that lacks it.
fn extended_list(hosts: &str, at: SocketAddr) -> String {
    let own = at.ip().to_string();
    // It already stands for every host, and only alone: clients do not read it beside a name.
    if hosts.trim() == "*" {
        return hosts.to_owned();
    }
    if hosts.split(',').any(|host| host.trim() == own) {
        return hosts.to_owned();
    }
    format!("{hosts},{own}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_gets_the_address_unless_it_has_it() {
        let at: SocketAddr = "127.0.0.1:4747".parse().unwrap();
        for (hosts, wanted) in [
            ("", ",127.0.0.1"),
            ("a.example", "a.example,127.0.0.1"),
            ("a.example, 127.0.0.1", "a.example, 127.0.0.1"),
            ("*", "*"),
            (" * ", " * "),
        ] {
            assert_eq!(extended_list(hosts, at), wanted);
        }
    }
}
