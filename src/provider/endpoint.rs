//! The path suffixes of requests that carry a history, and the format of each.

use super::{
    ProviderKind,
    template::{self, PostEffects},
};
use crate::wire::{Format, Wire};

/// Path suffixes that no base URL may have.
pub(crate) const HISTORY_SUFFIXES: [&str; 4] = ["/chat/completions", "/messages", "/responses", ":generateContent"];

/// Returns the path at which a format's own provider continues a conversation. Gemini's path contains `model`.
pub fn next_turn_path(format: Format, model: &str) -> String {
    match format {
        Format::Anthropic => "/v1/messages".to_owned(),
        Format::OpenAiChat => "/v1/chat/completions".to_owned(),
        Format::OpenAiResponses => "/v1/responses".to_owned(),
        Format::Gemini => format!("/v1beta/models/{model}:generateContent"),
    }
}

/// Chat Completions path suffixes of requests with histories. Mistral's agents take the same body.
const CHAT_SUFFIXES: [&str; 2] = ["/chat/completions", "/agents/completions"];

/// Publishers on Vertex AI whose models take the body of the publisher's own API, with the kind that reads it.
const PUBLISHERS: [(&str, ProviderKind, Format); 2] = [
    ("anthropic", ProviderKind::Vertex, Format::Anthropic),
    ("mistralai", ProviderKind::Mistral, Format::OpenAiChat),
];

/// Messages path suffixes of requests with histories. A batch has several.
const MESSAGES_SUFFIXES: [&str; 3] = ["/messages", "/messages/count_tokens", "/messages/batches"];

/// Responses path suffixes of requests with histories.
const RESPONSES_SUFFIXES: [&str; 3] = ["/responses", "/responses/compact", "/responses/input_tokens"];

/// Gemini, Vertex and Code Assist path suffixes of requests with histories.
const GEMINI_SUFFIXES: [&str; 4] = [
    ":generateContent",
    ":streamGenerateContent",
    ":countTokens",
    ":batchGenerateContent",
];

/// Returns the format and dialect of a path on this kind of upstream; `None` if it carries no history.
pub(super) fn wire_of(path: &str, kind: ProviderKind) -> Option<Wire> {
    let invoke = path
        .strip_suffix("/invoke")
        .or_else(|| path.strip_suffix("/invoke-with-response-stream"));
    // Bedrock and Vertex put Anthropic's body on paths of their own, whichever kind is configured.
    if let Some((_, model)) = invoke.and_then(|path| path.rsplit_once("/model/")) {
        return is_anthropic_model(model).then(|| ProviderKind::Bedrock.wire_for(Format::Anthropic));
    }
    if let Some((kind, format)) = publisher_of(path) {
        let predicts = [":rawPredict", ":streamRawPredict"]
            .iter()
            .any(|verb| path.ends_with(verb));
        return predicts.then(|| kind.wire_for(format));
    }
    if is_gemini(path) {
        return Some(kind.wire_for(Format::Gemini));
    }
    if CHAT_SUFFIXES.iter().any(|end| path.ends_with(end)) {
        return Some(kind.wire_for(Format::OpenAiChat));
    }
    // Adds items to a conversation that the provider stores.
    let items = path.ends_with("/items") && path.contains("/conversations/");
    if items || RESPONSES_SUFFIXES.iter().any(|end| path.ends_with(end)) {
        return Some(kind.wire_for(Format::OpenAiResponses));
    }
    // `/v1/threads/{id}/messages` adds one message to a thread that the provider stores.
    let messages = MESSAGES_SUFFIXES.iter().any(|end| path.ends_with(end));
    (messages && !template::has_segment(path, |segment| segment == b"threads"))
        .then(|| kind.wire_for(Format::Anthropic))
}

/// Returns the kind and the format of a path with a model of one of [`PUBLISHERS`]. `None` for any other path.
fn publisher_of(path: &str) -> Option<(ProviderKind, Format)> {
    if !template::has_segment(path, |segment| segment == b"publishers") {
        return None;
    }
    let (_, rest) = path.rsplit_once("/publishers/")?;
    let (name, _) = rest.split_once("/models/")?;
    let known = PUBLISHERS.iter().find(|(known, ..)| *known == name);
    known.map(|(_, kind, format)| (*kind, *format))
}

