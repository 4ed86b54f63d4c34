//! What the model says, in the shape of each format: one JSON, or the events of a stream.

use serde_json::{Value, json};

use super::model::{Call, Reply};

/// When these answers were made, for formats that say so.
const CREATED: u64 = 1_760_000_000;

/// One answer: its number, the model that was asked for, and what it does.
#[derive(Clone, Copy)]
pub(super) struct Said<'a> {
    pub(super) number: u64,
    pub(super) model: &'a str,
    pub(super) reply: &'a Reply,
}

impl Said<'_> {
    fn words(&self) -> Option<&'static str> {
        match self.reply {
            Reply::Text(words) => Some(words),
            Reply::Calls(_) | Reply::Searches | Reply::Silence => None,
        }
    }

    fn calls(&self) -> &[Call] {
        match self.reply {
            Reply::Calls(calls) => calls,
            Reply::Text(_) | Reply::Searches | Reply::Silence => &[],
        }
    }

    fn id(&self, kind: &str) -> String {
        format!("{kind}_demo_{:08}", self.number)
    }

    /// Messages.
    pub(super) fn message(&self) -> Value {
        let text = self.words().map(|words| json!({"type": "text", "text": words}));
        let call = |call: &Call| json!({"type": "tool_use", "id": call.id, "name": call.tool, "input": call.input});
        let content: Vec<Value> = text.into_iter().chain(self.calls().iter().map(call)).collect();
        let stop = if self.calls().is_empty() {
            "end_turn"
        } else {
            "tool_use"
        };
        json!({
            "id": self.id("msg"), "type": "message", "role": "assistant", "model": self.model, "content": content,
            "stop_reason": stop, "stop_sequence": null, "usage": {"input_tokens": 12, "output_tokens": 4},
        })
    }

    /// Messages, as a stream.
    pub(super) fn message_events(&self) -> Vec<String> {
        let mut opening = self.message();
        let stop = opening["stop_reason"].take();
        let blocks = std::mem::replace(&mut opening["content"], json!([]));
        let mut events = vec![named(&json!({"type": "message_start", "message": opening}))];
        for (index, block) in blocks.as_array().into_iter().flatten().enumerate() {
            let (mut start, mut deltas) = (block.clone(), Vec::new());
            if let Some(words) = block["text"].as_str() {
                start["text"] = "".into();
                deltas.extend(halves(words).map(|half| json!({"type": "text_delta", "text": half})));
            } else {
                start["input"] = json!({});
                let input = block["input"].to_string();
                deltas.extend(halves(&input).map(|half| json!({"type": "input_json_delta", "partial_json": half})));
            }
            events.push(named(
                &json!({"type": "content_block_start", "index": index, "content_block": start}),
            ));
            let delta = |delta| named(&json!({"type": "content_block_delta", "index": index, "delta": delta}));
            events.extend(deltas.into_iter().map(delta));
            events.push(named(&json!({"type": "content_block_stop", "index": index})));
        }
        let delta = json!({"stop_reason": stop, "stop_sequence": null});
        events.push(named(
            &json!({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 4}}),
        ));
        events.push(named(&json!({"type": "message_stop"})));
        events
    }

    /// Messages, as a stream that has begun a search.
    pub(super) fn search_events(&self) -> Vec<String> {
        let mut opening = self.message();
        opening["stop_reason"] = Value::Null;
        let search = json!({"type": "server_tool_use", "id": self.id("srvtoolu"), "name": "web_search", "input": {}});
        vec![
            named(&json!({"type": "message_start", "message": opening})),
            named(&json!({"type": "content_block_start", "index": 0, "content_block": search})),
            named(&json!({"type": "content_block_stop", "index": 0})),
        ]
    }

    /// Chat Completions.
    pub(super) fn completion(&self) -> Value {
        let mut message = json!({"role": "assistant", "content": self.words(), "refusal": null});
        if !self.calls().is_empty() {
            message["tool_calls"] = self.tool_calls(false);
        }
        json!({
            "id": self.id("chatcmpl"), "object": "chat.completion", "created": CREATED, "model": self.model,
            "choices": [{"index": 0, "message": message, "finish_reason": self.finish(), "logprobs": null}],
            "usage": {"prompt_tokens": 12, "completion_tokens": 4, "total_tokens": 16},
        })
    }

    /// Chat Completions, as a stream.
    pub(super) fn completion_events(&self) -> Vec<String> {
        let chunk = |delta: Value, finish: Value| {
            plain(&json!({
                "id": self.id("chatcmpl"), "object": "chat.completion.chunk", "created": CREATED, "model": self.model,
                "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
            }))
        };
        let mut events = vec![chunk(json!({"role": "assistant", "content": ""}), Value::Null)];
        let halves = self.words().map(halves).into_iter().flatten();
        events.extend(halves.map(|half| chunk(json!({"content": half}), Value::Null)));
        if !self.calls().is_empty() {
            events.push(chunk(json!({"tool_calls": self.tool_calls(true)}), Value::Null));
        }
        events.push(chunk(json!({}), self.finish().into()));
        events.push("data: [DONE]\n\n".to_owned());
        events
    }

    fn finish(&self) -> &'static str {
        if self.calls().is_empty() { "stop" } else { "tool_calls" }
    }

    fn tool_calls(&self, numbered: bool) -> Value {
        let call = |(index, call): (usize, &Call)| {
            let function = json!({"name": call.tool, "arguments": call.input.to_string()});
            let mut call = json!({"id": call.id, "type": "function", "function": function});
            if numbered {
                call["index"] = index.into();
            }
            call
        };
        self.calls().iter().enumerate().map(call).collect()
    }

    /// Responses.
    pub(super) fn response(&self) -> Value {
        json!({
            "id": self.id("resp"), "object": "response", "created_at": CREATED, "status": "completed",
            "model": self.model,
            "error": null, "incomplete_details": null, "output": self.items(),
            "usage": {"input_tokens": 12, "output_tokens": 4, "total_tokens": 16},
        })
    }

    fn items(&self) -> Vec<Value> {
        let message = self.words().map(|words| {
            json!({
                "type": "message", "id": self.id("msg"), "status": "completed", "role": "assistant",
                "content": [{"type": "output_text", "text": words, "annotations": []}],
            })
        });
        let call = |(index, call): (usize, &Call)| {
            json!({
                "type": "function_call", "id": format!("{}_{index}", self.id("fc")), "call_id": call.id,
                "name": call.tool,
                "arguments": call.input.to_string(), "status": "completed",
            })
        };
        message
            .into_iter()
            .chain(self.calls().iter().enumerate().map(call))
            .collect()
    }

    /// Responses, as a stream.
    pub(super) fn response_events(&self) -> Vec<String> {
        let mut opening = self.response();
        opening["status"] = "in_progress".into();
        opening["output"] = json!([]);
        let mut data = vec![json!({"type": "response.created", "response": opening})];
        for (index, item) in self.items().into_iter().enumerate() {
            let mut start = item.clone();
            start["status"] = "in_progress".into();
            let (kind, key, text) = if item["type"] == "message" {
                start["content"] = json!([]);
                ("response.output_text", "text", item["content"][0]["text"].clone())
            } else {
                start["arguments"] = "".into();
                (
                    "response.function_call_arguments",
                    "arguments",
                    item["arguments"].clone(),
                )
            };
            let part = |kind: String, key: &str, value: Value| {
                let id = &item["id"];
                json!({"type": kind, "item_id": id, "output_index": index, "content_index": 0, key: value})
            };
            data.push(json!({"type": "response.output_item.added", "output_index": index, "item": start}));
            // Words stand in a part of their own, which is opened before them and closed behind them.
            let words = item["content"].get(0);
            if let Some(mut open) = words.cloned() {
                open["text"] = "".into();
                data.push(part("response.content_part.added".to_owned(), "part", open));
            }
            for half in halves(text.as_str().unwrap_or_default()) {
                data.push(part(format!("{kind}.delta"), "delta", half.into()));
            }
            data.push(part(format!("{kind}.done"), key, text));
            if let Some(whole) = words {
                data.push(part("response.content_part.done".to_owned(), "part", whole.clone()));
            }
            data.push(json!({"type": "response.output_item.done", "output_index": index, "item": item}));
        }
        data.push(json!({"type": "response.completed", "response": self.response()}));
        for (at, data) in data.iter_mut().enumerate() {
            data["sequence_number"] = at.into();
        }
        data.iter().map(named).collect()
    }

    /// Gemini.
    pub(super) fn candidates(&self) -> Value {
        let text = self.words().map(|words| json!({"text": words}));
        let call = |call: &Call| {
            let function = json!({"id": call.id, "name": call.tool, "args": call.input});
            json!({"functionCall": function, "thoughtSignature": "QUFB"})
        };
        let parts: Vec<Value> = text.into_iter().chain(self.calls().iter().map(call)).collect();
        json!({
            "candidates": [{"index": 0, "content": {"role": "model", "parts": parts}, "finishReason": "STOP"}],
            "modelVersion": self.model, "responseId": self.id("resp"),
            "usageMetadata": {"promptTokenCount": 12, "candidatesTokenCount": 4, "totalTokenCount": 16},
        })
    }

    /// Gemini, as the chunks of a stream.
    pub(super) fn candidate_chunks(&self) -> Vec<Value> {
        let whole = self.candidates();
        let Some(words) = self.words() else {
            return vec![whole];
        };
        let [mut first, mut last] = [whole.clone(), whole];
        for (chunk, half) in [&mut first, &mut last].into_iter().zip(halves(words)) {
            chunk["candidates"][0]["content"]["parts"][0]["text"] = half.into();
        }
        first["candidates"][0]["finishReason"] = Value::Null;
        vec![first, last]
    }
}

/// An event with a name: the type of its data.
pub(super) fn named(data: &Value) -> String {
    format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap_or_default())
}

/// An event without a name.
pub(super) fn plain(data: &Value) -> String {
    format!("data: {data}\n\n")
}

/// Two halves of a text, cut between letters.
fn halves(words: &str) -> impl Iterator<Item = String> + use<> {
    let middle = words.chars().count() / 2;
    let half = |skip, take| words.chars().skip(skip).take(take).collect::<String>();
    [half(0, middle), half(middle, usize::MAX)].into_iter()
}
