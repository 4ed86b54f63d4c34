//! A provider's objection to a history, by its kind.

use super::demand::Demand;

/// A provider's objection to a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The name of the row that has matched.
    pub row: Box<str>,
    /// The kind of fault.
    pub kind: RefusalKind,
    /// The ids that the text names, in its order, each once: call ids, or item ids for the kinds that say so.
    ///
    /// At most 64 ids are read, and none of more than 256 bytes. The list is empty if the provider names none (Chat
    /// Completions orphans, DeepSeek and Bedrock counts) or an index instead (Qwen). The kind is certain all the same:
    /// the repair looks for findings of that kind, or resends the original body if it was edited. It never chooses a
    /// call by an index in the text.
    pub ids: Vec<String>,
    /// The demand that a mend meets. `None` unless that is the kind.
    pub demand: Option<Box<Demand>>,
}

/// The faults of a history that providers name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RefusalKind {
    /// Any fault of the history. Names no ids.
    AnyFault,
    /// Calls without a required result.
    Unanswered,
    /// Results without a call or without an id. If the refusal names no ids, also more results than calls.
    Orphan,
    /// A second result for one call. DeepSeek's chat endpoint also uses this text for two calls with one id.
    Duplicate,
    /// One id for two calls.
    RepeatedCall,
    /// A call whose input is no JSON object, or whose name breaks the provider's pattern. Few texts name an id.
    MalformedCall,
    /// Mistral and its templates: a user's message directly after a tool message. Names no ids.
    UserAfterResults,
    /// Chat templates: a history without a user's message at its beginning. Names no ids.
    NoUserTurn,
    /// A server tool's call without its result, or the reverse, in assistant messages.
    ServerHalf,
    /// Responses: two items with the same item id. The ids are item ids.
    RepeatedItem,
    /// Responses: an item without its reasoning item. The id is that of the item, not of the reasoning.
    WithoutReasoningItem,
    /// Anthropic: a thinking block that was generated after another prefix. Names no ids.
    Bound,
    /// Chat Completions: an assistant message with calls lacks its `reasoning_content`. Names no ids.
    WithoutReasoningContent,
    /// Gemini: the first call of a step lacks its thought signature. Names no ids.
    WithoutSignature,
    /// Anthropic: a call of code waits for its result, and the body does not name its container. Names no ids.
    WithoutContainer,
    /// Signed or encrypted reasoning that another provider, account or organisation generated.
    ///
    /// The id, if any, is that of the reasoning item.
    ForeignThinking,
    /// Responses: the provider has lost the response that the request continues from. The id, if any, is its id.
    DeadResponse,
    /// A demand beyond the rules of the format, which the mend of its row meets. The ids are those of items or tools.
    Demand,
    /// A prompt that is longer than the model's context, alone or with the answer. Nothing is wrong with the history.
    Overflow,
    /// A tool whose declaration the provider rejects. Nothing is wrong with the history.
    BadTool,
}

impl RefusalKind {
    /// Every kind, with its stable name.
    pub const LABELS: [(&str, Self); 20] = [
        ("any_fault", Self::AnyFault),
        ("unanswered", Self::Unanswered),
        ("orphan", Self::Orphan),
        ("duplicate", Self::Duplicate),
        ("repeated_call", Self::RepeatedCall),
        ("malformed_call", Self::MalformedCall),
        ("user_after_results", Self::UserAfterResults),
        ("no_user_turn", Self::NoUserTurn),
        ("server_half", Self::ServerHalf),
        ("repeated_item", Self::RepeatedItem),
        ("without_reasoning_item", Self::WithoutReasoningItem),
        ("bound", Self::Bound),
        ("without_reasoning_content", Self::WithoutReasoningContent),
        ("without_signature", Self::WithoutSignature),
        ("without_container", Self::WithoutContainer),
        ("foreign_thinking", Self::ForeignThinking),
        ("dead_response", Self::DeadResponse),
        ("demand", Self::Demand),
        ("overflow", Self::Overflow),
        ("bad_tool", Self::BadTool),
    ];

    /// Returns the kind with this name.
    pub fn from_label(label: &str) -> Option<Self> {
        let named = Self::LABELS.iter().find(|(known, _)| *known == label);
        named.map(|(_, kind)| *kind)
    }

    /// Returns `true` if the history is at fault, so that another history could be accepted.
    pub const fn is_about_history(self) -> bool {
        !matches!(self, Self::Overflow | Self::BadTool)
    }

    /// Returns `true` if the repair removes something that the model could read: its own thinking.
    pub const fn loses_content(self) -> bool {
        matches!(self, Self::Bound | Self::ForeignThinking)
    }
}
