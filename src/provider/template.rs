//! Templates of the providers' API paths, and the model operation of each. A template contains no word of a client.

/// A model operation, by the OpenTelemetry conventions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ModelOperation {
    /// The next turn of a conversation.
    Chat,
    /// The next turn of a conversation, in Google's API.
    GenerateContent,
    /// The completion of a text.
    TextCompletion,
    /// Embeddings of texts.
    Embeddings,
}

/// The work that a POST to a path causes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PostWork {
    /// A model answers. The operation is `None` if the conventions have no name for it.
    Model(Option<ModelOperation>),
    /// No model answers: the provider counts, lists or stores.
    Nothing,
}

use ModelOperation::{Chat, Embeddings, GenerateContent, TextCompletion};
use PostWork::{Model, Nothing};

/// Suffix, template and work of each path. A longer suffix precedes the suffixes that it ends with.
#[rustfmt::skip]
const TEMPLATES: &[(&str, &str, PostWork)] = &[
    ("/messages/count_tokens", "/v1/messages/count_tokens", Nothing),
    ("/messages/batches", "/v1/messages/batches", Nothing),
    ("/messages", "/v1/messages", Model(Some(Chat))),
    ("/complete", "/v1/complete", Model(Some(TextCompletion))),
    ("/chat/completions", "/v1/chat/completions", Model(Some(Chat))),
    ("/agents/completions", "/v1/agents/completions", Model(Some(Chat))),
    ("/completions", "/v1/completions", Model(Some(TextCompletion))),
    ("/embeddings", "/v1/embeddings", Model(Some(Embeddings))),
    ("/responses/compact", "/v1/responses/compact", Model(None)),
    ("/responses/input_tokens", "/v1/responses/input_tokens", Nothing),
    ("/responses", "/v1/responses", Model(Some(Chat))),
    ("/images/generations", "/v1/images/generations", Model(None)),
    ("/images/edits", "/v1/images/edits", Model(None)),
    ("/images/variations", "/v1/images/variations", Model(None)),
    ("/audio/speech", "/v1/audio/speech", Model(None)),
    ("/audio/transcriptions", "/v1/audio/transcriptions", Model(None)),
    ("/audio/translations", "/v1/audio/translations", Model(None)),
    ("/videos", "/v1/videos", Model(None)),
    ("/moderations", "/v1/moderations", Model(None)),
    ("/rerank", "/v1/rerank", Model(None)),
    ("/ocr", "/v1/ocr", Model(None)),
    ("/models", "/v1/models", Nothing),
    (":generateContent", "/v1beta/models/{model}:generateContent", Model(Some(GenerateContent))),
    (":streamGenerateContent", "/v1beta/models/{model}:streamGenerateContent", Model(Some(GenerateContent))),
    (":countTokens", "/v1beta/models/{model}:countTokens", Nothing),
    (":batchGenerateContent", "/v1beta/models/{model}:batchGenerateContent", Nothing),
    (":embedContent", "/v1beta/models/{model}:embedContent", Model(Some(Embeddings))),
    (":batchEmbedContents", "/v1beta/models/{model}:batchEmbedContents", Model(Some(Embeddings))),
    (":predict", "/v1beta/models/{model}:predict", Model(None)),
    (":predictLongRunning", "/v1beta/models/{model}:predictLongRunning", Model(None)),
    ("/interactions", "/v1beta/interactions", Model(None)),
    (":rawPredict", "/v1/publishers/{publisher}/models/{model}:rawPredict", Model(Some(Chat))),
    (":streamRawPredict", "/v1/publishers/{publisher}/models/{model}:streamRawPredict", Model(Some(Chat))),
    ("/invoke", "/model/{model}/invoke", Model(Some(Chat))),
    ("/invoke-with-response-stream", "/model/{model}/invoke-with-response-stream", Model(Some(Chat))),
    ("/async-invoke", "/async-invoke", Model(None)),
    ("/converse", "/model/{model}/converse", Model(Some(Chat))),
    ("/converse-stream", "/model/{model}/converse-stream", Model(Some(Chat))),
];

/// Path segments below which a provider stores or administers something, whatever the suffix.
const STORAGE_SEGMENTS: [&[u8]; 8] = [
    b"threads",
    b"conversations",
    b"organization",
    b"organizations",
    b"files",
    b"batches",
    b"vector_stores",
    b"fine_tuning",
];

/// Returns the template of a path and the operation of a POST to it; `None` if the path is unknown.
pub(super) fn find_template(path: &str) -> Option<(&'static str, Option<ModelOperation>)> {
    find_row(path).map(|(template, asks)| match asks {
        Model(operation) => (template, operation),
        Nothing => (template, None),
    })
}

/// The effects of a POST to a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PostEffects {
    /// `true` if a model answers it; `false` for an unknown path.
    pub(super) asks_model: bool,
    /// `true` if the answer is all that it leads to, and not a stored object or a job.
    pub(super) is_answered_at_once: bool,
}

