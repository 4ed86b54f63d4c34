//! Continuity: what an answer carried, its provider wants back, and the client has dropped.
//!
//! A gap is a place in a body where such a value is missing. Its key names the call to which the value belongs, and is
//! the same for the answer that made the call.

use std::collections::HashMap;

use super::{CallIdentity, CallKey, IdSpelling, Paired, canonical::message_hash, id_letters, input_hash, is_strong};
use crate::{
    conversation::{
        Call, CallDetails, Conversation, Finding, FindingKind, Message, Part, PartKind, Role, current_turn,
        rules::MergedRoles,
    },
    splice::Edit,
    wire::{
        Format,
        HistoryShape::{Chat, Contents, Items, Messages},
        anthropic, gemini,
        json::Json,
        openai_chat,
    },
    work,
};

/// The arguments of a call without any.
const NO_ARGUMENTS: &[u8] = b"{}";

/// The values that providers want back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ContinuityKind {
    /// The reasoning of an assistant message with calls: `reasoning_content` (Chat Completions), or its blocks of
    /// thinking as JSON with commas between them (Messages).
    Reasoning,
    /// The thought signature of the first call of a step (Gemini, also through Chat Completions).
    Signature,
    /// The container of a call that code at the provider has made (Messages).
    Container,
}

impl ContinuityKind {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::Reasoning, Self::Signature, Self::Container];

    /// Returns the stable name, which is a metric label.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Reasoning => "reasoning_content",
            Self::Signature => "thought_signature",
            Self::Container => "container",
        }
    }

    /// Returns `true` if the value is content of the conversation, which reaches the disk only if the operator allows
    /// that.
    pub const fn is_content(self) -> bool {
        match self {
            Self::Reasoning => true,
            Self::Signature | Self::Container => false,
        }
    }

    /// Returns `true` if the value belongs to thinking, so that a body which turns thinking off gets none back.
    pub const fn is_thinking(self) -> bool {
        match self {
            Self::Reasoning | Self::Signature => true,
            Self::Container => false,
        }
    }

    /// Returns `true` if ids of calls may repeat where the value is wanted, so that the id alone identifies no call.
    ///
    /// Reasoning of Messages is wanted by servers that only speak the format, and count their calls as they like.
    pub const fn has_reusable_ids(self, format: Format) -> bool {
        format.has_reusable_ids()
            || match self {
                Self::Reasoning => true,
                Self::Signature | Self::Container => false,
            }
    }

    /// Returns the name of the value in a finding.
    const fn detail(self, format: Format) -> &'static str {
        match (self, format.history()) {
            (Self::Reasoning, Messages) => "thinking",
            (Self::Reasoning | Self::Signature | Self::Container, Messages | Chat | Items | Contents) => self.label(),
        }
    }

    /// Returns the documented value that stands for a lost one. `None` if there is none.
    pub const fn neutral_value(self) -> Option<&'static str> {
        match self {
            // DeepSeek's own converter (deepseek-recipe 0.2.0) counts an empty text as present, and an empty block too.
            Self::Reasoning => Some(""),
            // Google, "Thought signatures", 2026-11.
            Self::Signature => Some("skip_thought_signature_validator"),
            Self::Container => None,
        }
    }
}

/// A place in a body where a value is missing that the provider wants back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContinuityGap {
    /// The kind of value.
    pub kind: ContinuityKind,
    /// The call to which the value belongs.
    pub key: CallKey,
    /// Index of the message.
    pub message: usize,
    /// `true` if the gap is in the current turn: after the last message with words of the user.
    pub is_current: bool,
    /// The finding for strict and observe mode.
    pub finding: Finding,
}

/// The parts of a call that name it in an answer and in every later body.
#[derive(Clone, Copy, Debug)]
pub struct CarriedIdentity<'a> {
    /// The decoded id; empty if the call has none.
    pub id: &'a [u8],
    /// The decoded name of the tool.
    pub tool: &'a [u8],
    /// The arguments as raw JSON. `None` where the format's ids identify a call without them.
    pub input: Option<&'a [u8]>,
    /// Hash of the message before the call's own. `None` if it is not known.
    pub before: Option<[u8; 32]>,
    /// The lane. `None` if it is not known.
    pub lane: Option<[u8; 32]>,
}

