//! What repair writes in every format: one choice between them a function. What only one format has is in its own room.

use crate::{
    conversation::FlawKind,
    splice::{Edit, Piece, Span},
    wire::{
        Format, anthropic, gemini,
        json::{self, Json},
        openai_chat, openai_responses,
    },
};

/// An empty JSON string: the id of a call that has none, where the format wants one.
const NO_ID: Piece = Piece::Constant("\"\"");

impl Format {
    /// A result that nobody gave to the call at `call`; `id` is the call's as it goes up.
    /// `toolset` is the one that the call says, which its result must echo.
    pub(crate) fn placeholder(
        self,
        json: Json<'_>,
        call: Span,
        toolset: Option<Span>,
        id: Option<Piece>,
        text: &'static str,
    ) -> Vec<Piece> {
        match self {
            Self::Anthropic => anthropic::write::placeholder(id.unwrap_or(NO_ID), toolset, text),
            Self::OpenAiChat => openai_chat::write::placeholder(id.unwrap_or(NO_ID), text),
            Self::OpenAiResponses => openai_responses::write::placeholder(json, call, id.unwrap_or(NO_ID), text),
            Self::Gemini => gemini::write::placeholder(json, call, id, text),
        }
    }

    /// A real result from elsewhere for the call at `call`; `content` is what the wire has made of it.
    pub(crate) fn restored(
        self,
        json: Json<'_>,
        call: Span,
        toolset: Option<Span>,
        id: Option<Piece>,
        content: String,
        failed: bool,
    ) -> Vec<Piece> {
        match self {
            Self::Anthropic => anthropic::write::restored(id.unwrap_or(NO_ID), toolset, content, failed),
            Self::OpenAiChat => openai_chat::write::restored(id.unwrap_or(NO_ID), content),
            Self::OpenAiResponses => {
                openai_responses::write::restored(json, call, id.unwrap_or(NO_ID), content, failed)
            }
            Self::Gemini => gemini::write::restored(json, call, id, content, failed),
        }
    }

    /// The id by which the call at `call` pairs, as it stands.
    pub(crate) fn call_id(self, json: Json<'_>, call: Span) -> Option<Span> {
        match self {
            Self::Anthropic | Self::OpenAiChat => json.member(call, "id"),
            Self::OpenAiResponses => openai_responses::write::call_id(json, call),
            Self::Gemini => gemini::write::call_id(json, call),
        }
    }

    /// Gives the call at `call` another id. Gemini takes every id, so that none of its calls is ever renamed.
    pub(crate) fn set_call_id(self, json: Json<'_>, call: Span, id: Piece) -> Option<Edit> {
        match self {
            Self::Anthropic => Some(anthropic::write::set_call_id(json, call, id)),
            Self::OpenAiChat => Some(openai_chat::write::set_call_id(json, call, id)),
            Self::OpenAiResponses => Some(openai_responses::write::set_call_id(json, call, id)),
            Self::Gemini => None,
        }
    }

    /// Gives the result at `result` another id.
    pub(crate) fn set_result_id(self, json: Json<'_>, result: Span, id: Piece) -> Option<Edit> {
        match self {
            Self::Anthropic => Some(anthropic::write::set_result_id(json, result, id)),
            Self::OpenAiChat => Some(openai_chat::write::set_result_id(json, result, id)),
            Self::OpenAiResponses => Some(openai_responses::write::set_result_id(json, result, id)),
            Self::Gemini => None,
        }
    }

    /// A result as parts of a user's message, in formats whose results are parts.
    pub(crate) fn quote_parts(self, json: Json<'_>, result: Span, id: &str, name: Option<&str>) -> Vec<Vec<Piece>> {
        match self {
            Self::Gemini => gemini::write::quote(json, result, id, name),
            Self::Anthropic | Self::OpenAiChat | Self::OpenAiResponses => {
                anthropic::write::quote(json, result, id, name)
            }
        }
    }

