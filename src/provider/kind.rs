//! The table of providers: the location of each API, and the dialect in which each reads a format.

use super::aws_region;
use crate::{
    labels::labelled_enum,
    wire::{Dialect, Format, Wire},
};

labelled_enum! {
    /// The API of an upstream. It selects the dialect and the form of the proxy's errors.
    pub enum ProviderKind {
        /// Anthropic.
        Anthropic = "anthropic",
        /// OpenAI.
        OpenAi = "openai",
        /// Google Gemini.
        Gemini = "gemini",
        /// Amazon Bedrock.
        Bedrock = "bedrock",
        /// Azure.
        Azure = "azure",
        /// Google Vertex AI.
        Vertex = "vertex",
        /// DeepSeek.
        DeepSeek = "deepseek",
        /// Mistral.
        Mistral = "mistral",
        /// xAI.
        Xai = "xai",
        /// MiniMax.
        MiniMax = "minimax",
        /// Any other server that speaks one of the formats.
        Compatible = "compatible",
    }
}

/// A row of [`BUILT_IN`].
#[derive(Clone, Copy, Debug)]
pub struct BuiltInProvider {
    /// The name of the upstream.
    pub name: &'static str,
    /// The API.
    pub kind: ProviderKind,
    /// The base URL; `None` if each customer has another host, so that the configuration must name it.
    pub url: Option<&'static str>,
}

/// The upstreams that need no configuration, and the names that imply a kind.
pub const BUILT_IN: &[BuiltInProvider] = &[
    built_in_row("anthropic", ProviderKind::Anthropic, Some("https://api.anthropic.com")),
    built_in_row("openai", ProviderKind::OpenAi, Some("https://api.openai.com")),
    built_in_row(
        "gemini",
        ProviderKind::Gemini,
        Some("https://generativelanguage.googleapis.com"),
    ),
    built_in_row("deepseek", ProviderKind::DeepSeek, Some("https://api.deepseek.com")),
    built_in_row("mistral", ProviderKind::Mistral, Some("https://api.mistral.ai")),
    built_in_row("xai", ProviderKind::Xai, Some("https://api.x.ai")),
    built_in_row("groq", ProviderKind::Compatible, Some("https://api.groq.com")),
    built_in_row(
        "openrouter",
        ProviderKind::Compatible,
        Some("https://openrouter.ai/api"),
    ),
    built_in_row("moonshot", ProviderKind::Compatible, Some("https://api.moonshot.ai")),
    built_in_row("bedrock", ProviderKind::Bedrock, None),
    built_in_row("azure", ProviderKind::Azure, None),
    built_in_row("vertex", ProviderKind::Vertex, None),
];

impl BuiltInProvider {
    /// Returns `true` for its host, and for a regional one such as `eu.api.openai.com`.
    pub(super) fn has_host(&self, host: &str) -> bool {
        let region = self.url.and_then(|url| host.strip_suffix(host_of(url)));
        region.is_some_and(|region| region.is_empty() || region.ends_with('.'))
    }
}

const fn built_in_row(name: &'static str, kind: ProviderKind, url: Option<&'static str>) -> BuiltInProvider {
    BuiltInProvider { name, kind, url }
}

/// Host patterns that imply a kind, beyond [`BUILT_IN`] and Amazon's hosts, which [`aws_region`] knows.
///
/// `*` stands for text within a label. A first label that is `*` alone stands for one label or more.
const HOST_PATTERNS: &[(&str, ProviderKind)] = &[
    ("*.openai.azure.com", ProviderKind::Azure),
    ("*.openai.azure.us", ProviderKind::Azure),
    ("*.openai.azure.cn", ProviderKind::Azure),
    ("*.cognitiveservices.azure.com", ProviderKind::Azure),
    ("*.cognitiveservices.azure.us", ProviderKind::Azure),
    ("*.cognitiveservices.azure.cn", ProviderKind::Azure),
    ("*.services.ai.azure.com", ProviderKind::Azure),
    // Global, of one region, and of several: new models are often only at the last.
    ("aiplatform.googleapis.com", ProviderKind::Vertex),
    ("*-aiplatform.googleapis.com", ProviderKind::Vertex),
    ("aiplatform.*.rep.googleapis.com", ProviderKind::Vertex),
    ("api.minimax.io", ProviderKind::MiniMax),
    ("api-*.minimax.io", ProviderKind::MiniMax),
    ("api.minimaxi.com", ProviderKind::MiniMax),
    ("api-*.minimaxi.com", ProviderKind::MiniMax),
    // Code Assist, which gemini-cli uses for users with a Google account.
    ("cloudcode-pa.googleapis.com", ProviderKind::Gemini),
];

