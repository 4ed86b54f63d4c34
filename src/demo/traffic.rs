//! Some traffic for the dashboard: small conversations, some of them broken as in the stories.

use std::{io, time::Duration};

use serde_json::{Value, json};
use strict_provider::{Reply, ToolCall};

use super::{client::Ask, stage::Stage};
use crate::{provider::next_turn_path, wire::Format};

/// The credential of this traffic.
pub(super) const KEY: &str = "demo-live";
/// Pause between two requests.
const PACE: Duration = Duration::from_millis(900);
/// Number of sessions that take turns.
const SESSIONS: usize = 6;

/// Sends requests until it is dropped.
pub(super) async fn run(stage: &Stage) -> io::Result<()> {
    for number in 0_usize.. {
        tokio::time::sleep(PACE).await;
        let (format, upstream, body) = turn(number);
        if number.is_multiple_of(5) {
            let call = ToolCall {
                id: format!("toolu_01Live{number:010}aB3dE5"),
                name: "read_file".to_owned(),
                input: json!({"path": "README.md"}),
            };
            stage.provider.reply_to(KEY, Reply::Calls(vec![call]));
        }
        let path = format!("/{upstream}{}", next_turn_path(format, "gemini-3.5-pro"));
        let session = format!("live-{}", number % SESSIONS);
        let bearer = format!("Bearer {KEY}");
        let headers = [
            ("authorization", bearer.as_str()),
            ("x-antiphon-session", session.as_str()),
        ];
        // A listener may stop at any time.
        drop(
            Ask::post(stage.proxy_at, &path, &headers, &body.to_string())
                .send()
                .await,
        );
    }
    Ok(())
}

/// Returns a request: healthy twice, then broken, in one format after the other.
fn turn(number: usize) -> (Format, &'static str, Value) {
    let is_broken = number % 3 == 2;
    let id = format!("call_Live{:012}", number / 3);
    let words = "Look at the README.";
    match number % 4 {
        0 => {
            let call = json!([{"type": "tool_use", "id": id, "name": "read_file", "input": {}}]);
            let result = json!([{"type": "tool_result", "tool_use_id": id, "content": "# antiphon"}]);
            let list = exchange(
                is_broken,
                words,
                json!({"content": call}),
                json!({"role": "user", "content": result}),
            );
            (
                Format::Anthropic,
                "anthropic",
                json!({"model": "claude-opus-4-7", "max_tokens": 64, "stream": true, "messages": list}),
            )
        }
        1 => {
            let call = json!([{"id": id, "type": "function", "function": {"name": "read_file", "arguments": "{}"}}]);
            let result = json!({"role": "tool", "tool_call_id": id, "content": "# antiphon"});
            let list = exchange(is_broken, words, json!({"content": null, "tool_calls": call}), result);
            (
                Format::OpenAiChat,
                "openai",
                json!({"model": "gpt-5.5", "stream": true, "messages": list}),
            )
        }
        2 => {
            let call = json!({"type": "function_call", "call_id": id, "name": "read_file", "arguments": "{}"});
            let result = json!({"type": "function_call_output", "call_id": id, "output": "# antiphon"});
            let mut list = vec![json!({"role": "user", "content": words}), call];
            if !is_broken {
                list.push(result);
            }
            list.push(json!({"role": "user", "content": "And now?"}));
            (
                Format::OpenAiResponses,
                "openai",
                json!({"model": "gpt-5.5", "input": list}),
            )
        }
        _ => {
            let call = json!([{"functionCall": {"id": id, "name": "read_file", "args": {}}}]);
            let result =
                json!([{"functionResponse": {"id": id, "name": "read_file", "response": {"text": "# antiphon"}}}]);
            let text = |words: &str| json!([{"text": words}]);
            let mut list = vec![
                json!({"role": "user", "parts": text(words)}),
                json!({"role": "model", "parts": call}),
            ];
            if !is_broken {
                list.push(json!({"role": "user", "parts": result}));
                list.push(json!({"role": "model", "parts": text("It is short.")}));
            }
            list.push(json!({"role": "user", "parts": text("And now?")}));
            (Format::Gemini, "gemini", json!({"contents": list}))
        }
    }
}

/// Builds text, a call, its result unless that is left out, and more text.
fn exchange(is_broken: bool, words: &str, mut call: Value, result: Value) -> Vec<Value> {
    call["role"] = "assistant".into();
    let mut list = vec![json!({"role": "user", "content": words}), call];
    if !is_broken {
        list.push(result);
        list.push(json!({"role": "assistant", "content": "It is short."}));
    }
    list.push(json!({"role": "user", "content": "And now?"}));
    list
}
