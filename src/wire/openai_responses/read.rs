//! Reads a Responses body into a conversation: each item is a message, and pairs by its only part.
#![cfg_attr(
    not(test),
    warn(clippy::indexing_slicing, clippy::string_slice, clippy::arithmetic_side_effects)
)]

use std::collections::{HashMap, HashSet};

use crate::{
    conversation::{
        Call, CallDetails, CallResult, Content, Conversation, Flaw, FlawKind, Message, Open, Part, PartKind, Role, Text,
    },
    splice::Span,
    wire::{
        Unreadable,
        json::{Cursor, Json, Kind},
        openai_responses::items::{call_kind, result_kind},
    },
};

/// Reads `body` in one pass. The history is `input`, or `items` where items are added to a conversation that the
/// provider holds; a body with neither, or with a bare string as `input`, is a conversation without messages.
pub(crate) fn read(body: &[u8]) -> Result<Conversation<'_>, Unreadable> {
    let json = Json::new(body);
    let conversation = Conversation::new(body, details);
    let mut reader = Reader {
        json,
        conversation,
        history: None,
        item_ids: HashSet::new(),
        shells: HashMap::new(),
    };
    let mut cursor = Cursor::new(body, 0);
    cursor.object(|cursor, key| match key {
        b"input" => reader.history(cursor, History::Input),
        b"items" => reader.history(cursor, History::Items),
        b"previous_response_id" | b"conversation" => {
            let value = cursor.value()?;
            reader.conversation.calls_elsewhere |= json.kind(value) != Kind::Null;
            Ok(())
        }
        _ => cursor.value().map(|_| ()),
    })?;
    if reader.history == Some(History::Items) {
        reader.nothing_is_due();
    }
    if cursor.is_at_end() {
        Ok(reader.conversation)
    } else {
        Err(Unreadable::Shape)
    }
}

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
    conversation: Conversation<'a>,
    history: Option<History>,
    /// Item ids that stood before.
    item_ids: HashSet<Text<'a>>,
    /// Local shell calls by item id: their results may name it in place of the call id.
    shells: HashMap<Text<'a>, Text<'a>>,
}

/// The members of an item that matter here; of a key that stands twice the last counts.
#[derive(Default)]
struct Item<'a> {
    kind: Text<'a>,
    typed: bool,
    role: Text<'a>,
    id: Text<'a>,
    call_id: Text<'a>,
    /// Whether the item has a `call_id` that is null.
    nobodys: bool,
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
            return cursor.value().map(|_| ());
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
            self.conversation.push(Part { span, message, kind });
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
        // An item without a type is a message (`EasyInputMessage`).
        if !item.typed || *item.kind == *b"message" {
            return (role_of(&item.role), Some(PartKind::Other));
        }
        // What the provider looks up by itself has no id, or says who did it (codex, normalize.rs).
        let exempt = item.kind.starts_with(b"tool_search") && (item.nobodys || item.server);
        if let Some(kind) = call_kind(&item.kind).filter(|_| !exempt) {
            let approval = *item.kind == *b"mcp_approval_request";
            if *item.kind == *b"local_shell_call" && !item.id.is_empty() {
                self.shells.insert(item.id.clone(), item.call_id.clone());
            }
            let by_item = approval || (item.call_id.is_empty() && *item.kind == *b"local_shell_call");
            let call = Call {
                id: if by_item { item.id } else { item.call_id },
                family: kind.family,
                open: kind.open,
                programmatic: item.called_by_code,
                ..Call::default()
            };
            return (Role::Assistant, Some(PartKind::Call(call)));
        }
        if let Some(kind) = result_kind(&item.kind).filter(|_| !exempt) {
            let id = match kind.names {
                "approval_request_id" => item.approval,
                "id" => self.shell_named(item),
                _ => item.call_id,
            };
            let family = kind.family;
            let result = CallResult {
                id,
                family,
                ..CallResult::default()
            };
            return (Role::Tool, Some(PartKind::Result(result)));
        }
        match item.kind.as_ref() {
            b"reasoning" => (Role::Assistant, Some(PartKind::Thinking)),
            b"compaction" => {
                self.conversation.calls_elsewhere = true;
                (Role::System, Some(PartKind::Compaction))
            }
            b"item_reference" => {
                self.conversation.calls_elsewhere = true;
                (Role::Assistant, Some(PartKind::Other))
            }
            // Hosted tools, and kinds to come: the model's own.
            _ => (Role::Assistant, Some(PartKind::Other)),
        }
    }

    /// `local_shell_call_output` names the call by `call_id`, or by the call's item id.
    fn shell_named(&self, item: Item<'a>) -> Text<'a> {
        if !item.call_id.is_empty() {
            return item.call_id;
        }
        let call_id = self.shells.get(&item.id).filter(|id| !id.is_empty());
        call_id.cloned().unwrap_or(item.id)
    }

    /// `Duplicate item found with id fc_1. Remove duplicate items from your input and try again.`
    /// (github/copilot-cli#3560, earendil-works/pi#5148). Another item by the same name is no duplicate: a reference.
    fn note_repeated_id(&mut self, item: &Item<'a>, message: usize) {
        let refers = matches!(
            item.kind.as_ref(),
            b"item_reference" | b"local_shell_call_output" | b"reasoning"
        );
        if item.id.is_empty() || refers || self.item_ids.insert(item.id.clone()) {
            return;
        }
        self.conversation.flaws.push(Flaw {
            message,
            part: None,
            kind: FlawKind::RepeatedItemId,
        });
    }

    fn nothing_is_due(&mut self) {
        self.conversation.calls_elsewhere = true;
        for part in &mut self.conversation.parts {
            if let PartKind::Call(call) = &mut part.kind {
                call.open = Open::Legal;
            }
        }
    }
}

impl<'a> Item<'a> {
    fn take(&mut self, json: Json<'a>, key: &[u8], cursor: &mut Cursor<'a>) -> Result<(), Unreadable> {
        match key {
            b"type" => {
                self.typed = cursor.kind() == Kind::String;
                self.kind = cursor.text()?;
            }
            b"role" => self.role = cursor.text()?,
            b"id" => self.id = cursor.text()?,
            b"call_id" => {
                self.nobodys = cursor.kind() == Kind::Null;
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
fn details(body: &[u8], item: Span) -> CallDetails {
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
