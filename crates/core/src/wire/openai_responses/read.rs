//! The reader of Responses bodies. Each item becomes a message with at most one part.

use std::collections::{HashMap, HashSet};

use crate::{
    conversation::{
        Call, CallDetails, CallFamily, CallFault, CallResult, Content, Conversation, FlawKind, InputFault, NameFault,
        PartId, PartKind, Role, Text, WithoutResult,
    },
    splice::Span,
    wire::{
        Dialect, Unreadable, body_fields, call_checks,
        interactions::InteractionMarks,
        json::{Cursor, Json, JsonKind},
        openai_responses::items::{DEEPSEEK_TYPES, PAIRED_SHELL_OUTPUT, call_kind, result_kind},
        plain_text,
        read_steps::{push_flaw, push_message, push_part, role_of},
    },
    work,
};

/// Reads `body` in one pass.
///
/// The history is `input`, or `items` in a request that adds items to a conversation at the provider. A body with
/// neither, or with a string as `input`, is a conversation without messages.
pub(crate) fn read_body(body: &[u8], dialect: Dialect) -> Result<Conversation<'_>, Unreadable> {
    let json = Json::new(body);
    let mut conversation = Conversation::new(body, call_details, result_text);
    conversation.notes.by_item = true;
    let mut reader = ResponsesReader {
        json,
        dialect,
        conversation,
        history: None,
        item_ids: HashSet::new(),
        shell_call_ids: HashMap::new(),
        compaction_trigger: None,
        marks: InteractionMarks::default(),
    };
    let mut cursor = Cursor::new(body, 0);
    cursor.walk_object(|cursor, key| {
        reader.marks.note_key(key);
        reader.read_key(cursor, key)
    })?;
    if reader.marks.is_interactions() {
        return Err(Unreadable::OtherFormat);
    }
    // Only a trigger at the end requests a compaction.
    let last = reader.conversation.messages.len().checked_sub(1);
    reader.conversation.notes.compaction = last.is_some() && reader.compaction_trigger == last;
    if reader.history == Some(HistoryKey::Items) {
        reader.allow_open_calls();
    }
    cursor.expect_end().map(|()| reader.conversation)
}

/// Bytes of the longest call id that is stored under the item id of a local shell call. No provider takes a longer id.
const SHELL_ID_BYTES_MAX: usize = 256;

/// The key of the items.
#[derive(Clone, Copy, PartialEq, Eq)]
enum HistoryKey {
    /// `input`, in a request to the model.
    Input,
    /// `items`, in a request that adds to a conversation. No model runs, so no result is required yet.
    Items,
}

struct ResponsesReader<'a> {
    json: Json<'a>,
    dialect: Dialect,
    conversation: Conversation<'a>,
    history: Option<HistoryKey>,
    /// The item ids so far.
    item_ids: HashSet<Text<'a>>,
    /// The ids of local shell calls, by item id and by call id, since results may name either.
    shell_call_ids: HashMap<Text<'a>, Text<'a>>,
    /// The index of the item that requests a compaction.
    compaction_trigger: Option<usize>,
    /// The marks of Gemini's Interactions.
    marks: InteractionMarks,
}

/// The members of an item that pairing needs. Of a repeated key the last counts.
#[derive(Default)]
struct ResponsesItem<'a> {
    kind: Text<'a>,
    /// The JSON type of `type`.
    type_kind: Option<JsonKind>,
    role: Text<'a>,
    id: Text<'a>,
    call_id: Text<'a>,
    /// The JSON type of `call_id`. An empty string names a call, null does not.
    call_id_kind: Option<JsonKind>,
    /// The `approval_request_id`.
    approval_request_id: Text<'a>,
    /// Set if `name` is a string.
    is_named: bool,
    /// The fault of a `name` without a text.
    name_fault: Option<NameFault>,
    /// The JSON type of `arguments`.
    arguments_kind: Option<JsonKind>,
    content: Option<Span>,
    /// Set if `execution` is `server`.
    run_by_server: bool,
    called_by_code: bool,
}

