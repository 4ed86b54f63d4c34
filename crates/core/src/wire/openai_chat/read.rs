//! The reader of Chat Completions bodies.

use crate::{
    conversation::{
        Call, CallDetails, CallFault, CallResult, Content, Conversation, FlawKind, NameFault, PartId, PartKind, Role,
        Text,
    },
    splice::Span,
    wire::{
        Unreadable, body_fields, call_checks,
        json::{Cursor, Json, JsonKind},
        plain_text,
        read_steps::{self, push_flaw, push_message, push_part},
    },
};

/// Reads `body` in one pass. A body without `messages` is a conversation without messages.
pub(crate) fn read_body(body: &[u8]) -> Result<Conversation<'_>, Unreadable> {
    let json = Json::new(body);
    let conversation = Conversation::new(body, call_details, result_text);
    let mut reader = ChatReader { json, conversation };
    let mut cursor = Cursor::new(body, 0);
    cursor.walk_object(|cursor, key| match key {
        // With two histories it is not certain which one the provider reads.
        b"messages" if reader.conversation.array.is_some() => Err(Unreadable::DuplicateHistory),
        b"messages" => reader.read_messages(cursor),
        _ => body_fields::note_field(&mut reader.conversation, key, cursor).map(|_| ()),
    })?;
    cursor.expect_end().map(|()| reader.conversation)
}

struct ChatReader<'a> {
    json: Json<'a>,
    conversation: Conversation<'a>,
}

/// The members of a message that pairing needs. Of a repeated key the last counts.
#[derive(Default)]
struct ChatMessageMembers<'a> {
    role: Text<'a>,
    content: Option<Span>,
    /// Set if there is a list of calls.
    has_calls: bool,
    /// The `tool_call_id`.
    tool_call_id: Text<'a>,
    /// Set if there is content under other keys: `refusal`, `function_call`, `audio`, reasoning.
    has_other_content: bool,
}

impl<'a> ChatReader<'a> {
    fn read_messages(&mut self, cursor: &mut Cursor<'a>) -> Result<(), Unreadable> {
        let array = cursor.walk_array(|cursor| self.read_message(cursor))?;
        self.conversation.array = Some(array);
        Ok(())
    }

    fn read_message(&mut self, cursor: &mut Cursor<'a>) -> Result<(), Unreadable> {
        let mark = self.conversation.read_mark();
        let mut fields = ChatMessageMembers::default();
        let span = cursor.walk_object(|cursor, key| {
            match key {
                b"role" => fields.role = cursor.read_text()?,
                b"content" => fields.content = Some(cursor.skip_value()?),
                b"tool_calls" => {
                    // Of a repeated key the last counts: the calls of an earlier one are dropped.
                    self.conversation.rewind_to(mark);
                    fields.has_calls = self.read_calls(cursor)?;
                }
                b"tool_call_id" => fields.tool_call_id = cursor.read_text()?,
                // A name is no content: a message with only a name is still empty.
                b"name" => drop(cursor.skip_value()?),
                _ => {
                    fields.has_other_content |= cursor.peek_kind() != JsonKind::Null;
                    cursor.skip_value()?;
                }
            }
            Ok(())
        })?;
        let role = role_of(&fields.role);
        let content = fields.content.map(|content| (content, self.json.kind(content)));
        match role {
            Role::Assistant => self.note_flaw(
                &fields,
                content.is_none_or(|(_, kind)| kind == JsonKind::Null),
                mark.parts,
            ),
            // Only the assistant calls. The role may follow the calls, so they are dropped only here.
            _ => self.conversation.rewind_to(mark),
        }
        if role == Role::Tool {
            if fields.content.is_some_and(|content| is_data(self.json, content)) {
                let part = PartId::new(self.conversation.parts.len());
                push_flaw(&mut self.conversation, Some(part), FlawKind::ResultContent);
            }
            let kind = PartKind::Result(CallResult {
                id: fields.tool_call_id,
                ..CallResult::default()
            });
            push_part(&mut self.conversation, span, kind);
        }
        let content = match content {
            Some((value, JsonKind::Array)) => Content::Blocks(value),
            Some((value, JsonKind::String)) => Content::Text(value),
            _ => Content::Opaque,
        };
        push_message(&mut self.conversation, span, role, content, mark.parts);
        Ok(())
    }

    /// Notes the flaw of an assistant message, if it has one.
    fn note_flaw(&mut self, fields: &ChatMessageMembers<'a>, without_content: bool, first: usize) {
        let without_calls = self.conversation.parts.len() == first;
        let kind = match (without_calls, without_content && !fields.has_other_content) {
            (true, true) => FlawKind::EmptyMessage,
            (true, false) if fields.has_calls => FlawKind::EmptyCalls,
            _ => return,
        };
        push_flaw(&mut self.conversation, None, kind);
    }

