//! One item of the history: a call, its output, or anything else.

use memchr::memmem;

use crate::{
    conversation::Text,
    splice::Span,
    wire::{
        self, Format,
        json::{Json, JsonKind},
    },
};

/// The member of an item with what the client knows about it, such as its turn.
pub(super) const PASSTHROUGH: &str = "internal_chat_message_metadata_passthrough";

/// The kinds of items that Codex pairs at load (0.171, 2026-11), and reasoning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CodexItemKind {
    FunctionCall,
    CustomToolCall,
    LocalShellCall,
    ToolSearchCall,
    FunctionOutput,
    CustomToolOutput,
    ToolSearchOutput,
    Reasoning,
}

impl CodexItemKind {
    const TYPES: [(&str, Self); 8] = [
        ("function_call", Self::FunctionCall),
        ("custom_tool_call", Self::CustomToolCall),
        ("local_shell_call", Self::LocalShellCall),
        ("tool_search_call", Self::ToolSearchCall),
        ("function_call_output", Self::FunctionOutput),
        ("custom_tool_call_output", Self::CustomToolOutput),
        ("tool_search_output", Self::ToolSearchOutput),
        ("reasoning", Self::Reasoning),
    ];

    fn from_type(name: &[u8]) -> Option<Self> {
        let found = Self::TYPES.iter().find(|(known, _)| known.as_bytes() == name);
        found.map(|(_, kind)| *kind)
    }

    /// Returns the `type` of such an item.
    pub(super) fn type_name(self) -> &'static str {
        let found = Self::TYPES.iter().find(|(_, kind)| *kind == self);
        found.map_or("", |(name, _)| name)
    }

    /// Returns the kind of the output that answers a call. `None` if it is no call.
    pub(super) const fn answer(self) -> Option<Self> {
        match self {
            Self::FunctionCall | Self::LocalShellCall => Some(Self::FunctionOutput),
            Self::CustomToolCall => Some(Self::CustomToolOutput),
            Self::ToolSearchCall => Some(Self::ToolSearchOutput),
            Self::FunctionOutput | Self::CustomToolOutput | Self::ToolSearchOutput | Self::Reasoning => None,
        }
    }

    pub(super) const fn is_call(self) -> bool {
        self.answer().is_some()
    }
}

/// A fault of an item that can be seen without its neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ItemFlaw {
    /// The client cannot read the call, and skips it.
    UnreadCall,
    /// The client sends the call, and its input is no JSON object, or its name is empty.
    OddCall,
    /// The client cannot read the output, and skips it.
    UnreadOutput,
    /// The output names no call, and the client skips it.
    NamelessOutput,
    /// Reasoning with its text in the open.
    OpenReasoning,
}

/// One item, as it was read.
#[derive(Clone, Debug)]
pub(super) struct CodexItem<'a> {
    /// The kind. `None` if it pairs with nothing.
    pub(super) kind: Option<CodexItemKind>,
    /// The id of the call, or of the reasoning.
    pub(super) id: Text<'a>,
    pub(super) flaw: Option<ItemFlaw>,
    /// The author, if it is a message.
    pub(super) speaker: Option<Speaker>,
}

/// The author of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Speaker {
    /// The user, who begins a turn.
    User,
    /// The assistant, the client, or the user's environment.
    Other,
}

/// Members of an item that its reading needs, beside those of its kind.
const ITEM_KEYS: [&str; 10] = [
    "type",
    "call_id",
    "id",
    "name",
    "arguments",
    "input",
    "output",
    "tools",
    "content",
    "execution",
];

