//! The formats, and everything that is chosen by format alone.

use crate::{
    conversation::{CallDetails, Finding},
    splice::{Edit, Piece, Span},
    wire::{
        Unreadable, anthropic,
        entries::{self, Entry},
        gemini,
        json::{self, Json},
        openai_chat, openai_responses,
    },
};

/// An empty JSON string: the id in the result of a call without one, where the format requires an id.
const NO_ID: Piece = Piece::Constant("\"\"");

/// A wire format whose history the proxy reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// Anthropic Messages: `messages[]` with content blocks.
    Anthropic,
    /// OpenAI Chat Completions: `messages[]` with `tool_calls` and role `tool`.
    OpenAiChat,
    /// OpenAI Responses: `input[]` of items.
    OpenAiResponses,
    /// Gemini generateContent: `contents[]` with `functionCall` and `functionResponse` parts.
    Gemini,
}

impl Format {
    /// Every format, in the order of the documentation.
    pub const ALL: [Self; 4] = [Self::Anthropic, Self::OpenAiChat, Self::OpenAiResponses, Self::Gemini];

    /// Returns the name in metrics, logs and `--wire`: lower case, underscores.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic",
            Self::OpenAiChat => "openai_chat",
            Self::OpenAiResponses => "openai_responses",
            Self::Gemini => "gemini",
        }
    }

    /// Returns `true` if a refusal may name calls that exist only in provider-side state.
    pub const fn names_remote_calls(self) -> bool {
        matches!(self, Self::Anthropic | Self::OpenAiResponses)
    }

    /// Returns `true` if a request may continue from an earlier response by its id alone.
    pub const fn continues_by_id(self) -> bool {
        matches!(self, Self::OpenAiResponses)
    }

    /// Returns `true` if quotes need a message of their own, because the provider counts the parts beside results.
    pub const fn quotes_apart(self) -> bool {
        matches!(self, Self::Gemini)
    }

    /// Returns the JSON in front of the text of a user's text block, up to the text's opening quote.
    pub const fn text_block_start(self) -> &'static str {
        match self {
            Self::Gemini => r#"{"text":"#,
            Self::OpenAiResponses => r#"{"type":"input_text","text":"#,
            Self::Anthropic | Self::OpenAiChat => r#"{"type":"text","text":"#,
        }
    }

    /// Returns the stop reasons that the format documents.
    pub const fn stop_reasons(self) -> &'static [&'static str] {
        match self {
            Self::Anthropic => &anthropic::watch::STOPS,
            Self::OpenAiChat => &openai_chat::watch::STOPS,
            Self::OpenAiResponses => &openai_responses::watch::STOPS,
            Self::Gemini => &gemini::watch::STOPS,
        }
    }

    /// Locates the name, the input and the toolset of the call at `call`.
    pub fn details(self, body: &[u8], call: Span) -> CallDetails {
        let details = match self {
            Self::Anthropic => anthropic::read::details,
            Self::OpenAiChat => openai_chat::read::details,
            Self::OpenAiResponses => openai_responses::read::details,
            Self::Gemini => gemini::read::details,
        };
        details(body, call)
    }

    /// Returns the path of a finding in the body: `messages[3].content[1]`.
    pub fn place(self, finding: &Finding) -> String {
        let (history, list) = match self {
            Self::Anthropic => ("messages", "content"),
            Self::OpenAiChat => ("messages", "tool_calls"),
            Self::OpenAiResponses => ("input", "content"),
            Self::Gemini => ("contents", "parts"),
        };
        let within = &finding.within;
        match finding.part {
            Some(part) => format!("{within}{history}[{}].{list}[{part}]", finding.message),
            None => format!("{within}{history}[{}]", finding.message),
        }
    }

    /// Finds the requests inside a body that has no history of its own.
    pub(crate) fn entries(self, body: &[u8]) -> Result<Vec<Entry>, Unreadable> {
        entries::find(self, body)
    }
}

