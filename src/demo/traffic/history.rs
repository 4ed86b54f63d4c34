//! Small histories, written in each of the four formats.

use serde_json::{Value, json};

use crate::wire::Format;

/// A call: the number of its id within the history, and its tool.
pub(super) type NumberedCall = (usize, &'static str);

/// One entry of a history.
#[derive(Clone, Copy, Debug)]
pub(super) enum HistoryEntry {
    /// A text of the user.
    User(&'static str),
    /// A text of the model.
    Model(&'static str),
    /// Tool calls of one message.
    Calls(&'static [NumberedCall]),
    /// A call, and a text of the model after it. Messages only.
    CallThenText(NumberedCall, &'static str),
    /// A call whose input was cut off. Messages only.
    EmptyCall(NumberedCall),
    /// Results, each with the number of its call.
    Results(&'static [(usize, &'static str)]),
}

/// Returns the id of a call: the history's number makes it unique in this run.
pub(super) fn call_id(format: Format, number: usize, index: usize) -> String {
    let hash = blake3::hash(format!("{number} {index}").as_bytes()).to_hex();
    let hash = hash.as_str();
    match format {
        Format::Anthropic => format!("toolu_01{}", hash.get(..22).unwrap_or_default()),
        Format::OpenAiChat | Format::OpenAiResponses | Format::Gemini => {
            format!("call_{}", hash.get(..24).unwrap_or_default())
        }
    }
}

/// Returns the body of a request. One in two is a stream.
pub(super) fn write_body(format: Format, model: &str, number: usize, history: &[HistoryEntry]) -> Value {
    let id = |index| call_id(format, number, index);
    let list: Vec<Value> = match format {
        Format::Anthropic => history.iter().map(|entry| write_message(*entry, &id)).collect(),
        Format::OpenAiChat => history.iter().flat_map(|entry| write_chat(*entry, &id)).collect(),
        Format::OpenAiResponses => history.iter().flat_map(|entry| write_items(*entry, &id)).collect(),
        Format::Gemini => history.iter().map(|entry| write_content(*entry, &id)).collect(),
    };
    let streams = number.is_multiple_of(2);
    match format {
        Format::Gemini => json!({"contents": list}),
        Format::OpenAiResponses => json!({"model": model, "stream": streams, "input": list}),
        Format::OpenAiChat => json!({"model": model, "stream": streams, "messages": list}),
        Format::Anthropic => json!({"model": model, "max_tokens": 64, "stream": streams, "messages": list}),
    }
}

/// Returns the arguments of each call.
fn arguments() -> Value {
    json!({"path": "README.md"})
}

fn write_message(entry: HistoryEntry, id: &dyn Fn(usize) -> String) -> Value {
    let call = |(index, tool): NumberedCall, input: Value| json!({"type": "tool_use", "id": id(index), "name": tool, "input": input});
    let assistant = |content: Value| json!({"role": "assistant", "content": content});
    match entry {
        HistoryEntry::User(words) => json!({"role": "user", "content": words}),
        HistoryEntry::Model(words) => assistant(words.into()),
        HistoryEntry::Calls(calls) => assistant(calls.iter().map(|made| call(*made, arguments())).collect()),
        HistoryEntry::CallThenText(made, words) => {
            assistant(json!([call(made, arguments()), {"type": "text", "text": words}]))
        }
        HistoryEntry::EmptyCall(made) => assistant(json!([call(made, Value::Null)])),
        HistoryEntry::Results(results) => {
            let result = |(index, words): &(usize, &str)| json!({"type": "tool_result", "tool_use_id": id(*index), "content": words});
            json!({"role": "user", "content": results.iter().map(result).collect::<Value>()})
        }
    }
}

fn write_chat(entry: HistoryEntry, id: &dyn Fn(usize) -> String) -> Vec<Value> {
    let call = |(index, tool): &NumberedCall| {
        let function = json!({"name": tool, "arguments": arguments().to_string()});
        json!({"id": id(*index), "type": "function", "function": function})
    };
    let calling = |calls: Value| json!({"role": "assistant", "content": null, "tool_calls": calls});
    match entry {
        HistoryEntry::User(words) => vec![json!({"role": "user", "content": words})],
        HistoryEntry::Model(words) => vec![json!({"role": "assistant", "content": words})],
        HistoryEntry::Calls(calls) => vec![calling(calls.iter().map(call).collect())],
        HistoryEntry::CallThenText(made, _) | HistoryEntry::EmptyCall(made) => vec![calling(json!([call(&made)]))],
        HistoryEntry::Results(results) => {
            let result =
                |(index, words): &(usize, &str)| json!({"role": "tool", "tool_call_id": id(*index), "content": words});
            results.iter().map(result).collect()
        }
    }
}

fn write_items(entry: HistoryEntry, id: &dyn Fn(usize) -> String) -> Vec<Value> {
    let call = |(index, tool): &NumberedCall| {
        let arguments = arguments().to_string();
        json!({"type": "function_call", "call_id": id(*index), "name": tool, "arguments": arguments})
    };
    match entry {
        HistoryEntry::User(words) => vec![json!({"role": "user", "content": words})],
        HistoryEntry::Model(words) => vec![json!({"role": "assistant", "content": words})],
        HistoryEntry::Calls(calls) => calls.iter().map(call).collect(),
        HistoryEntry::CallThenText(made, _) | HistoryEntry::EmptyCall(made) => vec![call(&made)],
        HistoryEntry::Results(results) => {
            let result = |(index, words): &(usize, &str)| json!({"type": "function_call_output", "call_id": id(*index), "output": words});
            results.iter().map(result).collect()
        }
    }
}

fn write_content(entry: HistoryEntry, id: &dyn Fn(usize) -> String) -> Value {
    // Calls of the current turn need a signature; the first of parallel ones has it.
    let call = |(at, (index, tool)): (usize, &NumberedCall)| {
        let function = json!({"id": id(*index), "name": tool, "args": arguments()});
        if at == 0 {
            json!({"functionCall": function, "thoughtSignature": "QUFB"})
        } else {
            json!({"functionCall": function})
        }
    };
    let model = |parts: Value| json!({"role": "model", "parts": parts});
    match entry {
        HistoryEntry::User(words) => json!({"role": "user", "parts": [{"text": words}]}),
        HistoryEntry::Model(words) => model(json!([{"text": words}])),
        HistoryEntry::Calls(calls) => model(calls.iter().enumerate().map(call).collect()),
        HistoryEntry::CallThenText(made, _) | HistoryEntry::EmptyCall(made) => model(json!([call((0, &made))])),
        HistoryEntry::Results(results) => {
            let result = |(index, words): &(usize, &str)| {
                let tool = if *index == 0 { "read_file" } else { "grep" };
                json!({"functionResponse": {"id": id(*index), "name": tool, "response": {"text": words}}})
            };
            json!({"role": "user", "parts": results.iter().map(result).collect::<Value>()})
        }
    }
}
