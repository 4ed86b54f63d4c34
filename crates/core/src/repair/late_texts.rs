//! Late results at the end of a user message: finds the places, recognises them later, and appends the text.
//!
//! A place is identified by the assistant turn before it, the message itself, the number of equal pairs before it, and
//! the last call before it: conversations with the same words have different calls. A text that was appended once is
//! appended there in every later request too, so that the prefix stays the same.

use std::{collections::HashMap, fmt};

use serde_json::Value;

use super::{
    BodyCall, RealResult,
    call_key::id_letters,
    canonical::{message_hash, turn_hash},
    parsed::Paired,
    same_result,
    texts::{self, LateCall},
};
use crate::{
    conversation::{Conversation, Message, Part, PartKind, Role, rules::WordsPlace},
    splice::{Edit, Piece, Span},
    wire::{
        Format,
        json::{self, Json, JsonKind, replace_lone_surrogates},
        media_label, readable_blocks, user_media,
    },
    work,
};

/// Hash that identifies a place.
pub type Anchor = [u8; 32];

/// A text at the end of a message, with the images and documents after it.
#[derive(Clone, PartialEq, Eq)]
pub struct LateText {
    /// The text.
    pub text: String,
    /// Blocks of the format, as JSON.
    pub media: Vec<String>,
}

impl LateText {
    /// Creates a text without media.
    pub const fn from_text(text: String) -> Self {
        Self {
            text,
            media: Vec::new(),
        }
    }
}

impl fmt::Debug for LateText {
    // The text is content, which never reaches a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LateText({} bytes, {} media)", self.text.len(), self.media.len())
    }
}

/// A user's message with text after an assistant turn, or the last message of the results after one. Each place in a
/// body has an anchor of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LatePlace {
    /// Its identity.
    pub anchor: Anchor,
    /// Its identity without the call before it, which conversations with the same words share. Earlier versions stored
    /// texts under it.
    pub shared_anchor: Anchor,
    /// Index of the message.
    pub message: usize,
    /// `true` if an assistant turn follows it.
    pub is_answered: bool,
}

impl LatePlace {
    /// Returns the anchors under which a text of this place may be stored, the own one first.
    pub const fn anchors(&self) -> [Anchor; 2] {
        [self.anchor, self.shared_anchor]
    }

    /// Returns the anchor of a text whose calls a compaction of this lane has removed: no call tells whose it is.
    pub fn anchor_in_lane(&self, lane: &[u8; 32]) -> Anchor {
        blake3::keyed_hash(lane, &self.anchor).into()
    }
}

/// Messages that are places for late results, apart from the user's own after an assistant turn.
#[derive(Clone, Copy, Debug, Default)]
pub struct PlaceOptions {
    /// `true` if messages with results and without text of the user are places.
    pub in_loops: bool,
    /// `true` if the user's messages before the first assistant turn are places. A compacted history begins with them.
    pub before_turns: bool,
}

/// Returns the places of the only history, in document order. Empty for a batch.
pub fn late_places(paired: &Paired<'_>, options: PlaceOptions) -> Vec<LatePlace> {
    let conversation = paired.only_conversation();
    conversation.map_or_else(Vec::new, |conversation| find_places(conversation, options))
}

/// Returns the edits that append texts to messages, each after the user's own text. Other messages stay as they are.
///
/// `texts` contains indices of messages.
pub(super) fn text_edits(paired: &Paired<'_>, texts: &[(usize, LateText)]) -> Vec<Edit> {
    let json = Json::new(paired.body);
    let is_apart = paired.wire.pairing_rules().words == WordsPlace::ApartFromResults;
    let message = |(index, text): &(usize, LateText)| {
        let conversation = paired.only_conversation()?;
        let message = conversation.messages.get(*index)?;
        // Where a format, or its provider, takes no text beside results, it gets a message of its own after them.
        let takes_text = paired.wire.format.takes_text_beside_results() || has_user_text(conversation, message);
        let is_alone = is_apart || !takes_text;
        if is_alone && has_results(conversation, message) {
            return Some(vec![insert_message(paired.wire.format, message, text)]);
        }
        insert_text(json, paired.wire.format, message, text)
    };
    texts.iter().filter_map(message).flatten().collect()
}

