//! The reader of Messages bodies.

use crate::{
    conversation::{
        Call, CallDetails, CallFault, CallResult, Content, Conversation, Flaw, FlawKind, PartId, PartKind, ReadMark,
        Role, ServerCall, Text,
    },
    splice::Span,
    wire::{
        Format, Unreadable, body_fields,
        call_checks::{character_fault, object_fault},
        json::{Cursor, Json, JsonKind, is_blank},
        plain_text,
        read_steps::{push_flaw, push_message, push_part, role_of},
        signatures,
    },
    work,
};

/// Reads `body` in one pass. A body without `messages` is a conversation without messages.
pub(crate) fn read_body(body: &[u8]) -> Result<Conversation<'_>, Unreadable> {
    let json = Json::new(body);
    let conversation = Conversation::new(body, call_details, result_text);
    let mut reader = AnthropicReader { json, conversation };
    let mut cursor = Cursor::new(body, 0);
    cursor.walk_object(|cursor, key| match key {
        // With two histories it is not certain which one the provider reads.
        b"messages" if reader.conversation.array.is_some() => Err(Unreadable::DuplicateHistory),
        b"messages" => reader.read_messages(cursor),
        b"thread" => reader.read_thread(cursor),
        b"container" => reader.read_container(cursor),
        _ => body_fields::note_field(&mut reader.conversation, key, cursor).map(|_| ()),
    })?;
    reader.drop_flaw_of_last_assistant();
    cursor.expect_end().map(|()| reader.conversation)
}

struct AnthropicReader<'a> {
    json: Json<'a>,
    conversation: Conversation<'a>,
}

impl<'a> AnthropicReader<'a> {
    fn read_messages(&mut self, cursor: &mut Cursor<'a>) -> Result<(), Unreadable> {
        let array = cursor.walk_array(|cursor| self.read_message(cursor))?;
        self.conversation.array = Some(array);
        Ok(())
    }

    /// Reads the message thread (anthropic-beta message-threads-2026-08-12).
    ///
    /// A body that continues a thread contains only the new messages.
    fn read_thread(&mut self, cursor: &mut Cursor<'a>) -> Result<(), Unreadable> {
        let thread = body_fields::note_field(&mut self.conversation, b"thread", cursor)?;
        self.conversation.may_have_remote_calls = *self.json.member_text(thread, "type") == *b"continue";
        self.conversation.notes.names_remote_state |= self.conversation.may_have_remote_calls;
        Ok(())
    }

    /// Reads the container: an id, or an object that may contain one. Without an id the provider makes a new container.
    fn read_container(&mut self, cursor: &mut Cursor<'a>) -> Result<(), Unreadable> {
        let container = cursor.skip_value()?;
        let id = match self.json.kind(container) {
            JsonKind::Object => self.json.member(container, "id"),
            _ => Some(container),
        };
        self.conversation.notes.names_remote_state |= id.is_some_and(|id| !self.json.decode_string(id).is_empty());
        Ok(())
    }

    fn read_message(&mut self, cursor: &mut Cursor<'a>) -> Result<(), Unreadable> {
        let mark = self.conversation.read_mark();
        let (mut role, mut content) = (Role::System, Content::Opaque);
        let span = cursor.walk_object(|cursor, key| {
            match key {
                b"role" => role = role_of(&cursor.read_text()?),
                b"content" => {
                    // Of a repeated key the last counts, as it does for the provider.
                    self.conversation.rewind_to(mark);
                    content = self.read_content(cursor)?;
                }
                _ => drop(cursor.skip_value()?),
            }
            Ok(())
        })?;
        self.reclassify_parts(role, mark);
        if role != Role::System && self.is_empty(content, self.conversation.parts.len() == mark.parts) {
            push_flaw(&mut self.conversation, None, FlawKind::EmptyMessage);
        }
        push_message(&mut self.conversation, span, role, content, mark.parts);
        Ok(())
    }

    fn read_content(&mut self, cursor: &mut Cursor<'a>) -> Result<Content, Unreadable> {
        match cursor.peek_kind() {
            JsonKind::Array => cursor.walk_array(|cursor| self.read_block(cursor)).map(Content::Blocks),
            JsonKind::String => {
                let span = cursor.skip_value()?;
                // A string counts as one part, like a list with one text block.
                push_part(&mut self.conversation, span, PartKind::Other);
                Ok(Content::Text(span))
            }
            _ => cursor.skip_value().map(|_| Content::Opaque),
        }
    }

