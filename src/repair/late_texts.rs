//! Late results at the end of a message: where text may be put, how that place is known again, and putting it there.
//!
//! A place is named by what it says: the turn of the assistant before, the message itself, and how often both stood before.
//! Text that was put there once is put there again, wherever the two stand, so that the history stays the one that the
//! provider has seen.

use std::collections::HashMap;

use bytes::Bytes;

use super::{
    canonical::{message_hash, turn_hash},
    parsed::Paired,
    texts,
};
use crate::{
    conversation::{Conversation, Message, Part, PartKind, Role, rules::WordsPlace},
    splice::{Edit, EditList, Piece, Span},
    wire::{
        Format, Unreadable,
        json::{self, Json, Kind, validate},
    },
};

/// The name of a place: a hash of what stands there.
pub type Anchor = [u8; 32];

/// A user's message with words behind a turn of the assistant. No two of a body have one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LatePlace {
    /// Its name.
    pub anchor: Anchor,
    /// Index of the message.
    pub message: usize,
    /// Whether a turn of the assistant stands behind it.
    pub is_answered: bool,
}

/// Returns the places of the only history, in document order; none of a batch.
pub fn late_places(paired: &Paired<'_>) -> Vec<LatePlace> {
    paired.only_conversation().map(find_places).unwrap_or_default()
}

/// Puts texts at the end of messages, each behind what the user says there; the others stay as they are.
///
/// `texts` holds indices of messages. `body` is the handle of the bytes that were parsed.
pub fn append_texts(paired: &Paired<'_>, body: &Bytes, texts: &[(usize, String)]) -> Result<Bytes, Unreadable> {
    validate(body)?;
    let json = Json::new(body);
    let is_apart = paired.wire.rules().words == WordsPlace::ApartFromResults;
    let is_result = |part: &Part<'_>| matches!(part.kind, PartKind::Result(_));
    let message = |(index, text): &(usize, String)| {
        let conversation = paired.only_conversation()?;
        let message = conversation.messages.get(*index)?;
        // Words stand apart from results: the text gets a message of its own behind them.
        if is_apart && conversation.parts_of(message).iter().any(is_result) {
            return Some(insert_message(paired.wire.format, message, text));
        }
        insert_text(json, paired.wire.format, message, text)
    };
    let edits = texts.iter().filter_map(message).collect();
    let list = EditList::new(edits, body.len()).map_err(|_| Unreadable::Overlap)?;
    Ok(Bytes::from(list.apply(body).to_vec()))
}

/// The places of a history, in document order.
fn find_places(conversation: &Conversation<'_>) -> Vec<LatePlace> {
    let messages = &conversation.messages;
    let last_turn = messages.iter().rposition(|message| message.role == Role::Assistant);
    let (mut places, mut turn, mut turn_told) = (Vec::new(), 0..0, None);
    let mut seen: HashMap<Anchor, u64> = HashMap::new();
    for (index, message) in messages.iter().enumerate() {
        match message.role {
            Role::Assistant => {
                turn.start = if turn.end == index { turn.start } else { index };
                (turn.end, turn_told) = (index + 1, None);
            }
            Role::User if !turn.is_empty() && has_user_text(conversation, message) => {
                // Once a turn, however many messages stand behind it.
                let turn = turn_told.get_or_insert_with(|| turn_hash(conversation, turn.clone()));
                let said = message_hash(message.span.of(conversation.body));
                let told: Anchor = blake3::keyed_hash(turn, &said).into();
                let before = seen.entry(told).or_default();
                places.push(LatePlace {
                    anchor: blake3::keyed_hash(&told, &before.to_le_bytes()).into(),
                    message: index,
                    is_answered: last_turn > Some(index),
                });
                *before += 1;
            }
            Role::User | Role::Tool | Role::System => {}
        }
    }
    places
}

/// Whether a message holds words of the user's.
fn has_user_text(conversation: &Conversation<'_>, message: &Message) -> bool {
    let json = Json::new(conversation.body);
    let is_text = |span: Span| json.kind(span) == Kind::String && !json::is_blank(json.bytes(span));
    let Some(content) = content_span(json, message) else {
        return false;
    };
    if json.kind(content) != Kind::Array {
        return is_text(content);
    }
    let mut speaks = false;
    let walked = json.elements(content, |block| {
        let text = || json.member(block, "text");
        speaks |= json.kind(block) == Kind::Object && text().is_some_and(is_text);
    });
    speaks && walked.is_ok()
}

/// What a message says: a text, or a list.
fn content_span(json: Json<'_>, message: &Message) -> Option<Span> {
    json.member(message.span, "content")
        .or_else(|| json.member(message.span, "parts"))
        .filter(|content| matches!(json.kind(*content), Kind::String | Kind::Array))
}

fn insert_text(json: Json<'_>, format: Format, message: &Message, text: &str) -> Option<Edit> {
    let content = content_span(json, message)?;
    if json.kind(content) == Kind::String {
        let pieces = vec![Piece::Constant("\\n\\n"), Piece::Made(json::escaped(text))];
        let span = Span::at(json.inner(content).end);
        return Some(Edit { span, pieces });
    }
    let mut pieces = vec![Piece::Constant(if json.is_empty(content) { "" } else { "," })];
    pieces.extend(text_block(format, text));
    let span = Span::at(content.end.saturating_sub(1));
    Some(Edit { span, pieces })
}

/// Puts the text into a user's message of its own behind `message`, which holds results.
fn insert_message(format: Format, message: &Message, text: &str) -> Edit {
    let mut pieces = vec![Piece::Constant(",")];
    pieces.extend(format.message(true, vec![text_block(format, text)]));
    let span = Span::at(message.span.end);
    Edit { span, pieces }
}

/// Writes the text as a block of the format.
fn text_block(format: Format, text: &str) -> Vec<Piece> {
    vec![
        Piece::Constant(format.text_block_start()),
        Piece::Made(json::quoted(text)),
        Piece::Constant("}"),
    ]
}

/// A late result as marked text. `content` is JSON.
pub fn late_text(id: &str, tool: &str, content: &str, failed: bool) -> String {
    let json = Json::new(content.as_bytes());
    let said = match json.root() {
        Ok(root) if json.kind(root) == Kind::String => String::from_utf8_lossy(&json.decode(root)).into_owned(),
        Ok(root) => joined_texts(json, root).unwrap_or_else(|| json::compact(content.as_bytes())),
        Err(_) => content.to_owned(),
    };
    texts::late_result(id, tool, &said, failed)
}

/// The text of a list of text blocks.
fn joined_texts(json: Json<'_>, list: Span) -> Option<String> {
    if json.kind(list) != Kind::Array {
        return None;
    }
    let (mut texts, mut all) = (Vec::new(), true);
    json.elements(list, |block| {
        let text = (json.kind(block) == Kind::Object)
            .then(|| json.member(block, "text"))
            .flatten();
        match text.filter(|text| json.kind(*text) == Kind::String) {
            Some(text) => texts.push(String::from_utf8_lossy(&json.decode(text)).into_owned()),
            None => all = false,
        }
    })
    .ok()?;
    all.then(|| texts.join("\n"))
}
