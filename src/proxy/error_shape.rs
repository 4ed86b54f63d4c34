//! Selection of the shape in which the proxy's own errors are returned: each client gets the one that its SDK reads.

use http::{HeaderMap, HeaderName};

use crate::{
    ledger_api::is_ledger_path,
    provider::{ProviderKind, Route, is_gemini},
    wire::ErrorShape,
};

const ANTHROPIC_VERSION: HeaderName = HeaderName::from_static("anthropic-version");
const ANTHROPIC_KEY: HeaderName = HeaderName::from_static("x-api-key");
const GOOGLE_KEY: HeaderName = HeaderName::from_static("x-goog-api-key");

/// Returns the shape for a route.
pub(super) fn shape_for_route(route: &Route<'_>) -> ErrorShape {
    let (kind, format) = (route.upstream.kind, route.wire.map(|wire| wire.format));
    match (kind, format) {
        // Bedrock's SDKs read Amazon's errors, whatever the format of the model.
        (ProviderKind::Bedrock, _) => ErrorShape::Bedrock,
        (_, Some(format)) => format.error_shape(route.target.path()),
        (ProviderKind::Anthropic, None) => ErrorShape::Anthropic,
        (ProviderKind::Gemini | ProviderKind::Vertex, None) => ErrorShape::Gemini,
        _ => ErrorShape::OpenAi,
    }
}

/// Guesses the shape before a route is known.
pub fn guess_shape(path: &str, headers: &HeaderMap) -> ErrorShape {
    if is_ledger_path(path) {
        // Its errors have `error.code` and `error.message` as well, whichever credential the request contains.
        return ErrorShape::OpenAi;
    }
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
