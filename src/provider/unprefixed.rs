//! The upstream of a path without a prefix, for clients whose base URL is only the host.
//!
//! A wrong guess would send the client's key to another provider. A path that does not show its provider needs a prefix.

use http::HeaderMap;

use super::{ProviderKind, RouteError, is_gemini};

/// Paths that need a prefix, and the API that they belong to. A path that ends with a slash stands for all below it.
const AMBIGUOUS_PATHS: [(&str, &str); 15] = [
    ("/api/chat", "Ollama"),
    ("/api/embed", "Ollama"),
    ("/api/embeddings", "Ollama"),
    ("/api/generate", "Ollama"),
    ("/api/ps", "Ollama"),
    ("/api/show", "Ollama"),
    ("/api/tags", "Ollama"),
    ("/api/version", "Ollama"),
    ("/v1/chat", "Cohere"),
    ("/v2/chat", "Cohere"),
    ("/v1/agents/completions", "Mistral"),
    ("/v1/fim/completions", "Mistral"),
    // Credentials of Google Cloud allow far more than models.
    ("/v1/projects/", "Google Cloud"),
    ("/v1/publishers/", "Google Cloud"),
    ("/v1beta1/", "Google Cloud"),
];

/// First segments of Anthropic's own paths below `/api/`, as Claude Code calls them (2.1, 2026-11). A segment that ends
/// with an underscore stands for all that begin with it.
const ANTHROPIC_SEGMENTS: [&str; 7] = [
    "claude_",
    "eval",
    "event_logging",
    "hello",
    "oauth",
    "organizations",
    "web",
];

/// Headers that only clients of Anthropic's API send.
const ANTHROPIC_HEADERS: [&str; 2] = ["anthropic-version", "anthropic-beta"];

/// Returns the name of the upstream that a path without a prefix means.
pub(super) fn shaped_upstream(path: &str, headers: &HeaderMap) -> Result<&'static str, RouteError> {
    if let Some(api) = ambiguous_api(path) {
        return Err(RouteError::PrefixNeeded(api));
    }
    // The header of the credential reveals the provider that the client means.
    let sent = |kind: ProviderKind| headers.contains_key(kind.credential_header());
    let v1 = path.starts_with("/v1/");
    // Anthropic first: `/v1/` alone would select OpenAI below.
    if is_anthropic(path, headers)
        || (v1 && (headers.contains_key("anthropic-version") || sent(ProviderKind::Anthropic)))
    {
        Ok("anthropic")
    } else if path.starts_with("/v1beta/")
        || path.starts_with("/upload/v1beta/")
        || sent(ProviderKind::Gemini)
        || (v1 && is_gemini(path))
    {
        Ok("gemini")
    } else if path.starts_with("/model/") {
        Ok("bedrock")
    } else if v1 {
        Ok("openai")
    } else {
        Err(RouteError::UnknownPath)
    }
}

/// Returns the API of a path that needs a prefix. `None` for any other path.
fn ambiguous_api(path: &str) -> Option<&'static str> {
    let mut known = AMBIGUOUS_PATHS.iter();
    let known = known.find(|(known, _)| *known == path || (known.ends_with('/') && path.starts_with(known)));
    known.map(|(_, api)| *api)
}

/// Returns `true` for a path that only Anthropic has, or that a client of its API calls.
fn is_anthropic(path: &str, headers: &HeaderMap) -> bool {
    let Some(inner) = path.strip_prefix("/api/") else {
        return path == "/v1/messages" || path.starts_with("/v1/messages/");
    };
    let first = inner.split('/').next().unwrap_or_default();
    let is_known = |known: &&str| *known == first || (known.ends_with('_') && first.starts_with(known));
    ANTHROPIC_SEGMENTS.iter().any(is_known) || ANTHROPIC_HEADERS.iter().any(|name| headers.contains_key(*name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_path_needs_a_prefix_and_is_anthropics_too() {
        for (path, _) in AMBIGUOUS_PATHS {
            assert!(!is_anthropic(path, &HeaderMap::new()), "{path}");
        }
    }
}
