//! Servers that check the names and ids of historical calls.

use serde_json::Value;

use super::{NameReader, history_calls::HistoryCall};
use crate::{
    Format,
    judge::{Refusal, Verdict},
};

/// Longest name at `OpenAI`.
const OPENAI_NAME_MAX: usize = 64;
/// Longest name at Anthropic.
const ANTHROPIC_NAME_MAX: usize = 200;

fn is_plain(name: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    name.bytes().all(legal)
}

/// Refuses the first call whose name the server does not allow.
pub(super) fn check_names(reader: NameReader, calls: &[HistoryCall<'_>]) -> Verdict {
    for call in calls {
        let refused = match reader {
            NameReader::OpenAi => openai_name(call),
            NameReader::Anthropic => anthropic_name(call),
            NameReader::Bedrock => bedrock_name(call),
        };
        if let Some((words, code)) = refused {
            return Err(Refusal {
                code,
                ..Refusal::new(words, [call.id_text()])
            });
        }
    }
    Ok(())
}

/// Words and code of a refusal.
type Words = Option<(String, Option<&'static str>)>;

/// Checks a name as `OpenAI` does: <https://github.com/mcp-use/mcp-use/issues/90>.
fn openai_name(call: &HistoryCall<'_>) -> Words {
    let place = match call.format {
        Format::Chat => format!("{}.function.name", call.place),
        Format::Messages | Format::Responses | Format::Gemini => format!("{}.name", call.place),
    };
    let length = call.name.chars().count();
    if length == 0 {
        let words = "empty string. Expected a string with minimum length 1, but got an empty string instead.";
        return Some((format!("Invalid '{place}': {words}"), Some("empty_string")));
    }
    if !is_plain(call.name) {
        let words = "string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'.";
        return Some((format!("Invalid '{place}': {words}"), Some("invalid_value")));
    }
    (length > OPENAI_NAME_MAX).then(|| {
        let words = format!(
            "Invalid '{place}': string too long. Expected a string with maximum length {OPENAI_NAME_MAX}, but got a \
             string with length {length} instead."
        );
        (words, Some("string_above_max_length"))
    })
}

/// Checks a name as Anthropic does. The changelog of Claude Code quotes both lengths. The pattern is that of its ids.
fn anthropic_name(call: &HistoryCall<'_>) -> Words {
    let words = if call.name.is_empty() {
        "String should have at least 1 character".to_owned()
    } else if call.name.chars().count() > ANTHROPIC_NAME_MAX {
        format!("String should have at most {ANTHROPIC_NAME_MAX} characters")
    } else if is_plain(call.name) {
        return None;
    } else {
        "String should match pattern '^[a-zA-Z0-9_-]+$'".to_owned()
    };
    Some((format!("{}.name: {words}", call.place), None))
}

/// Checks a name as Bedrock does: opencode#28989, 2026-05.
fn bedrock_name(call: &HistoryCall<'_>) -> Words {
    let (name, message, index) = (call.name, call.message, call.index);
    (name.is_empty() || !is_plain(name)).then(|| {
        let words = format!(
            "1 validation error detected: Value '{name}' at \
             'messages.{message}.member.content.{index}.member.toolUse.name' failed to satisfy constraint: Member must \
             satisfy regular expression pattern: [a-zA-Z0-9_-]+"
        );
        (words, None)
    })
}

/// Refuses the first id that is `null`, of a call or of a result.
pub(super) fn check_ids(format: Format, request: &Value, calls: &[HistoryCall<'_>]) -> Verdict {
    let is_null = |id: Option<&Value>| id.is_some_and(Value::is_null);
    let key = match format {
        // In the JSON of a protobuf, `null` is the same as a missing member.
        Format::Gemini => return Ok(()),
        Format::Responses => "input",
        Format::Messages | Format::Chat => "messages",
    };
    if let Some(call) = calls.iter().find(|call| is_null(call.id)) {
        return Err(refuse_type(format, &call.place, "id"));
    }
    let list = request.get(key).and_then(Value::as_array).into_iter().flatten();
    for (index, value) in list.enumerate() {
        match format {
            Format::Chat if is_null(value.get("tool_call_id")) && value["role"] == "tool" => {
                return Err(refuse_type(format, &format!("messages[{index}]"), "tool_call_id"));
            }
            Format::Responses if is_null(value.get("call_id")) => {
                return Err(refuse_type(format, &format!("input[{index}]"), "call_id"));
            }
            Format::Messages => {
                let blocks = value.get("content").and_then(Value::as_array).into_iter().flatten();
                let mut blocks = blocks.enumerate();
                if let Some((at, _)) = blocks.find(|(_, block)| is_null(block.get("tool_use_id"))) {
                    let place = format!("messages.{index}.content.{at}.tool_result");
                    return Err(refuse_type(format, &place, "tool_use_id"));
                }
            }
            Format::Chat | Format::Responses | Format::Gemini => {}
        }
    }
    Ok(())
}

fn refuse_type(format: Format, place: &str, key: &str) -> Refusal {
    let key = match format {
        Format::Messages => return Refusal::plain(format!("{place}.{key}: Input should be a valid string")),
        Format::Responses => "call_id",
        Format::Chat | Format::Gemini => key,
    };
    Refusal {
        code: Some("invalid_type"),
        ..Refusal::plain(format!(
            "Invalid type for '{place}.{key}': expected a string, but got null instead."
        ))
    }
}
