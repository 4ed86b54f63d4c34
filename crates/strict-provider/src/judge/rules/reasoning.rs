//! Servers that want back what they thought when they called a tool.

use serde_json::Value;

use super::{ReasoningRule, ServerMemory, history_calls::text};
use crate::{
    Format,
    judge::{Refusal, Verdict},
};

/// Refuses the first turn whose reasoning the server misses. Gemini's own format is judged with its pairs.
pub(super) fn check_reasoning(format: Format, rule: ReasoningRule, memory: &ServerMemory, request: &Value) -> Verdict {
    // No server misses thinking in a request that switches it off.
    let is_off = text(request.pointer("/thinking/type")) == "disabled";
    match (rule, format) {
        (ReasoningRule::DeepSeek, Format::Chat | Format::Messages) if !is_off => check_cold(format, memory, request),
        (ReasoningRule::Kimi, Format::Chat | Format::Messages) if !is_off => check_kimi(format, request),
        (ReasoningRule::Gemini | ReasoningRule::Vertex, Format::Chat) => check_extras(rule, request),
        (_, Format::Messages | Format::Chat | Format::Responses | Format::Gemini) => Ok(()),
    }
}

/// Returns an assistant message's index, value and call ids, for each with calls.
fn calling_messages(format: Format, request: &Value) -> impl Iterator<Item = (usize, &Value, Vec<&str>)> {
    let (key, kind) = match format {
        Format::Chat => ("tool_calls", None),
        Format::Messages | Format::Responses | Format::Gemini => ("content", Some("tool_use")),
    };
    let messages = request.get("messages").and_then(Value::as_array);
    let messages = messages.into_iter().flatten().enumerate();
    messages.filter_map(move |(index, message)| {
        if text(message.get("role")) != "assistant" {
            return None;
        }
        let calls = message.get(key)?.as_array()?.iter();
        let ids: Vec<&str> = calls
            .filter(|call| kind.is_none_or(|kind| text(call.get("type")) == kind))
            .map(|call| text(call.get("id")))
            .collect();
        (!ids.is_empty()).then_some((index, message, ids))
    })
}

/// Reports whether a message contains reasoning. An empty text counts, `null` does not.
fn has_reasoning(format: Format, message: &Value) -> bool {
    match format {
        Format::Chat => message.get("reasoning_content").is_some_and(Value::is_string),
        Format::Messages | Format::Responses | Format::Gemini => message
            .get("content")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .any(|block| text(block.get("type")).ends_with("thinking")),
    }
}

/// Checks as DeepSeek does. A turn in its cache is tolerated, and a turn without calls is never looked at.
fn check_cold(format: Format, memory: &ServerMemory, request: &Value) -> Verdict {
    for (_, message, ids) in calling_messages(format, request) {
        // The id of a call that was made without thinking carries a mark.
        let is_marked = ids.iter().any(|id| id.get(8..11) == Some("ET_"));
        let is_warm = ids.iter().all(|id| memory.is_cached(id));
        if has_reasoning(format, message) || is_marked || is_warm {
            continue;
        }
        let member = match format {
            Format::Chat => "reasoning_content",
            Format::Messages | Format::Responses | Format::Gemini => "content[].thinking",
        };
        let words = format!("The `{member}` in the thinking mode must be passed back to the API.");
        return Err(Refusal::new(words, ids));
    }
    Ok(())
}

fn check_kimi(format: Format, request: &Value) -> Verdict {
    for (index, message, ids) in calling_messages(format, request) {
        if !has_reasoning(format, message) {
            let words = format!(
                "thinking is enabled but reasoning_content is missing in assistant tool call message at index {index}"
            );
            return Err(Refusal::new(words, ids));
        }
    }
    Ok(())
}

/// Checks the first call of each step of the current turn, as Gemini does behind Chat Completions.
fn check_extras(rule: ReasoningRule, request: &Value) -> Verdict {
    let messages = request
        .get("messages")
        .and_then(Value::as_array)
        .map_or(&[][..], Vec::as_slice);
    let border = messages
        .iter()
        .rposition(|message| text(message.get("role")) == "user")
        .unwrap_or(0);
    for (index, message, ids) in calling_messages(Format::Chat, request).filter(|(index, ..)| *index >= border) {
        let first = message.pointer("/tool_calls/0").unwrap_or(&Value::Null);
        if text(first.pointer("/extra_content/google/thought_signature")).is_empty() {
            let name = text(first.pointer("/function/name"));
            let words = missing_signature(rule == ReasoningRule::Vertex, name, index + 1);
            return Err(Refusal::new(words, ids.first().copied()));
        }
    }
    Ok(())
}

/// Returns Gemini's words for a call without a signature.
pub(in crate::judge) fn missing_signature(is_vertex: bool, name: &str, position: usize) -> String {
    if is_vertex {
        return format!(
            "Unable to submit request because function call `default_api:{name}` in the {position}. content block is \
             missing a `thought_signature`."
        );
    }
    format!(
        "Function call is missing a thought_signature in functionCall parts. This is required for tools to work \
         correctly, and missing thought_signature may lead to degraded model performance. Additional data, function \
         call `default_api:{name}`, position {position}."
    )
}
