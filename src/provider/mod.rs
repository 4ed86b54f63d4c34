//! The table of providers: names, hosts, paths and credential headers → upstream and wire format. Never opens a socket.

use std::{net::IpAddr, str::FromStr};

use http::{
    HeaderMap, Method,
    uri::{Authority, PathAndQuery, Scheme},
};

use crate::{
    repair::Mode,
    wire::{Dialect, Format, Wire},
};

mod aws;
mod endpoint;
mod path;
mod route;
mod template;

pub use aws::{aws_region, aws_service};
pub use endpoint::asked_at;
use endpoint::wire_of;
pub(crate) use endpoint::{ENDPOINTS, is_gemini};
pub(crate) use path::is_plain;
pub use route::Route;
pub use template::Operation;

/// Whose API an upstream speaks: decides the dialect and the shape of our errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// api.anthropic.com.
    Anthropic,
    /// api.openai.com.
    OpenAi,
    /// generativelanguage.googleapis.com.
    Gemini,
    /// Amazon Bedrock.
    Bedrock,
    /// Azure OpenAI.
    Azure,
    /// Google Vertex AI.
    Vertex,
    /// api.deepseek.com.
    DeepSeek,
    /// api.mistral.ai.
    Mistral,
    /// api.x.ai.
    Xai,
    /// Anything else that speaks one of the formats.
    Compatible,
}

/// One row of [`BUILT_IN`].
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Name of the upstream.
    pub name: &'static str,
    /// Whose API it speaks.
    pub kind: Kind,
    /// Where it is; none where there is no host for everybody: defining it needs a URL.
    pub url: Option<&'static str>,
    /// The header in which clients send their credential.
    pub credential: &'static str,
}

/// The upstreams that need no configuration, and names that give an upstream its kind.
pub const BUILT_IN: &[Row] = &[
    row(
        "anthropic",
        Kind::Anthropic,
        Some("https://api.anthropic.com"),
        "x-api-key",
    ),
    row("openai", Kind::OpenAi, Some("https://api.openai.com"), "authorization"),
    row(
        "gemini",
        Kind::Gemini,
        Some("https://generativelanguage.googleapis.com"),
        "x-goog-api-key",
    ),
    row(
        "deepseek",
        Kind::DeepSeek,
        Some("https://api.deepseek.com"),
        "authorization",
    ),
    row(
        "mistral",
        Kind::Mistral,
        Some("https://api.mistral.ai"),
        "authorization",
    ),
    row("xai", Kind::Xai, Some("https://api.x.ai"), "authorization"),
    row("groq", Kind::Compatible, Some("https://api.groq.com"), "authorization"),
    row(
        "openrouter",
        Kind::Compatible,
        Some("https://openrouter.ai/api"),
        "authorization",
    ),
    row(
        "moonshot",
        Kind::Compatible,
        Some("https://api.moonshot.ai"),
        "authorization",
    ),
    row("bedrock", Kind::Bedrock, None, "authorization"),
    row("azure", Kind::Azure, None, "api-key"),
    row("vertex", Kind::Vertex, None, "authorization"),
];

const fn row(name: &'static str, kind: Kind, url: Option<&'static str>, credential: &'static str) -> Row {
    Row {
        name,
        kind,
        url,
        credential,
    }
}

/// How hosts that are not in [`BUILT_IN`] tell their kind: beginning, end, kind.
const HOSTS: &[(&str, &str, Kind)] = &[
    ("bedrock-runtime", ".amazonaws.com", Kind::Bedrock),
    ("bedrock-runtime", ".amazonaws.com.cn", Kind::Bedrock),
    ("bedrock-mantle", ".api.aws", Kind::Bedrock),
    ("", ".openai.azure.com", Kind::Azure),
    ("", ".openai.azure.us", Kind::Azure),
    ("", ".cognitiveservices.azure.com", Kind::Azure),
    ("", ".services.ai.azure.com", Kind::Azure),
    ("", "aiplatform.googleapis.com", Kind::Vertex),
    // Code Assist, which gemini-cli asks for users with a Google account.
    ("cloudcode-pa", ".googleapis.com", Kind::Gemini),
];

/// First path segments that mean something without a prefix: no upstream may take them for a name.
pub const RESERVED_NAMES: &[&str] = &["api", "ledger", "model", "upload", "v1", "v1beta"];

impl Kind {
    /// Every kind, in the order of the documentation.
    pub const ALL: [Self; 10] = [
        Self::Anthropic,
        Self::OpenAi,
        Self::Gemini,
        Self::Bedrock,
        Self::Azure,
        Self::Vertex,
        Self::DeepSeek,
        Self::Mistral,
        Self::Xai,
        Self::Compatible,
    ];

    /// The name in configuration.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic",
            Self::OpenAi => "openai",
            Self::Gemini => "gemini",
            Self::Bedrock => "bedrock",
            Self::Azure => "azure",
            Self::Vertex => "vertex",
            Self::DeepSeek => "deepseek",
            Self::Mistral => "mistral",
            Self::Xai => "xai",
            Self::Compatible => "compatible",
        }
    }

    /// The kind of an upstream that does not say: by its name, else by its host (without port), else [`Kind::Compatible`].
    pub fn of(name: &str, host: &str) -> Self {
        let host = host.to_ascii_lowercase();
        let by_name = || BUILT_IN.iter().find(|row| row.name == name).map(|row| row.kind);
        let by_url = || {
            let row = BUILT_IN
                .iter()
                .find(|row| row.url.is_some_and(|url| host_of(url) == host));
            row.map(|row| row.kind)
        };
        let by_host = || {
            let known = HOSTS
                .iter()
                .find(|(start, end, _)| host.starts_with(start) && host.ends_with(end));
            known.map(|(_, _, kind)| *kind)
        };
        by_name().or_else(by_url).or_else(by_host).unwrap_or(Self::Compatible)
    }

    /// How an upstream of this kind reads a format: always one of [`Wire::NAMES`].
    const fn wire(self, format: Format) -> Wire {
        let dialect = match (self, format) {
            // Google's rules are one and the same wherever they are met.
            (_, Format::Gemini)
            | (Self::Anthropic | Self::OpenAi | Self::Azure, _)
            | (Self::Vertex, Format::Anthropic) => Dialect::Standard,
            (Self::Bedrock, Format::Anthropic) => Dialect::Bedrock,
            (Self::DeepSeek, _) => Dialect::DeepSeek,
            (Self::Mistral, Format::OpenAiChat) => Dialect::Mistral,
            (Self::Xai, Format::OpenAiChat) => Dialect::Xai,
            _ => Dialect::Compatible,
        };
        Wire { format, dialect }
    }
}

fn host_of(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.split_once('/').map_or(rest, |(host, _)| host)
}

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
