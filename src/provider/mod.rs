//! The table of providers: names, hosts, paths and credential headers → upstream and wire format. Never opens a socket.

use std::{net::IpAddr, str::FromStr};

use http::{
    HeaderMap, Method,
    uri::{Authority, PathAndQuery, Scheme},
};

use crate::{digest::digest_of, repair::Mode};

mod aws;
mod endpoint;
mod kind;
mod path;
mod percent;
mod route;
mod template;
mod unprefixed;
mod version;

pub use aws::{aws_region, aws_service};
pub use endpoint::next_turn_path;
use endpoint::wire_of;
pub(crate) use endpoint::{HISTORY_SUFFIXES, is_gemini};
pub use kind::{BUILT_IN, BuiltInProvider, ProviderKind};
pub(crate) use path::is_unambiguous;
pub(crate) use percent::{decode_query, decode_segment};
pub use route::Route;
pub use template::ModelOperation;

/// First path segments with a meaning of their own. No upstream may have one of them as its name.
pub const RESERVED_NAMES: &[&str] = &["api", "ledger", "model", "upload", "v1", "v1beta"];

/// The hash of an upstream's name and URL. What one server has taught does not hold for another of the same name.
pub type ServerHash = [u8; 32];

/// One configured provider endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upstream {
    /// The name: its path prefix, and its label in metrics and logs.
    pub name: String,
    /// The API.
    pub kind: ProviderKind,
    /// `http` or `https`.
    pub scheme: Scheme,
    /// Host and port.
    pub authority: Authority,
    /// The path in front of every request's path. Empty, or with a leading and without a trailing slash.
    pub base_path: String,
    /// The action for findings on its routes.
    pub mode: Mode,
}

impl Upstream {
    /// Returns the hash of its server. Ledgers contain keys that are made with it: never change it.
    fn server_hash(&self) -> ServerHash {
        let parts = [
            &*self.name,
            self.scheme.as_str(),
            self.authority.as_str(),
            &*self.base_path,
        ];
        digest_of(parts.map(str::as_bytes))
    }

    /// Returns a short hash of API, URL and mode, by which two processes compare their upstreams.
    pub fn fingerprint(&self) -> String {
        let text = format!(
            "{:?} {}://{}{} {:?}",
            self.kind, self.scheme, self.authority, self.base_path, self.mode
        );
        blake3::hash(text.as_bytes()).to_hex()[..16].to_owned()
    }
}

/// The reason for which a request has no route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum RouteError {
    /// The path is ambiguous: dot segments, encoded slashes, backslashes, control characters. Answer 400.
    #[error("the path has dot segments, encoded slashes, backslashes or control characters")]
    BadPath,
    /// No upstream matches the path. Answer 404 with [`Routes::base_urls`].
    #[error("no upstream matches this path")]
    UnknownPath,
    /// The path belongs to this API, and no upstream is certain to speak it. Answer 404 with [`Routes::base_urls`].
    #[error("a path of {0} needs the prefix of its upstream")]
    PrefixNeeded(&'static str),
}

/// The configured upstreams, which requests are routed to.
#[derive(Clone, Debug)]
pub struct Routes {
    upstreams: Vec<Upstream>,
    /// The server of each upstream.
    servers: Vec<ServerHash>,
}

impl Routes {
    /// Creates the routes to `upstreams`. Of two with the same name, the first is used.
    pub fn new(upstreams: Vec<Upstream>) -> Self {
        Self {
            servers: upstreams.iter().map(Upstream::server_hash).collect(),
            upstreams,
        }
    }

    /// Returns the upstreams in the order of the configuration.
    pub fn upstreams(&self) -> &[Upstream] {
        &self.upstreams
    }

