//! The ends of paths that carry a history, and the format that each tells.

use super::Kind;
use crate::wire::{Format, Wire};

/// Endings of paths that carry a history: no base URL ends so.
pub(crate) const ENDPOINTS: [&str; 4] = ["/chat/completions", "/messages", "/responses", ":generateContent"];

/// Where the author of a format takes a history and answers with the next turn; `model` where the path names it.
pub fn asked_at(format: Format, model: &str) -> String {
    match format {
        Format::Anthropic => "/v1/messages".to_owned(),
        Format::OpenAiChat => "/v1/chat/completions".to_owned(),
        Format::OpenAiResponses => "/v1/responses".to_owned(),
        Format::Gemini => format!("/v1beta/models/{model}:generateContent"),
    }
}

/// Ends of Messages paths that carry histories; a batch carries many.
const MESSAGES_ENDS: [&str; 3] = ["/messages", "/messages/count_tokens", "/messages/batches"];

/// Ends of Responses paths that carry histories.
const RESPONSES_ENDS: [&str; 3] = ["/responses", "/responses/compact", "/responses/input_tokens"];

/// Ends of Gemini, Vertex and Code Assist paths that carry histories.
const GEMINI_VERBS: [&str; 4] = [
    ":generateContent",
    ":streamGenerateContent",
    ":countTokens",
    ":batchGenerateContent",
];

/// The format that the end of a path tells, as this kind of upstream reads it.
pub(super) fn wire_of(path: &str, kind: Kind) -> Option<Wire> {
    let invoke = path
        .strip_suffix("/invoke")
        .or_else(|| path.strip_suffix("/invoke-with-response-stream"));
    if let Some((_, model)) = invoke.and_then(|path| path.rsplit_once("/model/")) {
        return is_anthropic_model(model).then(|| Kind::Bedrock.wire(Format::Anthropic));
    }
    if let Some((_, model)) = path.rsplit_once("/publishers/anthropic/models/") {
        let predicts = [":rawPredict", ":streamRawPredict"]
            .iter()
            .any(|verb| model.ends_with(verb));
        return predicts.then(|| Kind::Vertex.wire(Format::Anthropic));
    }
    if is_gemini(path) {
        return Some(kind.wire(Format::Gemini));
    }
    if path.ends_with("/chat/completions") {
        return Some(kind.wire(Format::OpenAiChat));
    }
    let items = path.ends_with("/items") && path.contains("/conversations/");
    if items || RESPONSES_ENDS.iter().any(|end| path.ends_with(end)) {
        return Some(kind.wire(Format::OpenAiResponses));
    }
    // `/v1/threads/{id}/messages` adds one message to a thread that the provider holds.
    let messages = MESSAGES_ENDS.iter().any(|end| path.ends_with(end));
    (messages && !path.contains("/threads/")).then(|| kind.wire(Format::Anthropic))
}

/// The model that a path names, still percent-encoded.
pub(super) fn model_of(path: &str) -> Option<&str> {
    let (_, rest) = ["/models/", "/model/", "/deployments/"]
        .iter()
        .find_map(|segment| path.rsplit_once(segment))?;
    let end = rest.find(['/', ':']).unwrap_or(rest.len());
    // Amazon's ids hold colons of their own: `anthropic.claude-v2:1/invoke`.
    let end = if path.contains("/model/") {
        rest.find('/').unwrap_or(end)
    } else {
        end
    };
    rest.get(..end).filter(|model| !model.is_empty())
}

/// Whether a path asks for a stream, where the body does not say.
pub(super) fn is_stream(path: &str) -> bool {
    const ENDS: [&str; 4] = [
        ":streamGenerateContent",
        ":streamRawPredict",
        "/invoke-with-response-stream",
        "/converse-stream",
    ];
    ENDS.iter().any(|end| path.ends_with(end))
}

/// Whether a path that carries a history asks for the next turn: not where it is counted, compacted, stored, or one of many.
pub(super) fn asks_for_a_turn(path: &str) -> bool {
    const ENDS: [&str; 7] = [
        "/count_tokens",
        "/batches",
        "/compact",
        "/input_tokens",
        "/items",
        ":countTokens",
        ":batchGenerateContent",
    ];
    !ENDS.iter().any(|end| path.ends_with(end))
}

/// Whether only an Azure endpoint has such a path.
pub(super) fn is_azure(path: &str, query: Option<&str>) -> bool {
    let versioned = |query: &str| query.split('&').any(|pair| pair.starts_with("api-version="));
    path.contains("/deployments/") || query.is_some_and(versioned)
}

/// Whether a Bedrock model id may stand for a Claude: other vendors' bodies have other shapes. An ARN does not tell.
fn is_anthropic_model(id: &str) -> bool {
    id.starts_with("arn") || id.split('.').any(|label| label == "anthropic")
}

/// Whether a path asks a model of Google's: newer SDKs say `/v1/models/{model}:generateContent`.
pub(crate) fn is_gemini(path: &str) -> bool {
    GEMINI_VERBS.iter().any(|verb| path.ends_with(verb))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_may_name_the_model_and_ask_for_a_stream() {
        for (path, model, stream) in [
            ("/v1/messages", None, false),
            (
                "/v1beta/models/gemini-3-pro:generateContent",
                Some("gemini-3-pro"),
                false,
            ),
            (
                "/v1beta/models/gemini-3-pro:streamGenerateContent",
                Some("gemini-3-pro"),
                true,
            ),
            ("/v1/models", None, false),
            (
                "/model/anthropic.claude-v2:1/invoke",
                Some("anthropic.claude-v2:1"),
                false,
            ),
            (
                "/model/us.anthropic.claude-opus-4-v1%3A0/invoke-with-response-stream",
                Some("us.anthropic.claude-opus-4-v1%3A0"),
                true,
            ),
            (
                "/v1/projects/p/locations/l/publishers/anthropic/models/claude-opus@1:streamRawPredict",
                Some("claude-opus@1"),
                true,
            ),
            ("/openai/deployments/gpt-5/chat/completions", Some("gpt-5"), false),
        ] {
            assert_eq!((model_of(path), is_stream(path)), (model, stream), "{path}");
        }
    }
}
