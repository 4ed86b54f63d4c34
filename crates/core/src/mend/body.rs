//! A body as mends read it: its messages, and the lists of blocks in them.
//!
//! Every element of the history is a message here, also an item of Responses without a role. A list of blocks is the content
//! of a message, or of a tool result inside one.

use bytes::Bytes;

use super::{call_keys::RESULT_KEYS, candidate::BlockHash};
use crate::{
    conversation::{Role, Text},
    digest::digest_of,
    splice::{Piece, Span},
    wire::{
        HistoryShape, Unreadable, Wire,
        json::{self, Json, JsonKind},
    },
    work,
};

/// A body as mends read it.
#[derive(Debug)]
pub(super) struct MendBody<'b> {
    pub(super) bytes: &'b Bytes,
    pub(super) json: Json<'b>,
    pub(super) wire: Wire,
    /// The object of the whole body.
    pub(super) root: Span,
    /// The list of messages, brackets included. Empty without one.
    pub(super) history: Span,
    pub(super) messages: Vec<MendMessage<'b>>,
    /// The lists of blocks in document order: of a message first its own, then those of the results in it.
    pub(super) lists: Vec<BlockList<'b>>,
    /// The index of the first message after the last one of the assistant: what the user says newly.
    pub(super) newest: usize,
}

/// One element of the history.
#[derive(Debug)]
pub(super) struct MendMessage<'b> {
    pub(super) span: Span,
    /// The role as the client wrote it. Empty if it has none.
    pub(super) role: Text<'b>,
    pub(super) author: Role,
    /// The type of an item (Responses). Empty for other formats, and `message` for an item with a role.
    pub(super) kind: Text<'b>,
    /// The value of `content`, or of `parts` (Gemini). `None` if there is none.
    pub(super) content: Option<Span>,
    /// The calls of `tool_calls` (Chat Completions).
    pub(super) calls: Vec<Span>,
}

/// A list of blocks.
#[derive(Debug)]
pub(super) struct BlockList<'b> {
    /// The index of its message.
    pub(super) message: usize,
    /// The list, brackets included.
    pub(super) span: Span,
    /// `true` for the content of a tool result.
    pub(super) of_result: bool,
    /// The index of the block of that result in its message's list. `None` if the result is no block of a list.
    pub(super) result_at: Option<usize>,
    pub(super) blocks: Vec<Block<'b>>,
}

/// One block of a list.
#[derive(Debug)]
pub(super) struct Block<'b> {
    pub(super) span: Span,
    /// Its type. Of a part (Gemini) the name of the first member that says what it is.
    pub(super) kind: Text<'b>,
}

/// The members of a part that say what it is (Gemini), in both spellings.
const PART_KINDS: [&str; 13] = [
    "text",
    "inlineData",
    "inline_data",
    "fileData",
    "file_data",
    "functionCall",
    "function_call",
    "functionResponse",
    "function_response",
    "executableCode",
    "executable_code",
    "codeExecutionResult",
    "code_execution_result",
];

impl<'b> MendBody<'b> {
    /// Reads a body. It has no messages if its history is no list, or if anything but an object stands where messages, blocks
    /// and calls belong. `None` if it is no object. The caller has validated the JSON.
    pub(super) fn read(bytes: &'b Bytes, wire: Wire) -> Result<Option<Self>, Unreadable> {
        let json = Json::new(bytes);
        let root = json.root_span()?;
        if json.kind(root) != JsonKind::Object {
            return Ok(None);
        }
        let history = json.member(root, wire.format.history_key());
        let history = history.filter(|list| json.kind(*list) == JsonKind::Array);
        let mut body = Self {
            bytes,
            json,
            wire,
            root,
            history: history.unwrap_or_else(|| Span::at(root.start)),
            messages: Vec::new(),
            lists: Vec::new(),
            newest: 0,
        };
        let read = history.and_then(|history| {
            let mut elements = objects(json, history)?.into_iter();
            elements.try_for_each(|element| body.read_message(element))
        });
        if read.is_none() {
            body.messages.clear();
            body.lists.clear();
        }
        let is_model = |message: &MendMessage<'_>| message.author == Role::Assistant;
        body.newest = body
            .messages
            .iter()
            .rposition(is_model)
            .map_or(0, |at| at.saturating_add(1));
        Ok(Some(body))
    }

    /// Reads a message. `None` if it has an element that is no object.
    fn read_message(&mut self, span: Span) -> Option<()> {
        let json = self.json;
        let shape = self.wire.format.history();
        let content_key = match shape {
            HistoryShape::Contents => "parts",
            HistoryShape::Messages | HistoryShape::Chat | HistoryShape::Items => "content",
        };
        let [role, kind, content, calls, output] =
            json.members(span, ["role", "type", content_key, "tool_calls", "output"]);
        let role = role.map_or_else(Text::default, |role| json.decode_string(role));
        let kind = kind.map_or_else(Text::default, |kind| json.decode_string(kind));
        let kind = match shape {
            HistoryShape::Items if kind.is_empty() && !role.is_empty() => Text::Borrowed(b"message"),
            HistoryShape::Items => kind,
            HistoryShape::Messages | HistoryShape::Chat | HistoryShape::Contents => Text::default(),
        };
        let message = self.messages.len();
        let author = author_of(shape, &role, &kind);
        self.messages.push(MendMessage {
            span,
            role,
            author,
            kind,
            content,
            calls: match calls {
                Some(calls) => objects(json, calls)?,
                None => Vec::new(),
            },
        });
        if let Some(content) = content {
            self.read_list(message, content, author == Role::Tool, None)?;
        }
        match shape {
            HistoryShape::Items => output.map_or(Some(()), |output| self.read_list(message, output, true, None)),
            HistoryShape::Messages | HistoryShape::Chat | HistoryShape::Contents => Some(()),
        }
    }