// Text that the repair writes.
impl Format {
    /// Writes a placeholder as the result of the call at `call`.
    ///
    /// `id` is the call's id as it is sent. `toolset` is the call's toolset, which the result must echo.
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
            // The id is optional in this format, so none is made up.
            Self::Gemini => gemini::write::placeholder(json, call, id, text),
        }
    }

    /// Writes a real result that was not in the body for the call at `call`.
    ///
    /// `content` is already in the shape that the result takes.
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

    /// Locates the id by which the call at `call` pairs.
    pub(crate) fn call_id(self, json: Json<'_>, call: Span) -> Option<Span> {
        match self {
            Self::Anthropic | Self::OpenAiChat => json.member(call, "id"),
            Self::OpenAiResponses => openai_responses::write::call_id(json, call),
            Self::Gemini => gemini::write::call_id(json, call),
        }
    }

    /// Replaces the id of the call at `call`. `None` for Gemini, which accepts any id.
    pub(crate) fn set_call_id(self, json: Json<'_>, call: Span, id: Piece) -> Option<Edit> {
        match self {
            Self::Anthropic => Some(anthropic::write::set_call_id(json, call, id)),
            Self::OpenAiChat => Some(openai_chat::write::set_call_id(json, call, id)),
            Self::OpenAiResponses => Some(openai_responses::write::set_call_id(json, call, id)),
            Self::Gemini => None,
        }
    }

    /// Replaces the id of the result at `result`. `None` for Gemini, which accepts any id.
    pub(crate) fn set_result_id(self, json: Json<'_>, result: Span, id: Piece) -> Option<Edit> {
        match self {
            Self::Anthropic => Some(anthropic::write::set_result_id(json, result, id)),
            Self::OpenAiChat => Some(openai_chat::write::set_result_id(json, result, id)),
            Self::OpenAiResponses => Some(openai_responses::write::set_result_id(json, result, id)),
            Self::Gemini => None,
        }
    }

    /// Writes a result as parts of a user message, in formats whose results are parts.
    pub(crate) fn quote_parts(self, json: Json<'_>, result: Span, id: &str, name: Option<&str>) -> Vec<Vec<Piece>> {
        match self {
            Self::Gemini => gemini::write::quote(json, result, id, name),
            // The repair asks only formats with parts: the other two never get here.
            Self::Anthropic | Self::OpenAiChat | Self::OpenAiResponses => {
                anthropic::write::quote(json, result, id, name)
            }
        }
    }

    /// Writes a result as a user message, in formats whose results are messages.
    pub(crate) fn quote_message(self, json: Json<'_>, result: Span, id: &str, name: Option<&str>) -> Vec<Piece> {
        match self {
            Self::OpenAiResponses => openai_responses::write::quote(json, result, id, name),
            // The repair asks only formats with messages: the other two never get here.
            Self::Anthropic | Self::OpenAiChat | Self::Gemini => openai_chat::write::quote(json, result, id, name),
        }
    }

    /// Writes a message of the user or the assistant with `parts`, in formats whose results are parts.
    pub(crate) fn message(self, of_user: bool, parts: Vec<Vec<Piece>>) -> Vec<Piece> {
        match (self, of_user) {
            (Self::Gemini, true) => gemini::write::message("user", parts),
            (Self::Gemini, false) => gemini::write::message("model", parts),
            (_, true) => anthropic::write::message("user", parts),
            (_, false) => anthropic::write::message("assistant", parts),
        }
    }

    /// Replaces the parts of the message at `message`.
    pub(crate) fn set_parts(self, json: Json<'_>, message: Span, parts: Vec<Vec<Piece>>) -> Edit {
        match self {
            Self::Gemini => gemini::write::set_content(json, message, parts),
            _ => anthropic::write::set_content(json, message, parts),
        }
    }

    /// Writes the answer of the remote call `id` as a message that precedes all others.
    pub(crate) fn held_answer(self, id: &str, text: &'static str) -> Vec<Piece> {
        let id = Piece::Made(json::quoted(id));
        match self {
            Self::OpenAiResponses => openai_responses::write::held_answer(id, text),
            // Only Anthropic: the other two have no remote calls that a refusal could name.
            Self::Anthropic | Self::OpenAiChat | Self::Gemini => {
                anthropic::write::message("user", vec![anthropic::write::placeholder(id, None, text)])
            }
        }
    }

    /// Inserts messages before a history that is a plain string. `None` if the format has no such body.
    pub(crate) fn in_front_of_text(self, json: Json<'_>, front: Vec<Vec<Piece>>) -> Option<Edit> {
        match self {
            // Without messages the string stays: a needless list would change bytes that are cached.
            Self::OpenAiResponses if !front.is_empty() => openai_responses::write::in_front_of_text(json, front),
            _ => None,
        }
    }

    /// Sets the option that lets the provider drop thinking which is bound to another prefix.
    ///
    /// `None` if the format has no such option, or the body sets it already.
    pub(crate) fn drop_bound(self, json: Json<'_>) -> Option<Edit> {
        match self {
            Self::Anthropic => anthropic::write::drop_bound(json),
            Self::OpenAiChat | Self::OpenAiResponses | Self::Gemini => None,
        }
    }

    /// Writes a user message with one constant text.
    pub(crate) fn note(self, text: &'static str) -> Vec<Piece> {
        match self {
            Self::Gemini => gemini::write::note(text),
            // A Responses item without a type is a message in this very form.
            Self::Anthropic | Self::OpenAiChat | Self::OpenAiResponses => anthropic::write::note(text),
        }
    }
}