/// Returns the places of a history, in document order.
fn find_places(conversation: &Conversation<'_>, options: PlaceOptions) -> Vec<LatePlace> {
    let messages = &conversation.messages;
    // The model has seen a message only if an assistant turn follows it.
    let last_turn = messages.iter().rposition(|message| message.role == Role::Assistant);
    let (mut places, mut turn, mut turn_told) = (Vec::new(), 0..0, None);
    let mut seen: HashMap<Anchor, u64> = HashMap::new();
    let mut last_call: Option<&[u8]> = None;
    for (index, message) in messages.iter().enumerate() {
        work::count(1);
        match message.role {
            Role::Assistant => {
                turn.start = if turn.end == index { turn.start } else { index };
                (turn.end, turn_told) = (index + 1, None);
                let mut calls = conversation
                    .parts_of(message)
                    .iter()
                    .filter_map(|part| match &part.kind {
                        PartKind::Call(call) => Some(call.call_name()),
                        _ => None,
                    });
                last_call = calls.next_back().or(last_call);
            }
            Role::User | Role::Tool
                if (options.before_turns || !turn.is_empty()) && is_place(conversation, index, options.in_loops) =>
            {
                // Computed once a turn, however many messages follow it.
                let turn = turn_told.get_or_insert_with(|| turn_hash(conversation, turn.clone()));
                let said = message_hash(message.span.of(conversation.body));
                let told: Anchor = blake3::keyed_hash(turn, &said).into();
                let before = seen.entry(told).or_default();
                let shared_anchor: Anchor = blake3::keyed_hash(&told, &before.to_le_bytes()).into();
                // Clients may change the other characters of an id.
                let within = |call| blake3::keyed_hash(&shared_anchor, &id_letters(call)).into();
                places.push(LatePlace {
                    anchor: last_call.map_or(shared_anchor, within),
                    shared_anchor,
                    message: index,
                    is_answered: last_turn > Some(index),
                });
                // Users repeat short messages such as "is it done?", so the count distinguishes equal places.
                *before += 1;
            }
            Role::User | Role::Tool | Role::System => {}
        }
    }
    places
}

/// Returns `true` if a late text may stand at the end of this message.
fn is_place(conversation: &Conversation<'_>, index: usize, in_loops: bool) -> bool {
    let Some(message) = conversation.messages.get(index) else {
        return false;
    };
    if message.role == Role::User && has_user_text(conversation, message) {
        return true;
    }
    // No text may stand between two results of a turn, nor before the user's own.
    let next = conversation.messages.get(index.saturating_add(1));
    let is_last = next.is_none_or(|next| next.role == Role::Assistant);
    in_loops && is_last && has_results(conversation, message)
}

fn has_results(conversation: &Conversation<'_>, message: &Message) -> bool {
    let is_result = |part: &Part<'_>| matches!(part.kind, PartKind::Result(_));
    conversation.parts_of(message).iter().any(is_result)
}

/// Returns `true` if a message contains text of the user.
fn has_user_text(conversation: &Conversation<'_>, message: &Message) -> bool {
    let json = Json::new(conversation.body);
    let is_text = |span: Span| json.kind(span) == JsonKind::String && !json::is_blank(json.bytes(span));
    let Some(content) = content_span(json, message) else {
        return false;
    };
    if json.kind(content) != JsonKind::Array {
        return is_text(content);
    }
    let mut speaks = false;
    let walked = json.for_each_element(content, |block| {
        let text = || json.member(block, "text");
        speaks |= json.kind(block) == JsonKind::Object && text().is_some_and(is_text);
    });
    speaks && walked.is_ok()
}

/// Returns the span of a message's content, if it is a text or a list.
fn content_span(json: Json<'_>, message: &Message) -> Option<Span> {
    json.member(message.span, "content")
        .or_else(|| json.member(message.span, "parts"))
        .filter(|content| matches!(json.kind(*content), JsonKind::String | JsonKind::Array))
}

/// Inserts a text, and what comes with it, at the end of a message.
fn insert_text(json: Json<'_>, format: Format, message: &Message, late: &LateText) -> Option<Vec<Edit>> {
    let content = content_span(json, message)?;
    if json.kind(content) != JsonKind::String {
        let mut pieces = Vec::new();
        for block in late_blocks(format, late) {
            let is_first = pieces.is_empty() && json.is_empty(content);
            pieces.push(Piece::Constant(if is_first { "" } else { "," }));
            pieces.extend(block);
        }
        let span = Span::at(content.end.saturating_sub(1));
        return Some(vec![Edit { span, pieces }]);
    }
    // The string stays a string, so that the message changes only at its end.
    let at_end = Span::at(json.string_inside(content).end);
    let text = Edit {
        span: at_end,
        pieces: vec![Piece::Constant("\\n\\n"), Piece::Made(json::escape_string(&late.text))],
    };
    if late.media.is_empty() {
        return Some(vec![text]);
    }
    // Only a list can hold media.
    let begin = Edit {
        span: Span::at(content.start),
        pieces: vec![Piece::Constant("["), Piece::Constant(format.text_block_start())],
    };
    let mut pieces = vec![Piece::Constant("}")];
    for block in &late.media {
        pieces.extend([Piece::Constant(","), Piece::Made(block.clone())]);
    }
    pieces.push(Piece::Constant("]"));
    let end = Edit {
        span: Span::at(content.end),
        pieces,
    };
    Some(vec![begin, text, end])
}