impl<'a> ResponsesReader<'a> {
    /// Reads the value of a key at the top of the body.
    fn read_key(&mut self, cursor: &mut Cursor<'a>, key: &[u8]) -> Result<(), Unreadable> {
        match key {
            b"input" => self.read_history(cursor, HistoryKey::Input),
            b"items" => self.read_history(cursor, HistoryKey::Items),
            b"previous_response_id" | b"conversation" => {
                let value = body_fields::note_field(&mut self.conversation, key, cursor)?;
                // Either key refers to a history at the provider, which may contain calls.
                if self.json.kind(value) != JsonKind::Null {
                    self.note_remote_calls();
                    self.note_remote_state();
                }
                Ok(())
            }
            b"background" => {
                // The client fetches a background response later, from the account that made it.
                if cursor.read_true()? {
                    self.note_remote_state();
                }
                Ok(())
            }
            _ => body_fields::note_field(&mut self.conversation, key, cursor).map(|_| ()),
        }
    }

    fn read_history(&mut self, cursor: &mut Cursor<'a>, history: HistoryKey) -> Result<(), Unreadable> {
        // With two histories it is not certain which one the provider reads.
        if self.history.is_some() {
            return Err(Unreadable::DuplicateHistory);
        }
        self.history = Some(history);
        match cursor.peek_kind() {
            JsonKind::Array => {}
            JsonKind::String | JsonKind::Null => {
                self.conversation.notes.only_text = Some(cursor.skip_value()?);
                return Ok(());
            }
            // Bedrock's CountTokens has an object here, with a request of another format inside.
            JsonKind::Object | JsonKind::Other => {
                cursor.skip_value()?;
                return Err(Unreadable::Shape);
            }
        }
        let array = cursor.walk_array(|cursor| self.read_item(cursor))?;
        self.conversation.array = Some(array);
        Ok(())
    }

    fn read_item(&mut self, cursor: &mut Cursor<'a>) -> Result<(), Unreadable> {
        let mut item = ResponsesItem {
            name_fault: Some(NameFault::Missing),
            ..ResponsesItem::default()
        };
        let json = self.json;
        let span = cursor.walk_object(|cursor, key| item.read_member(json, key, cursor))?;
        let first = self.conversation.parts.len();
        self.note_repeated_id(&item);
        self.marks
            .note_item(&item.kind, &item.role, item.call_id_kind.is_some());
        let flaw = self.find_flaw(&item);
        let (role, kind) = self.classify_item(item);
        if let Some(kind) = kind {
            // A search by the provider itself is no call of the client's.
            let is_judged = |flaw: &FlawKind| !flaw.is_malformed_call() || matches!(kind, PartKind::Call(_));
            if let Some(flaw) = flaw.filter(is_judged) {
                push_flaw(&mut self.conversation, Some(PartId::new(first)), flaw);
            }
            push_part(&mut self.conversation, span, kind);
        }
        push_message(&mut self.conversation, span, role, Content::Opaque, first);
        Ok(())
    }