impl CarriedIdentity<'_> {
    /// Returns the key of the call. `None` if nothing tells it from other calls.
    pub fn call_key(&self) -> Option<CallKey> {
        let is_reusable = !is_strong(self.id, self.tool);
        // A reusable id names a call only together with the message before it.
        let before = if is_reusable { Some(self.before?) } else { None };
        let input = self.input.map(|input| match input {
            // Some clients send no arguments back as an empty object.
            b"" | b"\"\"" | b"null" => NO_ARGUMENTS,
            input => input,
        });
        let key = CallKey::of(&CallIdentity {
            id: self.id,
            tool: self.tool.into(),
            input_hash: input.map_or([0; 32], input_hash),
            // Calls whose id is not unique in their body have no gap.
            occurrence: 0,
            spelling: IdSpelling::Alone,
            before,
            place: self.id.is_empty().then_some([0; 32]),
        });
        Some(match self.lane.filter(|_| is_reusable) {
            Some(lane) => key.within_conversation(&lane),
            None => key,
        })
    }
}

/// Returns the hash of a history's last message, after which an answer to the body follows. `None` for a batch.
pub fn last_message_hash(paired: &Paired<'_>) -> Option<[u8; 32]> {
    let conversation = paired.only_conversation()?;
    Some(hash_before(conversation, conversation.messages.len()))
}

/// Returns the gaps of these kinds in document order. Empty for a batch.
///
/// A call whose id is not unique in the body has no gap: a value could belong to another one.
pub fn continuity_gaps(paired: &Paired<'_>, kinds: &[ContinuityKind], lane: Option<[u8; 32]>) -> Vec<ContinuityGap> {
    let Some(conversation) = paired.only_conversation() else {
        return Vec::new();
    };
    let (format, json) = (paired.wire.format, Json::new(conversation.body));
    let search = GapSearch {
        conversation,
        json,
        format,
        merges_messages: paired.wire.pairing_rules().merged_roles != MergedRoles::None,
        lane,
        current_from: current_turn(conversation),
    };
    let mut gaps = Vec::new();
    for kind in kinds {
        match (kind, format.history()) {
            (ContinuityKind::Container, Messages) => gaps.extend(search.container_gap()),
            (ContinuityKind::Reasoning, Messages | Chat) | (ContinuityKind::Signature, Chat | Contents) => {
                search.add_gaps(*kind, &mut gaps);
            }
            // The history has no such value.
            (
                ContinuityKind::Reasoning | ContinuityKind::Signature | ContinuityKind::Container,
                Messages | Chat | Items | Contents,
            ) => {}
        }
    }
    if gaps.is_empty() {
        return gaps;
    }
    search.keep_unique(&mut gaps);
    gaps.sort_by_key(|gap| (gap.message, gap.kind));
    gaps
}

/// Returns `true` if any message shows reasoning: `reasoning_content` (Chat Completions), or thinking (Messages).
pub(super) fn shows_reasoning(paired: &Paired<'_>) -> bool {
    let conversation = paired.only_conversation();
    conversation.is_some_and(|conversation| {
        let mut messages = conversation.messages.iter();
        messages.any(|message| has_reasoning(conversation, paired.wire.format, message))
    })
}

/// Returns `true` if a message has reasoning. An empty one counts.
fn has_reasoning(conversation: &Conversation<'_>, format: Format, message: &Message) -> bool {
    match format.history() {
        Messages => {
            let mut parts = conversation.parts_of(message).iter();
            parts.any(|part| matches!(part.kind, PartKind::Thinking))
        }
        Chat => openai_chat::write::has_reasoning(Json::new(conversation.body), message.span),
        // The history has no such value.
        Items | Contents => false,
    }
}

