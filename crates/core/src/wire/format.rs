//! The formats, and everything that is chosen by format alone.

use crate::{
    conversation::{CallDetails, Finding},
    splice::{Edit, Piece, Span},
    wire::{
        ErrorShape, Unreadable, anthropic, gemini,
        json::{self, Json},
        nested_requests::{self, NestedRequest},
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

    /// Returns the name that the format has in its author's documents, for messages.
    pub const fn api_name(self) -> &'static str {
        match self {
            Self::Anthropic => "Messages",
            Self::OpenAiChat => "Chat Completions",
            Self::OpenAiResponses => "Responses",
            Self::Gemini => "generateContent",
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
    pub const fn needs_quote_message(self) -> bool {
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

    /// Returns the shape of errors on `path`. Only the path `/responses` of its format streams typed events.
    pub fn error_shape(self, path: &str) -> ErrorShape {
        match self {
            Self::Anthropic => ErrorShape::Anthropic,
            Self::OpenAiResponses if path.ends_with("/responses") => ErrorShape::Responses,
            Self::OpenAiChat | Self::OpenAiResponses => ErrorShape::OpenAi,
            Self::Gemini => ErrorShape::Gemini,
        }
    }

    /// Returns the stop reasons that the format documents.
    pub const fn stop_reasons(self) -> &'static [&'static str] {
        match self {
            Self::Anthropic => &anthropic::watch::STOP_REASONS,
            Self::OpenAiChat => &openai_chat::watch::STOP_REASONS,
            Self::OpenAiResponses => &openai_responses::watch::STOP_REASONS,
            Self::Gemini => &gemini::watch::STOP_REASONS,
        }
    }

    /// Locates the name, the input and the toolset of the call at `call`.
    pub fn call_details(self, body: &[u8], call: Span) -> CallDetails {
        let details = match self {
            Self::Anthropic => anthropic::read::call_details,
            Self::OpenAiChat => openai_chat::read::call_details,
            Self::OpenAiResponses => openai_responses::read::call_details,
            Self::Gemini => gemini::read::call_details,
        };
        details(body, call)
    }

    /// Returns the path of a finding in the body: `messages[3].content[1]`.
    pub fn finding_path(self, finding: &Finding) -> String {
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
    pub fn nested_requests(self, body: &[u8]) -> Result<Vec<NestedRequest>, Unreadable> {
        nested_requests::find_requests(self, body)
    }
}

/// The call that an answer belongs to, as it is sent.
#[derive(Debug)]
pub(crate) struct AnsweredCall {
    /// The call in the body.
    pub(crate) part: Span,
    /// The id. `None` if it has none.
    pub(crate) id: Option<Piece>,
    /// The name, as a JSON string, if the repair replaces it.
    pub(crate) new_name: Option<Piece>,
    /// The toolset, which the result must echo.
    pub(crate) toolset: Option<Span>,
}

impl AnsweredCall {
    fn id_or_empty(self) -> Piece {
        self.id.unwrap_or(NO_ID)
    }
}

// Text that the repair writes.
impl Format {
    /// Writes a placeholder as the result of `call`.
    pub(crate) fn write_placeholder(self, json: Json<'_>, call: AnsweredCall, text: &'static str) -> Vec<Piece> {
        let (part, toolset) = (call.part, call.toolset);
        match self {
            Self::Anthropic => anthropic::write::write_placeholder(call.id_or_empty(), toolset, text),
            Self::OpenAiChat => openai_chat::write::write_placeholder(call.id_or_empty(), text),
            Self::OpenAiResponses => openai_responses::write::write_placeholder(json, part, call.id_or_empty(), text),
            // The id is optional in this format, so none is made up.
            Self::Gemini => gemini::write::write_placeholder(json, call, text),
        }
    }

    /// Writes a real result that was not in the body for `call`.
    ///
    /// `content` is already in the shape that the result takes.
    pub(crate) fn write_result(self, json: Json<'_>, call: AnsweredCall, content: String, failed: bool) -> Vec<Piece> {
        let (part, toolset) = (call.part, call.toolset);
        match self {
            Self::Anthropic => anthropic::write::write_result(call.id_or_empty(), toolset, content, failed),
            Self::OpenAiChat => openai_chat::write::write_result(call.id_or_empty(), content),
            Self::OpenAiResponses => {
                openai_responses::write::write_result(json, part, call.id_or_empty(), content, failed)
            }
            Self::Gemini => gemini::write::write_result(json, call, content, failed),
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
        let key = match self {
            Self::Anthropic | Self::OpenAiChat => "id",
            Self::OpenAiResponses => "call_id",
            Self::Gemini => return None,
        };
        Some(json.set_member(call, key, vec![id]))
    }

    /// Replaces the id of the result at `result`. `None` for Gemini, which accepts any id.
    pub(crate) fn set_result_id(self, json: Json<'_>, result: Span, id: Piece) -> Option<Edit> {
        let key = match self {
            Self::Anthropic => "tool_use_id",
            Self::OpenAiChat => "tool_call_id",
            Self::OpenAiResponses => openai_responses::write::result_id_key(json, result),
            Self::Gemini => return None,
        };
        Some(json.set_member(result, key, vec![id]))
    }

    /// Writes a result as parts of a user message, in formats whose results are parts.
    pub(crate) fn write_quote_parts(
        self,
        json: Json<'_>,
        result: Span,
        id: &str,
        name: Option<&str>,
    ) -> Vec<Vec<Piece>> {
        match self {
            Self::Gemini => gemini::write::write_quote(json, result, id, name),
            // The repair asks only formats with parts: the other two never get here.
            Self::Anthropic | Self::OpenAiChat | Self::OpenAiResponses => {
                anthropic::write::write_quote(json, result, id, name)
            }
        }
    }

    /// Writes a result as a user message, in formats whose results are messages.
    pub(crate) fn write_quote_message(self, json: Json<'_>, result: Span, id: &str, name: Option<&str>) -> Vec<Piece> {
        match self {
            Self::OpenAiResponses => openai_responses::write::write_quote(json, result, id, name),
            // The repair asks only formats with messages: the other two never get here.
            Self::Anthropic | Self::OpenAiChat | Self::Gemini => {
                openai_chat::write::write_quote(json, result, id, name)
            }
        }
    }

    /// Writes a message of the user or the assistant with `parts`, in formats whose results are parts.
    pub(crate) fn write_message(self, of_user: bool, parts: Vec<Vec<Piece>>) -> Vec<Piece> {
        let start = match (self, of_user) {
            (Self::Gemini, true) => r#"{"role":"user","parts":"#,
            (Self::Gemini, false) => r#"{"role":"model","parts":"#,
            (_, true) => r#"{"role":"user","content":"#,
            (_, false) => r#"{"role":"assistant","content":"#,
        };
        json::enclose(start, json::write_list(parts), "}")
    }

    /// Replaces the parts of the message at `message`.
    pub(crate) fn set_parts(self, json: Json<'_>, message: Span, parts: Vec<Vec<Piece>>) -> Edit {
        let key = if self == Self::Gemini { "parts" } else { "content" };
        json.set_member(message, key, json::write_list(parts))
    }

    /// Writes the answer of the remote call `id` as a message that precedes all others.
    pub(crate) fn write_remote_answer(self, id: &str, text: &'static str) -> Vec<Piece> {
        let id = Piece::Made(json::quote_string(id));
        match self {
            Self::OpenAiResponses => openai_responses::write::write_remote_answer(id, text),
            // Only Anthropic: the other two have no remote calls that a refusal could name.
            Self::Anthropic | Self::OpenAiChat | Self::Gemini => {
                self.write_message(true, vec![anthropic::write::write_placeholder(id, None, text)])
            }
        }
    }

    /// Inserts messages before a history that is a plain string. `None` if the format has no such body.
    pub(crate) fn insert_before_text(self, json: Json<'_>, front: Vec<Vec<Piece>>) -> Option<Edit> {
        match self {
            // Without messages the string stays: a needless list would change bytes that are cached.
            Self::OpenAiResponses if !front.is_empty() => openai_responses::write::insert_before_text(json, front),
            _ => None,
        }
    }

    /// Sets the option that lets the provider drop thinking which is bound to another prefix.
    ///
    /// `None` if the format has no such option, or the body sets it already.
    pub(crate) fn drop_bound_thinking(self, json: Json<'_>) -> Option<Edit> {
        match self {
            Self::Anthropic => anthropic::write::drop_bound_thinking(json),
            Self::OpenAiChat | Self::OpenAiResponses | Self::Gemini => None,
        }
    }

    /// Writes a user message with one constant text.
    pub(crate) fn write_text_message(self, text: &'static str) -> Vec<Piece> {
        let (before, after) = match self {
            Self::Gemini => (r#"{"role":"user","parts":[{"text":""#, r#""}]}"#),
            // A Responses item without a type is a message in this very form.
            Self::Anthropic | Self::OpenAiChat | Self::OpenAiResponses => (r#"{"role":"user","content":""#, r#""}"#),
        };
        json::enclose(before, vec![Piece::Constant(text)], after)
    }
}
