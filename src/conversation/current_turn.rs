//! The current turn: the open tool loop at the end of a history.

use crate::conversation::{Conversation, Message, PartKind, Role};

/// Returns the index of the first message of the current turn. The number of messages if no tool loop is open.
///
/// A loop ends where the user speaks. Anthropic ignores thinking before a user block that is no tool result ("Extended
/// thinking", 2026-11), and Gemini checks signatures behind the last user content with other parts ("Thought
/// signatures", 2026-11).
pub fn current_turn(conversation: &Conversation<'_>) -> usize {
    let mut messages = conversation.messages.iter().enumerate().rev();
    let speaking = messages.find(|(_, message)| has_words_at_end(conversation, message));
    let begin = speaking.map_or(0, |(index, _)| index.saturating_add(1));
    // Instructions behind the user's words open no loop.
    let rest = conversation.messages.get(begin..).unwrap_or_default();
    if rest.iter().all(|message| message.role == Role::System) {
        return conversation.messages.len();
    }
    begin
}

/// Returns `true` if a message of the user ends with something other than a tool result.
fn has_words_at_end(conversation: &Conversation<'_>, message: &Message) -> bool {
    let last = conversation.parts_of(message).last();
    message.role == Role::User && !last.is_some_and(|part| matches!(part.kind, PartKind::Result(_)))
}
