//! The reader of Responses bodies. Each item becomes a message with at most one part.
#![cfg_attr(
    not(test),
    warn(clippy::indexing_slicing, clippy::string_slice, clippy::arithmetic_side_effects)
)]

use std::collections::{HashMap, HashSet};

use crate::{
    conversation::{
        Call, CallDetails, CallFamily, CallResult, Content, Conversation, Flaw, FlawKind, Message, Part, PartKind,
        Role, Text, WithoutResult,
    },
    splice::Span,
    wire::{
        Dialect, Unreadable, fields,
        json::{Cursor, Json, Kind},
        openai_responses::items::{DEEPSEEK, OF_LOCAL_SHELL, call_kind, result_kind},
        said,
    },
};

/// Reads `body` in one pass.
///
/// The history is `input`, or `items` in a request that adds items to a conversation at the provider. A body with
/// neither, or with a string as `input`, is a conversation without messages.
pub(crate) fn read(body: &[u8], dialect: Dialect) -> Result<Conversation<'_>, Unreadable> {
    let json = Json::new(body);
    let mut conversation = Conversation::new(body, details, said);
    conversation.notes.by_item = true;
    let mut reader = Reader {
        json,
        dialect,
        conversation,
        history: None,
        item_ids: HashSet::new(),
        shells: HashMap::new(),
        trigger: None,
    };
    let mut cursor = Cursor::new(body, 0);
    cursor.object(|cursor, key| match key {
        b"input" => reader.history(cursor, History::Input),
        b"items" => reader.history(cursor, History::Items),
        b"previous_response_id" | b"conversation" => {
            let value = fields::note(&mut reader.conversation, key, cursor)?;
            // Either key refers to a history at the provider, which may contain calls.
            if json.kind(value) != Kind::Null {
                reader.is_held();
                reader.names_state();
            }
            Ok(())
        }
        b"background" => {
            // The client fetches a background response later, from the account that made it.
            if cursor.is_true()? {
                reader.names_state();
            }
            Ok(())
        }
        _ => fields::note(&mut reader.conversation, key, cursor).map(|_| ()),
    })?;
    // Only a trigger at the end requests a compaction.
    let last = reader.conversation.messages.len().checked_sub(1);
    reader.conversation.notes.compaction = last.is_some() && reader.trigger == last;
    if reader.history == Some(History::Items) {
        reader.nothing_is_due();
    }
    cursor.end().map(|()| reader.conversation)
}

/// Bytes of the longest call id that is stored under the item id of a local shell call. No provider takes a longer id.
const SHELL_ID_BYTES_MAX: usize = 256;

/// The key of the items.
#[derive(Clone, Copy, PartialEq, Eq)]
enum History {
    /// `input`, in a request to the model.
    Input,
    /// `items`, in a request that adds to a conversation. No model runs, so no result is required yet.
    Items,
}

struct Reader<'a> {
    json: Json<'a>,
    dialect: Dialect,
    conversation: Conversation<'a>,
    history: Option<History>,
    /// The item ids so far.
    item_ids: HashSet<Text<'a>>,
    /// The ids of local shell calls, by item id and by call id, since results may name either.
    shells: HashMap<Text<'a>, Text<'a>>,
    /// The index of the item that requests a compaction.
    trigger: Option<usize>,
}

/// The members of an item that pairing needs. Of a repeated key the last counts.
#[derive(Default)]
struct Item<'a> {
    kind: Text<'a>,
    /// The JSON type of `type`.
    typed: Option<Kind>,
    role: Text<'a>,
    id: Text<'a>,
    call_id: Text<'a>,
    /// The JSON type of `call_id`. An empty string names a call, null does not.
    named: Option<Kind>,
    /// The `approval_request_id`.
    approval: Text<'a>,
    /// Set if `execution` is `server`.
    server: bool,
    called_by_code: bool,
}

