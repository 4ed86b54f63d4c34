//! Facts about a body besides pairing: flags, ids and spans for sessions, routing and late results.
//!
//! Made from the reader's notes and parts, without a second parse of the body.

use std::{ops::Range, sync::LazyLock};

use memchr::memmem;

use crate::{
    conversation::{CallChain, Content, Conversation, Message, Part, PartId, PartKind, Role, lost_results},
    splice::Span,
    work,
};

/// Largest number of calls, and of results, whose ids are stored.
pub const IDS_MAX: usize = 256;
/// Bytes of an id that are stored. Two ids that agree so far count as equal.
pub const ID_BYTES_MAX: usize = 128;

/// Bytes at the end of the last user message, and of `context_management`, that are searched for phrases.
const SEARCHED_MAX: usize = 32 * 1024;
/// Largest number of results that one turn of items may contain before its last call.
const INTERLEAVED_MAX: usize = 8;

/// Phrases of the user message with which Claude Code 2.1 asks for a summary if it sends no header. All must be
/// present.
const ASK_FOR_SUMMARY: [&[u8]; 3] = [
    b"CRITICAL: Respond with TEXT ONLY. Do NOT call any tools.",
    b"an <analysis> block followed by a <summary> block",
    b"Your task is to create a detailed summary",
];

/// Searchers for these phrases. Building one costs more than most searches.
static SUMMARY_FINDERS: LazyLock<[memmem::Finder<'static>; 3]> =
    LazyLock::new(|| ASK_FOR_SUMMARY.map(memmem::Finder::new));
/// Values of [`BodyField::Tools`] that declare no tool, without white space.
const NO_TOOLS: [&[u8]; 5] = [
    b"[]",
    b"null",
    b"[{}]",
    b"[{\"functionDeclarations\":[]}]",
    b"[{\"function_declarations\":[]}]",
];
/// Bytes of the longest of them.
const NO_TOOLS_BYTES_MAX: usize = {
    let (mut index, mut longest) = (0, 0);
    while index < NO_TOOLS.len() {
        if NO_TOOLS[index].len() > longest {
            longest = NO_TOOLS[index].len();
        }
        index += 1;
    }
    longest
};

/// Searcher for the types of compactions.
static COMPACTION_FINDER: LazyLock<memmem::Finder<'static>> = LazyLock::new(|| memmem::Finder::new(b"\"compact"));

/// Top-level fields of a body that the proxy reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BodyField {
    /// `model`.
    Model,
    /// `stream`.
    Stream,
    /// `system`, `instructions`, `systemInstruction`.
    System,
    /// `tools`.
    Tools,
    /// `tool_choice`, `toolConfig`.
    ToolChoice,
    /// `metadata`.
    Metadata,
    /// `prompt_cache_key`.
    PromptCacheKey,
    /// `conversation`.
    Conversation,
    /// `previous_response_id`.
    PreviousResponse,
    /// `thread`.
    Thread,
    /// `context_management`.
    ContextManagement,
    /// `max_tokens`, `max_completion_tokens`, `max_output_tokens`.
    MaxTokens,
}

/// Number of fields.
const FIELDS: usize = BodyField::MaxTokens as usize + 1;

/// Spans of the fields of a body. The last of a repeated key counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BodyFields([Span; FIELDS]);

impl BodyFields {
    /// Returns the span of a field's value.
    pub fn get(&self, field: BodyField) -> Option<Span> {
        // No JSON value is empty, so an empty span is an absent field.
        self.0.get(field as usize).copied().filter(|span| !span.is_empty())
    }

    /// Stores the span of a field's value.
    pub fn set(&mut self, field: BodyField, value: Span) {
        if let Some(slot) = self.0.get_mut(field as usize) {
            *slot = value;
        }
    }
}

/// Facts that a reader notes besides messages and parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadNotes {
    /// Spans of the fields.
    pub fields: BodyFields,
    /// `true` if the body names provider-side state.
    pub names_remote_state: bool,
    /// `true` if its last item asks for a compaction.
    pub compaction: bool,
    /// `true` if each message is one item of a turn (Responses), so that results may lie within the turn.
    pub by_item: bool,
    /// The history, if it is a single text or message instead of a list.
    pub only_text: Option<Span>,
}

