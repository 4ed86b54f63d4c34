//! Reads a Messages body into a conversation.
#![cfg_attr(
    not(test),
    warn(clippy::indexing_slicing, clippy::string_slice, clippy::arithmetic_side_effects)
)]

use crate::{
    conversation::{
        Call, CallResult, Content, Conversation, Flaw, FlawKind, Message, Part, PartKind, Role, ServerCall, Text,
    },
    splice::Span,
    wire::{
        Unreadable,
        json::{Json, Kind, is_blank},
    },
};

/// Reads `body`; a body without `messages` is a conversation without messages.
pub(crate) fn read(body: &[u8]) -> Result<Conversation<'_>, Unreadable> {
    let json = Json::new(body);
    let root = json.root()?;
    let mut top = Top::default();
    json.members(root, |key, value| top.take(json, key, value))?;
    if top.histories > 1 {
        return Err(Unreadable::DuplicateHistory);
    }
    let conversation = Conversation {
        body,
        calls_elsewhere: top.thread_continues,
        ..Conversation::default()
    };
    let Some(array) = top.history else {
        return Ok(conversation);
    };
    Reader {
        json,
        conversation: Conversation {
            array: Some(array),
            ..conversation
        },
    }
    .read(array)
}

/// The members of the body that matter here.
#[derive(Default)]
struct Top {
    histories: usize,
    history: Option<Span>,
    thread_continues: bool,
}

impl Top {
    fn take(&mut self, json: Json<'_>, key: &[u8], value: Span) {
        match key {
            b"messages" => {
                self.histories = self.histories.saturating_add(1);
                self.history = Some(value);
            }
            // Message threads (anthropic-beta message-threads-2026-08-12): only the new messages are in the body.
            b"thread" => {
                let kind = json.member(value, "type");
                self.thread_continues = kind.is_some_and(|kind| *json.decode(kind) == *b"continue");
            }
            _ => {}
        }
    }
}

struct Reader<'a> {
    json: Json<'a>,
    conversation: Conversation<'a>,
}

impl<'a> Reader<'a> {
    fn read(mut self, array: Span) -> Result<Conversation<'a>, Unreadable> {
        let mut failed = Ok(());
        let json = self.json;
        json.elements(array, |span| {
            if failed.is_ok() {
                failed = self.message(span);
            }
        })?;
        failed?;
        self.drop_flaw_of_last_assistant();
        Ok(self.conversation)
    }

    fn message(&mut self, span: Span) -> Result<(), Unreadable> {
        let (mut role, mut content) = (Role::System, None);
        self.json.members(span, |key, value| match key {
            b"role" => role = role_of(&self.json.decode(value)),
            b"content" => content = Some(value),
            _ => {}
        })?;
        let index = self.conversation.messages.len();
        let first = self.conversation.parts.len();
        let content = match content {
            Some(value) if self.json.kind(value) == Kind::Array => {
                self.blocks(value, role, index)?;
                Content::Blocks(value)
            }
            Some(value) if self.json.kind(value) == Kind::String => {
                self.conversation.parts.push(Part {
                    span: value,
                    message: index,
                    kind: PartKind::Other,
                });
                Content::Text(value)
            }
            _ => Content::Opaque,
        };
        let parts = first..self.conversation.parts.len();
        let empty = match content {
            Content::Blocks(_) => parts.is_empty(),
            Content::Text(value) => is_blank(self.json.bytes(value)),
            Content::Opaque => false,
        };
        if empty && role != Role::System {
            self.conversation.flaws.push(Flaw {
                message: index,
                part: None,
                kind: FlawKind::EmptyMessage,
            });
        }
        self.conversation.messages.push(Message {
            span,
            role,
            content,
            parts,
        });
        Ok(())
    }

    fn blocks(&mut self, list: Span, role: Role, message: usize) -> Result<(), Unreadable> {
        let mut failed = Ok(());
        let json = self.json;
        json.elements(list, |span| {
            if failed.is_ok() {
                failed = self.block(span, role, message);
            }
        })?;
        failed
    }

    fn block(&mut self, span: Span, role: Role, message: usize) -> Result<(), Unreadable> {
        let mut block = Block::default();
        if self.json.kind(span) == Kind::Object {
            self.json
                .members(span, |key, value| block.take(self.json, key, value))?;
        }
        let part = self.conversation.parts.len();
        if let Some(kind) = block.flaw(self.json, role) {
            self.conversation.flaws.push(Flaw {
                message,
                part: Some(part),
                kind,
            });
        }
        let kind = block.part(self.json, role);
        self.conversation.parts.push(Part { span, message, kind });
        Ok(())
    }

    /// A final assistant message may be empty (`all messages must have non-empty content except for the optional
    /// final assistant message`).
    fn drop_flaw_of_last_assistant(&mut self) {
        let last = self.conversation.messages.len().saturating_sub(1);
        if self
            .conversation
            .messages
            .last()
            .is_some_and(|message| message.role == Role::Assistant)
        {
            self.conversation
                .flaws
                .retain(|flaw| flaw.message != last || flaw.kind != FlawKind::EmptyMessage);
        }
    }
}

