//! Thinking, encrypted reasoning, response ids and containers that a server recognizes, or misses.

use serde_json::Value;

use super::{ServerMemory, history_calls::text};
use crate::{
    Format,
    judge::{Refusal, Verdict},
};

/// Signatures that Gemini accepts instead of its own: <https://ai.google.dev/gemini-api/docs/thought-signatures>.
const GEMINI_SUBSTITUTES: [&str; 2] = [
    "skip_thought_signature_validator",
    "context_engineering_is_the_way_to_go",
];

/// Refuses the first piece of continuity that this server did not make.
pub(super) fn check_origin(format: Format, memory: &ServerMemory, request: &Value) -> Verdict {
    match format {
        Format::Messages => check_thinking(memory, request),
        Format::Responses => check_encrypted(memory, request),
        Format::Gemini => check_parts(memory, request),
        Format::Chat => check_extras(memory, request),
    }
}

fn list<'a>(request: &'a Value, key: &str) -> impl Iterator<Item = (usize, &'a Value)> {
    let items = request.get(key).and_then(Value::as_array);
    items.into_iter().flatten().enumerate()
}

/// Checks the signatures of all thinking blocks.
fn check_thinking(memory: &ServerMemory, request: &Value) -> Verdict {
    for (n, message) in list(request, "messages") {
        for (m, block) in list(message, "content") {
            let (kind, key) = match text(block.get("type")) {
                "thinking" => ("thinking", "signature"),
                "redacted_thinking" => ("redacted_thinking", "data"),
                _ => continue,
            };
            if !memory.has_seal(text(block.get(key))) {
                let words = format!("messages.{n}.content.{m}: Invalid `{key}` in `{kind}` block");
                return Err(Refusal::plain(words));
            }
        }
    }
    Ok(())
}

/// Checks encrypted reasoning, and the response that the body continues: droidproxy#58, 2026-05.
fn check_encrypted(memory: &ServerMemory, request: &Value) -> Verdict {
    let previous = text(request.get("previous_response_id"));
    if !previous.is_empty() && !memory.has_response(previous) {
        return Err(Refusal {
            code: Some("previous_response_not_found"),
            ..Refusal::plain(format!("Previous response with id '{previous}' not found."))
        });
    }
    for (_, item) in list(request, "input") {
        let content = text(item.get("encrypted_content"));
        if content.is_empty() || memory.has_seal(content) {
            continue;
        }
        let letters: Vec<char> = content.chars().collect();
        let head: String = letters.iter().take(4).collect();
        let tail: String = letters.iter().skip(letters.len().saturating_sub(4)).collect();
        return Err(Refusal {
            code: Some("invalid_encrypted_content"),
            ..Refusal::plain(format!(
                "The encrypted content {head}...{tail} could not be verified. Reason: Encrypted content could not be \
                 decrypted or parsed."
            ))
        });
    }
    Ok(())
}

/// Checks the signatures of Gemini's parts: <https://github.com/google-gemini/gemini-cli/issues/13467>.
fn check_parts(memory: &ServerMemory, request: &Value) -> Verdict {
    for (_, content) in list(request, "contents") {
        for (_, part) in list(content, "parts") {
            let own = part.get("thoughtSignature").or_else(|| part.get("thought_signature"));
            check_gemini_seal(memory, text(own))?;
        }
    }
    Ok(())
}

/// Checks the signatures that Gemini's Chat Completions carry beside a call.
fn check_extras(memory: &ServerMemory, request: &Value) -> Verdict {
    for (_, message) in list(request, "messages") {
        for (_, call) in list(message, "tool_calls") {
            check_gemini_seal(memory, text(call.pointer("/extra_content/google/thought_signature")))?;
        }
    }
    Ok(())
}

fn check_gemini_seal(memory: &ServerMemory, seal: &str) -> Verdict {
    if seal.is_empty() || GEMINI_SUBSTITUTES.contains(&seal) || memory.has_seal(seal) {
        return Ok(());
    }
    Err(Refusal::plain("Corrupted thought signature.".to_owned()))
}

/// Refuses pending calls of a code execution without their container: defog#270, 2026-04.
pub(super) fn check_container(request: &Value) -> Verdict {
    let messages: Vec<&Value> = list(request, "messages").map(|(_, message)| message).collect();
    let last = messages
        .iter()
        .rposition(|message| text(message.get("role")) == "assistant");
    let Some(last) = last.and_then(|last| messages.get(last)) else {
        return Ok(());
    };
    let blocks: Vec<&Value> = list(last, "content").map(|(_, block)| block).collect();
    // A code execution whose result is there no longer waits for its calls.
    let is_done = |id: &str| {
        let mut blocks = blocks.iter();
        blocks.any(|block| text(block.get("type")).ends_with("_tool_result") && text(block.get("tool_use_id")) == id)
    };
    let pending = blocks.iter().find(|block| {
        let caller = text(block.pointer("/caller/type"));
        let is_program = !caller.is_empty() && caller != "direct";
        text(block.get("type")) == "tool_use" && is_program && !is_done(text(block.pointer("/caller/tool_id")))
    });
    let known = request.get("container").is_some_and(|container| !container.is_null());
    match pending {
        Some(call) if !known => Err(Refusal::new(
            "container_id is required when there are pending tool uses generated by code execution with tools."
                .to_owned(),
            [text(call.get("id"))],
        )),
        _ => Ok(()),
    }
}
