//! Members at the top of a body that are noted on the way, whatever the format.

use crate::{
    conversation::{Conversation, Field},
    splice::Span,
    wire::{Unreadable, json::Cursor},
};

/// Passes the value here, that of `key` at the top of the body, and notes where it stands if somebody asks for it.
pub(crate) fn note<'a>(
    conversation: &mut Conversation<'a>,
    key: &[u8],
    cursor: &mut Cursor<'a>,
) -> Result<Span, Unreadable> {
    let value = cursor.value()?;
    if let Some(field) = field(key) {
        conversation.noted.fields.set(field, value);
    }
    Ok(value)
}

fn field(key: &[u8]) -> Option<Field> {
    Some(match key {
        b"model" => Field::Model,
        b"stream" => Field::Stream,
        b"system" | b"instructions" | b"systemInstruction" | b"system_instruction" => Field::System,
        b"tools" => Field::Tools,
        b"metadata" => Field::Metadata,
        b"prompt_cache_key" => Field::PromptCacheKey,
        b"conversation" => Field::Conversation,
        b"previous_response_id" => Field::PreviousResponse,
        b"thread" => Field::Thread,
        b"context_management" => Field::ContextManagement,
        b"max_tokens" | b"max_completion_tokens" | b"max_output_tokens" => Field::MaxTokens,
        _ => return None,
    })
}