impl<'a> Reader<'a> {
    fn history(&mut self, cursor: &mut Cursor<'a>, history: History) -> Result<(), Unreadable> {
        // With two histories it is not certain which one the provider reads.
        if self.history.is_some() {
            return Err(Unreadable::DuplicateHistory);
        }
        self.history = Some(history);
        if cursor.kind() != Kind::Array {
            self.conversation.notes.only_text = Some(cursor.value()?);
            return Ok(());
        }
        let array = cursor.array(|cursor| self.item(cursor))?;
        self.conversation.array = Some(array);
        Ok(())
    }

    fn item(&mut self, cursor: &mut Cursor<'a>) -> Result<(), Unreadable> {
        let mut item = Item::default();
        let json = self.json;
        let span = cursor.object(|cursor, key| item.take(json, key, cursor))?;
        let part = self.conversation.parts.len();
        let message = self.conversation.messages.len();
        self.note_repeated_id(&item, message);
        let (role, kind) = self.part(item);
        if let Some(kind) = kind {
            self.conversation.push_part(Part { span, message, kind });
        }
        self.conversation.messages.push(Message {
            span,
            role,
            content: Content::Opaque,
            parts: part..self.conversation.parts.len(),
        });
        Ok(())
    }

    /// Classifies an item: the role of its author, and its part.
    fn part(&mut self, item: Item<'a>) -> (Role, Option<PartKind<'a>>) {
        // An item without a type is a message (`EasyInputMessage`), or a reference if it has no role but an id.
        let refers =
            *item.kind == *b"item_reference" || (!item.is_typed() && item.role.is_empty() && !item.id.is_empty());
        if refers {
            // The item itself is at the provider, and may be a call.
            self.is_held();
            self.names_state();
            return (Role::Assistant, Some(PartKind::Other));
        }
        if !item.is_typed() || *item.kind == *b"message" {
            return (role_of(&item.role), Some(PartKind::Other));
        }
        let deepseek = self.dialect == Dialect::DeepSeek;
        if deepseek && !DEEPSEEK.iter().any(|known| known.as_bytes() == &*item.kind) {
            return (Role::Assistant, None);
        }
        // A search by the provider itself has no id, or `execution: server` (codex, normalize.rs).
        let exempt = item.kind.starts_with(b"tool_search") && (item.named == Some(Kind::Null) || item.server);
        if let Some(kind) = call_kind(&item.kind).filter(|_| !exempt) {
            let approval = *item.kind == *b"mcp_approval_request";
            let shell = *item.kind == *b"local_shell_call";
            let by_item = approval || (item.call_id.is_empty() && shell);
            let id = if by_item { item.id.clone() } else { item.call_id };
            if shell {
                // Each result that names the item copies the id: long ids could multiply the memory.
                if id.len() <= SHELL_ID_BYTES_MAX {
                    self.shells.insert(item.id, id.clone());
                }
                self.shells.insert(id.clone(), id.clone());
            }
            let call = Call {
                id,
                family: kind.family,
                without_result: kind.open,
                programmatic: item.called_by_code,
                ..Call::default()
            };
            return (Role::Assistant, Some(PartKind::Call(call)));
        }
        if let Some(kind) = result_kind(&item.kind).filter(|_| !exempt) {
            // DeepSeek's converter accepts the output of a function that names no call, and pairs it with none.
            let free = deepseek && kind.item == "function_call_output" && item.named != Some(Kind::String);
            let (id, family) = match kind.names {
                "approval_request_id" => (item.approval, kind.family),
                "id" => self.shell_named(item, kind.family),
                _ => (item.call_id, kind.family),
            };
            let result = CallResult {
                id,
                family,
                free,
                ..CallResult::default()
            };
            return (Role::Tool, Some(PartKind::Result(result)));
        }
        match item.kind.as_ref() {
            b"reasoning" => (Role::Assistant, Some(PartKind::Thinking)),
            b"compaction" => {
                self.is_held();
                (Role::System, Some(PartKind::Compaction))
            }
            b"compaction_trigger" => {
                self.trigger = Some(self.conversation.messages.len());
                (Role::Assistant, Some(PartKind::Other))
            }
            // Hosted tools and unknown kinds are output of the model.
            _ => (Role::Assistant, Some(PartKind::Other)),
        }
    }

