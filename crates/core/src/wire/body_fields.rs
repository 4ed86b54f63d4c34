//! Members at the top of a body whose spans every format's reader notes.

use crate::{
    conversation::{BodyField, Conversation},
    splice::Span,
    wire::{Unreadable, json::Cursor},
};

/// Skips the value of `key` at the top of the body, and notes its span if the key is a [`BodyField`].
pub(crate) fn note_field<'a>(
    conversation: &mut Conversation<'a>,
    key: &[u8],
    cursor: &mut Cursor<'a>,
) -> Result<Span, Unreadable> {
    let value = cursor.skip_value()?;
    if let Some(field) = body_field(key) {
        conversation.notes.fields.set(field, value);
    }
    Ok(value)
}

fn body_field(key: &[u8]) -> Option<BodyField> {
    // The formats share one table, since no key means different things in two of them.
    Some(match key {
        b"model" => BodyField::Model,
        b"stream" => BodyField::Stream,
        b"system" | b"instructions" | b"systemInstruction" | b"system_instruction" => BodyField::System,
        b"tools" => BodyField::Tools,
        b"tool_choice" | b"toolConfig" | b"tool_config" => BodyField::ToolChoice,
        b"metadata" => BodyField::Metadata,
        b"prompt_cache_key" => BodyField::PromptCacheKey,
        b"conversation" => BodyField::Conversation,
        b"previous_response_id" => BodyField::PreviousResponse,
        b"thread" => BodyField::Thread,
        b"context_management" => BodyField::ContextManagement,
        b"max_tokens" | b"max_completion_tokens" | b"max_output_tokens" => BodyField::MaxTokens,
        _ => return None,
    })
}