fn role_of(name: &[u8]) -> Role {
    match name {
        b"user" => Role::User,
        b"assistant" => Role::Assistant,
        _ => Role::System,
    }
}

/// The members of a block that matter here; of a key that stands twice the last counts.
#[derive(Default)]
struct Block<'a> {
    kind: Text<'a>,
    id: Text<'a>,
    answers: Text<'a>,
    name: Option<Span>,
    input: Option<Span>,
    toolset: Option<Span>,
    text: Option<Span>,
    content: Option<Span>,
    failed: bool,
    called_by_code: bool,
}

impl<'a> Block<'a> {
    fn take(&mut self, json: Json<'a>, key: &[u8], value: Span) {
        match key {
            b"type" => self.kind = json.decode(value),
            b"id" => self.id = json.decode(value),
            b"tool_use_id" => self.answers = json.decode(value),
            b"name" => self.name = Some(value),
            b"input" => self.input = Some(value),
            b"toolset_name" => self.toolset = (json.kind(value) == Kind::String).then_some(value),
            b"text" => self.text = Some(value),
            b"content" => self.content = Some(value),
            b"is_error" => self.failed = json.bytes(value) == b"true",
            // `{"type":"direct"}` is an ordinary call; any other caller is code at the provider.
            b"caller" => self.called_by_code = json.member(value, "tool_id").is_some(),
            _ => {}
        }
    }

    fn part(self, json: Json<'a>, role: Role) -> PartKind<'a> {
        let assistant = role == Role::Assistant;
        match self.kind.as_ref() {
            b"tool_use" if assistant => PartKind::Call(Call {
                id: self.id,
                name: self.name.filter(|name| json.kind(*name) == Kind::String),
                input: self.input,
                toolset: self.toolset,
                programmatic: self.called_by_code,
            }),
            b"tool_result" if role != Role::System => PartKind::Result(CallResult { id: self.answers }),
            b"thinking" | b"redacted_thinking" => PartKind::Thinking,
            b"compaction" => PartKind::Compaction,
            b"server_tool_use" | b"mcp_tool_use" if assistant => PartKind::ServerCall(ServerCall {
                id: self.id,
                known: true,
            }),
            // New kinds of server tools appear: matched by suffix, never by a closed list.
            kind if assistant && kind.ends_with(b"_tool_use") => PartKind::ServerCall(ServerCall {
                id: self.id,
                known: false,
            }),
            kind if assistant && kind.ends_with(b"_tool_result") => PartKind::ServerResult(self.answers),
            _ => PartKind::Other,
        }
    }

    fn flaw(&self, json: Json<'_>, role: Role) -> Option<FlawKind> {
        match self.kind.as_ref() {
            b"tool_use" if role == Role::Assistant => match self.input {
                None => Some(FlawKind::InputEmpty),
                Some(input) => match json.kind(input) {
                    Kind::Null => Some(FlawKind::InputEmpty),
                    Kind::Array if is_empty_list(json, input) => Some(FlawKind::InputEmpty),
                    Kind::String => Some(FlawKind::InputText),
                    _ => None,
                },
            },
            b"text" => {
                let blank = |text: &Span| json.kind(*text) == Kind::String && is_blank(json.bytes(*text));
                self.text.filter(blank).map(|_| FlawKind::BlankText)
            }
            b"tool_result" if self.failed && self.says_nothing(json) => Some(FlawKind::ErrorWithoutContent),
            _ => None,
        }
    }

    fn says_nothing(&self, json: Json<'_>) -> bool {
        self.content.is_none_or(|content| match json.kind(content) {
            Kind::Null => true,
            Kind::String => is_blank(json.bytes(content)),
            Kind::Array => is_empty_list(json, content),
            _ => false,
        })
    }
}

fn is_empty_list(json: Json<'_>, list: Span) -> bool {
    let mut empty = true;
    json.elements(list, |_| empty = false).is_ok() && empty
}
