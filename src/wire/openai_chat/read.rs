//! Reads a Chat Completions body into a conversation.
#![cfg_attr(
    not(test),
    warn(clippy::indexing_slicing, clippy::string_slice, clippy::arithmetic_side_effects)
)]

use crate::{
    conversation::{Call, CallResult, Content, Conversation, Flaw, FlawKind, Message, Part, PartKind, Role, Text},
    splice::Span,
    wire::{
        Unreadable,
        json::{Json, Kind},
    },
};

/// Reads `body`; a body without `messages` is a conversation without messages.
pub(crate) fn read(body: &[u8]) -> Result<Conversation<'_>, Unreadable> {
    let json = Json::new(body);
    let root = json.root()?;
    let (mut histories, mut history) = (0_usize, None);
    json.members(root, |key, value| {
        if key == b"messages" {
            histories = histories.saturating_add(1);
            history = Some(value);
        }
    })?;
    if histories > 1 {
        return Err(Unreadable::DuplicateHistory);
    }
    let conversation = Conversation {
        body,
        array: history,
        ..Conversation::default()
    };
    match history {
        Some(array) => Reader { json, conversation }.read(array),
        None => Ok(conversation),
    }
}

struct Reader<'a> {
    json: Json<'a>,
    conversation: Conversation<'a>,
}

/// The members of a message that matter here; of a key that stands twice the last counts.
#[derive(Default)]
struct Fields<'a> {
    role: Text<'a>,
    content: Option<Span>,
    calls: Option<Span>,
    answers: Text<'a>,
    /// Whether the message says something beside its content: `refusal`, `function_call`, `audio`, reasoning.
    other: bool,
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
        Ok(self.conversation)
    }

    fn message(&mut self, span: Span) -> Result<(), Unreadable> {
        let mut fields = Fields::default();
        let json = self.json;
        json.members(span, |key, value| match key {
            b"role" => fields.role = json.decode(value),
            b"content" => fields.content = Some(value),
            b"tool_calls" => fields.calls = Some(value),
            b"tool_call_id" => fields.answers = json.decode(value),
            b"name" => {}
            _ => fields.other |= json.kind(value) != Kind::Null,
        })?;
        let role = role_of(&fields.role);
        let message = self.conversation.messages.len();
        let first = self.conversation.parts.len();
        match role {
            Role::Assistant => self.assistant(&fields, message)?,
            Role::Tool => {
                let kind = PartKind::Result(CallResult { id: fields.answers });
                self.conversation.parts.push(Part { span, message, kind });
            }
            Role::User | Role::System => {}
        }
        let content = match fields.content {
            Some(value) if json.kind(value) == Kind::Array => Content::Blocks(value),
            Some(value) if json.kind(value) == Kind::String => Content::Text(value),
            _ => Content::Opaque,
        };
        let parts = first..self.conversation.parts.len();
        self.conversation.messages.push(Message {
            span,
            role,
            content,
            parts,
        });
        Ok(())
    }

    fn assistant(&mut self, fields: &Fields<'a>, message: usize) -> Result<(), Unreadable> {
        let list = fields.calls.filter(|calls| self.json.kind(*calls) != Kind::Null);
        let mut count = 0_usize;
        if let Some(list) = list {
            let mut failed = Ok(());
            let json = self.json;
            json.elements(list, |span| {
                count = count.saturating_add(1);
                if failed.is_ok() {
                    failed = self.call(span, message);
                }
            })?;
            failed?;
        }
        let silent = fields
            .content
            .is_none_or(|content| self.json.kind(content) == Kind::Null)
            && !fields.other;
        let kind = match (count, silent) {
            (0, true) => FlawKind::EmptyMessage,
            (0, false) if list.is_some() => FlawKind::EmptyCalls,
            _ => return Ok(()),
        };
        self.conversation.flaws.push(Flaw {
            message,
            part: None,
            kind,
        });
        Ok(())
    }

    fn call(&mut self, span: Span, message: usize) -> Result<(), Unreadable> {
        let json = self.json;
        let (mut id, mut function) = (Text::default(), None);
        json.members(span, |key, value| match key {
            b"id" => id = json.decode(value),
            b"function" | b"custom" if json.kind(value) == Kind::Object => function = Some(value),
            _ => {}
        })?;
        let (mut name, mut input) = (None, None);
        if let Some(function) = function {
            json.members(function, |key, value| match key {
                b"name" => name = (json.kind(value) == Kind::String).then_some(value),
                b"arguments" | b"input" => input = Some(value),
                _ => {}
            })?;
        }
        let kind = PartKind::Call(Call {
            id,
            name,
            input,
            toolset: None,
            programmatic: false,
        });
        self.conversation.parts.push(Part { span, message, kind });
        Ok(())
    }
}

fn role_of(name: &[u8]) -> Role {
    match name {
        b"user" => Role::User,
        b"assistant" => Role::Assistant,
        b"tool" => Role::Tool,
        _ => Role::System,
    }
}