/// A result after the last assistant turn.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutlineResult {
    /// Id of its call, or the tool if there is no id.
    pub id: Box<[u8]>,
    /// Name of the tool. Empty in formats whose results do not name it.
    pub name: Box<[u8]>,
    /// The bytes of the result.
    pub at: Span,
    /// `true` if it only reports that the client lost the result: see [`lost_results`].
    pub lost: bool,
}

/// A call of the last assistant turn.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutlineCall {
    /// Its id, or its tool if there is no id.
    pub id: Box<[u8]>,
    /// The bytes of the call.
    pub at: Span,
    /// Number of calls of this id before it.
    pub occurrence: usize,
    /// The message before the one that contains it.
    pub before: Span,
}

/// Facts about a body besides pairing. Spans point into the body. A batch has an empty outline.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each says one thing of a body, and any may go with any"
)]
pub struct Outline {
    /// Spans of its fields.
    pub fields: BodyFields,
    /// `true` if it contains `"stream": true`. Gemini has that in the path.
    pub stream: bool,
    /// `true` if the history contains signed reasoning or an encrypted summary. Another organisation may refuse those.
    pub has_signed_reasoning: bool,
    /// `true` if it names provider-side state, which only the same profile can read.
    pub names_remote_state: bool,
    /// `true` if it continues a turn that the provider paused while its own tool runs.
    pub is_paused: bool,
    /// `true` if it asks only for a compaction of the history.
    pub compaction: bool,
    /// `true` if it lets the provider compact the history.
    pub may_compact: bool,
    /// `true` if it declares at least one tool.
    pub declares_tools: bool,
    /// Number of messages. In Responses: items.
    pub messages: usize,
    /// Number of messages up to the last one of the assistant.
    pub assistant_end: usize,
    /// The instructions before the history: a field or the first message.
    pub system: Option<Span>,
    /// The user's first message, or the whole history if it is one text.
    pub first_user: Option<Span>,
    /// The last message or item, or the whole history if it is one text.
    pub last: Option<Span>,
    /// Calls of the last assistant turn.
    pub last_calls: Vec<OutlineCall>,
    /// The results after that turn.
    pub last_results: Vec<OutlineResult>,
    /// The calls of the whole history.
    pub chain: CallChain,
    /// `true` if the history ends with text of the user, not with results alone.
    pub ends_with_user_text: bool,
}

impl Outline {
    /// Returns the outline of a conversation.
    pub fn of(conversation: &Conversation<'_>) -> Self {
        let Conversation { body, notes: noted, .. } = conversation;
        let fields = noted.fields;
        let bytes = |field| fields.get(field).and_then(|span| body.get(span.range()));
        let messages = &conversation.messages;
        // Each of the searches below passes over them once at most.
        work::count(messages.len().saturating_add(conversation.parts.len()));
        let first = |role| messages.iter().find(move |message| message.role == role);
        let system = messages.first().filter(|message| message.role == Role::System);
        let tail = HistoryTail::of(conversation);
        Self {
            fields,
            stream: bytes(BodyField::Stream) == Some(b"true"),
            has_signed_reasoning: conversation.parts.iter().rev().any(is_bound),
            names_remote_state: noted.names_remote_state,
            is_paused: messages.last().is_some_and(|last| is_paused(conversation, last)),
            compaction: noted.compaction || asks_for_summary(conversation),
            may_compact: bytes(BodyField::ContextManagement).is_some_and(names_compaction),
            declares_tools: bytes(BodyField::Tools).is_some_and(names_tool),
            messages: messages.len(),
            assistant_end: assistant_end(messages),
            system: fields
                .get(BodyField::System)
                .or_else(|| system.map(|message| message.span)),
            first_user: first(Role::User).map(|message| message.span).or(noted.only_text),
            last: messages.last().map(|message| message.span).or(noted.only_text),
            last_calls: tail.asked,
            last_results: tail.results,
            chain: CallChain::of(conversation),
            ends_with_user_text: ends_with_user_text(conversation),
        }
    }

    /// Returns the span of a field's value.
    pub fn field(&self, field: BodyField) -> Option<Span> {
        self.fields.get(field)
    }
}

