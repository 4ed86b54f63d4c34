//! The reader of generateContent bodies. It reads both spellings of a field, as proto JSON allows.

use crate::{
    conversation::{
        Call, CallDetails, CallFault, CallResult, Content, Conversation, Flaw, FlawKind, InputFault, PartId, PartKind,
        ReadMark, Role, Text,
    },
    splice::Span,
    wire::{
        Unreadable, body_fields,
        call_checks::object_fault,
        json::{Cursor, Json, JsonKind},
        read_steps::{push_flaw, push_message, push_part},
    },
    work,
};

/// Reads `body` in one pass. A body without `contents` is a conversation without messages.
pub(crate) fn read_body(body: &[u8]) -> Result<Conversation<'_>, Unreadable> {
    let conversation = Conversation::new(body, call_details, result_text);
    let mut reader = GeminiReader {
        conversation,
        has_history: false,
    };
    let mut cursor = Cursor::new(body, 0);
    cursor.walk_object(|cursor, key| match key {
        // With two histories it is not certain which one the provider reads.
        b"contents" if reader.has_history => Err(Unreadable::DuplicateHistory),
        b"contents" => reader.read_contents(cursor),
        // The provider may have cached the beginning of the history, with calls in it.
        b"cachedContent" | b"cached_content" => {
            reader.conversation.may_have_remote_calls = !cursor.read_text()?.is_empty();
            // The cache belongs to one project, and so to the profile's credentials.
            reader.conversation.notes.names_remote_state = reader.conversation.may_have_remote_calls;
            Ok(())
        }
        _ => body_fields::note_field(&mut reader.conversation, key, cursor).map(|_| ()),
    })?;
    cursor.expect_end().map(|()| reader.conversation)
}

struct GeminiReader<'a> {
    conversation: Conversation<'a>,
    /// Set once the history was read.
    has_history: bool,
}

impl<'a> GeminiReader<'a> {
    /// Reads `contents`, which is a list or a single content.
    fn read_contents(&mut self, cursor: &mut Cursor<'a>) -> Result<(), Unreadable> {
        self.has_history = true;
        // A single content cannot contain both a call and its result.
        if cursor.peek_kind() == JsonKind::Object {
            self.conversation.notes.only_text = Some(cursor.skip_value()?);
            return Ok(());
        }
        let array = cursor.walk_array(|cursor| self.read_content(cursor))?;
        self.conversation.array = Some(array);
        Ok(())
    }

    fn read_content(&mut self, cursor: &mut Cursor<'a>) -> Result<(), Unreadable> {
        let mark = self.conversation.read_mark();
        let (mut role, mut content, mut lacks_parts) = (Role::User, Content::Opaque, true);
        let span = cursor.walk_object(|cursor, key| {
            match key {
                b"role" => role = role_of(&cursor.read_text()?),
                b"parts" => {
                    // Of a repeated key the last counts, as it does for the provider.
                    self.conversation.rewind_to(mark);
                    lacks_parts = cursor.peek_kind() == JsonKind::Null;
                    content = self.read_parts(cursor)?;
                }
                _ => drop(cursor.skip_value()?),
            }
            Ok(())
        })?;
        for part in self.conversation.parts.iter_mut().skip(mark.parts) {
            work::count(1);
            // Only the model calls and thinks. The role may follow the parts, so they are corrected here.
            if role != Role::Assistant && matches!(part.kind, PartKind::Call(_) | PartKind::Thinking) {
                part.kind = PartKind::Other;
            }
        }
        self.judge_flaws(role, lacks_parts || matches!(content, Content::Blocks(_)), mark);
        push_message(&mut self.conversation, span, role, content, mark.parts);
        Ok(())
    }

    /// Replaces the flaws of a content by a single one if all of its parts are empty, or if it has none.
    ///
    /// `* GenerateContentRequest.contents[1].parts: contents.parts must not be empty.` (CherryHQ/cherry-studio#16196,
    /// 2026-06), `Unable to submit request because it must include at least one parts field` (Vertex AI,
    /// langchain-ai/langchainjs#9987, 2026-02). `may_be_empty` is `false` if its parts are no list.
    fn judge_flaws(&mut self, role: Role, may_be_empty: bool, mark: ReadMark) {
        // Only the flaws of this content are filtered, since a history may have very many.
        let mut found = self.conversation.flaws.split_off(mark.flaws);
        work::count(found.len());
        // What stands in a user's content is no call, and has no faults of one.
        found.retain(|flaw: &Flaw| role == Role::Assistant || !flaw.kind.is_malformed_call());
        let empty = found.iter().filter(|flaw| flaw.kind == FlawKind::EmptyPart).count();
        if may_be_empty && empty == self.conversation.parts.len().saturating_sub(mark.parts) {
            return push_flaw(&mut self.conversation, None, FlawKind::EmptyMessage);
        }
        self.conversation.flaws.append(&mut found);
    }

    fn read_parts(&mut self, cursor: &mut Cursor<'a>) -> Result<Content, Unreadable> {
        match cursor.peek_kind() {
            JsonKind::Array => cursor.walk_array(|cursor| self.read_part(cursor)).map(Content::Blocks),
            _ => cursor.skip_value().map(|_| Content::Opaque),
        }
    }