    /// Reads one block, and notes its flaw.
    fn read_block(&mut self, cursor: &mut Cursor<'a>) -> Result<(), Unreadable> {
        let mut block = AnthropicBlock::default();
        let span = match cursor.peek_kind() {
            JsonKind::Object => cursor.walk_object(|cursor, key| block.read_member(self.json, key, cursor))?,
            _ => cursor.skip_value()?,
        };
        if let Some(kind) = block.find_flaw(self.json) {
            let part = PartId::new(self.conversation.parts.len());
            push_flaw(&mut self.conversation, Some(part), kind);
        }
        if block.is_foreign_thinking(self.json) {
            let part = PartId::new(self.conversation.parts.len());
            self.conversation.foreign_thinking.push(part);
        }
        push_part(&mut self.conversation, span, block.into_part_kind());
        Ok(())
    }

    /// Reclassifies parts that the role may not contain. They were read before the role, which may follow the content.
    fn reclassify_parts(&mut self, role: Role, mark: ReadMark) {
        if role == Role::Assistant {
            return;
        }
        // Calls and server results are output of the assistant. System messages have no tool results either.
        for part in self.conversation.parts.iter_mut().skip(mark.parts) {
            work::count(1);
            let theirs = matches!(
                part.kind,
                PartKind::Call(_) | PartKind::ServerCall(_) | PartKind::ServerResult(_)
            );
            if theirs || (role == Role::System && matches!(part.kind, PartKind::Result(_))) {
                part.kind = PartKind::Other;
            }
        }
        // Only the flaws of this message are filtered, since a history may have very many.
        let found = self.conversation.flaws.split_off(mark.flaws);
        work::count(found.len());
        let stays = |flaw: &Flaw| !matches!(flaw.kind, FlawKind::Call(_));
        self.conversation.flaws.extend(found.into_iter().filter(stays));
    }

    fn is_empty(&self, content: Content, without_parts: bool) -> bool {
        match content {
            Content::Blocks(_) => without_parts,
            Content::Text(text) => is_blank(self.json.bytes(text)),
            Content::Opaque => false,
        }
    }

    /// Removes the flaw of an empty final assistant message, which Anthropic accepts.
    ///
    /// Source: `all messages must have non-empty content except for the optional final assistant message`.
    fn drop_flaw_of_last_assistant(&mut self) {
        let last = self.conversation.messages.len().saturating_sub(1);
        let is_last = |flaw: &Flaw| flaw.message == last && flaw.kind == FlawKind::EmptyMessage;
        let assistant = self
            .conversation
            .messages
            .last()
            .is_some_and(|message| message.role == Role::Assistant);
        if assistant && self.conversation.flaws.last().is_some_and(is_last) {
            self.conversation.flaws.pop();
        }
    }
}

/// Reports whether the caller of a call is code at the provider. An ordinary call has `{"type":"direct"}`.
pub(crate) fn is_code(json: Json<'_>, caller: Span) -> bool {
    json.member(caller, "tool_id").is_some()
}

/// Returns the id of the provider's call whose code made the call at `block`; empty if none did.
pub(crate) fn code_call_id(json: Json<'_>, block: Span) -> Text<'_> {
    let caller = json.member(block, "caller");
    caller.map_or_else(Text::default, |caller| json.member_text(caller, "tool_id"))
}

/// Locates the name, the input and the toolset of a `tool_use` block.
pub(crate) fn call_details(body: &[u8], block: Span) -> CallDetails {
    let json = Json::new(body);
    let [name, input, toolset] = json.members(block, ["name", "input", "toolset_name"]);
    let string = |span: Option<Span>| span.and_then(|span| json.only_string(span));
    CallDetails {
        name: string(name),
        input,
        toolset: string(toolset),
    }
}

/// Returns the text of a `tool_result`. `None` if its content is not one plain text.
fn result_text(body: &[u8], block: Span, is_wanted: fn(&[u8]) -> bool) -> Option<Text<'_>> {
    plain_text::member_text(Json::new(body), block, "content", is_wanted)
}