/// Returns the edits that put values into the gaps of these messages. Values whose gap is not found are left out.
pub(super) fn value_edits(paired: &Paired<'_>, values: &[(usize, ContinuityKind, &str)]) -> Vec<Edit> {
    let Some(conversation) = paired.only_conversation() else {
        return Vec::new();
    };
    let json = Json::new(conversation.body);
    let mut edits: Vec<Edit> = Vec::new();
    for (message, kind, value) in values {
        let Some(found) = conversation.messages.get(*message) else {
            continue;
        };
        let call = first_call(conversation, found).map(|(_, part, _)| part.span);
        edits.extend(match (kind, paired.wire.format.history(), call) {
            (ContinuityKind::Reasoning, Chat, _) => Some(openai_chat::write::set_reasoning(json, found.span, value)),
            (ContinuityKind::Reasoning, Messages, _) => anthropic::write::put_thinking(json, found.span, value),
            (ContinuityKind::Signature, Chat, Some(call)) => Some(openai_chat::write::set_signature(json, call, value)),
            (ContinuityKind::Signature, Contents, Some(call)) => Some(gemini::write::set_signature(json, call, value)),
            (ContinuityKind::Container, Messages, _) => anthropic::write::set_container(json, value),
            // The history has no such value, and so no gap.
            (
                ContinuityKind::Reasoning | ContinuityKind::Signature | ContinuityKind::Container,
                Messages | Chat | Items | Contents,
                _,
            ) => None,
        });
    }
    edits
}

/// The search for gaps in one history.
struct GapSearch<'c> {
    conversation: &'c Conversation<'c>,
    json: Json<'c>,
    format: Format,
    /// `true` if consecutive messages of the assistant are one step.
    merges_messages: bool,
    lane: Option<[u8; 32]>,
    /// Index of the first message of the current turn.
    current_from: usize,
}

impl GapSearch<'_> {
    /// Adds the gaps of assistant messages with calls.
    fn add_gaps(&self, kind: ContinuityKind, gaps: &mut Vec<ContinuityGap>) {
        let (mut is_after_assistant, mut is_settled) = (false, false);
        for (index, message) in self.conversation.messages.iter().enumerate() {
            work::count(1);
            let is_assistant = message.role == Role::Assistant;
            // Two contents of the model in a row are one step, whose first call stands in the first of them.
            let is_step = is_assistant && !(is_after_assistant && self.merges_messages);
            is_after_assistant = is_assistant;
            // The reasoning of a step may stand in an earlier message of it than the first call.
            is_settled &= !is_step;
            if is_assistant && kind == ContinuityKind::Reasoning {
                is_settled |= has_reasoning(self.conversation, self.format, message);
            }
            let first = first_call(self.conversation, message).filter(|_| is_assistant);
            let Some((ordinal, part, call)) = first else { continue };
            let lacks = match kind {
                ContinuityKind::Reasoning => {
                    !std::mem::replace(&mut is_settled, true) && !self.is_made_without_thinking(message)
                }
                ContinuityKind::Signature => is_step && !self.is_signed(message),
                // Not a value of a single message: `container_gap` finds it.
                ContinuityKind::Container => false,
            };
            if lacks {
                gaps.extend(self.gap_of(kind, index, (ordinal, part, call)));
            }
        }
    }

    /// Returns `true` if an id of the message says that DeepSeek made the call without thinking (deepseek-recipe 0.2.0).
    fn is_made_without_thinking(&self, message: &Message) -> bool {
        let mut parts = self.conversation.parts_of(message).iter();
        parts.any(|part| match &part.kind {
            PartKind::Call(call) => call.id.starts_with(b"call_") && call.id.get(8..11) == Some(b"ET_"),
            _ => false,
        })
    }

    /// Returns `true` if any call of a message is signed. Only one of them carries the signature of the step.
    fn is_signed(&self, message: &Message) -> bool {
        let mut parts = self.conversation.parts_of(message).iter();
        parts.any(|part| match (&part.kind, self.format.history()) {
            (PartKind::Call(_), Chat) => openai_chat::write::is_signed(self.json, part.span),
            (PartKind::Call(call), Messages | Items | Contents) => call.signed,
            (_, Messages | Chat | Items | Contents) => false,
        })
    }

    /// Returns the gap of the container, if a call of code in the last assistant message still waits for its result.
    fn container_gap(&self) -> Option<ContinuityGap> {
        let mut messages = self.conversation.messages.iter();
        let index = messages.rposition(|message| message.role == Role::Assistant)?;
        let message = self.conversation.messages.get(index)?;
        let (ordinal, part, call) = first_call_of_code(self.conversation, message)?;
        // Code that has ended needs no container, and a container that the client names is the client's choice.
        let runs = !self.has_ended(&anthropic::read::code_call_id(self.json, part.span));
        if !runs || !anthropic::write::lacks_container(self.json) {
            return None;
        }
        self.gap_of(ContinuityKind::Container, index, (ordinal, part, call))
    }

    /// Returns `true` if the provider's call `id` has its result.
    fn has_ended(&self, id: &[u8]) -> bool {
        let mut parts = self.conversation.parts.iter();
        parts.any(|part| {
            work::count(1);
            matches!(&part.kind, PartKind::ServerResult(of) if **of == *id)
        })
    }

    fn gap_of(
        &self,
        kind: ContinuityKind,
        message: usize,
        (ordinal, part, call): (usize, &Part<'_>, &Call<'_>),
    ) -> Option<ContinuityGap> {
        let CallDetails { name, input, .. } = self.format.call_details(self.conversation.body, part.span);
        let tool = name.map(|name| self.json.decode_string(name)).unwrap_or_default();
        let input = input.map_or(NO_ARGUMENTS, |input| self.json.bytes(input));
        let has_reusable_ids = kind.has_reusable_ids(self.format);
        let is_reusable = has_reusable_ids && !is_strong(&call.id, &tool);
        let identity = CarriedIdentity {
            id: &call.id,
            tool: &tool,
            input: has_reusable_ids.then_some(input),
            // Hashing a message is costly, and only a reusable id needs it.
            before: is_reusable.then(|| hash_before(self.conversation, message)),
            lane: self.lane,
        };
        Some(ContinuityGap {
            kind,
            key: identity.call_key()?,
            message,
            is_current: message >= self.current_from,
            finding: Finding {
                kind: FindingKind::LostContinuity,
                message,
                part: (kind != ContinuityKind::Reasoning).then_some(ordinal),
                id: String::from_utf8_lossy(&call.id).into_owned(),
                within: String::new(),
                detail: Some(kind.detail(self.format)),
            },
        })
    }

    /// Removes the gaps of calls that are not unique in the body.
    fn keep_unique(&self, gaps: &mut Vec<ContinuityGap>) {
        let mut ids: HashMap<Vec<u8>, usize> = HashMap::new();
        for part in &self.conversation.parts {
            work::count(1);
            if let PartKind::Call(call) = &part.kind {
                *ids.entry(id_letters(&call.id)).or_default() += 1;
            }
        }
        let mut keys: HashMap<(CallKey, ContinuityKind), usize> = HashMap::new();
        for gap in gaps.iter() {
            *keys.entry((gap.key, gap.kind)).or_default() += 1;
        }
        gaps.retain(|gap| {
            work::count(1);
            let id = id_letters(gap.finding.id.as_bytes());
            // Calls without an id are told apart by everything else.
            let is_named_once = id.is_empty() || ids.get(&id).is_none_or(|count| *count == 1);
            is_named_once && keys.get(&(gap.key, gap.kind)) == Some(&1)
        });
    }
}

