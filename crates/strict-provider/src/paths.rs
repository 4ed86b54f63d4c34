//! Which path asks for what, and in which format.

use crate::Format;

/// What a request wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wants {
    /// The model's next message.
    Answer,
    /// The same as a stream, whatever the body says; `true` as events, `false` as one list.
    Stream(bool),
    /// How many tokens it is.
    Count,
    /// Something done with the history, that no model answers: a batch, a compaction, items kept.
    Kept,
}

/// A known path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Endpoint<'a> {
    pub(super) format: Format,
    pub(super) wants: Wants,
    /// The model, where the path names it.
    pub(super) model: Option<&'a str>,
    /// The conversation that the server holds, where the path names it.
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

/// What the path asks for; `query` tells a stream of events from a stream that is one list.
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
    let (before, verb) = path.rsplit_once(':')?;
    // `/v1beta/models/{m}`, `/v1/…/publishers/google/models/{m}`, and `/v1internal` of Code Assist, which names no model.
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