/// Returns the model in a path, still percent-encoded.
pub(super) fn model_of(path: &str) -> Option<&str> {
    // Most paths name none, and a search for each of the texts below costs more than this look at the segments.
    if !template::has_segment(path, |segment| matches!(segment, b"models" | b"model" | b"deployments")) {
        return None;
    }
    let (_, rest) = ["/models/", "/model/", "/deployments/"]
        .iter()
        .find_map(|segment| path.rsplit_once(segment))?;
    // Google appends the method to the model with a colon.
    let end = rest.find(['/', ':']).unwrap_or(rest.len());
    // Amazon's ids may contain colons: `anthropic.claude-v2:1/invoke`.
    let end = if path.contains("/model/") {
        rest.find('/').unwrap_or(end)
    } else {
        end
    };
    rest.get(..end).filter(|model| !model.is_empty())
}

/// Returns `true` if a path requests a stream. Other paths leave this to the body.
pub(super) fn is_stream(path: &str) -> bool {
    const ENDS: [&str; 4] = [
        ":streamGenerateContent",
        ":streamRawPredict",
        "/invoke-with-response-stream",
        "/converse-stream",
    ];
    ENDS.iter().any(|end| path.ends_with(end))
}

/// Returns `true` if a path with a history requests the next turn. Counts, compactions, storage and batches do not.
pub(super) fn asks_for_turn(path: &str) -> bool {
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

/// Returns `true` if a POST to this path creates something else than an answer. Unknown paths may do so.
pub(super) fn creates_object(path: &str, effects: PostEffects) -> bool {
    const ENDS: [&str; 5] = [
        "/count_tokens",
        "/input_tokens",
        ":countTokens",
        "/count-tokens",
        "/compact",
    ];
    !(effects.is_answered_at_once || ENDS.iter().any(|end| path.ends_with(end)))
}

/// Returns `true` if only Azure endpoints have such a path.
pub(super) fn is_azure(path: &str, query: Option<&str>) -> bool {
    let versioned = |query: &str| query.split('&').any(|pair| pair.starts_with("api-version="));
    template::has_segment(path, |segment| segment == b"deployments") || query.is_some_and(versioned)
}

/// Returns `true` if a Bedrock model id may be a Claude model. Bodies of other vendors differ. An ARN does not name the
/// vendor.
fn is_anthropic_model(id: &str) -> bool {
    id.starts_with("arn") || id.split('.').any(|label| label == "anthropic")
}

/// Returns `true` if a path calls a Google model. Newer SDKs use `/v1/models/{model}:generateContent`.
pub(crate) fn is_gemini(path: &str) -> bool {
    GEMINI_SUFFIXES.iter().any(|verb| path.ends_with(verb))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_turn_of_every_format_has_a_known_path() {
        for format in Format::ALL {
            let path = next_turn_path(format, "m");
            let found = wire_of(&path, ProviderKind::Compatible).map(|wire| wire.format);
            assert_eq!(found, Some(format), "{path}");
            assert!(HISTORY_SUFFIXES.iter().any(|end| path.ends_with(end)), "{path}");
            assert!(template::find_template(&path).is_some(), "{path}");
        }
    }

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

    #[test]
    fn only_an_answer_and_a_count_create_nothing() {
        for (path, creates) in [
            ("/v1/messages", false),
            ("/v1/messages/count_tokens", false),
            ("/v1/messages/batches", true),
            ("/v1/messages/batches/b_1/cancel", true),
            ("/v1/chat/completions", false),
            ("/v1/embeddings", false),
            ("/v1/responses", false),
            ("/v1/responses/compact", false),
            ("/v1/responses/input_tokens", false),
            ("/v1/conversations", true),
            ("/v1/conversations/conv_1/items", true),
            ("/v1/threads/t_1/messages", true),
            ("/v1/files", true),
            ("/v1/uploads", true),
            ("/v1/vector_stores", true),
            ("/v1/fine_tuning/jobs", true),
            ("/v1/containers", true),
            ("/v1/batches", true),
            ("/v1beta/models/m:generateContent", false),
            ("/v1beta/models/m:countTokens", false),
            ("/v1beta/models/m:batchGenerateContent", true),
            ("/model/m/converse", false),
            ("/model/m/count-tokens", false),
            ("/async-invoke", true),
        ] {
            assert_eq!(creates_object(path, template::post_effects(path)), creates, "{path}");
        }
    }
}