/// Returns the first call of an assistant message, with its ordinal.
fn first_call<'c>(
    conversation: &'c Conversation<'_>,
    message: &Message,
) -> Option<(usize, &'c Part<'c>, &'c Call<'c>)> {
    find_call(conversation, message, |_| true)
}

/// Returns the first call of a message that code at the provider made, with its ordinal.
fn first_call_of_code<'c>(
    conversation: &'c Conversation<'_>,
    message: &Message,
) -> Option<(usize, &'c Part<'c>, &'c Call<'c>)> {
    find_call(conversation, message, |call| call.programmatic)
}

fn find_call<'c>(
    conversation: &'c Conversation<'_>,
    message: &Message,
    wanted: impl Fn(&Call<'_>) -> bool,
) -> Option<(usize, &'c Part<'c>, &'c Call<'c>)> {
    let mut parts = conversation.parts_of(message).iter().enumerate();
    parts.find_map(|(ordinal, part)| match &part.kind {
        PartKind::Call(call) if wanted(call) => Some((ordinal, part, call)),
        _ => None,
    })
}

/// Returns the hash of the message before the one at `index`.
fn hash_before(conversation: &Conversation<'_>, index: usize) -> [u8; 32] {
    let before = index
        .checked_sub(1)
        .and_then(|before| conversation.messages.get(before));
    before.map_or([0; 32], |message| message_hash(message.span.of(conversation.body)))
}
