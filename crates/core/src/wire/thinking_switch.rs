//! The switches with which a request turns thinking off, as providers and servers document them.

use crate::{
    splice::Span,
    wire::{
        Format,
        json::{Json, JsonKind},
    },
};

/// Returns `true` if the body turns thinking off. Nothing of an earlier thought belongs into such a request.
pub fn is_thinking_off(format: Format, body: &[u8]) -> bool {
    let json = Json::new(body);
    let Ok(root) = json.root_span() else { return false };
    let mut off = false;
    // Members before a fault count, so the result of the walk does not matter.
    let _walked = json.for_each_member(root, |key, value| off |= is_off_switch(json, format, key, value));
    off
}

/// Returns `true` if the member `key` at the top of a body turns thinking off.
fn is_off_switch(json: Json<'_>, format: Format, key: &[u8], value: Span) -> bool {
    match format {
        Format::Gemini => is_gemini_switch(json, key, value),
        Format::Anthropic | Format::OpenAiChat | Format::OpenAiResponses => is_model_switch(json, key, value),
    }
}

/// Reads `generationConfig.thinkingConfig.thinkingBudget: 0` (Gemini API, "Thinking", 2026-11).
fn is_gemini_switch(json: Json<'_>, key: &[u8], value: Span) -> bool {
    if !matches!(key, b"generationConfig" | b"generation_config") {
        return false;
    }
    let config = json.member(value, "thinkingConfig");
    let config = config.or_else(|| json.member(value, "thinking_config"));
    config
        .is_some_and(|config| says(json, config, "thinkingBudget", b"0") || says(json, config, "thinking_budget", b"0"))
}

/// Reads the switches beside a model's name. Servers of one format take those of another.
fn is_model_switch(json: Json<'_>, key: &[u8], value: Span) -> bool {
    match key {
        // Anthropic, DeepSeek ("Thinking mode", 2026-11), Kimi and GLM.
        b"thinking" => says(json, value, "type", b"disabled"),
        // DeepSeek's Messages (deepseek-recipe 0.2.0).
        b"output_config" => says(json, value, "effort", b"none"),
        // Qwen (DashScope, "Deep thinking", 2026-11).
        b"enable_thinking" => json.bytes(value) == b"false",
        // OpenAI, xAI, and Gemini through Chat Completions.
        b"reasoning_effort" => *json.decode_string(value) == *b"none",
        // OpenRouter, "Reasoning tokens", and OpenAI Responses.
        b"reasoning" => says(json, value, "enabled", b"false") || says(json, value, "effort", b"none"),
        // vLLM and SGLang, for Qwen and for DeepSeek.
        b"chat_template_kwargs" => {
            says(json, value, "enable_thinking", b"false") || says(json, value, "thinking", b"false")
        }
        // Gemini through Chat Completions: `extra_body.google.thinking_config.thinking_budget: 0`.
        b"extra_body" | b"google" => {
            let google = if key == b"google" {
                Some(value)
            } else {
                json.member(value, "google")
            };
            let config = google.and_then(|google| json.member(google, "thinking_config"));
            config.is_some_and(|config| {
                json.kind(config) == JsonKind::Object && says(json, config, "thinking_budget", b"0")
            })
        }
        _ => false,
    }
}

/// Returns `true` if the member `name` of `object` is `wanted`, as a text or as another value.
fn says(json: Json<'_>, object: Span, name: &str, wanted: &[u8]) -> bool {
    let found = json.member(object, name);
    found.is_some_and(|found| json.bytes(found) == wanted || *json.decode_string(found) == *wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documented_switches_turn_thinking_off() {
        let (chat, gemini) = (Format::OpenAiChat, Format::Gemini);
        for (format, body, off) in [
            (chat, r#"{"thinking":{"type":"disabled"}}"#, true),
            (chat, r#"{"thinking":{"type":"enabled"}}"#, false),
            (chat, r#"{"enable_thinking":false}"#, true),
            (chat, r#"{"enable_thinking":true}"#, false),
            (chat, r#"{"reasoning_effort":"none"}"#, true),
            (chat, r#"{"reasoning_effort":"low"}"#, false),
            (chat, r#"{"reasoning":{"enabled":false}}"#, true),
            (Format::Anthropic, r#"{"output_config":{"effort":"none"}}"#, true),
            (Format::Anthropic, r#"{"output_config":{"effort":"high"}}"#, false),
            (chat, r#"{"reasoning":{"effort":"none"}}"#, true),
            (chat, r#"{"chat_template_kwargs":{"enable_thinking":false}}"#, true),
            (chat, r#"{"chat_template_kwargs":{"thinking":true}}"#, false),
            (
                chat,
                r#"{"extra_body":{"google":{"thinking_config":{"thinking_budget":0}}}}"#,
                true,
            ),
            (chat, r#"{"messages":[{"thinking":{"type":"disabled"}}]}"#, false),
            (
                gemini,
                r#"{"generationConfig":{"thinkingConfig":{"thinkingBudget":0}}}"#,
                true,
            ),
            (
                gemini,
                r#"{"generation_config":{"thinking_config":{"thinking_budget":0}}}"#,
                true,
            ),
            (
                gemini,
                r#"{"generationConfig":{"thinkingConfig":{"thinkingBudget":-1}}}"#,
                false,
            ),
            (gemini, r#"{"generationConfig":{"temperature":0}}"#, false),
            (chat, "{", false),
        ] {
            assert_eq!(is_thinking_off(format, body.as_bytes()), off, "{body}");
        }
    }
}
