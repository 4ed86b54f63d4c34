//! The version in the paths of an API. Some clients expect it in the base URL, others add it to every path.
//!
//! The Anthropic SDKs add `/v1`. The AI SDK and agents that are built on it (opencode, continue) expect it in the base
//! URL (vercel/ai#15542, 2026-06). Google's SDKs add `/v1beta`, and the AI SDK does not.

use super::{ProviderKind, Upstream, kind::BUILT_IN};

/// The version of an API, and the first segments of the paths that have it.
///
/// A provider may have other paths beside it, such as `/api/oauth` of Anthropic, which stay as they are.
struct VersionedApi {
    version: &'static str,
    resources: &'static [&'static str],
}

/// The paths of Anthropic's API, and of the APIs that OpenAI has shaped.
const V1: VersionedApi = VersionedApi {
    version: "/v1",
    resources: &[
        "audio",
        "batches",
        "chat",
        "complete",
        "completions",
        "conversations",
        "embeddings",
        "files",
        "images",
        "messages",
        "models",
        "moderations",
        "responses",
    ],
};

/// The paths of Google's API.
const V1_BETA: VersionedApi = VersionedApi {
    version: "/v1beta",
    resources: &["cachedContents", "files", "models", "openai", "tunedModels"],
};

/// Prefixes under which a provider has the API of another one: `/anthropic` of Moonshot, `/openai` of Groq.
const FOREIGN_APIS: [&str; 2] = ["/anthropic", "/openai"];

/// Returns `rest` with the version of the upstream's API. `None` if it has one, or if none is known to belong there.
pub(super) fn add_version(upstream: &Upstream, rest: &str) -> Option<String> {
    let api = versioned_api(upstream)?;
    let base = upstream.base_path.as_str();
    // A base path with a version of its own is complete, whatever the client sends.
    if base.split('/').any(is_version) {
        return None;
    }
    let after_base = rest.strip_prefix(base).filter(|after| after.starts_with('/'));
    let path = after_base.unwrap_or(rest);
    let begins_with_resource = |path: &str| {
        let segment = path.strip_prefix('/').and_then(|path| path.split('/').next());
        segment.is_some_and(|segment| api.resources.contains(&segment))
    };
    let after_foreign = || FOREIGN_APIS.iter().find_map(|prefix| path.strip_prefix(prefix));
    let path = if begins_with_resource(path) {
        path
    } else {
        after_foreign().filter(|path| begins_with_resource(path))?
    };
    let before = rest.strip_suffix(path)?;
    Some(format!("{before}{}{path}", api.version))
}

/// Returns the API of an upstream all of whose paths have a version. `None` if it may have others.
fn versioned_api(upstream: &Upstream) -> Option<VersionedApi> {
    match upstream.kind {
        ProviderKind::Anthropic => Some(V1),
        ProviderKind::Gemini => Some(V1_BETA),
        // Gateways of these formats may have no version at all, so only the providers' own hosts count.
        ProviderKind::OpenAi | ProviderKind::Mistral | ProviderKind::Xai | ProviderKind::Compatible => {
            let host = upstream.authority.host();
            BUILT_IN.iter().any(|row| row.has_host(host)).then_some(V1)
        }
        _ => None,
    }
}

/// Returns `true` for a segment such as `v1` or `v1beta`.
fn is_version(segment: &str) -> bool {
    let digits = segment.strip_prefix('v');
    digits.is_some_and(|digits| digits.starts_with(|first: char| first.is_ascii_digit()))
}