    /// Reads a list of blocks. `None` if it has an element that is no object.
    fn read_list(&mut self, message: usize, span: Span, of_result: bool, result_at: Option<usize>) -> Option<()> {
        let json = self.json;
        if json.kind(span) != JsonKind::Array {
            return Some(());
        }
        let blocks = objects(json, span)?.into_iter().map(|block| Block {
            span: block,
            kind: self.kind_of(block),
        });
        let blocks: Vec<Block<'b>> = blocks.collect();
        work::count(blocks.len());
        let inner: Vec<(usize, Span)> = match self.wire.format.history() {
            // A result in a result is none of the format's, and a body may have any depth.
            HistoryShape::Messages if !of_result => blocks
                .iter()
                .enumerate()
                .filter(|(_, block)| *block.kind == *b"tool_result")
                .filter_map(|(at, block)| json.member(block.span, "content").map(|content| (at, content)))
                .collect(),
            // Pictures and documents of a result stand beside its response (Gemini 3).
            HistoryShape::Contents if !of_result => blocks
                .iter()
                .enumerate()
                .filter_map(|(at, block)| {
                    let result = RESULT_KEYS.iter().find(|key| *block.kind == *key.as_bytes())?;
                    let parts = json.member(json.member(block.span, result)?, "parts")?;
                    Some((at, parts))
                })
                .collect(),
            HistoryShape::Messages | HistoryShape::Chat | HistoryShape::Items | HistoryShape::Contents => Vec::new(),
        };
        self.lists.push(BlockList {
            message,
            span,
            of_result,
            result_at,
            blocks,
        });
        let mut inner = inner.into_iter();
        inner.try_for_each(|(at, content)| self.read_list(message, content, true, Some(at)))
    }

    fn kind_of(&self, block: Span) -> Text<'b> {
        match self.wire.format.history() {
            HistoryShape::Messages | HistoryShape::Chat | HistoryShape::Items => self.json.member_text(block, "type"),
            HistoryShape::Contents => {
                let found = self.json.members(block, PART_KINDS);
                let named = PART_KINDS.iter().zip(found).find(|(_, value)| value.is_some());
                named.map_or_else(Text::default, |(name, _)| Text::Borrowed(name.as_bytes()))
            }
        }
    }

    /// Returns the spans of all messages.
    pub(super) fn message_spans(&self) -> Vec<Span> {
        work::count(self.messages.len());
        self.messages.iter().map(|message| message.span).collect()
    }

    /// Returns `true` if the user has written a block of this list newly. A tool's result is none of the user.
    pub(super) fn is_users_newest(&self, list: &BlockList<'_>) -> bool {
        let author = self.messages.get(list.message).map(|message| message.author);
        list.message >= self.newest && author == Some(Role::User) && !list.of_result
    }

    /// Returns the hash of a block.
    pub(super) fn hash_of(&self, block: Span) -> BlockHash {
        let bytes = self.json.bytes(block);
        work::count_bytes(bytes.len());
        digest_of([&b"block"[..], bytes])
    }

    /// Writes a block with a constant text, for the author of a message.
    pub(super) fn constant_block(&self, author: Role, text: &'static str) -> Vec<Piece> {
        self.text_block(author, json::constant_string(text))
    }

    /// Writes a block with a text, for the author of a message. `string` is a JSON string.
    pub(super) fn text_block(&self, author: Role, string: Vec<Piece>) -> Vec<Piece> {
        let start = match (self.wire.format.history(), author) {
            (HistoryShape::Items, Role::Assistant) => r#"{"type":"output_text","text":"#,
            (
                HistoryShape::Messages | HistoryShape::Chat | HistoryShape::Items | HistoryShape::Contents,
                Role::User | Role::Assistant | Role::Tool | Role::System,
            ) => self.wire.format.text_block_start(),
        };
        json::enclose(start, string, "}")
    }
}

/// Returns the elements of a list. `None` if one is no object.
fn objects(json: Json<'_>, list: Span) -> Option<Vec<Span>> {
    let elements = json.elements(list);
    work::count(elements.len());
    let are_objects = elements.iter().all(|element| json.kind(*element) == JsonKind::Object);
    are_objects.then_some(elements)
}

/// Returns the author of a message with this role, or of an item of this kind.
fn author_of(shape: HistoryShape, role: &[u8], kind: &[u8]) -> Role {
    match role {
        b"user" => return Role::User,
        b"assistant" | b"model" => return Role::Assistant,
        b"tool" | b"function" => return Role::Tool,
        b"" => {}
        _ => return Role::System,
    }
    match shape {
        HistoryShape::Items if kind.ends_with(b"_output") => Role::Tool,
        // Calls and reasoning are the model's.
        HistoryShape::Items => Role::Assistant,
        // Gemini reads a content without a role as the user's.
        HistoryShape::Contents => Role::User,
        HistoryShape::Messages | HistoryShape::Chat => Role::System,
    }
}
