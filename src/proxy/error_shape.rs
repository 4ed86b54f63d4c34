//! Selection of the shape in which the proxy's own errors are returned: each client gets the one that its SDK reads.

use http::{HeaderMap, HeaderName};

use crate::{
    provider::{ProviderKind, Route, is_gemini},
    wire::ErrorShape,
};

const ANTHROPIC_VERSION: HeaderName = HeaderName::from_static("anthropic-version");
const ANTHROPIC_KEY: HeaderName = HeaderName::from_static("x-api-key");
const GOOGLE_KEY: HeaderName = HeaderName::from_static("x-goog-api-key");

/// Returns the shape for a route.
pub(super) fn shape_for_route(route: &Route<'_>) -> ErrorShape {
    let by_format = |otherwise| {
        let path = route.target.path();
        route.wire.map_or(otherwise, |wire| wire.format.error_shape(path))
    };
    match route.upstream.kind {
        // Bedrock's SDKs read Amazon's errors, whatever the format of the model.
        ProviderKind::Bedrock => ErrorShape::Bedrock,
        ProviderKind::Anthropic => by_format(ErrorShape::Anthropic),
        ProviderKind::Gemini | ProviderKind::Vertex => by_format(ErrorShape::Gemini),
        ProviderKind::OpenAi
        | ProviderKind::Azure
        | ProviderKind::DeepSeek
        | ProviderKind::Mistral
        | ProviderKind::Xai
        | ProviderKind::MiniMax
        | ProviderKind::Compatible => by_format(ErrorShape::OpenAi),
    }
}

/// Guesses the shape before a route is known.
pub fn guess_shape(path: &str, headers: &HeaderMap) -> ErrorShape {
    // Each of these headers and paths belongs to one provider's SDKs. OpenAI's are the most widely imitated.
    if headers.contains_key(ANTHROPIC_VERSION) || headers.contains_key(ANTHROPIC_KEY) || path.contains("/messages") {
        ErrorShape::Anthropic
    } else if headers.contains_key(GOOGLE_KEY) || path.contains("/v1beta/") || is_gemini(path) {
        ErrorShape::Gemini
    } else if path.starts_with("/model/") {
        ErrorShape::Bedrock
    } else {
        ErrorShape::OpenAi
    }
}
