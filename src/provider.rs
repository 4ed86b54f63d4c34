//! The table of providers: names, hosts, paths and credential headers → upstream and wire format. Never opens a socket.

use http::uri::{Authority, PathAndQuery, Scheme};

use crate::{repair::Mode, wire::Wire};

/// Whose API an upstream speaks: decides the dialect and the shape of our errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// api.anthropic.com.
    Anthropic,
    /// api.openai.com.
    OpenAi,
    /// generativelanguage.googleapis.com.
    Gemini,
    /// Amazon Bedrock.
    Bedrock,
    /// Azure `OpenAI`.
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

/// One configured provider endpoint.
#[derive(Clone, Debug)]
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

/// Where one request goes.
#[derive(Clone, Debug)]
pub struct Route<'a> {
    /// The upstream.
    pub upstream: &'a Upstream,
    /// Path and query to ask there.
    pub target: PathAndQuery,
    /// The format of its history; none for a path that carries none.
    pub wire: Option<Wire>,
}

/// Why a request goes nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRoute {
    /// Dot segments, encoded slashes, backslashes or double encoding.
    BadPath,
    /// No upstream has this path.
    Unknown,
}

/// The configured upstreams and the way to them.
#[derive(Clone, Debug)]
pub struct Routes {
    upstreams: Vec<Upstream>,
}

impl Routes {
    /// Routes to `upstreams`.
    pub fn new(upstreams: Vec<Upstream>) -> Self {
        Self { upstreams }
    }

    /// The upstreams, in the order of the configuration.
    pub fn upstreams(&self) -> &[Upstream] {
        &self.upstreams
    }

    /// Finds the upstream, the target there and the format of one request.
    pub fn route(
        &self,
        _method: &http::Method,
        target: &PathAndQuery,
        _headers: &http::HeaderMap,
    ) -> Result<Route<'_>, NoRoute> {
        let text = target.as_str();
        if text.contains("..") || text.contains('\\') || text.to_ascii_lowercase().contains("%2f") {
            return Err(NoRoute::BadPath);
        }
        let found = self.upstreams.iter().find_map(|upstream| {
            let rest = text.strip_prefix('/')?.strip_prefix(upstream.name.as_str())?;
            rest.starts_with('/').then_some((upstream, rest))
        });
        let (upstream, rest) = found.ok_or(NoRoute::Unknown)?;
        let target = format!("{}{rest}", upstream.base_path)
            .parse()
            .map_err(|_| NoRoute::BadPath)?;
        let path = rest.split('?').next().unwrap_or_default();
        let wire = if path.ends_with("/v1/messages") {
            Some(Wire::ANTHROPIC)
        } else if path.ends_with("/chat/completions") {
            Some(Wire::OPENAI_CHAT)
        } else {
            None
        };
        Ok(Route { upstream, target, wire })
    }
}
