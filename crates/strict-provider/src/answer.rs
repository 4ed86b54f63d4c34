//! The model's answer in the shape of each format: one JSON document, or the events of a stream.

use serde_json::{Value, json};

use crate::{
    Reply, ToolCall,
    thought::{ChatThought, Thought},
};

/// Creation time in every answer, in seconds since 1970.
const CREATED: u64 = 1_700_000_000;

/// One answer of the model.
#[derive(Clone, Copy)]
pub(crate) struct Answer<'a> {
    /// Number of the answer, from 1.
    pub(crate) number: usize,
    /// Its id in Responses.
    pub(crate) response_id: &'a str,
    /// The requested model.
    pub(crate) model: &'a str,
    /// Thinking block before the reply. `None` if the model does not think.
    pub(crate) thinking: Option<&'a Value>,
    /// The thought before the reply. `None` if the model does not think, or binds its thinking.
    pub(crate) thought: Option<&'a Thought>,
    /// Its place in Chat Completions.
    pub(crate) chat_thought: ChatThought,
    /// The reply.
    pub(crate) reply: &'a Reply,
}

/// Expiry of every container.
const CONTAINER_EXPIRY: &str = "2030-01-01T00:00:00Z";

impl Answer<'_> {
    fn text(&self) -> Option<&str> {
        self.reply.text()
    }

    fn calls(&self) -> &[ToolCall] {
        self.reply.calls()
    }

    fn id(&self, kind: &str) -> String {
        format!("{kind}_{:08}", self.number)
    }

    /// Returns a Messages answer.
    pub(crate) fn message(&self) -> Value {
        let text = self.text().map(|words| json!({"type": "text", "text": words}));
        let program = self.reply.container().map(|_| self.program());
        let call = |call: &ToolCall| {
            let mut block = json!({"type": "tool_use", "id": call.id, "name": call.name, "input": call.input});
            if let Some(program) = &program {
                block["caller"] = json!({"type": "code_execution_20260120", "tool_id": program["id"]});
            }
            block
        };
        let thinking = self.thinking.cloned().or_else(|| self.thought.map(Thought::block));
        let content: Vec<Value> = thinking
            .into_iter()
            .chain(text)
            .chain(program.clone())
            .chain(self.calls().iter().map(call))
            .collect();
        let stop = if self.calls().is_empty() {
            "end_turn"
        } else {
            "tool_use"
        };
        let mut message = json!({
            "id": self.id("msg"), "type": "message", "role": "assistant", "model": self.model, "content": content,
            "stop_reason": stop, "stop_sequence": null, "usage": {"input_tokens": 12, "output_tokens": 4},
        });
        if let Some(container) = self.container() {
            message["container"] = container;
        }
        message
    }

    /// Returns the code execution that makes the reply's calls.
    fn program(&self) -> Value {
        json!({"type": "server_tool_use", "id": self.id("srvtoolu"), "name": "code_execution", "input": {"code": "f()"}})
    }

    fn container(&self) -> Option<Value> {
        let id = self.reply.container()?;
        Some(json!({"id": id, "expires_at": CONTAINER_EXPIRY}))
    }

    /// Returns the events of a Messages answer as a stream.
    pub(crate) fn message_events(&self) -> Vec<Value> {
        let mut opening = self.message();
        let stop = opening["stop_reason"].take();
        let container = opening.get_mut("container").map(Value::take);
        let blocks = std::mem::replace(&mut opening["content"], json!([]));
        let mut events = vec![json!({"type": "message_start", "message": opening})];
        for (index, block) in blocks.as_array().into_iter().flatten().enumerate() {
            let (start, deltas) = block_events(block);
            events.push(json!({"type": "content_block_start", "index": index, "content_block": start}));
            if index == 0 {
                events.push(json!({"type": "ping"}));
            }
            let delta = |delta| json!({"type": "content_block_delta", "index": index, "delta": delta});
            events.extend(deltas.into_iter().map(delta));
            events.push(json!({"type": "content_block_stop", "index": index}));
        }
        let mut delta = json!({"stop_reason": stop, "stop_sequence": null});
        // A stream names the container only at its end.
        if let Some(container) = container {
            delta["container"] = container;
        }
        events.push(json!({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 4}}));
        events.push(json!({"type": "message_stop"}));
        events
    }

    /// Returns a Messages stream that has started a search.
    pub(crate) fn search_events(&self) -> Vec<String> {
        let mut opening = self.message();
        opening["stop_reason"] = Value::Null;
        let search = json!({"type": "server_tool_use", "id": self.id("srvtoolu"), "name": "web_search", "input": {}});
        vec![
            named(&json!({"type": "message_start", "message": opening})),
            named(&json!({"type": "content_block_start", "index": 0, "content_block": search})),
            named(&json!({"type": "content_block_stop", "index": 0})),
        ]
    }

    /// Returns a Chat Completions answer.
    pub(crate) fn completion(&self) -> Value {
        let mut message = json!({"role": "assistant", "content": self.text(), "refusal": null});
        if !self.calls().is_empty() {
            message["tool_calls"] = self.tool_calls(false);
        }
        if let Some(words) = self.chat_reasoning() {
            message["reasoning_content"] = words.into();
        }
        json!({
            "id": self.id("chatcmpl"), "object": "chat.completion", "created": CREATED, "model": self.model,
            "choices": [{"index": 0, "message": message, "finish_reason": self.finish(), "logprobs": null}],
            "usage": {"prompt_tokens": 12, "completion_tokens": 4, "total_tokens": 16},
        })
    }

    /// Returns a Chat Completions answer as a stream.
    pub(crate) fn completion_events(&self) -> Vec<String> {
        let chunk = |delta: Value, finish: Value| {
            plain(&json!({
                "id": self.id("chatcmpl"), "object": "chat.completion.chunk", "created": CREATED, "model": self.model,
                "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
            }))
        };
        let mut events = vec![chunk(json!({"role": "assistant", "content": ""}), Value::Null)];
        let thought = self.chat_reasoning().map(halves).into_iter().flatten();
        events.extend(thought.map(|half| chunk(json!({"content": null, "reasoning_content": half}), Value::Null)));
        let halves = self.text().map(halves).into_iter().flatten();
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

    /// Returns the thought as `reasoning_content`, if it belongs there.
    fn chat_reasoning(&self) -> Option<&str> {
        let thought = self.thought.filter(|_| self.chat_thought == ChatThought::Content)?;
        Some(&thought.words)
    }

    /// Returns the signature beside the first call, if it belongs there.
    fn google_extra(&self) -> Option<Value> {
        let thought = self.thought.filter(|_| self.chat_thought == ChatThought::GoogleExtra)?;
        Some(json!({"google": {"thought_signature": thought.seal}}))
    }

    fn tool_calls(&self, numbered: bool) -> Value {
        let call = |(index, call): (usize, &ToolCall)| {
            let function = json!({"name": call.name, "arguments": call.input.to_string()});
            let mut call = json!({"id": call.id, "type": "function", "function": function});
            if numbered {
                call["index"] = index.into();
            }
            if let Some(extra) = self.google_extra().filter(|_| index == 0) {
                call["extra_content"] = extra;
            }
            call
        };
        self.calls().iter().enumerate().map(call).collect()
    }

    /// Returns a Responses answer.
    pub(crate) fn response(&self) -> Value {
        json!({
            "id": self.response_id, "object": "response", "created_at": CREATED, "status": "completed",
            "model": self.model,
            "error": null, "incomplete_details": null, "output": self.items(),
            "usage": {"input_tokens": 12, "output_tokens": 4, "total_tokens": 16},
        })
    }

    fn item_id(&self, index: usize) -> String {
        match index {
            0 => self.id("fc"),
            index => format!("{}_{index}", self.id("fc")),
        }
    }

    fn items(&self) -> Vec<Value> {
        let message = self.text().map(|words| {
            json!({
                "type": "message", "id": self.id("msg"), "status": "completed", "role": "assistant",
                "content": [{"type": "output_text", "text": words, "annotations": []}],
            })
        });
        let call = |(index, call): (usize, &ToolCall)| {
            json!({
                "type": "function_call", "id": self.item_id(index), "call_id": call.id,
                "name": call.name,
                "arguments": call.input.to_string(), "status": "completed",
            })
        };
        let reasoning = self.thought.map(|thought| thought.item(&self.id("rs")));
        reasoning
            .into_iter()
            .chain(message)
            .chain(self.calls().iter().enumerate().map(call))
            .collect()
    }

    /// Returns a Responses answer as a stream.
    pub(crate) fn response_events(&self) -> Vec<String> {
        let mut opening = self.response();
        opening["status"] = "in_progress".into();
        opening["output"] = json!([]);
        let mut data = vec![json!({"type": "response.created", "response": opening})];
        for (index, item) in self.items().into_iter().enumerate() {
            let mut start = item.clone();
            if item["type"] == "reasoning" {
                start["encrypted_content"] = "".into();
                data.push(json!({"type": "response.output_item.added", "output_index": index, "item": start}));
                data.push(json!({"type": "response.output_item.done", "output_index": index, "item": item}));
                continue;
            }
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
            // Text needs a content part of its own, with events before and after it.
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

    /// Returns a Gemini answer.
    pub(crate) fn candidates(&self) -> Value {
        let text = self.text().map(|words| json!({"text": words}));
        let call = |(index, call): (usize, &ToolCall)| {
            let function = json!({"id": call.id, "name": call.name, "args": call.input});
            match self.thought {
                // Only the first of parallel calls is signed.
                Some(thought) if index == 0 => json!({"functionCall": function, "thoughtSignature": thought.seal}),
                Some(_) => json!({"functionCall": function}),
                None => json!({"functionCall": function, "thoughtSignature": "QUFB"}),
            }
        };
        let parts: Vec<Value> = text
            .into_iter()
            .chain(self.calls().iter().enumerate().map(call))
            .collect();
        json!({
            "candidates": [{"index": 0, "content": {"role": "model", "parts": parts}, "finishReason": "STOP"}],
            "modelVersion": self.model, "responseId": format!("resp-{:08}", self.number),
            "usageMetadata": {"promptTokenCount": 12, "candidatesTokenCount": 4, "totalTokenCount": 16},
        })
    }

    /// Returns a Gemini answer as the chunks of a stream.
    pub(crate) fn candidate_chunks(&self) -> Vec<Value> {
        let whole = self.candidates();
        let Some(words) = self.text() else {
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

/// Returns a block as its stream starts it, and the deltas that follow.
fn block_events(block: &Value) -> (Value, Vec<Value>) {
    let mut start = block.clone();
    let text = |key: &str| block[key].as_str().unwrap_or_default();
    let deltas = match block["type"].as_str() {
        Some("text") => {
            start["text"] = "".into();
            let halves = halves(text("text"));
            halves.map(|half| json!({"type": "text_delta", "text": half})).collect()
        }
        Some("thinking") => {
            (start["thinking"], start["signature"]) = ("".into(), "".into());
            let halves = halves(text("thinking"));
            halves
                .map(|half| json!({"type": "thinking_delta", "thinking": half}))
                .chain([json!({"type": "signature_delta", "signature": text("signature")})])
                .collect()
        }
        Some("tool_use") => {
            start["input"] = json!({});
            let halves = halves(&block["input"].to_string());
            halves
                .map(|half| json!({"type": "input_json_delta", "partial_json": half}))
                .collect()
        }
        _ => Vec::new(),
    };
    (start, deltas)
}

/// Returns an event named after the type of its data.
pub(crate) fn named(data: &Value) -> String {
    format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap_or_default())
}

/// Returns an event without a name.
pub(crate) fn plain(data: &Value) -> String {
    format!("data: {data}\n\n")
}

/// Returns two halves of a text, cut between characters.
fn halves(words: &str) -> impl Iterator<Item = String> + use<> {
    let middle = words.chars().count() / 2;
    let half = |skip, take| words.chars().skip(skip).take(take).collect::<String>();
    [half(0, middle), half(middle, usize::MAX)].into_iter()
}