/// Reads the item at `span`.
pub(super) fn read_item(json: Json<'_>, span: Span) -> CodexItem<'_> {
    let members = json.members(span, ITEM_KEYS);
    let [kind, call_id, id, ..] = members;
    let kind_name = kind.map(|kind| json.decode_string(kind)).unwrap_or_default();
    let text = |span: Option<Span>| span.and_then(|span| json.only_string(span));
    let mut item = CodexItem {
        kind: CodexItemKind::from_type(&kind_name),
        id: text(call_id).map(|id| json.decode_string(id)).unwrap_or_default(),
        flaw: None,
        speaker: (*kind_name == *b"message").then(|| speaker_of(json, span)),
    };
    let Some(kind) = item.kind else {
        return item;
    };
    if kind == CodexItemKind::Reasoning {
        item.id = text(id).map(|id| json.decode_string(id)).unwrap_or_default();
    }
    if item.id.is_empty() && kind == CodexItemKind::LocalShellCall {
        item.id = text(id).map(|id| json.decode_string(id)).unwrap_or_default();
    }
    item.flaw = find_flaw(json, span, kind, members);
    if !is_paired(json, kind, members) {
        item.kind = None;
    }
    item
}

/// Returns `false` for an item that pairs with nothing although its kind does.
fn is_paired(json: Json<'_>, kind: CodexItemKind, members: [Option<Span>; 10]) -> bool {
    let [_, call_id, _, name, .., execution] = members;
    let is_text = |span: Option<Span>| span.is_some_and(|span| json.kind(span) == JsonKind::String);
    match kind {
        // The provider's own search has no id, or says that it ran there.
        CodexItemKind::ToolSearchCall | CodexItemKind::ToolSearchOutput => {
            let by_server = execution.is_some_and(|value| *json.decode_string(value) == *b"server");
            is_text(call_id) && !by_server
        }
        // An automation or another thread speaks in this form, and names its tool.
        CodexItemKind::FunctionOutput => is_text(call_id) || !is_text(name),
        _ => true,
    }
}

/// Returns the fault of an item of a kind.
fn find_flaw(json: Json<'_>, span: Span, kind: CodexItemKind, members: [Option<Span>; 10]) -> Option<ItemFlaw> {
    let [_, call_id, _, name, arguments, input, output, tools, content, _] = members;
    let is = |span: Option<Span>, wanted: JsonKind| span.is_some_and(|span| json.kind(span) == wanted);
    let is_text = |span| is(span, JsonKind::String);
    let is_list = |span| is(span, JsonKind::Array);
    match kind {
        CodexItemKind::FunctionCall if !is_text(call_id) || !is_text(name) || !is_text(arguments) => {
            Some(ItemFlaw::UnreadCall)
        }
        CodexItemKind::CustomToolCall if !is_text(call_id) || !is_text(name) || !is_text(input) => {
            Some(ItemFlaw::UnreadCall)
        }
        CodexItemKind::FunctionCall => {
            let is_nameless = name.is_some_and(|name| json.string_inside(name).is_empty());
            // The provider takes any name, and refuses an empty one.
            let fault = wire::find_call_fault(Format::OpenAiResponses, json, span);
            let is_odd = is_nameless || fault.is_some_and(|fault| fault.input.is_some());
            is_odd.then_some(ItemFlaw::OddCall)
        }
        CodexItemKind::FunctionOutput | CodexItemKind::CustomToolOutput => {
            let is_read = is_text(output) || is_list(output);
            if is_text(call_id) {
                (!is_read).then_some(ItemFlaw::UnreadOutput)
            } else {
                Some(ItemFlaw::NamelessOutput)
            }
        }
        CodexItemKind::ToolSearchOutput => (!is_list(tools)).then_some(ItemFlaw::UnreadOutput),
        CodexItemKind::Reasoning => {
            let is_open = content.is_some_and(|content| is_list(Some(content)) && !json.is_empty(content));
            is_open.then_some(ItemFlaw::OpenReasoning)
        }
        CodexItemKind::CustomToolCall | CodexItemKind::LocalShellCall | CodexItemKind::ToolSearchCall => None,
    }
}

/// Returns the author of a message.
fn speaker_of(json: Json<'_>, span: Span) -> Speaker {
    let [role, content, facts] = json.members(span, ["role", "content", PASSTHROUGH]);
    let is_user = role.is_some_and(|role| *json.decode_string(role) == *b"user");
    // The client also writes what it tells of files and directories as a user's message.
    let kinds = facts.and_then(|facts| json.member(facts, "content_item_kinds"));
    let is_own = match kinds {
        Some(kinds) => memmem::find(json.bytes(kinds), br#""user."#).is_some(),
        None => !content.is_some_and(|content| begins_as_context(json, content)),
    };
    if is_user && is_own {
        Speaker::User
    } else {
        Speaker::Other
    }
}

/// The beginnings of what the client writes as the user.
const CONTEXT_STARTS: [&[u8]; 2] = [b"<", b"# AGENTS.md instructions"];

/// Returns `true` if the first text of a message begins as those of the client do.
fn begins_as_context(json: Json<'_>, content: Span) -> bool {
    let first = Json::new(json.bytes(inside_brackets(content)));
    let part = first.root_span().ok();
    let Some(text) = part.and_then(|part| first.string_member(part, "text")) else {
        return false;
    };
    // Up to its first escape the string is its text. Nearly always that decides, and the text is long.
    let inside = first.bytes(first.string_inside(text));
    let plain = memchr::memchr(b'\\', inside).unwrap_or(inside.len());
    let plain = inside.get(..plain).unwrap_or_default().trim_ascii_start();
    if CONTEXT_STARTS.iter().any(|start| plain.starts_with(start)) {
        return true;
    }
    if !plain.is_empty() && !CONTEXT_STARTS.iter().any(|start| start.starts_with(plain)) {
        return false;
    }
    let text = first.decode_string(text);
    let text = text.trim_ascii_start();
    CONTEXT_STARTS.iter().any(|start| text.starts_with(start))
}

/// Returns the span inside the brackets of a list.
const fn inside_brackets(list: Span) -> Span {
    Span::new(list.start.saturating_add(1), list.end.saturating_sub(1))
}
