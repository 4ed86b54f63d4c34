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