/// Returns `true` if a history that ends with this message lets the provider continue with its own tool (`pause_turn`).
fn is_paused(conversation: &Conversation<'_>, last: &Message) -> bool {
    let runs = |part: &Part<'_>| matches!(part.kind, PartKind::ServerCall(_));
    last.role == Role::Assistant && conversation.parts_of(last).iter().any(runs)
}

/// Returns `true` if only the organisation that created the part can use it.
fn is_bound(part: &Part<'_>) -> bool {
    match &part.kind {
        PartKind::Thinking | PartKind::Compaction => true,
        PartKind::Call(call) => call.signed,
        _ => false,
    }
}

/// Returns `true` for `{"edits":[{"type":"compact_20260112"}]}` and `[{"type":"compaction"}]`.
fn names_compaction(value: &[u8]) -> bool {
    let head = value.get(..value.len().min(SEARCHED_MAX)).unwrap_or_default();
    work::count_bytes(head.len());
    COMPACTION_FINDER.find(head).is_some()
}

/// Returns `true` if a list of tools is not empty.
fn names_tool(value: &[u8]) -> bool {
    let letters = value.iter().copied().filter(|byte| !byte.is_ascii_whitespace());
    // One byte more than the longest empty list, so that no longer value is taken for one.
    let head: Vec<u8> = letters.take(NO_TOOLS_BYTES_MAX.saturating_add(1)).collect();
    work::count_bytes(value.len());
    !NO_TOOLS.contains(&head.as_slice())
}

/// Returns the number of messages up to the last one of the assistant.
fn assistant_end(messages: &[Message]) -> usize {
    let last = messages.iter().rposition(|message| {
        work::count(1);
        message.role == Role::Assistant
    });
    last.map_or(0, |last| last.saturating_add(1))
}

/// Returns `true` if the last user message is Claude Code's request for a summary.
fn asks_for_summary(conversation: &Conversation<'_>) -> bool {
    let is_user = |message: &&Message| message.role == Role::User;
    let Some(last) = conversation.messages.iter().rfind(is_user) else {
        return false;
    };
    let ends_in_result = conversation.parts_of(last).last();
    // Tool output may quote the phrases. The client's own request ends with text.
    if ends_in_result.is_some_and(|part| matches!(part.kind, PartKind::Result(_))) {
        return false;
    }
    let Span { start, end } = last.span;
    // A message may be megabytes long, and the request for a summary is at its end.
    let searched = start.max(end.saturating_sub(SEARCHED_MAX))..end;
    let text = conversation.body.get(searched).unwrap_or_default();
    work::count_bytes(text.len());
    SUMMARY_FINDERS.iter().all(|phrase| phrase.find(text).is_some())
}

/// Returns `true` if the last message, instructions aside, is the user's and contains more than results.
fn ends_with_user_text(conversation: &Conversation<'_>) -> bool {
    let is_told = |message: &&Message| message.role != Role::System;
    let Some(last) = conversation.messages.iter().rfind(is_told) else {
        let alone = conversation
            .notes
            .only_text
            .and_then(|span| conversation.body.get(span.range()));
        return alone.is_some_and(|alone| matches!(alone.first(), Some(b'"' | b'{')) && alone.len() > 2);
    };
    // Brackets or quotes alone contain nothing.
    let says = |span: Span| span.len() > 2;
    let words = |part: &Part<'_>| matches!(part.kind, PartKind::Other) && says(part.span);
    let parts = conversation.parts_of(last);
    let content = match last.content {
        Content::Blocks(span) | Content::Text(span) => says(span),
        Content::Opaque => false,
    };
    // Chat Completions has no parts for text.
    last.role == Role::User && (parts.iter().any(words) || (parts.is_empty() && content))
}

/// The end of a history, walked backwards.
#[derive(Default)]
struct HistoryTail {
    asked: Vec<OutlineCall>,
    results: Vec<OutlineResult>,
    /// `true` once an assistant message was passed.
    assistant: bool,
    /// `true` if the message passed last contains reasoning, with which a turn begins.
    at_reasoning: bool,
    /// Number of results passed that lie before a call of the same turn.
    interleaved: usize,
}

