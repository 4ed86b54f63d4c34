//! The current turn: the open tool loop at the end of a history.

use std::sync::LazyLock;

use memchr::memmem::Finder;

use crate::{
    conversation::{Conversation, Message, Part, PartKind, Role},
    work,
};

/// Searcher for the beginning of every text of the proxy, as a JSON string.
static MARK: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\"[antiphon:"));
/// Bytes of a part within which that beginning is searched: the members in front of a text.
const MARK_WITHIN: usize = 128;

/// Returns the index of the first message of the current turn. The number of messages if no tool loop is open.
///
/// A loop ends where the user speaks. Anthropic ignores thinking before a user block that is no tool result ("Extended
/// thinking", 2026-11), and Gemini checks signatures after the last user content with other parts ("Thought
/// signatures", 2026-11).
pub fn current_turn(conversation: &Conversation<'_>) -> usize {
    let mut messages = conversation.messages.iter().enumerate().rev();
    let speaking = messages.find(|(_, message)| {
        work::count(1);
        has_words(conversation, message)
    });
    let begin = speaking.map_or(0, |(index, _)| index.saturating_add(1));
    // Instructions after the user's words open no loop.
    let rest = conversation.messages.get(begin..).unwrap_or_default();
    work::count(rest.len());
    if rest.iter().all(|message| message.role == Role::System) {
        return conversation.messages.len();
    }
    begin
}

/// Returns `true` if a message of the user contains anything besides tool results.
///
/// The place in the message does not matter: a repair may move the results away from the words.
fn has_words(conversation: &Conversation<'_>, message: &Message) -> bool {
    let parts = conversation.parts_of(message);
    let is_word = |part: &Part<'_>| !matches!(part.kind, PartKind::Result(_)) && !is_mark(conversation, part);
    message.role == Role::User && (parts.is_empty() || parts.iter().any(is_word))
}

/// Returns `true` if the proxy wrote the part: a quoted result, a late result, or a note.
///
/// Such text stands for a result, so it ends no loop. Otherwise a repair could close the loop that it was planned for.
fn is_mark(conversation: &Conversation<'_>, part: &Part<'_>) -> bool {
    let bytes = conversation.body.get(part.span.range()).unwrap_or_default();
    let begin = bytes.get(..bytes.len().min(MARK_WITHIN)).unwrap_or_default();
    work::count_bytes(begin.len());
    MARK.find(begin).is_some()
}
