//! Reads a Responses body into a conversation: each item is a message, and pairs by its only part.
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

/// Reads `body` in one pass. The history is `input`, or `items` where items are added to a conversation that the
/// provider holds; a body with neither, or with a bare string as `input`, is a conversation without messages.
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
            if json.kind(value) != Kind::Null {
                reader.is_held();
                reader.names_state();
            }
            Ok(())
        }
        b"background" => {
            if cursor.is_true()? {
                reader.names_state();
            }
            Ok(())
        }
        _ => fields::note(&mut reader.conversation, key, cursor).map(|_| ()),
    })?;
    let last = reader.conversation.messages.len().checked_sub(1);
    reader.conversation.notes.compaction = last.is_some() && reader.trigger == last;
    if reader.history == Some(History::Items) {
        reader.nothing_is_due();
    }
    cursor.end().map(|()| reader.conversation)
}

/// Bytes of the id of a local shell call whose results may name its item instead: no provider takes a longer one.
const SHELL_ID_BYTES_MAX: usize = 256;

/// Under which key the items stand.
#[derive(Clone, Copy, PartialEq, Eq)]
enum History {
    /// A request to the model.
    Input,
    /// Items for a conversation: no model is asked, so that nothing is due yet.
    Items,
}

struct Reader<'a> {
    json: Json<'a>,
    dialect: Dialect,
    conversation: Conversation<'a>,
    history: Option<History>,
    /// Item ids that stood before.
    item_ids: HashSet<Text<'a>>,
    /// Local shell calls by item id and by call id: their results may name either.
    shells: HashMap<Text<'a>, Text<'a>>,
    /// The item that asks for a compaction.
    trigger: Option<usize>,
}

/// The members of an item that matter here; of a key that stands twice the last counts.
#[derive(Default)]
struct Item<'a> {
    kind: Text<'a>,
    /// What stands under `type`.
    typed: Option<Kind>,
    role: Text<'a>,
    id: Text<'a>,
    call_id: Text<'a>,
    /// What stands under `call_id`: an empty text too names a call, null does not.
    named: Option<Kind>,
    approval: Text<'a>,
    server: bool,
    called_by_code: bool,
}

impl<'a> Reader<'a> {
    fn history(&mut self, cursor: &mut Cursor<'a>, history: History) -> Result<(), Unreadable> {
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

    /// What an item is, and who speaks in it.
    fn part(&mut self, item: Item<'a>) -> (Role, Option<PartKind<'a>>) {
        // An item without a type is a message (`EasyInputMessage`), or, with nothing but an id, a reference.
        let refers =
            *item.kind == *b"item_reference" || (!item.is_typed() && item.role.is_empty() && !item.id.is_empty());
        if refers {
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
        // What the provider looks up by itself has no id, or says who did it (codex, normalize.rs).
        let exempt = item.kind.starts_with(b"tool_search") && (item.named == Some(Kind::Null) || item.server);
        if let Some(kind) = call_kind(&item.kind).filter(|_| !exempt) {
            let approval = *item.kind == *b"mcp_approval_request";
            let shell = *item.kind == *b"local_shell_call";
            let by_item = approval || (item.call_id.is_empty() && shell);
            let id = if by_item { item.id.clone() } else { item.call_id };
            if shell {
                // Every result that names the item bears a copy of the id.
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
            // DeepSeek's converter takes the output of a function that names no call, and lets it answer none.
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
            // Hosted tools, and kinds to come: the model's own.
            _ => (Role::Assistant, Some(PartKind::Other)),
        }
    }

    /// `local_shell_call_output` names the call by `call_id`, or by the call's item id.
    fn shell_named(&self, item: Item<'a>, unknown: CallFamily) -> (Text<'a>, CallFamily) {
        let named = if item.call_id.is_empty() { item.id } else { item.call_id };
        match self.shells.get(&named) {
            Some(id) => (id.clone(), OF_LOCAL_SHELL),
            None => (named, unknown),
        }
    }

    /// Calls may live at the provider. `DeepSeek` keeps no state.
    fn is_held(&mut self) {
        self.conversation.may_have_remote_calls = self.dialect != Dialect::DeepSeek;
    }

    /// The provider holds what the body names. `DeepSeek` keeps no state.
    fn names_state(&mut self) {
        self.conversation.notes.names_remote_state = self.dialect != Dialect::DeepSeek;
    }

    /// `Duplicate item found with id fc_1. Remove duplicate items from your input and try again.`
    /// (github/copilot-cli#3560, earendil-works/pi#5148). Another item by the same name is no duplicate: a reference.
    fn note_repeated_id(&mut self, item: &Item<'a>, message: usize) {
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

    fn nothing_is_due(&mut self) {
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
            // `{"type":"program","caller_id":…}`: code at the provider; `{"type":"direct"}`: the model.
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

/// What a call item says. Calls without a name go by their type.
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

/// What the output of a call says, where that is one text.
fn said(body: &[u8], item: Span) -> Option<Text<'_>> {
    said::plain_in(Json::new(body), item, "output")
}