/// Returns the effects of a POST to this path.
pub(super) fn post_effects(path: &str) -> PostEffects {
    let work = find_row(path).map(|(_, work)| work);
    PostEffects {
        asks_model: work.is_some_and(|work| work != Nothing),
        is_answered_at_once: matches!(work, Some(Model(Some(_)))),
    }
}

/// Returns `true` if a segment between two slashes satisfies `is_wanted`.
pub(super) fn has_segment(path: &str, is_wanted: impl Fn(&[u8]) -> bool) -> bool {
    // As bytes: a path is short, so that every search for a text in it would cost more than this.
    let mut segments = path.as_bytes().split(|byte| *byte == b'/');
    let mut present = segments.next().and_then(|_| segments.next());
    for next in segments {
        if present.is_some_and(&is_wanted) {
            return true;
        }
        present = Some(next);
    }
    false
}

/// Finds the template and the work of a path; `None` if the path is unknown.
fn find_row(path: &str) -> Option<(&'static str, PostWork)> {
    // Before the suffixes: `/threads/{id}/messages` is not a Messages request.
    if has_segment(path, |segment| STORAGE_SEGMENTS.contains(&segment)) {
        return None;
    }
    let known = TEMPLATES.iter().find(|(end, ..)| path.ends_with(end));
    known.map(|(_, template, asks)| (*template, *asks))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_holds_no_word_of_the_client() {
        for (path, expected) in [
            ("/base/v1/messages", Some(("/v1/messages", Some(Chat)))),
            ("/v1/messages/count_tokens", Some(("/v1/messages/count_tokens", None))),
            ("/v1/threads/t_1/messages", None),
            (
                "/openai/deployments/d/chat/completions",
                Some(("/v1/chat/completions", Some(Chat))),
            ),
            (
                "/v1beta/models/m-1:streamGenerateContent",
                Some(("/v1beta/models/{model}:streamGenerateContent", Some(GenerateContent))),
            ),
            ("/model/anthropic.m/invoke", Some(("/model/{model}/invoke", Some(Chat)))),
            ("/v1/files/f_1", None),
        ] {
            assert_eq!(find_template(path), expected, "{path}");
        }
    }

    #[test]
    fn only_a_path_that_a_model_answers_asks_one() {
        for (path, asks) in [
            ("/v1/messages", true),
            ("/v1/complete", true),
            ("/v1/messages/count_tokens", false),
            ("/v1/messages/batches", false),
            ("/openai/deployments/d/chat/completions", true),
            ("/beta/completions", true),
            ("/v1/fim/completions", true),
            ("/v1/agents/completions", true),
            ("/v1/responses", true),
            ("/v1/responses/compact", true),
            ("/v1/responses/input_tokens", false),
            ("/v1/responses/resp_1/cancel", false),
            ("/v1/conversations/conv_1/items", false),
            ("/v1/conversations/conv_1/responses", false),
            ("/v1/organization/usage/completions", false),
            ("/v1/organizations/me", false),
            ("/v1/embeddings", true),
            ("/v1/images/generations", true),
            ("/v1/audio/speech", true),
            ("/v1/models", false),
            ("/v1/files", false),
            ("/v1/files/f_1/content", false),
            ("/v1/batches", false),
            ("/v1/threads/t_1/messages", false),
            ("/v1internal:generateContent", true),
            ("/v1internal:countTokens", false),
            ("/v1beta/models/m:batchEmbedContents", true),
            ("/v1beta/models/m:batchGenerateContent", false),
            (
                "/v1/projects/p/locations/l/publishers/anthropic/models/m:streamRawPredict",
                true,
            ),
            ("/v1/projects/p/locations/l/publishers/google/models/m:predict", true),
            ("/model/m/converse-stream", true),
            ("/model/m/count-tokens", false),
            ("/async-invoke", true),
            ("/", false),
        ] {
            assert_eq!(post_effects(path).asks_model, asks, "{path}");
        }
    }

    #[test]
    fn segments_lie_between_two_slashes() {
        for (path, has) in [
            ("/v1/files/f_1", true),
            ("/files/", true),
            ("/v1//files/x", true),
            ("v1/files/", true),
            ("/files", false),
            ("files/x", false),
            ("files", false),
            ("/v1/files", false),
            ("/v1/my_files/x", false),
            ("//", false),
            ("", false),
        ] {
            assert_eq!(has_segment(path, |segment| segment == b"files"), has, "{path}");
            assert_eq!(path.contains("/files/"), has, "{path}");
        }
    }

    #[test]
    fn the_longer_of_two_ends_is_found() {
        for (i, (end, ..)) in TEMPLATES.iter().enumerate() {
            let earlier = TEMPLATES.iter().take(i).find(|(before, ..)| end.ends_with(before));
            assert_eq!(earlier, None, "{end}");
        }
    }
}