    fn read_part(&mut self, cursor: &mut Cursor<'a>) -> Result<(), Unreadable> {
        let mut fields = GeminiPartMembers::default();
        let kind = cursor.peek_kind();
        let span = match kind {
            JsonKind::Object => cursor.walk_object(|cursor, key| fields.read_member(key, cursor))?,
            _ => cursor.skip_value()?,
        };
        if let Some(flaw) = fields.find_flaw(kind) {
            let part = PartId::new(self.conversation.parts.len());
            push_flaw(&mut self.conversation, Some(part), flaw);
        }
        push_part(&mut self.conversation, span, fields.into_part_kind());
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
struct GeminiPartMembers<'a> {
    call: Option<GeminiFunction<'a>>,
    response: Option<GeminiFunction<'a>>,
    signed: bool,
    /// Set if there is a member. Null counts as missing, as it does in proto JSON.
    has_member: bool,
}

/// The members of a call or response that pairing needs.
#[derive(Default)]
struct GeminiFunction<'a> {
    id: Text<'a>,
    name: Text<'a>,
    /// The fault of the `args` of a call.
    input: Option<InputFault>,
}

impl<'a> GeminiPartMembers<'a> {
    fn read_member(&mut self, key: &[u8], cursor: &mut Cursor<'a>) -> Result<(), Unreadable> {
        self.has_member |= cursor.peek_kind() != JsonKind::Null;
        match key {
            b"functionCall" | b"function_call" => self.call = GeminiFunction::read_function(cursor)?,
            b"functionResponse" | b"function_response" => self.response = GeminiFunction::read_function(cursor)?,
            b"thoughtSignature" | b"thought_signature" => self.signed = !cursor.read_text()?.is_empty(),
            _ => drop(cursor.skip_value()?),
        }
        Ok(())
    }

    /// Returns the flaw of the part, a value of this type, if it has one.
    ///
    /// `contents[1].parts[0].data: required oneof field 'data' must have one initialized field`
    /// (router-for-me/CLIProxyAPI#1292, 2026-01).
    fn find_flaw(&self, kind: JsonKind) -> Option<FlawKind> {
        if kind == JsonKind::Object && !self.has_member {
            return Some(FlawKind::EmptyPart);
        }
        let fault = self.call.as_ref().and_then(|call| CallFault::new(call.input, None));
        fault.map(FlawKind::Call)
    }

    /// Classifies the part.
    fn into_part_kind(self) -> PartKind<'a> {
        let signed = self.signed;
        match (self.call, self.response) {
            (Some(GeminiFunction { id, name, .. }), _) => PartKind::Call(Call {
                id,
                name,
                signed,
                ..Call::default()
            }),
            (None, Some(GeminiFunction { id, name, .. })) => PartKind::Result(CallResult {
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

impl<'a> GeminiFunction<'a> {
    /// Reads the function at the cursor. `None` if there is no object.
    fn read_function(cursor: &mut Cursor<'a>) -> Result<Option<Self>, Unreadable> {
        if cursor.peek_kind() != JsonKind::Object {
            return cursor.skip_value().map(|_| None);
        }
        let mut names = Self::default();
        cursor.walk_object(|cursor, key| {
            match key {
                b"id" => names.id = cursor.read_text()?,
                b"name" => names.name = cursor.read_text()?,
                b"args" => names.input = read_args(cursor)?,
                _ => drop(cursor.skip_value()?),
            }
            Ok(())
        })?;
        Ok(Some(names))
    }
}

/// Passes the arguments of a call, and returns their fault: `args` is a `google.protobuf.Struct` (REST reference,
/// `FunctionCall`, 2026-11). Null counts as missing, which is legal.
fn read_args(cursor: &mut Cursor<'_>) -> Result<Option<InputFault>, Unreadable> {
    let kind = cursor.peek_kind();
    let args = cursor.skip_bytes()?;
    if matches!(kind, JsonKind::Object | JsonKind::Null) {
        return Ok(None);
    }
    Ok(object_fault(Json::new(args), Some(Span::new(0, args.len()))))
}

/// Locates the name and the input of a `functionCall` part.
pub(crate) fn call_details(body: &[u8], part: Span) -> CallDetails {
    let json = Json::new(body);
    let Some(call) = super::write::call_in_part(json, part) else {
        return CallDetails::default();
    };
    let [name, input] = json.members(call, ["name", "args"]);
    CallDetails {
        name: name.and_then(|name| json.only_string(name)),
        input,
        toolset: None,
    }
}

/// Returns the text of a `functionResponse`. `None` unless its only member is a text under a key for results or errors.
fn result_text(body: &[u8], part: Span, is_wanted: fn(&[u8]) -> bool) -> Option<Text<'_>> {
    let json = Json::new(body);
    let response = json.member(super::write::response_in_part(json, part)?, "response")?;
    let (mut members, mut said) = (0_usize, None);
    let walked = json.for_each_member(response, |key, value| {
        members = members.saturating_add(1);
        let says = matches!(key, b"result" | b"output" | b"error") && json.kind(value) == JsonKind::String;
        said = says.then_some(value);
    });
    let said = said.filter(|_| walked.is_ok() && members == 1)?;
    is_wanted(json.bytes(said)).then(|| json.decode_string(said))
}
