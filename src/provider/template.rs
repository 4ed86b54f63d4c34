//! Paths of providers' APIs as templates, and what each asks of a model: words that few traces share, none of a client's.

use super::Route;

/// What is asked of a model, as the conventions of OpenTelemetry tell it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// The next turn of a conversation.
    Chat,
    /// The next turn of a conversation, in Google's API.
    GenerateContent,
    /// The rest of a text.
    TextCompletion,
    /// Vectors for texts.
    Embeddings,
}

use Operation::{Chat, Embeddings, GenerateContent, TextCompletion};

/// End of the path, template, operation. Of two ends that fit, the first is the longer.
#[rustfmt::skip]
const TEMPLATES: &[(&str, &str, Option<Operation>)] = &[
    ("/messages/count_tokens", "/v1/messages/count_tokens", None),
    ("/messages/batches", "/v1/messages/batches", None),
    ("/messages", "/v1/messages", Some(Chat)),
    ("/chat/completions", "/v1/chat/completions", Some(Chat)),
    ("/completions", "/v1/completions", Some(TextCompletion)),
    ("/embeddings", "/v1/embeddings", Some(Embeddings)),
    ("/responses/compact", "/v1/responses/compact", None),
    ("/responses/input_tokens", "/v1/responses/input_tokens", None),
    ("/responses", "/v1/responses", Some(Chat)),
    ("/models", "/v1/models", None),
    (":generateContent", "/v1beta/models/{model}:generateContent", Some(GenerateContent)),
    (":streamGenerateContent", "/v1beta/models/{model}:streamGenerateContent", Some(GenerateContent)),
    (":countTokens", "/v1beta/models/{model}:countTokens", None),
    (":batchGenerateContent", "/v1beta/models/{model}:batchGenerateContent", None),
    (":embedContent", "/v1beta/models/{model}:embedContent", Some(Embeddings)),
    (":rawPredict", "/v1/publishers/{publisher}/models/{model}:rawPredict", Some(Chat)),
    (":streamRawPredict", "/v1/publishers/{publisher}/models/{model}:streamRawPredict", Some(Chat)),
    ("/invoke", "/model/{model}/invoke", Some(Chat)),
    ("/invoke-with-response-stream", "/model/{model}/invoke-with-response-stream", Some(Chat)),
    ("/converse", "/model/{model}/converse", Some(Chat)),
    ("/converse-stream", "/model/{model}/converse-stream", Some(Chat)),
];

impl Route<'_> {
    /// The path as a template that holds no word of the client's, and what it asks of a model when it is posted to.
    pub fn template(&self) -> Option<(&'static str, Option<Operation>)> {
        template(self.target.path())
    }
}

/// The template of a path, and what it asks for when it is posted to; none for a path that is not known.
fn template(path: &str) -> Option<(&'static str, Option<Operation>)> {
    // What is added to a thread or a conversation that the provider holds asks for nothing.
    if path.contains("/threads/") || path.contains("/conversations/") {
        return None;
    }
    let known = TEMPLATES.iter().find(|(end, ..)| path.ends_with(end));
    known.map(|(_, template, operation)| (*template, *operation))
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
            assert_eq!(template(path), expected, "{path}");
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
