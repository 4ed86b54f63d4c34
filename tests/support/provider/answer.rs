//! What a model that was asked properly answers: one JSON, or the events of a stream.

mod gemini;
mod responses;

use serde_json::{Value, json};

pub(super) use gemini::{candidate_chunks, candidates};
pub(super) use responses::{response, response_events, response_id};

use super::Reply;

fn said(reply: &Reply) -> (Vec<Value>, &'static str) {
    let call =
        |id: &str, name: &str, input: &Value| json!({"type": "tool_use", "id": id, "name": name, "input": input});
    match reply {
        Reply::Text(words) => (vec![json!({"type": "text", "text": words})], "end_turn"),
        Reply::Call { id, name, input } => (vec![call(id, name, input)], "tool_use"),
        Reply::Calls(calls) => {
            let calls = calls.iter().map(|(id, name, input)| call(id, name, input));
            (calls.collect(), "tool_use")
        }
        Reply::Status(..) => (Vec::new(), "refusal"),
    }
}

/// A Messages answer; the model may have thought first.
pub(super) fn message(number: usize, model: &str, thought: Option<&Value>, reply: &Reply) -> Value {
    let (blocks, stop) = said(reply);
    let content: Vec<Value> = thought.cloned().into_iter().chain(blocks).collect();
    json!({
        "id": format!("msg_{number:08}"), "type": "message", "role": "assistant", "model": model,
        "content": content, "stop_reason": stop, "stop_sequence": null,
        "usage": {"input_tokens": 12, "output_tokens": 4},
    })
}

/// A Messages answer as events, from `message_start` to `message_stop`.
pub(super) fn message_events(number: usize, model: &str, thought: Option<&Value>, reply: &Reply) -> Vec<String> {
    let event = |data: Value| format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap_or_default());
    let mut opening = message(number, model, thought, reply);
    let stop = opening["stop_reason"].take();
    let blocks = std::mem::replace(&mut opening["content"], json!([]));
    let mut events = vec![event(json!({"type": "message_start", "message": opening}))];
    for (index, block) in blocks.as_array().into_iter().flatten().enumerate() {
        let (start, deltas) = pieces(block);
        events.push(event(
            json!({"type": "content_block_start", "index": index, "content_block": start}),
        ));
        if index == 0 {
            events.push(event(json!({"type": "ping"})));
        }
        let delta = |delta: Value| event(json!({"type": "content_block_delta", "index": index, "delta": delta}));
        events.extend(deltas.into_iter().map(delta));
        events.push(event(json!({"type": "content_block_stop", "index": index})));
    }
    events.push(event(json!({
        "type": "message_delta",
        "delta": {"stop_reason": stop, "stop_sequence": null},
        "usage": {"output_tokens": 4},
    })));
    events.push(event(json!({"type": "message_stop"})));
    events
}

/// A block as its stream begins it, and what is added to it then.
fn pieces(block: &Value) -> (Value, Vec<Value>) {
    let mut start = block.clone();
    let said = |key: &str| block[key].as_str().unwrap_or_default().to_owned();
    let deltas = match block["type"].as_str() {
        Some("text") => {
            start["text"] = "".into();
            halves(&said("text"))
                .map(|half| json!({"type": "text_delta", "text": half}))
                .collect()
        }
        Some("thinking") => {
            (start["thinking"], start["signature"]) = ("".into(), "".into());
            halves(&said("thinking"))
                .map(|half| json!({"type": "thinking_delta", "thinking": half}))
                .chain([json!({"type": "signature_delta", "signature": said("signature")})])
                .collect()
        }
        Some("tool_use") => {
            start["input"] = json!({});
            halves(&block["input"].to_string())
                .map(|half| json!({"type": "input_json_delta", "partial_json": half}))
                .collect()
        }
        _ => Vec::new(),
    };
    (start, deltas)
}

/// Two halves of a text, cut between letters.
fn halves(words: &str) -> impl Iterator<Item = String> {
    let letters: Vec<char> = words.chars().collect();
    let (one, two) = letters.split_at(letters.len() / 2);
    [one.iter().collect(), two.iter().collect()].into_iter()
}

fn spoken(reply: &Reply) -> (Value, &'static str) {
    match reply {
        Reply::Text(words) => (json!({"role": "assistant", "content": words}), "stop"),
        Reply::Call { id, name, input } => {
            let function = json!({"name": name, "arguments": input.to_string()});
            let call = json!({"id": id, "type": "function", "function": function});
            (
                json!({"role": "assistant", "content": null, "tool_calls": [call]}),
                "tool_calls",
            )
        }
        Reply::Status(..) | Reply::Calls(_) => (Value::Null, "content_filter"),
    }
}

/// A Chat Completions answer.
pub(super) fn completion(number: usize, model: &str, reply: &Reply) -> Value {
    let (message, finish) = spoken(reply);
    json!({
        "id": format!("chatcmpl-{number:08}"), "object": "chat.completion", "created": 1_700_000_000, "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": finish, "logprobs": null}],
        "usage": {"prompt_tokens": 12, "completion_tokens": 4, "total_tokens": 16},
    })
}

/// A Chat Completions answer as chunks, closed by `[DONE]`.
pub(super) fn completion_chunks(number: usize, model: &str, reply: &Reply) -> Vec<String> {
    let chunk = |delta: Value, finish: Value| {
        let data = json!({
            "id": format!("chatcmpl-{number:08}"), "object": "chat.completion.chunk", "created": 1_700_000_000,
            "model": model, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
        });
        format!("data: {data}\n\n")
    };
    let (mut message, finish) = spoken(reply);
    let mut chunks = vec![chunk(json!({"role": "assistant", "content": ""}), Value::Null)];
    match reply {
        Reply::Text(words) => {
            chunks.extend(halves(words).map(|half| chunk(json!({"content": half}), Value::Null)));
        }
        _ => {
            if let Some(call) = message.pointer_mut("/tool_calls/0") {
                call["index"] = 0.into();
                chunks.push(chunk(json!({"tool_calls": [call.take()]}), Value::Null));
            }
        }
    }
    chunks.push(chunk(json!({}), finish.into()));
    chunks.push("data: [DONE]\n\n".to_owned());
    chunks
}