    /// A result as a user's message, in formats whose results are messages.
    pub(crate) fn quote_message(self, json: Json<'_>, result: Span, id: &str, name: Option<&str>) -> Vec<Piece> {
        match self {
            Self::OpenAiResponses => openai_responses::write::quote(json, result, id, name),
            Self::Anthropic | Self::OpenAiChat | Self::Gemini => openai_chat::write::quote(json, result, id, name),
        }
    }

    /// A message of `parts`, the user's or the assistant's, in formats whose results are parts.
    pub(crate) fn message(self, of_user: bool, parts: Vec<Vec<Piece>>) -> Vec<Piece> {
        match (self, of_user) {
            (Self::Gemini, true) => gemini::write::message("user", parts),
            (Self::Gemini, false) => gemini::write::message("model", parts),
            (_, true) => anthropic::write::message("user", parts),
            (_, false) => anthropic::write::message("assistant", parts),
        }
    }

    /// Gives the message at `message` these parts.
    pub(crate) fn set_parts(self, json: Json<'_>, message: Span, parts: Vec<Vec<Piece>>) -> Edit {
        match self {
            Self::Gemini => gemini::write::set_content(json, message, parts),
            _ => anthropic::write::set_content(json, message, parts),
        }
    }

    /// The answer of a call that the provider holds under `id`, as a message in front of all others.
    pub(crate) fn held_answer(self, id: &str, text: &'static str) -> Vec<Piece> {
        let id = Piece::Made(json::quoted(id));
        match self {
            Self::OpenAiResponses => openai_responses::write::held_answer(id, text),
            Self::Anthropic | Self::OpenAiChat | Self::Gemini => {
                anthropic::write::message("user", vec![anthropic::write::placeholder(id, None, text)])
            }
        }
    }

    /// Puts messages in front of a history that is a bare text; none where the format knows no such body.
    pub(crate) fn in_front_of_text(self, json: Json<'_>, front: Vec<Vec<Piece>>) -> Option<Edit> {
        match self {
            Self::OpenAiResponses if !front.is_empty() => openai_responses::write::in_front_of_text(json, front),
            _ => None,
        }
    }

    /// The setting that lets the provider drop thinking which it has bound to another prefix; none where the format
    /// has none, or the body says itself what it wants.
    pub(crate) fn drop_bound(self, json: Json<'_>) -> Option<Edit> {
        match self {
            Self::Anthropic => anthropic::write::drop_bound(json),
            Self::OpenAiChat | Self::OpenAiResponses | Self::Gemini => None,
        }
    }

    /// A user's message with one constant text.
    pub(crate) fn note(self, text: &'static str) -> Vec<Piece> {
        match self {
            Self::Gemini => gemini::write::note(text),
            Self::Anthropic | Self::OpenAiChat | Self::OpenAiResponses => anthropic::write::note(text),
        }
    }
}

/// The edits that mend a flaw of the part at `part`; `call` is the call that it answers, if it is a result.
pub(crate) fn mended(json: Json<'_>, part: Span, flaw: FlawKind, call: Option<Span>, error: &'static str) -> Vec<Edit> {
    match flaw {
        FlawKind::InputEmpty => vec![anthropic::write::set_empty_input(json, part)],
        FlawKind::InputText => anthropic::write::set_text_input(json, part).into_iter().collect(),
        FlawKind::ErrorWithoutContent => vec![anthropic::write::set_error_text(json, part, error)],
        FlawKind::EmptyCalls => openai_chat::write::drop_empty_calls(json, part),
        FlawKind::ResultKind => {
            let set = call.map(|call| openai_responses::write::set_result_kind(json, part, call));
            set.into_iter().collect()
        }
        FlawKind::RepeatedItemId => openai_responses::write::drop_item_id(json, part),
        // What these want is the work of the layout.
        FlawKind::BlankText | FlawKind::EmptyMessage | FlawKind::SplitTurn => Vec::new(),
    }
}