/// Inserts a user message with the text after `message`, which contains results.
fn insert_message(format: Format, message: &Message, late: &LateText) -> Edit {
    let mut pieces = vec![Piece::Constant(",")];
    pieces.extend(format.write_message(true, late_blocks(format, late)));
    let span = Span::at(message.span.end);
    Edit { span, pieces }
}

/// Writes a late text and its media as blocks of the format.
fn late_blocks(format: Format, late: &LateText) -> Vec<Vec<Piece>> {
    let media = late.media.iter().map(|block| vec![Piece::Made(block.clone())]);
    [text_block(format, &late.text)].into_iter().chain(media).collect()
}

/// Returns the images and documents of a posted content, as blocks that a user's message of the format takes.
pub fn late_media(format: Format, content: &str) -> Vec<String> {
    user_media(format, &replace_lone_surrogates(content))
}

/// Writes the text as a block of the format.
fn text_block(format: Format, text: &str) -> Vec<Piece> {
    vec![
        Piece::Constant(format.text_block_start()),
        Piece::Made(json::quote_string(text)),
        Piece::Constant("}"),
    ]
}

/// Writes a late result as marked text. `content` is JSON.
pub fn late_text(id: &str, tool: &str, content: &str, failed: bool, call: LateCall) -> String {
    texts::late_result(id, tool, &readable_text(content), failed, call)
}

/// Returns `true` if a late-result text contains this result of a call.
pub fn text_contains(text: &str, call: &BodyCall, result: &RealResult) -> bool {
    let (id, tool) = (String::from_utf8_lossy(&call.id), String::from_utf8_lossy(&call.tool));
    let contains = |content: &str, failed| text.contains(&late_text(&id, &tool, content, failed, LateCall::InHistory));
    match result {
        RealResult::Content { content, failed } => contains(content, *failed),
        // Blocks do not say in every format whether the tool reported an error.
        RealResult::Block(block) => {
            let content = same_result::block_content(block);
            content.is_some_and(|content| [false, true].iter().any(|failed| contains(content, *failed)))
        }
    }
}

/// Bytes from which on a result counts as contained wherever it stands in an answer. A shorter one, such as `42` or
/// `done`, must be a whole line or a whole value: it stands in many other texts too.
const CONTAINED_MIN: usize = 16;

/// Returns `true` if an answer that a client gave contains a result. Both are JSON.
pub fn contains_result(answer: &str, result: &str) -> bool {
    let result = readable_text(&readable_blocks(result));
    let result = result.trim();
    // An empty result says that its tool has ended, which no other text says.
    if result.is_empty() {
        return readable_text(answer).trim().is_empty();
    }
    let contains = |text: &str| {
        let is_line = || text.lines().any(|line| line.trim() == result);
        text.trim() == result || is_line() || (result.len() >= CONTAINED_MIN && text.contains(result))
    };
    if contains(&readable_text(answer)) {
        return true;
    }
    // The result may be a value in an object, where its line breaks are escaped.
    let Ok(value) = serde_json::from_str::<Value>(answer) else {
        return false;
    };
    let mut values = vec![&value];
    while let Some(value) = values.pop() {
        match value {
            Value::String(text) if contains(text) => return true,
            Value::Array(list) => values.extend(list),
            Value::Object(members) => values.extend(members.values()),
            _ => {}
        }
    }
    false
}

/// Returns a content as text: a string as it is, the texts of text blocks, and anything else as JSON.
pub fn readable_text(content: &str) -> String {
    let json = Json::new(content.as_bytes());
    match json.root_span() {
        Ok(root) if json.kind(root) == JsonKind::String => {
            String::from_utf8_lossy(&json.decode_string(root)).into_owned()
        }
        // Blocks of text read like text. Anything else is shown as JSON, independent of its spacing.
        Ok(root) => joined_texts(json, root).unwrap_or_else(|| json::compact_json(content.as_bytes())),
        Err(_) => content.to_owned(),
    }
}

/// Returns the joined texts of a list of text blocks, with labels for images and documents. `None` if it contains anything
/// else.
fn joined_texts(json: Json<'_>, list: Span) -> Option<String> {
    if json.kind(list) != JsonKind::Array {
        return None;
    }
    let (mut texts, mut all) = (Vec::new(), true);
    json.for_each_element(list, |block| {
        if json.kind(block) == JsonKind::Object
            && let Some(label) = media_label(json, block)
        {
            // Images and documents are attached as blocks, where the format has them.
            texts.push(label);
            return;
        }
        let text = (json.kind(block) == JsonKind::Object)
            .then(|| json.member(block, "text"))
            .flatten();
        match text.filter(|text| json.kind(*text) == JsonKind::String) {
            Some(text) => texts.push(String::from_utf8_lossy(&json.decode_string(text)).into_owned()),
            None => all = false,
        }
    })
    .ok()?;
    all.then(|| texts.join("\n"))
}
