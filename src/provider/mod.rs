//! The table of providers: names, hosts, paths and credential headers → upstream and wire format. Never opens a socket.

use std::{net::IpAddr, str::FromStr};

use http::{
    HeaderMap, Method,
    uri::{Authority, PathAndQuery, Scheme},
};

use crate::repair::Mode;

mod aws;
mod endpoint;
mod kind;
mod path;
mod route;
mod template;

pub use aws::{aws_region, aws_service};
pub use endpoint::asked_at;
use endpoint::wire_of;
pub(crate) use endpoint::{ENDPOINTS, is_gemini};
pub use kind::{BUILT_IN, Kind, Row};
pub(crate) use path::is_plain;
pub use route::Route;
pub use template::Operation;

/// First path segments that mean something without a prefix: no upstream may take them for a name.
pub const RESERVED_NAMES: &[&str] = &["api", "ledger", "model", "upload", "v1", "v1beta"];

/// One configured provider endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upstream {
    /// The name: its path prefix, and its label in metrics and logs.
    pub name: String,
    /// Whose API it speaks.
    pub kind: Kind,
    /// `http` or `https`.
    pub scheme: Scheme,
    /// Host and port.
    pub authority: Authority,
    /// Path that is put in front of every request's; empty, or begins with a slash and ends without one.
    pub base_path: String,
    /// What its routes do about findings.
    pub mode: Mode,
}

/// Why a request goes nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum NoRoute {
    /// The path could be read in two ways: dot segments, encoded slashes, backslashes, control characters. Answer 400.
    #[error("the path has dot segments, encoded slashes, backslashes or control characters")]
    BadPath,
    /// No upstream owns the path. Answer 404 with [`Routes::base_urls`].
    #[error("no upstream owns this path")]
    Unknown,
}

/// The configured upstreams, and the way from a request to one of them.
#[derive(Clone, Debug)]
pub struct Routes {
    upstreams: Vec<Upstream>,
}

impl Routes {
    /// Routes over `upstreams`. Of two with one name the first is used.
    pub const fn new(upstreams: Vec<Upstream>) -> Self {
        Self { upstreams }
    }

    /// The upstreams, in the order in which they were given.
    pub fn upstreams(&self) -> &[Upstream] {
        &self.upstreams
    }

    /// Where a request goes. The path that is asked there is the client's own, byte for byte, behind the upstream's
    /// base path and without the prefix; the host is never taken from the request.
    pub fn route(&self, method: &Method, target: &PathAndQuery, headers: &HeaderMap) -> Result<Route<'_>, NoRoute> {
        let path = target.path();
        if !is_plain(path) {
            return Err(NoRoute::BadPath);
        }
        let (upstream, rest) = match self.by_prefix(path) {
            Some(found) => found,
            None => (self.by_shape(path, headers).ok_or(NoRoute::Unknown)?, path),
        };
        if rest.starts_with("//") {
            return Err(NoRoute::BadPath);
        }
        if upstream.kind != Kind::Azure && endpoint::is_azure(path, target.query()) {
            return Err(NoRoute::Unknown);
        }
        let wire = if *method == Method::POST {
            wire_of(rest, upstream.kind)
        } else {
            None
        };
        // The client's part alone: a base path may hold any word.
        let asks_model = *method == Method::POST && template::asks_model(rest);
        let target = upstream.target(rest, target.query()).ok_or(NoRoute::BadPath)?;
        Ok(Route {
            upstream,
            target,
            wire,
            asks_model,
        })
    }

    /// Name and base URL of every upstream, as a client on `host` (`name:port`) sets it.
    pub fn base_urls(&self, host: &str) -> Vec<(String, String)> {
        let base = |upstream: &Upstream| {
            let version = if upstream.kind == Kind::OpenAi { "/v1" } else { "" };
            (
                upstream.name.clone(),
                format!("http://{host}/{}{version}", upstream.name),
            )
        };
        self.upstreams.iter().map(base).collect()
    }

    fn named(&self, name: &str) -> Option<&Upstream> {
        self.upstreams.iter().find(|upstream| upstream.name == name)
    }

    /// The upstream whose name is the first segment, and the path behind it.
    fn by_prefix<'p>(&self, path: &'p str) -> Option<(&Upstream, &'p str)> {
        let inner = path.strip_prefix('/')?;
        let end = inner.find('/').unwrap_or(inner.len());
        let (name, rest) = inner.split_at_checked(end)?;
        Some((self.named(name)?, rest))
    }

    /// The upstream of a path without prefix, for clients whose base URL is only the host.
    fn by_shape(&self, path: &str, headers: &HeaderMap) -> Option<&Upstream> {
        let bears = |row: &Row, name: &str| row.name == name && headers.contains_key(row.credential);
        let sent = |name: &str| BUILT_IN.iter().any(|row| bears(row, name));
        let v1 = path.starts_with("/v1/");
        // A Google Cloud path, whose credential opens far more than a model: only ever by the upstream's prefix.
        let cloud = path.starts_with("/v1/projects/");
        let messages = path == "/v1/messages" || path.starts_with("/v1/messages/") || path.starts_with("/api/");
        if messages || (v1 && (headers.contains_key("anthropic-version") || sent("anthropic"))) {
            self.named("anthropic")
        } else if path.starts_with("/v1beta/")
            || path.starts_with("/upload/")
            || sent("gemini")
            || (v1 && is_gemini(path) && !cloud)
        {
            self.named("gemini")
        } else if path.starts_with("/model/") {
            self.named("bedrock")
        } else if v1 && !cloud {
            self.named("openai")
        } else {
            None
        }
    }
}

impl Upstream {
    /// The path to ask for: base path and `rest`, with no part of the base path said twice.
    fn target(&self, rest: &str, query: Option<&str>) -> Option<PathAndQuery> {
        let base = self.base_path.as_str();
        let behind_v1 = if rest == "/v1" {
            Some("")
        } else {
            rest.strip_prefix("/v1").filter(|r| r.starts_with('/'))
        };
        let says_base = rest
            .strip_prefix(base)
            .is_some_and(|r| r.is_empty() || r.starts_with('/'));
        let mut target = match behind_v1 {
            _ if says_base => rest.to_owned(),
            Some(behind) if base.ends_with("/v1") => format!("{base}{behind}"),
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

/// Whether a host (no port; IPv6 in brackets) is this machine's own loopback, by name or by address.
pub fn is_loopback(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    bare.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}