/// Hosts of a format's author that have another kind, since their paths are their own.
const AUTHOR_HOSTS: &[(&str, ProviderKind)] = &[
    // The backend of Codex, for users with a ChatGPT login.
    ("chatgpt.com", ProviderKind::OpenAi),
];

/// Returns `true` if a host (no port) belongs to the author of a format, or to a cloud that sells the author's models.
///
/// Its errors are what clients of the format expect. An upstream of the author's kind at another host is a gateway.
pub(super) fn is_author_host(host: &str, format: Format) -> bool {
    let known = AUTHOR_HOSTS.iter().find(|(known, _)| known.eq_ignore_ascii_case(host));
    let kind = known.map_or_else(|| ProviderKind::infer_kind("", host), |(_, kind)| *kind);
    match format {
        Format::Anthropic => matches!(
            kind,
            ProviderKind::Anthropic | ProviderKind::Bedrock | ProviderKind::Vertex | ProviderKind::Azure
        ),
        Format::OpenAiChat | Format::OpenAiResponses => matches!(kind, ProviderKind::OpenAi | ProviderKind::Azure),
        Format::Gemini => matches!(kind, ProviderKind::Gemini | ProviderKind::Vertex),
    }
}

impl ProviderKind {
    /// Returns the header in which clients send their credential.
    pub const fn credential_header(self) -> &'static str {
        match self {
            Self::Anthropic => "x-api-key",
            Self::Gemini => "x-goog-api-key",
            Self::Azure => "api-key",
            // OpenAI and compatible APIs, and Bedrock and Vertex with a bearer token.
            _ => "authorization",
        }
    }

    /// Infers the kind of an upstream: by its name, else by its host (no port), else [`ProviderKind::Compatible`].
    pub fn infer_kind(name: &str, host: &str) -> Self {
        // Host names are case-insensitive.
        let host = host.to_ascii_lowercase();
        let by_name = || BUILT_IN.iter().find(|row| row.name == name).map(|row| row.kind);
        // MiniMax has a host for each region, so it has no row.
        let minimax = || (name == Self::MiniMax.label()).then_some(Self::MiniMax);
        let by_url = || {
            let row = BUILT_IN.iter().find(|row| row.has_host(&host));
            row.map(|row| row.kind)
        };
        let by_host = || {
            let known = HOST_PATTERNS.iter().find(|(pattern, _)| matches_host(pattern, &host));
            known.map(|(_, kind)| *kind)
        };
        let bedrock = || aws_region(&host).map(|_| Self::Bedrock);
        // The name first: an operator who calls an upstream `anthropic` behind a gateway means the API.
        by_name()
            .or_else(minimax)
            .or_else(by_url)
            .or_else(bedrock)
            .or_else(by_host)
            .unwrap_or(Self::Compatible)
    }

    /// Returns the dialect in which upstreams of this kind read a format, always one of [`Wire::NAMES`].
    pub(super) const fn wire_for(self, format: Format) -> Wire {
        let dialect = match (self, format) {
            // Google's rules are the same on every host.
            (_, Format::Gemini)
            | (
                Self::Anthropic | Self::OpenAi | Self::Azure,
                Format::Anthropic | Format::OpenAiChat | Format::OpenAiResponses,
            )
            | (Self::Vertex, Format::Anthropic) => Dialect::Standard,
            (Self::Bedrock, Format::Anthropic) => Dialect::Bedrock,
            (Self::DeepSeek, Format::Anthropic | Format::OpenAiChat | Format::OpenAiResponses) => Dialect::DeepSeek,
            (Self::Mistral, Format::OpenAiChat) => Dialect::Mistral,
            (Self::Xai, Format::OpenAiChat) => Dialect::Xai,
            (Self::MiniMax, Format::Anthropic | Format::OpenAiChat) => Dialect::MiniMax,
            // Nothing is known about such a server beyond the format.
            (_, Format::Anthropic | Format::OpenAiChat | Format::OpenAiResponses) => Dialect::Compatible,
        };
        Wire { format, dialect }
    }
}

/// Returns `true` if all labels of a host match a pattern.
fn matches_host(pattern: &str, host: &str) -> bool {
    if let Some(end) = pattern.strip_prefix('*').filter(|end| end.starts_with('.')) {
        return host.strip_suffix(end).is_some_and(|labels| !labels.is_empty());
    }
    let mut labels = host.split('.');
    let mut known = pattern.split('.');
    known.all(|known| labels.next().is_some_and(|label| matches_label(known, label))) && labels.next().is_none()
}

fn matches_label(pattern: &str, label: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == label,
        Some((start, end)) => {
            let inner = label.strip_prefix(start).and_then(|rest| rest.strip_suffix(end));
            inner.is_some_and(|inner| !inner.is_empty())
        }
    }
}

fn host_of(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.split_once('/').map_or(rest, |(host, _)| host)
}
