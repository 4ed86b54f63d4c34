//! Whether a provider would take a history, and in which words it refuses: its pairing rules alone, written down a
//! second time, so that the demonstration is not judged by the code that it shows.

mod chat;
mod gemini;
mod messages;
mod responses;

use serde_json::Value;

use crate::wire::Format;

/// Taken, or the provider's words.
pub(super) type Verdict = Result<(), String>;

/// Judges a body as the author of its format does.
pub(super) fn judge(format: Format, body: &Value) -> Verdict {
    match format {
        Format::Anthropic => messages::judge(body),
        Format::OpenAiChat => chat::judge(body),
        Format::OpenAiResponses => responses::judge(body),
        Format::Gemini => gemini::judge(body),
    }
}

/// The text under `key`; empty where there is none.
fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// The list under `key`; empty where there is none.
fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}
