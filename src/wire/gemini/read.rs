//! The reader of generateContent bodies. It reads both spellings of a field, as proto JSON allows.
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

/// Reads `body` in one pass. A body without `contents` is a conversation without messages.
pub(crate) fn read(body: &[u8]) -> Result<Conversation<'_>, Unreadable> {
    let conversation = Conversation::new(body, details, said);
    let mut reader = Reader {
        conversation,
        found: false,
    };
    let mut cursor = Cursor::new(body, 0);
    cursor.object(|cursor, key| match key {
        // With two histories it is not certain which one the provider reads.
        b"contents" if reader.found => Err(Unreadable::DuplicateHistory),
        b"contents" => reader.contents(cursor),
        // The provider may have cached the beginning of the history, with calls in it.
        b"cachedContent" | b"cached_content" => {
            reader.conversation.may_have_remote_calls = !cursor.text()?.is_empty();
            // The cache belongs to one project, and so to the profile's credentials.
            reader.conversation.notes.names_remote_state = reader.conversation.may_have_remote_calls;
            Ok(())
        }
        _ => fields::note(&mut reader.conversation, key, cursor).map(|_| ()),
    })?;
    cursor.end().map(|()| reader.conversation)
}

struct Reader<'a> {
    conversation: Conversation<'a>,
    /// Set once the history was read.
    found: bool,
}

impl<'a> Reader<'a> {
    /// Reads `contents`, which is a list or a single content.
    fn contents(&mut self, cursor: &mut Cursor<'a>) -> Result<(), Unreadable> {
        self.found = true;
        // A single content cannot contain both a call and its result.
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
                    // Of a repeated key the last counts, as it does for the provider.
                    self.conversation.rewind_to(mark);
                    content = self.parts(cursor)?;
                }
                _ => drop(cursor.value()?),
            }
            Ok(())
        })?;
        for part in self.conversation.parts.iter_mut().skip(mark.parts) {
            // Only the model calls and thinks. The role may follow the parts, so they are corrected here.
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

/// Returns the role of a content.
fn role_of(name: &[u8]) -> Role {
    match name {
        b"model" => Role::Assistant,
        // A content without a role is the user's. Old clients give responses the role `function`.
        _ => Role::User,
    }
}

/// The members of a part that pairing needs. Of a repeated key the last counts.
#[derive(Default)]
struct Fields<'a> {
    call: Option<Names<'a>>,
    response: Option<Names<'a>>,
    signed: bool,
}

/// The id and the name of a call or response.
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

    /// Classifies the part.
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
            // A signature binds any other part to its prefix like a thought.
            (None, None) if signed => PartKind::Thinking,
            (None, None) => PartKind::Other,
        }
    }
}

impl<'a> Names<'a> {
    /// Reads the id and the name at the cursor. `None` if there is no object.
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

/// Locates the name and the input of a `functionCall` part.
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

/// Returns the text of a `functionResponse`. `None` unless its only member is a text under a key for results or errors.
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
