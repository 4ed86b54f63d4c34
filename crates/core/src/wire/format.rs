//! The formats, and everything that is chosen by format alone.
//!
//! A match on [`HistoryShape`] is about the members of a history, which several formats may share. A match on [`Format`]
//! is about the API, its answers, and what differs between formats of one shape. No match has a wildcard, so that the
//! compiler asks for each choice of a new format.

use crate::{
    conversation::{CallDetails, Finding, rules::is_word},
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

/// The shape of a history: the members in which messages, calls and results stand.
///
/// It says nothing about the answers, which are the format's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HistoryShape {
    /// `messages[]` with content blocks.
    Messages,
    /// `messages[]` with `tool_calls` and role `tool`.
    Chat,
    /// `input[]` of items.
    Items,
    /// `contents[]` with parts.
    Contents,
}

use HistoryShape::{Chat, Contents, Items, Messages};

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

    /// Returns the shape of the format's histories.
    pub(crate) const fn history(self) -> HistoryShape {
        match self {
            Self::Anthropic => Messages,
            Self::OpenAiChat => Chat,
            Self::OpenAiResponses => Items,
            Self::Gemini => Contents,
        }
    }

    /// Returns `true` if a refusal may name calls that exist only in provider-side state.
    pub const fn names_remote_calls(self) -> bool {
        match self {
            Self::Anthropic | Self::OpenAiResponses => true,
            Self::OpenAiChat | Self::Gemini => false,
        }
    }

    /// Returns `true` if a request may continue from an earlier response by its id alone.
    pub const fn continues_by_id(self) -> bool {
        match self {
            Self::OpenAiResponses => true,
            Self::Anthropic | Self::OpenAiChat | Self::Gemini => false,
        }
    }

    /// Returns `true` if providers of the format may give two calls one id, so that the id alone identifies no call.
    pub const fn has_reusable_ids(self) -> bool {
        match self {
            Self::Anthropic => false,
            Self::OpenAiChat | Self::OpenAiResponses | Self::Gemini => true,
        }
    }

    /// Returns `true` if every server of the format runs Gemini's models.
    pub const fn is_gemini_only(self) -> bool {
        match self {
            Self::Gemini => true,
            Self::Anthropic | Self::OpenAiChat | Self::OpenAiResponses => false,
        }
    }

    /// Returns `true` if the format's author sends the head of a stream before the prompt is read.
    pub const fn sends_head_at_once(self) -> bool {
        match self {
            Self::Anthropic | Self::OpenAiResponses => true,
            Self::OpenAiChat | Self::Gemini => false,
        }
    }

    /// Returns `true` if an answer may end with a stop reason, since not every server of the format marks the end.
    pub(crate) const fn may_end_unmarked(self) -> bool {
        match self {
            Self::OpenAiChat => true,
            Self::Anthropic | Self::OpenAiResponses | Self::Gemini => false,
        }
    }

    /// Returns `true` if events after the mark of the end belong to the answer. Gemini's candidates end one by one.
    pub(crate) const fn goes_on_after_end(self) -> bool {
        match self {
            Self::Gemini => true,
            Self::Anthropic | Self::OpenAiChat | Self::OpenAiResponses => false,
        }
    }

    /// Returns `true` if `byte` may be in the name of a tool.
    ///
    /// `OpenAI` and Anthropic: `^[a-zA-Z0-9_-]+$`, in the error texts of both. Gemini also takes dots and colons
    /// (`FunctionDeclaration`, 2026-11).
    pub(crate) const fn takes_in_name(self, byte: u8) -> bool {
        is_word(byte)
            || match self {
                Self::Gemini => matches!(byte, b'.' | b':'),
                Self::Anthropic | Self::OpenAiChat | Self::OpenAiResponses => false,
            }
    }

    /// Returns `true` if quotes need a message of their own, because the provider counts the parts beside results.
    pub const fn needs_quote_message(self) -> bool {
        match self.history() {
            Contents => true,
            Messages | Chat | Items => false,
        }
    }

    /// Returns `true` if a message with results takes text too.
    pub(crate) const fn takes_text_beside_results(self) -> bool {
        match self.history() {
            Messages => true,
            Chat | Items | Contents => false,
        }
    }

    /// Returns the JSON in front of the text of a user's text block, up to the text's opening quote.
    pub const fn text_block_start(self) -> &'static str {
        match self.history() {
            Contents => r#"{"text":"#,
            Items => r#"{"type":"input_text","text":"#,
            Messages | Chat => r#"{"type":"text","text":"#,
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
        let details = match self.history() {
            Messages => anthropic::read::call_details,
            Chat => openai_chat::read::call_details,
            Items => openai_responses::read::call_details,
            Contents => gemini::read::call_details,
        };
        details(body, call)
    }

    /// Returns the path of a finding in the body: `messages[3].content[1]`.
    pub fn finding_path(self, finding: &Finding) -> String {
        let (history, list) = match self.history() {
            Messages => ("messages", "content"),
            Chat => ("messages", "tool_calls"),
            Items => ("input", "content"),
            Contents => ("contents", "parts"),
        };
        let within = &finding.within;
        match finding.part {
            Some(part) => format!("{within}{history}[{}].{list}[{part}]", finding.message),
            None => format!("{within}{history}[{}]", finding.message),
        }
    }

    /// Returns the path of a message in the body: `messages[3]`.
    pub fn message_path(self, message: usize) -> String {
        format!("{}[{message}]", self.history_key())
    }

    /// Returns the key of the history in a body.
    pub(crate) const fn history_key(self) -> &'static str {
        match self.history() {
            Messages | Chat => "messages",
            Items => "input",
            Contents => "contents",
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
        match self.history() {
            Messages | Chat => json.member(call, "id"),
            Items => openai_responses::write::call_id(json, call),
            Contents => gemini::write::call_id(json, call),
        }
    }

    /// Replaces the id of the call at `call`. `None` for Gemini, which accepts any id.
    pub(crate) fn set_call_id(self, json: Json<'_>, call: Span, id: Piece) -> Option<Edit> {
        let key = match self.history() {
            Messages | Chat => "id",
            Items => "call_id",
            Contents => return None,
        };
        Some(json.set_member(call, key, vec![id]))
    }

    /// Replaces the id of the result at `result`. `None` for Gemini, which accepts any id.
    pub(crate) fn set_result_id(self, json: Json<'_>, result: Span, id: Piece) -> Option<Edit> {
        let key = match self.history() {
            Messages => "tool_use_id",
            Chat => "tool_call_id",
            Items => openai_responses::write::result_id_key(json, result),
            Contents => return None,
        };
        Some(json.set_member(result, key, vec![id]))
    }

    /// Writes a result as parts of a user message.
    pub(crate) fn write_quote_parts(
        self,
        json: Json<'_>,
        result: Span,
        id: &str,
        name: Option<&str>,
    ) -> Vec<Vec<Piece>> {
        match self.history() {
            Contents => gemini::write::write_quote(json, result, id, name),
            Chat => openai_chat::write::write_quote_parts(json, result, id, name),
            // The repair quotes items as messages: Responses never gets here.
            Messages | Items => anthropic::write::write_quote(json, result, id, name),
        }
    }

    /// Writes a result as a user message, in formats whose results are messages.
    pub(crate) fn write_quote_message(self, json: Json<'_>, result: Span, id: &str, name: Option<&str>) -> Vec<Piece> {
        match self.history() {
            Items => openai_responses::write::write_quote(json, result, id, name),
            // The repair asks only formats with messages: the other two never get here.
            Messages | Chat | Contents => openai_chat::write::write_quote(json, result, id, name),
        }
    }

    /// Writes a call that cannot be answered, with the reasoning before it, as a user message.
    pub(crate) fn write_call_as_text(
        self,
        json: Json<'_>,
        call: Span,
        reasoning: &[Span],
        id: &str,
        name: Option<&str>,
    ) -> Vec<Piece> {
        match self.history() {
            Items => openai_responses::write::write_call_as_text(json, call, reasoning, id, name),
            // Every call of the other shapes has a result that could answer it: they never get here.
            Messages | Chat | Contents => self.write_quote_message(json, call, id, name),
        }
    }

    /// Inserts `parts` before the content of the user's message at `message`.
    ///
    /// `None` for histories without runs of tool messages: their quotes wait for no message of the user.
    pub(crate) fn insert_parts_before(self, json: Json<'_>, message: Span, parts: Vec<Vec<Piece>>) -> Option<Edit> {
        match self.history() {
            Chat => Some(openai_chat::write::insert_parts_before(json, message, parts)),
            Messages | Items | Contents => None,
        }
    }

    /// Writes the content of the result at `result` as a text, if it is data that no server of the format takes.
    pub(crate) fn set_data_as_text(self, json: Json<'_>, result: Span) -> Option<Edit> {
        match self.history() {
            Chat => openai_chat::write::set_data_as_text(json, result),
            Messages | Items | Contents => None,
        }
    }

    /// Writes a message of the user or the assistant with `parts`, in formats whose results are parts.
    pub(crate) fn write_message(self, of_user: bool, parts: Vec<Vec<Piece>>) -> Vec<Piece> {
        let start = match (self.history(), of_user) {
            (Contents, true) => r#"{"role":"user","parts":"#,
            (Contents, false) => r#"{"role":"model","parts":"#,
            (Messages | Chat | Items, true) => r#"{"role":"user","content":"#,
            (Messages | Chat | Items, false) => r#"{"role":"assistant","content":"#,
        };
        json::enclose(start, json::write_list(parts), "}")
    }

    /// Replaces the parts of the message at `message`.
    pub(crate) fn set_parts(self, json: Json<'_>, message: Span, parts: Vec<Vec<Piece>>) -> Edit {
        let key = match self.history() {
            Contents => "parts",
            Messages | Chat | Items => "content",
        };
        json.set_member(message, key, json::write_list(parts))
    }

    /// Writes the answer of the remote call `id` as a message that precedes all others.
    pub(crate) fn write_remote_result(self, id: &str, text: &'static str) -> Vec<Piece> {
        let id = Piece::Made(json::quote_string(id));
        match self.history() {
            Items => openai_responses::write::write_remote_result(id, text),
            // Only Anthropic: the other two have no remote calls that a refusal could name.
            Messages | Chat | Contents => {
                self.write_message(true, vec![anthropic::write::write_placeholder(id, None, text)])
            }
        }
    }

    /// Inserts messages before a history that is a plain string. `None` if the format has no such body.
    pub(crate) fn insert_before_text(self, json: Json<'_>, front: Vec<Vec<Piece>>) -> Option<Edit> {
        match self.history() {
            // Without messages the string stays: a needless list would change bytes that are cached.
            Items if !front.is_empty() => openai_responses::write::insert_before_text(json, front),
            Messages | Chat | Items | Contents => None,
        }
    }

    /// Sets the option that lets the provider drop thinking which is bound to another prefix.
    ///
    /// `None` if the format has no such option, or the body sets it already.
    pub(crate) fn drop_bound_thinking(self, json: Json<'_>) -> Option<Edit> {
        match self.history() {
            Messages => anthropic::write::drop_bound_thinking(json),
            Chat | Items | Contents => None,
        }
    }

    /// Writes a message of the user or the assistant with one constant text.
    pub(crate) fn write_text_message(self, of_user: bool, text: &'static str) -> Vec<Piece> {
        let (before, after) = match (self.history(), of_user) {
            (Contents, true) => (r#"{"role":"user","parts":[{"text":""#, r#""}]}"#),
            (Contents, false) => (r#"{"role":"model","parts":[{"text":""#, r#""}]}"#),
            // A Responses item without a type is a message in this very form.
            (Messages | Chat | Items, true) => (r#"{"role":"user","content":""#, r#""}"#),
            (Messages | Chat | Items, false) => (r#"{"role":"assistant","content":""#, r#""}"#),
        };
        json::enclose(before, vec![Piece::Constant(text)], after)
    }
}