    /// Returns the id and the family of a `local_shell_call_output`.
    ///
    /// It names its call by `call_id`, or by the call's item id.
    fn shell_named(&self, item: Item<'a>, unknown: CallFamily) -> (Text<'a>, CallFamily) {
        let named = if item.call_id.is_empty() { item.id } else { item.call_id };
        match self.shells.get(&named) {
            Some(id) => (id.clone(), OF_LOCAL_SHELL),
            None => (named, unknown),
        }
    }

    /// Notes that calls may exist in provider-side state. `DeepSeek` has no such state.
    fn is_held(&mut self) {
        self.conversation.may_have_remote_calls = self.dialect != Dialect::DeepSeek;
    }

    /// Notes that the body refers to provider-side state. `DeepSeek` has no such state.
    fn names_state(&mut self) {
        self.conversation.notes.names_remote_state = self.dialect != Dialect::DeepSeek;
    }

    /// Notes the flaw of an item whose id an earlier item has.
    ///
    /// The provider refuses it: `Duplicate item found with id fc_1. Remove duplicate items from your input and try
    /// again.` (github/copilot-cli#3560, earendil-works/pi#5148).
    fn note_repeated_id(&mut self, item: &Item<'a>, message: usize) {
        // An item that refers to another one by its id is no duplicate.
        let refers = matches!(
            item.kind.as_ref(),
            b"item_reference" | b"local_shell_call_output" | b"reasoning"
        ) || !item.is_typed() && item.role.is_empty();
        let deepseek = self.dialect == Dialect::DeepSeek;
        if item.id.is_empty() || deepseek || refers || self.item_ids.insert(item.id.clone()) {
            return;
        }
        self.conversation.flaws.push(Flaw {
            message,
            part: None,
            kind: FlawKind::RepeatedItemId,
        });
    }

    /// Marks all calls as legal without a result.
    fn nothing_is_due(&mut self) {
        // The results may come with a later request, and results here may answer calls of earlier ones.
        self.is_held();
        for part in &mut self.conversation.parts {
            if let PartKind::Call(call) = &mut part.kind {
                call.without_result = WithoutResult::Legal;
            }
        }
    }
}

impl<'a> Item<'a> {
    fn is_typed(&self) -> bool {
        self.typed == Some(Kind::String)
    }

    fn take(&mut self, json: Json<'a>, key: &[u8], cursor: &mut Cursor<'a>) -> Result<(), Unreadable> {
        match key {
            b"type" => {
                self.typed = Some(cursor.kind());
                self.kind = cursor.text()?;
            }
            b"role" => self.role = cursor.text()?,
            b"id" => self.id = cursor.text()?,
            b"call_id" => {
                self.named = Some(cursor.kind());
                self.call_id = cursor.text()?;
            }
            b"approval_request_id" => self.approval = cursor.text()?,
            b"execution" => self.server = *cursor.text()? == *b"server",
            // `{"type":"program","caller_id":…}` is code at the provider, `{"type":"direct"}` is the model.
            b"caller" => self.called_by_code = json.member(cursor.value()?, "caller_id").is_some(),
            _ => drop(cursor.value()?),
        }
        Ok(())
    }
}

fn role_of(name: &[u8]) -> Role {
    match name {
        b"user" => Role::User,
        b"assistant" => Role::Assistant,
        _ => Role::System,
    }
}

/// Locates the name and the input of a call item. The type stands in for a missing name.
pub(crate) fn details(body: &[u8], item: Span) -> CallDetails {
    let json = Json::new(body);
    let member = |key: &str| json.member(item, key);
    let string = |key: &str| member(key).filter(|value| json.kind(*value) == Kind::String);
    CallDetails {
        name: string("name").or_else(|| string("type")),
        input: ["arguments", "input", "action", "operation", "code"]
            .into_iter()
            .find_map(member),
        toolset: None,
    }
}

/// Returns the text of the output of a call. `None` if it is not one plain text.
fn said(body: &[u8], item: Span) -> Option<Text<'_>> {
    said::plain_in(Json::new(body), item, "output")
}
