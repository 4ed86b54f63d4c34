//! Reads a generateContent body into a conversation. Both spellings of a field are read (proto JSON).
#![cfg_attr(
    not(test),
    warn(clippy::indexing_slicing, clippy::string_slice, clippy::arithmetic_side_effects)
)]

use crate::{
    conversation::{Call, CallDetails, CallResult, Content, Conversation, Message, Part, PartKind, Role, Text},
    splice::Span,
    wire::{
        Unreadable, fields,
        json::{Cursor, Json, Kind},
    },
};

/// Reads `body` in one pass; a body without `contents` is a conversation without messages.
pub(crate) fn read(body: &[u8]) -> Result<Conversation<'_>, Unreadable> {
    let conversation = Conversation::new(body, details, said);
    let mut reader = Reader {
        conversation,
        found: false,
    };
    let mut cursor = Cursor::new(body, 0);
    cursor.object(|cursor, key| match key {
        b"contents" if reader.found => Err(Unreadable::DuplicateHistory),
        b"contents" => reader.contents(cursor),
        // The beginning of the history may be cached at the provider.
        b"cachedContent" | b"cached_content" => {
            reader.conversation.may_have_remote_calls = !cursor.text()?.is_empty();
            // It is bound to the project.
            reader.conversation.notes.names_remote_state = reader.conversation.may_have_remote_calls;
            Ok(())
        }
        _ => fields::note(&mut reader.conversation, key, cursor).map(|_| ()),
    })?;
    cursor.end().map(|()| reader.conversation)
}

struct Reader<'a> {
    conversation: Conversation<'a>,
    /// Whether the history was read already.
    found: bool,
}

impl<'a> Reader<'a> {
    /// `contents` is a list; a single content may stand for a list of one, and holds no pair.
    fn contents(&mut self, cursor: &mut Cursor<'a>) -> Result<(), Unreadable> {
        self.found = true;
        if cursor.kind() == Kind::Object {
            self.conversation.notes.only_text = Some(cursor.value()?);
            return Ok(());
        }
        let array = cursor.array(|cursor| self.content(cursor))?;
        self.conversation.array = Some(array);
        Ok(())
    }

    fn content(&mut self, cursor: &mut Cursor<'a>) -> Result<(), Unreadable> {
        let mark = self.conversation.read_mark();
        let (mut role, mut content) = (Role::User, Content::Opaque);
        let span = cursor.object(|cursor, key| {
            match key {
                b"role" => role = role_of(&cursor.text()?),
                b"parts" => {
                    // Of a key that stands twice the last counts.
                    self.conversation.rewind_to(mark);
                    content = self.parts(cursor)?;
                }
                _ => drop(cursor.value()?),
            }
            Ok(())
        })?;
        for part in self.conversation.parts.iter_mut().skip(mark.parts) {
            // Only the model calls.
            if role != Role::Assistant && matches!(part.kind, PartKind::Call(_) | PartKind::Thinking) {
                part.kind = PartKind::Other;
            }
        }
        let parts = mark.parts..self.conversation.parts.len();
        self.conversation.messages.push(Message {
            span,
            role,
            content,
            parts,
        });
        Ok(())
    }

    fn parts(&mut self, cursor: &mut Cursor<'a>) -> Result<Content, Unreadable> {
        match cursor.kind() {
            Kind::Array => cursor.array(|cursor| self.part(cursor)).map(Content::Blocks),
            _ => cursor.value().map(|_| Content::Opaque),
        }
    }

    fn part(&mut self, cursor: &mut Cursor<'a>) -> Result<(), Unreadable> {
        let mut fields = Fields::default();
        let span = match cursor.kind() {
            Kind::Object => cursor.object(|cursor, key| fields.take(key, cursor))?,
            _ => cursor.value()?,
        };
        let message = self.conversation.messages.len();
        let kind = fields.part();
        self.conversation.push_part(Part { span, message, kind });
        Ok(())
    }
}

/// A content without a role is the user's; in old clients responses have a role of their own, `function`.
fn role_of(name: &[u8]) -> Role {
    match name {
        b"model" => Role::Assistant,
        _ => Role::User,
    }
}

/// The members of a part that matter here; of a key that stands twice the last counts.
#[derive(Default)]
struct Fields<'a> {
    call: Option<Names<'a>>,
    response: Option<Names<'a>>,
    signed: bool,
}

/// How a call or response is named.
#[derive(Default)]
struct Names<'a> {
    id: Text<'a>,
    name: Text<'a>,
}

impl<'a> Fields<'a> {
    fn take(&mut self, key: &[u8], cursor: &mut Cursor<'a>) -> Result<(), Unreadable> {
        match key {
            b"functionCall" | b"function_call" => self.call = Names::read(cursor)?,
            b"functionResponse" | b"function_response" => self.response = Names::read(cursor)?,
            b"thoughtSignature" | b"thought_signature" => self.signed = !cursor.text()?.is_empty(),
            _ => drop(cursor.value()?),
        }
        Ok(())
    }

    fn part(self) -> PartKind<'a> {
        let signed = self.signed;
        match (self.call, self.response) {
            (Some(Names { id, name }), _) => PartKind::Call(Call {
                id,
                name,
                signed,
                ..Call::default()
            }),
            (None, Some(Names { id, name })) => PartKind::Result(CallResult {
                id,
                name,
                ..CallResult::default()
            }),
            (None, None) if signed => PartKind::Thinking,
            (None, None) => PartKind::Other,
        }
    }
}

impl<'a> Names<'a> {
    fn read(cursor: &mut Cursor<'a>) -> Result<Option<Self>, Unreadable> {
        if cursor.kind() != Kind::Object {
            return cursor.value().map(|_| None);
        }
        let mut names = Self::default();
        cursor.object(|cursor, key| {
            match key {
                b"id" => names.id = cursor.text()?,
                b"name" => names.name = cursor.text()?,
                _ => drop(cursor.value()?),
            }
            Ok(())
        })?;
        Ok(Some(names))
    }
}

/// What a `functionCall` part says.
pub(crate) fn details(body: &[u8], part: Span) -> CallDetails {
    let json = Json::new(body);
    let Some(call) = super::write::call(json, part) else {
        return CallDetails::default();
    };
    CallDetails {
        name: json
            .member(call, "name")
            .filter(|name| json.kind(*name) == Kind::String),
        input: json.member(call, "args"),
        toolset: None,
    }
}

/// What a `functionResponse` says, where its response is one text under the key for results or failures.
fn said(body: &[u8], part: Span) -> Option<Text<'_>> {
    let json = Json::new(body);
    let response = json.member(super::write::response(json, part)?, "response")?;
    let (mut members, mut said) = (0_usize, None);
    let walked = json.members(response, |key, value| {
        members = members.saturating_add(1);
        let says = matches!(key, b"result" | b"output" | b"error") && json.kind(value) == Kind::String;
        said = says.then_some(value);
    });
    let said = said.filter(|_| walked.is_ok() && members == 1)?;
    Some(json.decode(said))
}