    /// Reads a list of calls. Returns `true` if there is one.
    fn read_calls(&mut self, cursor: &mut Cursor<'a>) -> Result<bool, Unreadable> {
        // Clients that serialize missing members write null.
        if cursor.peek_kind() == JsonKind::Null {
            return cursor.skip_value().map(|_| false);
        }
        cursor.walk_array(|cursor| self.read_call(cursor)).map(|_| true)
    }

    fn read_call(&mut self, cursor: &mut Cursor<'a>) -> Result<(), Unreadable> {
        let (mut id, mut name_fault) = (Text::default(), None);
        let span = cursor.walk_object(|cursor, key| {
            match key {
                b"id" => id = cursor.read_text()?,
                b"function" => name_fault = read_function(cursor)?,
                _ => drop(cursor.skip_value()?),
            }
            Ok(())
        })?;
        if let Some(fault) = CallFault::new(None, name_fault) {
            let part = PartId::new(self.conversation.parts.len());
            push_flaw(&mut self.conversation, Some(part), FlawKind::Call(fault));
        }
        let kind = PartKind::Call(Call { id, ..Call::default() });
        push_part(&mut self.conversation, span, kind);
        Ok(())
    }
}

/// Passes the function of a call, and returns the fault of a name without a text. `None` if there is no function.
fn read_function(cursor: &mut Cursor<'_>) -> Result<Option<NameFault>, Unreadable> {
    if cursor.peek_kind() != JsonKind::Object {
        return cursor.skip_value().map(|_| None);
    }
    let mut fault = Some(NameFault::Missing);
    cursor.walk_object(|cursor, key| {
        match key {
            b"name" => fault = call_checks::read_name_fault(cursor)?,
            _ => drop(cursor.skip_value()?),
        }
        Ok(())
    })?;
    Ok(fault)
}

/// Locates the name and the input of an entry of `tool_calls`: `function {name, arguments}` or `custom {name, input}`.
pub(crate) fn call_details(body: &[u8], call: Span) -> CallDetails {
    let json = Json::new(body);
    let [function, custom] = json.members(call, ["function", "custom"]);
    let Some(function) = function.or(custom) else {
        return CallDetails::default();
    };
    let [name, arguments, input] = json.members(function, ["name", "arguments", "input"]);
    CallDetails {
        name: name.and_then(|name| json.only_string(name)),
        input: arguments.or(input),
        toolset: None,
    }
}

/// Returns `true` if the content of a result is an object, or a list of texts and data that no server takes.
///
/// `Missing required parameter: 'messages[2].content[0].type'.` (langchain-ai/langchainjs#11092, 2026-06), `Input should
/// be a valid dictionary` (NousResearch/hermes-agent#48244, 2026-06).
pub(super) fn is_data(json: Json<'_>, content: Span) -> bool {
    match json.kind(content) {
        JsonKind::Object => true,
        JsonKind::Array => {
            let (mut has_data, mut has_parts) = (false, false);
            let walked = json.for_each_element(content, |element| match ResultElement::of(json, element) {
                ResultElement::Text => {}
                ResultElement::Data => has_data = true,
                ResultElement::Part => has_parts = true,
            });
            // As one text, an image would be unreadable.
            walked.is_ok() && has_data && !has_parts
        }
        JsonKind::String | JsonKind::Null | JsonKind::Other => false,
    }
}

/// An element of a result's content.
enum ResultElement {
    /// A part of type `text`.
    Text,
    /// Another part, or what some servers take for one: vLLM (2026-11) takes texts, and parts without a type.
    Part,
    /// Anything else.
    Data,
}

impl ResultElement {
    fn of(json: Json<'_>, element: Span) -> Self {
        match json.kind(element) {
            JsonKind::String => Self::Part,
            JsonKind::Object => match json.members(element, ["type", "text", "image_url"]) {
                [Some(kind), ..] if json.kind(kind) == JsonKind::String => match &*json.decode_string(kind) {
                    b"text" => Self::Text,
                    _ => Self::Part,
                },
                [_, None, None] => Self::Data,
                _ => Self::Part,
            },
            JsonKind::Array | JsonKind::Null | JsonKind::Other => Self::Data,
        }
    }
}

/// Returns the text of a tool message. `None` if its content is not one plain text.
fn result_text(body: &[u8], message: Span, is_wanted: fn(&[u8]) -> bool) -> Option<Text<'_>> {
    plain_text::member_text(Json::new(body), message, "content", is_wanted)
}

fn role_of(name: &[u8]) -> Role {
    match name {
        b"tool" => Role::Tool,
        _ => read_steps::role_of(name),
    }
}
