//! Endpoints by path, and their formats.

use crate::Format;

/// The purpose of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wants {
    /// The model's next message.
    Answer,
    /// The model's next message as a stream, whatever the body says: `true` as events, `false` as one list.
    Stream(bool),
    /// The model's next message as a stream of Amazon's frames.
    Frames,
    /// A token count.
    Count,
    /// An operation on the history that no model answers: a batch, a compaction, stored items.
    Kept,
}

/// A known path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Endpoint<'a> {
    pub(super) format: Format,
    pub(super) wants: Wants,
    /// The model, if the path names it.
    pub(super) model: Option<&'a str>,
    /// The conversation at the server, if the path names it.
    pub(super) conversation: Option<&'a str>,
}

const EXACT: [(&str, Format, Wants); 7] = [
    ("/v1/messages", Format::Messages, Wants::Answer),
    ("/v1/messages/count_tokens", Format::Messages, Wants::Count),
    ("/v1/messages/batches", Format::Messages, Wants::Kept),
    ("/v1/chat/completions", Format::Chat, Wants::Answer),
    ("/v1/responses", Format::Responses, Wants::Answer),
    ("/v1/responses/input_tokens", Format::Responses, Wants::Count),
    ("/v1/responses/compact", Format::Responses, Wants::Kept),
];

/// Returns the endpoint of a path. `query` distinguishes an event stream from a stream that is one list.
pub(super) fn endpoint<'a>(path: &'a str, query: &str) -> Option<Endpoint<'a>> {
    let found = |format, wants| Endpoint {
        format,
        wants,
        model: None,
        conversation: None,
    };
    if let Some((_, format, wants)) = EXACT.iter().find(|(known, ..)| *known == path) {
        return Some(found(*format, *wants));
    }
    let items = path.strip_prefix("/v1/conversations/");
    if let Some(id) = items.and_then(|rest| rest.strip_suffix("/items")) {
        return Some(Endpoint {
            conversation: Some(id),
            ..found(Format::Responses, Wants::Kept)
        });
    }
    if let Some((model, verb)) = path.strip_prefix("/model/").and_then(|rest| rest.rsplit_once('/')) {
        let wants = match verb {
            "invoke" => Wants::Answer,
            "invoke-with-response-stream" => Wants::Frames,
            _ => return None,
        };
        return Some(Endpoint {
            model: Some(model),
            ..found(Format::Messages, wants)
        });
    }
    let (before, verb) = path.rsplit_once(':')?;
    // Without a model in the path: `/v1internal` of Code Assist. With one: `/v1beta/models/{m}` and
    // `/v1/…/publishers/google/models/{m}`.
    let model = before.rsplit_once("/models/").map(|(_, model)| model);
    if model.is_none() && before != "/v1internal" {
        return None;
    }
    let wants = match verb {
        "generateContent" => Wants::Answer,
        "streamGenerateContent" => Wants::Stream(query.split('&').any(|pair| pair == "alt=sse")),
        "countTokens" => Wants::Count,
        "batchGenerateContent" => Wants::Kept,
        _ => return None,
    };
    Some(Endpoint {
        model,
        ..found(Format::Gemini, wants)
    })
}