/// The members of a block that pairing needs. Of a repeated key the last counts.
#[derive(Default)]
struct AnthropicBlock<'a> {
    kind: Text<'a>,
    id: Text<'a>,
    /// The `tool_use_id`.
    tool_use_id: Text<'a>,
    name: Option<Span>,
    input: Option<Span>,
    text: Option<Span>,
    content: Option<Span>,
    /// The `signature` of thinking.
    signature: Option<Span>,
    /// The `data` of redacted thinking.
    data: Option<Span>,
    failed: bool,
    called_by_code: bool,
}

impl<'a> AnthropicBlock<'a> {
    fn read_member(&mut self, json: Json<'a>, key: &[u8], cursor: &mut Cursor<'a>) -> Result<(), Unreadable> {
        match key {
            b"type" => self.kind = cursor.read_text()?,
            b"id" => self.id = cursor.read_text()?,
            b"tool_use_id" => self.tool_use_id = cursor.read_text()?,
            b"name" => self.name = Some(cursor.skip_value()?),
            b"input" => self.input = Some(cursor.skip_value()?),
            b"text" => self.text = Some(cursor.skip_value()?),
            b"content" => self.content = Some(cursor.skip_value()?),
            b"signature" => self.signature = Some(cursor.skip_value()?),
            b"data" => self.data = Some(cursor.skip_value()?),
            b"is_error" => self.failed = json.bytes(cursor.skip_value()?) == b"true",
            b"caller" => self.called_by_code = is_code(json, cursor.skip_value()?),
            _ => drop(cursor.skip_value()?),
        }
        Ok(())
    }

    /// Classifies the block, as if the message had the role that may contain it.
    fn into_part_kind(self) -> PartKind<'a> {
        match self.kind.as_ref() {
            b"tool_use" => PartKind::Call(Call {
                id: self.id,
                programmatic: self.called_by_code,
                ..Call::default()
            }),
            b"tool_result" => PartKind::Result(CallResult {
                id: self.tool_use_id,
                ..CallResult::default()
            }),
            b"thinking" | b"redacted_thinking" => PartKind::Thinking,
            b"compaction" => PartKind::Compaction,
            b"server_tool_use" | b"mcp_tool_use" => PartKind::ServerCall(ServerCall {
                id: self.id,
                known: true,
            }),
            // New kinds of server tools appear, so a suffix is matched and no closed list.
            kind if kind.ends_with(b"_tool_use") => PartKind::ServerCall(ServerCall {
                id: self.id,
                known: false,
            }),
            kind if kind.ends_with(b"_tool_result") => PartKind::ServerResult(self.tool_use_id),
            _ => PartKind::Other,
        }
    }

    /// Returns `true` if the block is thinking with a signature that cannot be Anthropic's, or without one.
    fn is_foreign_thinking(&self, json: Json<'_>) -> bool {
        let is_foreign = |signature| signatures::cannot_be_anthropics(json, signature);
        // Only thinking pays for the look at its signature.
        match self.kind.as_ref() {
            // `messages.1.content.0.thinking.signature: Field required` (Wei-Shaw/sub2api#1350, 2026-03).
            b"thinking" => self.signature.is_none_or(is_foreign),
            b"redacted_thinking" => self.data.is_some_and(is_foreign),
            _ => false,
        }
    }

    /// Returns the flaw of the block, if it has one.
    fn find_flaw(&self, json: Json<'_>) -> Option<FlawKind> {
        match self.kind.as_ref() {
            b"tool_use" => {
                let name = self
                    .name
                    .and_then(|name| character_fault(Format::Anthropic, json, name));
                CallFault::new(object_fault(json, self.input), name).map(FlawKind::Call)
            }
            b"text" => {
                let blank = |text: &Span| json.kind(*text) == JsonKind::String && is_blank(json.bytes(*text));
                self.text.filter(blank).map(|_| FlawKind::BlankText)
            }
            b"tool_result" if self.failed && self.has_no_content(json) => Some(FlawKind::ErrorWithoutContent),
            _ => None,
        }
    }

    /// Returns `true` if the content is missing, null, blank or an empty list.
    fn has_no_content(&self, json: Json<'_>) -> bool {
        self.content.is_none_or(|content| match json.kind(content) {
            JsonKind::Null => true,
            JsonKind::String => is_blank(json.bytes(content)),
            JsonKind::Array => json.is_empty(content),
            _ => false,
        })
    }
}