    /// Classifies an item: the role of its author, and its part.
    fn classify_item(&mut self, item: ResponsesItem<'a>) -> (Role, Option<PartKind<'a>>) {
        // An item without a type is a message (`EasyInputMessage`), or a reference if it has no role but an id.
        let refers =
            *item.kind == *b"item_reference" || (!item.has_type() && item.role.is_empty() && !item.id.is_empty());
        if refers {
            // The item itself is at the provider, and may be a call.
            self.note_remote_calls();
            self.note_remote_state();
            return (Role::Assistant, Some(PartKind::Other));
        }
        if !item.has_type() || *item.kind == *b"message" {
            return (role_of(&item.role), Some(PartKind::Other));
        }
        let deepseek = self.dialect == Dialect::DeepSeek;
        if deepseek && !DEEPSEEK_TYPES.iter().any(|known| known.as_bytes() == &*item.kind) {
            return (Role::Assistant, None);
        }
        // A search by the provider itself has no id, or `execution: server` (codex, normalize.rs).
        let exempt =
            item.kind.starts_with(b"tool_search") && (item.call_id_kind == Some(JsonKind::Null) || item.run_by_server);
        if let Some(kind) = call_kind(&item.kind).filter(|_| !exempt) {
            let call = Call {
                family: kind.family,
                without_result: kind.form.without_result(),
                programmatic: item.called_by_code,
                id: self.item_call_id(item),
                ..Call::default()
            };
            return (Role::Assistant, Some(PartKind::Call(call)));
        }
        if let Some(kind) = result_kind(&item.kind).filter(|_| !exempt) {
            // DeepSeek's converter accepts the output of a function that names no call, and pairs it with none.
            let function = *item.kind == *b"function_call_output";
            let free = deepseek && function && item.call_id_kind != Some(JsonKind::String);
            // Codex sends what an automation or another thread tells it in this form (openai/codex#45914, 2026-09).
            let standalone = function && item.call_id_kind.is_none() && item.is_named;
            let (id, family) = match kind.id_key {
                "approval_request_id" => (item.approval_request_id, kind.family),
                "id" => self.shell_call_id(item, kind.family),
                _ => (item.call_id, kind.family),
            };
            let result = CallResult {
                id,
                family,
                free,
                standalone,
                ..CallResult::default()
            };
            return (Role::Tool, Some(PartKind::Result(result)));
        }
        match item.kind.as_ref() {
            b"reasoning" => (Role::Assistant, Some(PartKind::Thinking)),
            b"compaction" => {
                self.note_remote_calls();
                (Role::System, Some(PartKind::Compaction))
            }
            b"compaction_trigger" => {
                self.compaction_trigger = Some(self.conversation.messages.len());
                (Role::Assistant, Some(PartKind::Other))
            }
            // Hosted tools and unknown kinds are output of the model.
            _ => (Role::Assistant, Some(PartKind::Other)),
        }
    }

    /// Returns the id that results of a call must name, and remembers the ids of shell calls.
    fn item_call_id(&mut self, item: ResponsesItem<'a>) -> Text<'a> {
        let approval = *item.kind == *b"mcp_approval_request";
        let shell = *item.kind == *b"local_shell_call";
        let by_item = approval || (item.call_id.is_empty() && shell);
        let id = if by_item { item.id.clone() } else { item.call_id };
        if shell {
            work::count_bytes(id.len());
            // Each result that names the item copies the id: long ids could multiply the memory.
            if id.len() <= SHELL_ID_BYTES_MAX {
                self.shell_call_ids.insert(item.id, id.clone());
            }
            self.shell_call_ids.insert(id.clone(), id.clone());
        }
        id
    }

    /// Returns the id and the family of a `local_shell_call_output`.
    ///
    /// It names its call by `call_id`, or by the call's item id.
    fn shell_call_id(&self, item: ResponsesItem<'a>, unknown: CallFamily) -> (Text<'a>, CallFamily) {
        let named = if item.call_id.is_empty() { item.id } else { item.call_id };
        work::count_bytes(named.len());
        match self.shell_call_ids.get(&named) {
            Some(id) => (id.clone(), PAIRED_SHELL_OUTPUT),
            None => (named, unknown),
        }
    }

    /// Notes that calls may exist in provider-side state. `DeepSeek` has no such state.
    fn note_remote_calls(&mut self) {
        self.conversation.may_have_remote_calls = self.dialect != Dialect::DeepSeek;
    }

    /// Notes that the body refers to provider-side state. `DeepSeek` has no such state.
    fn note_remote_state(&mut self) {
        self.conversation.notes.names_remote_state = self.dialect != Dialect::DeepSeek;
    }

    /// Notes the flaw of an item whose id an earlier item has.
    ///
    /// The provider refuses it: `Duplicate item found with id fc_1. Remove duplicate items from your input and try
    /// again.` (github/copilot-cli#3560, earendil-works/pi#5148).
    fn note_repeated_id(&mut self, item: &ResponsesItem<'a>) {
        // An item that refers to another one by its id is no duplicate.
        let refers = matches!(
            item.kind.as_ref(),
            b"item_reference" | b"local_shell_call_output" | b"reasoning"
        ) || !item.has_type() && item.role.is_empty();
        let deepseek = self.dialect == Dialect::DeepSeek;
        work::count_bytes(item.id.len());
        if item.id.is_empty() || deepseek || refers || self.item_ids.insert(item.id.clone()) {
            return;
        }
        push_flaw(&mut self.conversation, None, FlawKind::RepeatedItemId);
    }

    /// Returns the flaw of an item, if it has one that can be seen without its neighbours.
    fn find_flaw(&self, item: &ResponsesItem<'a>) -> Option<FlawKind> {
        match item.kind.as_ref() {
            // `Missing required parameter: 'input[1].name'.` (farion1231/cc-switch#3532, 2026-06).
            b"function_call" => CallFault::new(None, item.name_fault).map(FlawKind::Call),
            // `Invalid type for 'input[1].arguments': expected an object, but got a string instead.`
            // (farion1231/cc-switch#5062, 2026-07).
            b"tool_search_call" if item.arguments_kind == Some(JsonKind::String) => {
                CallFault::new(Some(InputFault::Text), None).map(FlawKind::Call)
            }
            b"tool_search_call" => None,
            _ => self.has_input_part(item).then_some(FlawKind::InputPart),
        }
    }

    /// Returns `true` for a message of the assistant with a part of type `input_text`.
    ///
    /// `Invalid value: 'input_text'. Supported values are: 'output_text' and 'refusal'.` (jeremychone/rust-genai#119,
    /// 2026-01).
    fn has_input_part(&self, item: &ResponsesItem<'a>) -> bool {
        // Other servers take it, and may refuse `output_text` in a message without `id` and `status` (openai/codex#12669,
        // 2026-02).
        let is_judged = self.dialect == Dialect::Standard && (!item.has_type() || *item.kind == *b"message");
        let content = item.content.filter(|_| is_judged && *item.role == *b"assistant");
        content.is_some_and(|content| !super::write::input_part_types(self.json, content).is_empty())
    }

    /// Marks all calls as legal without a result.
    fn allow_open_calls(&mut self) {
        // The results may come with a later request, and results here may answer calls of earlier ones.
        self.note_remote_calls();
        for part in &mut self.conversation.parts {
            work::count(1);
            if let PartKind::Call(call) = &mut part.kind {
                call.without_result = WithoutResult::Legal;
            }
        }
    }
}

impl<'a> ResponsesItem<'a> {
    fn has_type(&self) -> bool {
        self.type_kind == Some(JsonKind::String)
    }

