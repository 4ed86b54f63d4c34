//! One message as it was observed: what is kept of it, and the faults that it has by itself.

use crate::{
    conversation::{Finding, FlawKind, PartKind, Role},
    invariant::{
        pieces::{body_of, short_hash, user_text},
        skeleton::write_skeleton,
        window::call_hash,
    },
    repair::{self, RepairPolicy},
    splice::Span,
    wire::{
        Format, Unreadable, Wire, is_message,
        json::{self, Json, JsonKind},
        plainly_other_format,
    },
};

/// The part of a message that is kept.
#[derive(Debug)]
pub(super) struct Observed {
    /// The message without its texts.
    pub(super) skeleton: Vec<u8>,
    /// Its author.
    pub(super) role: Role,
    /// Faults that need no other message, such as arguments that are no JSON.
    pub(super) findings: Vec<Finding>,
    /// `true` if it is a summary that replaces everything before it.
    pub(super) is_compaction: bool,
    /// `true` if calls may exist that the history does not show, because it refers to objects of the provider.
    pub(super) may_have_remote_calls: bool,
    /// The hash of the id of an item that must not occur twice. `None` for any other message.
    pub(super) item: Option<u64>,
    /// The hash and the id of each of its calls.
    pub(super) calls: Vec<(u64, String)>,
}

impl Observed {
    /// Reads a message. `index` is its place in the history.
    pub(super) fn read(message: &[u8], wire: Wire, index: usize) -> Result<Self, Unreadable> {
        json::validate(message)?;
        let root = Json::new(message).root_span()?;
        judge_shape(message, root, wire.format)?;
        let body = body_around(wire.format, root.of(message), 1);
        let conversation = wire.read(&body)?;
        let found = conversation.messages.get(1).ok_or(Unreadable::Shape)?;
        let parts = conversation.parts_of(found);
        let json = Json::new(&body);
        let item = json.member_text(found.span, "id");
        let repeats = conversation.notes.by_item && !item.is_empty() && may_not_repeat(root.of(message), wire)?;
        let call_id = |kind: &PartKind<'_>| match kind {
            PartKind::Call(call) => Some((
                call_hash(&call.id, call.family),
                String::from_utf8_lossy(&call.id).into_owned(),
            )),
            _ => None,
        };
        Ok(Self {
            skeleton: write_skeleton(json, found.span)?,
            role: found.role,
            findings: own_findings(&body, wire, index)?,
            is_compaction: parts.iter().any(|part| matches!(part.kind, PartKind::Compaction)),
            may_have_remote_calls: conversation.may_have_remote_calls,
            item: repeats.then(|| short_hash(&[&item])),
            calls: parts.iter().filter_map(|part| call_id(&part.kind)).collect(),
        })
    }
}

/// Refuses what is no message of the format: it would be read as one without calls.
fn judge_shape(message: &[u8], root: Span, format: Format) -> Result<(), Unreadable> {
    let json = Json::new(message);
    if json.kind(root) != JsonKind::Object {
        return Err(Unreadable::Shape);
    }
    // Clients that serialize missing members write null, and some an empty list.
    let has = |name: &str| {
        let value = json.member(root, name);
        value.is_some_and(|value| json.kind(value) != JsonKind::Null && json.bytes(value) != b"[]")
    };
    let is_text = |name: &str| json.string_member(root, name).is_some();
    let is_content = has("parts") && !has("content");
    let is_chat = has("tool_calls") || has("tool_call_id");
    // The blocks of a message may be those of another format that has the same roles.
    let has_other_blocks = |wire: Wire| {
        let body = [br#"{"messages":["#.as_slice(), root.of(message), b"]}"].concat();
        plainly_other_format(&body, wire).is_some()
    };
    let (is_ours, is_others) = match format {
        Format::Anthropic => (is_text("role"), is_content || has_other_blocks(Wire::ANTHROPIC)),
        Format::OpenAiChat => (is_text("role"), is_content || has_other_blocks(Wire::OPENAI_CHAT)),
        Format::OpenAiResponses => {
            let is_item = is_text("type") || is_text("role") || is_text("id");
            (is_item, is_content || is_chat || has_other_blocks(Wire::OPENAI_CHAT))
        }
        Format::Gemini => (is_message(json, root) && json.member(root, "parts").is_some(), is_chat),
    };
    match (is_ours, is_others) {
        (_, true) => Err(Unreadable::OtherFormat),
        (false, _) => Err(Unreadable::Shape),
        (true, false) => Ok(()),
    }
}

/// Writes a body with `copies` of a message between two texts of the user.
///
/// Without them a message of the assistant would be the first or the last one, to which other rules apply.
fn body_around(format: Format, message: &[u8], copies: usize) -> Vec<u8> {
    let text = user_text(format);
    let mut messages = vec![text.as_bytes()];
    messages.extend(std::iter::repeat_n(message, copies));
    messages.push(text.as_bytes());
    body_of(format, messages)
}

/// Returns `true` for an item that the provider refuses if it stands there twice.
fn may_not_repeat(message: &[u8], wire: Wire) -> Result<bool, Unreadable> {
    let body = body_around(wire.format, message, 2);
    let conversation = wire.read(&body)?;
    Ok(conversation
        .flaws
        .iter()
        .any(|flaw| flaw.message == 2 && flaw.kind == FlawKind::RepeatedItemId))
}

/// Returns the faults of the message by itself, with its place in the history.
fn own_findings(body: &[u8], wire: Wire, index: usize) -> Result<Vec<Finding>, Unreadable> {
    let all = repair::check(body, wire, &RepairPolicy::default())?;
    let is_own = |finding: &Finding| finding.kind.is_of_one_message() && finding.message == 1;
    let own = all.into_iter().filter(is_own);
    Ok(own
        .map(|finding| Finding {
            message: index,
            ..finding
        })
        .collect())
}