    /// Finds the route of a request. The target path is the upstream's base path and the client's own path, byte for
    /// byte, without the prefix. Only a version that the client left out is added. The host is never taken from the
    /// request.
    pub fn find_route(
        &self,
        method: &Method,
        target: &PathAndQuery,
        headers: &HeaderMap,
    ) -> Result<Route<'_>, RouteError> {
        let path = target.path();
        if !is_unambiguous(path) {
            return Err(RouteError::BadPath);
        }
        let ((upstream, server), rest) = match self.by_prefix(path) {
            Some(found) => found,
            None => (self.by_shape(path, headers)?, path),
        };
        // A server could read `//name` as a host.
        if rest.starts_with("//") {
            return Err(RouteError::BadPath);
        }
        // An Azure path on another upstream would send the client's Azure key to the wrong provider.
        if upstream.kind != ProviderKind::Azure && endpoint::is_azure(path, target.query()) {
            return Err(RouteError::UnknownPath);
        }
        // Only a POST carries a history.
        let wire = if *method == Method::POST {
            wire_of(rest, upstream.kind)
        } else {
            None
        };
        // Only the client's part counts, because a base path may contain any word.
        let effects = (*method == Method::POST).then(|| template::post_effects(rest));
        let creates_object = effects.is_some_and(|effects| endpoint::creates_object(rest, effects));
        let target = upstream.join_target(rest, target.query()).ok_or(RouteError::BadPath)?;
        Ok(Route {
            upstream,
            server,
            target,
            wire,
            asks_model: effects.is_some_and(|effects| effects.asks_model),
            creates_object,
        })
    }

    /// Returns name and fingerprint of every upstream.
    pub fn fingerprints(&self) -> impl Iterator<Item = (&str, String)> {
        let upstreams = self.upstreams.iter();
        upstreams.map(|upstream| (upstream.name.as_str(), upstream.fingerprint()))
    }

    /// Returns name and base URL of every upstream, for a client that reaches the proxy at `root` (`http://name:port`).
    pub fn base_urls(&self, root: &str) -> Vec<(String, String)> {
        let base = |upstream: &Upstream| {
            // OpenAI's clients expect the version in the base URL, all others add it.
            let version = if upstream.kind == ProviderKind::OpenAi {
                "/v1"
            } else {
                ""
            };
            (upstream.name.clone(), format!("{root}/{}{version}", upstream.name))
        };
        self.upstreams.iter().map(base).collect()
    }

    fn find_upstream(&self, name: &str) -> Option<(&Upstream, ServerHash)> {
        let mut all = self.upstreams.iter().zip(self.servers.iter().copied());
        all.find(|(upstream, _)| upstream.name == name)
    }

    /// Returns the upstream that the first segment names, and the rest of the path.
    fn by_prefix<'p>(&self, path: &'p str) -> Option<((&Upstream, ServerHash), &'p str)> {
        let inner = path.strip_prefix('/')?;
        let end = inner.find('/').unwrap_or(inner.len());
        let (name, rest) = inner.split_at_checked(end)?;
        Some((self.find_upstream(name)?, rest))
    }

    /// Returns the upstream of a path without a prefix.
    fn by_shape(&self, path: &str, headers: &HeaderMap) -> Result<(&Upstream, ServerHash), RouteError> {
        let name = unprefixed::shaped_upstream(path, headers)?;
        self.find_upstream(name).ok_or(RouteError::UnknownPath)
    }
}

impl Upstream {
    /// Joins base path and `rest`, without a repetition of the base path.
    fn join_target(&self, rest: &str, query: Option<&str>) -> Option<PathAndQuery> {
        let base = self.base_path.as_str();
        let versioned = version::add_version(self, rest);
        let rest = versioned.as_deref().unwrap_or(rest);
        // Clients differ: some base URLs contain the version, some do not.
        let after_v1 = if rest == "/v1" {
            Some("")
        } else {
            rest.strip_prefix("/v1").filter(|r| r.starts_with('/'))
        };
        let says_base = rest
            .strip_prefix(base)
            .is_some_and(|r| r.is_empty() || r.starts_with('/'));
        let mut target = match after_v1 {
            _ if says_base => rest.to_owned(),
            Some(after) if base.ends_with("/v1") => format!("{base}{after}"),
            _ => format!("{base}{rest}"),
        };
        if target.is_empty() {
            target.push('/');
        }
        if let Some(query) = query {
            target.push('?');
            target.push_str(query);
        }
        PathAndQuery::from_str(&target).ok()
    }
}

/// Returns `true` if a host (no port; IPv6 in brackets) is loopback, by name or by address.
pub fn is_loopback(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    bare.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}