impl HistoryTail {
    /// Collects the calls of the last turn and the results after it, each in document order.
    fn of(conversation: &Conversation<'_>) -> Self {
        let mut tail = Self::default();
        for message in conversation.messages.iter().rev() {
            work::count(1);
            if !tail.belongs_to_turn(message, conversation.notes.by_item) {
                break;
            }
            tail.at_reasoning = tail.take_parts(conversation, message.parts.clone());
            tail.assistant |= message.role == Role::Assistant;
        }
        tail.asked.reverse();
        tail.results.reverse();
        tail.count_occurrences(conversation);
        tail
    }

    /// Counts for each call of the last turn the calls of its id before it.
    fn count_occurrences(&mut self, conversation: &Conversation<'_>) {
        // Ids mostly differ in their last byte, so few need a look-up.
        let mut ends = [false; 256];
        for end in self.asked.iter().filter_map(|asked| asked.id.last()) {
            ends[usize::from(*end)] = true;
        }
        // Sorted, because a turn has few calls: a map would hash each id.
        let mut passed: Vec<(&[u8], usize)> = self.asked.iter().map(|asked| (&*asked.id, 0)).collect();
        passed.sort_unstable();
        passed.dedup();
        let find = |passed: &[(&[u8], usize)], id: &[u8]| passed.binary_search_by(|(known, _)| (*known).cmp(id)).ok();
        let mut occurrences = Vec::with_capacity(self.asked.len());
        let mut asked = self.asked.iter().peekable();
        for part in &conversation.parts {
            work::count(1);
            let PartKind::Call(call) = &part.kind else { continue };
            while let Some(here) = asked.next_if(|asked| asked.at.start <= part.span.start) {
                let known = find(&passed, &here.id).and_then(|at| passed.get(at));
                occurrences.push(known.map_or(0, |(_, count)| *count));
            }
            let id = call.call_name();
            work::count_bytes(id.len());
            if id.last().is_some_and(|end| ends[usize::from(*end)])
                && let Some((_, count)) = find(&passed, id).and_then(|at| passed.get_mut(at))
            {
                *count = count.saturating_add(1);
            }
        }
        for (asked, occurrence) in self.asked.iter_mut().zip(occurrences) {
            asked.occurrence = occurrence;
        }
    }

    /// Returns `true` if a message belongs to the last turn or follows it. Results may lie between the items of a turn.
    fn belongs_to_turn(&mut self, message: &Message, by_item: bool) -> bool {
        if !self.assistant || message.role == Role::Assistant {
            return true;
        }
        self.interleaved = self.interleaved.saturating_add(1);
        by_item && message.role == Role::Tool && !self.at_reasoning && self.interleaved <= INTERLEAVED_MAX
    }

    /// Collects the ids of a message's parts. Returns `true` if reasoning is among them.
    fn take_parts(&mut self, conversation: &Conversation<'_>, parts: Range<usize>) -> bool {
        let mut thinks = false;
        for index in parts.rev() {
            work::count(1);
            let Some(part) = conversation.parts.get(index) else {
                continue;
            };
            match &part.kind {
                PartKind::Call(call) if has_room(call.call_name(), self.asked.len()) => {
                    self.asked.push(OutlineCall {
                        id: truncate_id(call.call_name()),
                        at: part.span,
                        occurrence: 0,
                        before: message_before(conversation, part.message),
                    });
                }
                PartKind::Result(result) if has_room(result.call_name(), self.results.len()) => {
                    let short = part.span.len() <= lost_results::LOST_BYTES_MAX;
                    let lost = short && conversation.is_lost_result(PartId::new(index));
                    self.results.push(OutlineResult {
                        id: truncate_id(result.call_name()),
                        name: truncate_id(&result.name),
                        at: part.span,
                        lost,
                    });
                }
                PartKind::Thinking => thinks = true,
                _ => {}
            }
        }
        thinks
    }
}

/// Returns the span of the message before another. Empty for the first one.
fn message_before(conversation: &Conversation<'_>, message: usize) -> Span {
    let before = message
        .checked_sub(1)
        .and_then(|before| conversation.messages.get(before));
    before.map(|message| message.span).unwrap_or_default()
}

/// Returns `true` if there is an id and room for it.
const fn has_room(id: &[u8], kept: usize) -> bool {
    !id.is_empty() && kept < IDS_MAX
}

/// Returns the bytes of an id that are stored.
fn truncate_id(id: &[u8]) -> Box<[u8]> {
    id.get(..id.len().min(ID_BYTES_MAX)).unwrap_or_default().into()
}