    fn read_member(&mut self, json: Json<'a>, key: &[u8], cursor: &mut Cursor<'a>) -> Result<(), Unreadable> {
        match key {
            b"type" => {
                self.type_kind = Some(cursor.peek_kind());
                self.kind = cursor.read_text()?;
            }
            b"role" => self.role = cursor.read_text()?,
            b"id" => self.id = cursor.read_text()?,
            b"call_id" => {
                self.call_id_kind = Some(cursor.peek_kind());
                self.call_id = cursor.read_text()?;
            }
            b"approval_request_id" => self.approval_request_id = cursor.read_text()?,
            b"name" => {
                self.is_named = cursor.peek_kind() == JsonKind::String;
                self.name_fault = call_checks::read_name_fault(cursor)?;
            }
            b"arguments" => {
                self.arguments_kind = Some(cursor.peek_kind());
                cursor.skip_value()?;
            }
            b"content" => self.content = Some(cursor.skip_value()?),
            b"execution" => self.run_by_server = *cursor.read_text()? == *b"server",
            // `{"type":"program","caller_id":…}` is code at the provider, `{"type":"direct"}` is the model.
            b"caller" => self.called_by_code = json.member(cursor.skip_value()?, "caller_id").is_some(),
            _ => drop(cursor.skip_value()?),
        }
        Ok(())
    }
}

/// Locates the name and the input of a call item. The type stands in for a missing name.
pub(crate) fn call_details(body: &[u8], item: Span) -> CallDetails {
    let json = Json::new(body);
    let [name, kind] = json.members(item, ["name", "type"]);
    let string = |span: Option<Span>| span.and_then(|span| json.only_string(span));
    // The kinds of calls differ in the member with their input.
    let inputs = json.members(item, ["arguments", "input", "action", "operation", "code"]);
    CallDetails {
        name: string(name).or_else(|| string(kind)),
        input: inputs.into_iter().flatten().next(),
        toolset: None,
    }
}

/// Returns the text of the output of a call. `None` if it is not one plain text.
fn result_text(body: &[u8], item: Span, is_wanted: fn(&[u8]) -> bool) -> Option<Text<'_>> {
    plain_text::member_text(Json::new(body), item, "output", is_wanted)
}
