//! The calls of a history in every format, and the place of each in the provider's words.

use serde_json::Value;

use crate::Format;

/// One call of the history.
pub(super) struct HistoryCall<'a> {
    /// Format of the body.
    pub(super) format: Format,
    /// Place of the call, as the provider writes it: `messages[1].tool_calls[0]`, `messages.1.content.0.tool_use`.
    pub(super) place: String,
    /// Index of the message, item or content.
    pub(super) message: usize,
    /// Index within the message.
    pub(super) index: usize,
    /// Its id. `None` if the member is missing.
    pub(super) id: Option<&'a Value>,
    /// Its name. Empty if it is missing or no string.
    pub(super) name: &'a str,
    /// Its arguments: a string of JSON in both formats of `OpenAI`, an object elsewhere. `None` if they are missing.
    pub(super) arguments: Option<&'a Value>,
}

impl HistoryCall<'_> {
    /// Returns the id, or nothing without one.
    pub(super) fn id_text(&self) -> &str {
        self.id.and_then(Value::as_str).unwrap_or_default()
    }
}

/// Returns every call with JSON arguments in one request.
pub(super) fn read_calls(format: Format, request: &Value) -> Vec<HistoryCall<'_>> {
    let list = |key: &str| {
        request
            .get(key)
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .enumerate()
    };
    match format {
        Format::Chat => list("messages").flat_map(read_chat).collect(),
        Format::Messages => list("messages").flat_map(read_message).collect(),
        Format::Responses => list("input").filter_map(read_item).collect(),
        Format::Gemini => list("contents").flat_map(read_content).collect(),
    }
}

fn read_chat((message, value): (usize, &Value)) -> Vec<HistoryCall<'_>> {
    let calls = value.get("tool_calls").and_then(Value::as_array).into_iter().flatten();
    calls
        .enumerate()
        .filter_map(|(index, call)| {
            // A custom tool's input is free text.
            let function = call.get("function")?;
            Some(HistoryCall {
                format: Format::Chat,
                place: format!("messages[{message}].tool_calls[{index}]"),
                message,
                index,
                id: call.get("id"),
                name: text(function.get("name")),
                arguments: function.get("arguments"),
            })
        })
        .collect()
}

fn read_message((message, value): (usize, &Value)) -> Vec<HistoryCall<'_>> {
    let blocks = value.get("content").and_then(Value::as_array).into_iter().flatten();
    blocks
        .enumerate()
        .filter(|(_, block)| text(block.get("type")) == "tool_use")
        .map(|(index, block)| HistoryCall {
            format: Format::Messages,
            place: format!("messages.{message}.content.{index}.tool_use"),
            message,
            index,
            id: block.get("id"),
            name: text(block.get("name")),
            arguments: block.get("input"),
        })
        .collect()
}

fn read_item((message, item): (usize, &Value)) -> Option<HistoryCall<'_>> {
    (text(item.get("type")) == "function_call").then(|| HistoryCall {
        format: Format::Responses,
        place: format!("input[{message}]"),
        message,
        index: 0,
        id: item.get("call_id"),
        name: text(item.get("name")),
        arguments: item.get("arguments"),
    })
}

fn read_content((message, value): (usize, &Value)) -> Vec<HistoryCall<'_>> {
    let parts = value.get("parts").and_then(Value::as_array).into_iter().flatten();
    parts
        .enumerate()
        .filter_map(|(index, part)| {
            let call = part.get("functionCall").or_else(|| part.get("function_call"))?;
            Some(HistoryCall {
                format: Format::Gemini,
                place: format!("contents[{message}].parts[{index}].function_call"),
                message,
                index,
                id: call.get("id"),
                name: text(call.get("name")),
                arguments: call.get("args"),
            })
        })
        .collect()
}

/// Returns a member's text, or nothing if it is missing or no string.
pub(super) fn text(value: Option<&Value>) -> &str {
    value.and_then(Value::as_str).unwrap_or_default()
}
