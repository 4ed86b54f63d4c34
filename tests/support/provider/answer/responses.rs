//! What a model answers on Responses: one JSON, or typed events.

use serde_json::{Value, json};

use super::{Reply, halves};

fn item(number: usize, reply: &Reply) -> Value {
    match reply {
        Reply::Text(words) => json!({
            "type": "message", "id": format!("msg_{number:08}"), "status": "completed", "role": "assistant",
            "content": [{"type": "output_text", "text": words, "annotations": []}],
        }),
        Reply::Call { id, name, input } => json!({
            "type": "function_call", "id": format!("fc_{number:08}"), "call_id": id, "name": name,
            "arguments": input.to_string(), "status": "completed",
        }),
        Reply::Status(..) | Reply::Calls(_) => Value::Null,
    }
}

/// The id of the answer with this number.
pub(crate) fn response_id(number: usize) -> String {
    format!("resp_{number:08}")
}

/// A Responses answer.
pub(crate) fn response(number: usize, model: &str, reply: &Reply) -> Value {
    json!({
        "id": response_id(number), "object": "response", "created_at": 1_700_000_000, "status": "completed",
        "model": model, "error": null, "incomplete_details": null, "output": [item(number, reply)],
        "usage": {"input_tokens": 12, "output_tokens": 4, "total_tokens": 16},
    })
}

/// A Responses answer as events, from `response.created` to `response.completed`.
pub(crate) fn response_events(number: usize, model: &str, reply: &Reply) -> Vec<String> {
    let whole = response(number, model, reply);
    let mut opening = whole.clone();
    opening["status"] = "in_progress".into();
    opening["output"] = json!([]);
    let item = item(number, reply);
    let mut start = item.clone();
    start["status"] = "in_progress".into();
    let (kind, key, text) = match reply {
        Reply::Call { input, .. } => ("response.function_call_arguments", "arguments", input.to_string()),
        Reply::Text(words) => ("response.output_text", "text", words.clone()),
        Reply::Status(..) | Reply::Calls(_) => ("response.output_text", "text", String::new()),
    };
    match reply {
        Reply::Call { .. } => start["arguments"] = "".into(),
        _ => start["content"] = json!([]),
    }
    let id = &item["id"];
    let mut data = vec![
        json!({"type": "response.created", "response": opening}),
        json!({"type": "response.output_item.added", "output_index": 0, "item": start}),
    ];
    data.extend(halves(&text).map(|half| {
        json!({"type": format!("{kind}.delta"), "item_id": id, "output_index": 0, "content_index": 0, "delta": half})
    }));
    data.push(json!({"type": format!("{kind}.done"), "item_id": id, "output_index": 0, "content_index": 0, key: text}));
    data.push(json!({"type": "response.output_item.done", "output_index": 0, "item": item}));
    data.push(json!({"type": "response.completed", "response": whole}));
    let event = |(at, mut data): (usize, Value)| {
        data["sequence_number"] = at.into();
        format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap_or_default())
    };
    data.into_iter().enumerate().map(event).collect()
}
