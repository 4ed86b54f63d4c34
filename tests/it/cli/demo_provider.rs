//! `antiphon demo --provider-only`: its verdicts equal those of the independent judge, in all four formats.

use std::{net::SocketAddr, path::Path};

use antiphon::wire::{Dialect, Format, Wire};
use serde_json::{Value, json};
use tokio::{io::AsyncReadExt as _, process::Child};

use crate::{
    cli::demo::{ask, demo, interrupt, lines},
    support::{
        app::post_with,
        cases, judge,
        wire::{Message, spawn},
    },
};

/// Starts the demo provider alone and returns it with its address.
async fn provider() -> (Child, SocketAddr) {
    let mut child = demo(&["--provider-only", "--listen", "127.0.0.1:0"]).spawn().unwrap();
    let mut lines = lines(&mut child);
    let first = lines.next_line().await.unwrap().expect("a line");
    let url = first.split_once("http://").expect(&first).1;
    let address = url.split_once(": ").expect(&first).0.parse().expect(&first);
    // Later output is ignored, but the pipe must stay open.
    drop(spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} }));
    (child, address)
}

async fn post(address: SocketAddr, path: &str, body: &[u8]) -> Message {
    ask(address, post_with(path, &[], body)).await
}

const PATHS: [(Format, &str); 4] = [
    (Format::Anthropic, "/v1/messages"),
    (Format::OpenAiChat, "/v1/chat/completions"),
    (Format::OpenAiResponses, "/v1/responses"),
    (Format::Gemini, "/v1beta/models/gemini-2.5-pro:generateContent"),
];

/// Parts of judge refusals that are not about pairing. The demo provider accepts these bodies.
const NOT_PAIRING: [&str; 12] = [
    "non-empty",
    "non-whitespace",
    "cannot be empty",
    "cache_control",
    "web_search",
    "mcp",
    "advisor",
    "code_execution",
    "programmatic",
    "toolset_name",
    "thought_signature",
    "reasoning",
];

#[tokio::test]
async fn the_provider_gives_the_verdicts_of_the_judge() {
    let (mut child, address) = provider().await;
    let (mut refused, mut failures) = (0, Vec::new());
    for (wire, folder) in cases::folders() {
        let Some((_, path)) = PATHS.iter().find(|(format, _)| *format == wire.format) else {
            continue;
        };
        if wire.dialect != Dialect::Standard {
            continue;
        }
        for file in ["request.json", "repaired.json"] {
            let Ok(bytes) = std::fs::read(folder.join(file)) else {
                continue;
            };
            let Some(body) = judged(&bytes) else { continue };
            let verdict = judge::of(Wire {
                dialect: Dialect::Standard,
                ..wire
            })(&body);
            let answer = post(address, path, &bytes).await;
            let own = if answer.status() == 400 {
                words(&answer)
            } else {
                String::new()
            };
            let agrees = match &verdict {
                Ok(()) => answer.status() == 200,
                Err(refusal) if own.is_empty() => NOT_PAIRING.iter().any(|word| refusal.message.contains(word)),
                Err(_) => answer.status() == 400,
            };
            refused += usize::from(verdict.is_err() && !own.is_empty());
            if !agrees {
                failures.push(format!(
                    "{}: {verdict:?}, but {own:?}",
                    Path::new(&folder).join(file).display()
                ));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(refused > 60, "only {refused} were refused by both");
    interrupt(&child);
    assert_eq!(child.wait().await.unwrap().code(), Some(0));
    let mut err = String::new();
    child.stderr.take().unwrap().read_to_string(&mut err).await.unwrap();
    assert_eq!(err, "");
}

/// Parses a body with a single history. `None` for a batch.
fn judged(bytes: &[u8]) -> Option<Value> {
    let body: Value = serde_json::from_slice(bytes).ok()?;
    let holds = |key| body.get(key).is_some();
    (holds("messages") || holds("input") || holds("contents")).then_some(body)
}

fn words(answer: &Message) -> String {
    answer.json()["error"]["message"]
        .as_str()
        .unwrap_or("no words")
        .to_owned()
}

/// Returns a request that offers a tool, with these history entries after the user's text.
fn offering(format: Format, streams: bool, after: &[Value]) -> Value {
    let schema = json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]});
    let tool = json!({"name": "weather", "parameters": schema});
    let list = |first: Value| Value::from([&[first], after].concat());
    let go = || json!({"role": "user", "content": "go"});
    match format {
        Format::Anthropic => json!({
            "model": "m", "stream": streams, "messages": list(go()),
            "tools": [{"name": "weather", "input_schema": schema}],
        }),
        Format::OpenAiChat => json!({
            "model": "m", "stream": streams, "messages": list(go()), "tools": [{"type": "function", "function": tool}],
        }),
        Format::OpenAiResponses => json!({
            "model": "m", "stream": streams, "input": list(go()),
            "tools": [{"type": "function", "name": "weather", "parameters": schema}],
        }),
        Format::Gemini => json!({
            "contents": list(json!({"role": "user", "parts": [{"text": "go"}]})),
            "tools": [{"functionDeclarations": [tool]}],
        }),
    }
}

/// Returns the model's turn as a history entry, and the id of its call.
fn turn(format: Format, answer: &Value) -> (Value, String) {
    let (turn, id) = match format {
        Format::Anthropic => (
            json!({"role": "assistant", "content": answer["content"]}),
            &answer["content"][0]["id"],
        ),
        Format::OpenAiChat => (
            answer["choices"][0]["message"].clone(),
            &answer["choices"][0]["message"]["tool_calls"][0]["id"],
        ),
        Format::OpenAiResponses => (answer["output"][0].clone(), &answer["output"][0]["call_id"]),
        Format::Gemini => (
            answer["candidates"][0]["content"].clone(),
            &answer["candidates"][0]["content"]["parts"][0]["functionCall"]["id"],
        ),
    };
    (
        turn,
        id.as_str().unwrap_or_else(|| panic!("no call in {answer}")).to_owned(),
    )
}

fn result(format: Format, id: &str) -> Value {
    match format {
        Format::Anthropic => {
            json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": "fair"}]})
        }
        Format::OpenAiChat => json!({"role": "tool", "tool_call_id": id, "content": "fair"}),
        Format::OpenAiResponses => json!({"type": "function_call_output", "call_id": id, "output": "fair"}),
        Format::Gemini => {
            let response = json!({"id": id, "name": "weather", "response": {"sky": "fair"}});
            json!({"role": "user", "parts": [{"functionResponse": response}]})
        }
    }
}

#[tokio::test]
async fn every_second_turn_calls_an_offered_tool_in_all_four_formats() {
    let (_child, address) = provider().await;
    for (format, path) in PATHS {
        let judge = judge::of(Wire {
            format,
            dialect: Dialect::Standard,
        });
        let asked = offering(format, false, &[]);
        let answer = post(address, path, asked.to_string().as_bytes()).await;
        assert_eq!(answer.status(), 200, "{}", answer.text());
        let (call, id) = turn(format, &answer.json());
        let text = call.to_string();
        assert!(text.contains("weather") && text.contains("city"), "{text}");

        let broken = offering(format, false, &[call.clone(), asked["messages"][0].clone()]);
        if format != Format::Gemini && format != Format::OpenAiResponses {
            let refusal = judge(&broken).expect_err("the call is open");
            let answer = post(address, path, broken.to_string().as_bytes()).await;
            assert_eq!((answer.status(), words(&answer)), (400, refusal.message));
        }
        let answered = offering(format, false, &[call, result(format, &id)]);
        judge(&answered).expect("a healthy history");
        let answer = post(address, path, answered.to_string().as_bytes()).await;
        assert_eq!(answer.status(), 200, "{}", answer.text());
        assert!(!answer.text().contains("weather"), "a second call: {}", answer.text());
        streams(address, format, path).await;
    }
    let counted = post(
        address,
        "/v1/messages/count_tokens",
        br#"{"messages":[{"role":"user","content":"go"}]}"#,
    )
    .await;
    assert!(counted.json()["input_tokens"].is_u64(), "{}", counted.text());
    for (path, wanted) in [("/v1/embeddings", 404), ("/nothing", 404)] {
        assert_eq!(post(address, path, b"{}").await.status(), wanted, "{path}");
    }
    assert_eq!(post(address, "/v1/messages", b"{").await.status(), 400);
}

/// Checks the same with a stream: a call, and then the end of the stream.
async fn streams(address: SocketAddr, format: Format, path: &str) {
    let path = path.replace(":generateContent", ":streamGenerateContent?alt=sse");
    let answer = post(address, &path, offering(format, true, &[]).to_string().as_bytes()).await;
    let text = answer.text();
    assert_eq!((answer.status(), answer.complete), (200, true), "{text}");
    assert!(
        answer.header("content-type").unwrap().starts_with("text/event-stream"),
        "{}",
        answer.head
    );
    let end = match format {
        Format::Anthropic => "event: message_stop",
        Format::OpenAiChat => "data: [DONE]",
        Format::OpenAiResponses => "event: response.completed",
        Format::Gemini => "\"finishReason\":\"STOP\"",
    };
    let last = text.trim_end().rsplit("\n\n").next().unwrap();
    assert!(text.contains("weather") && last.contains(end), "{text}");
    // Without tools, the stream contains text.
    let mut asked = offering(format, true, &[]);
    asked["tools"] = json!([]);
    let answer = post(address, &path, asked.to_string().as_bytes()).await;
    let text = answer.text();
    assert!(text.contains("I hear") && !text.contains("weather"), "{text}");
    if format == Format::OpenAiResponses {
        let order = [
            "output_item.added",
            "content_part.added",
            "output_text.delta",
            "output_text.done",
            "content_part.done",
            "output_item.done",
        ];
        let places: Vec<_> = order
            .iter()
            .map(|kind| text.find(&format!("event: response.{kind}\n")))
            .collect();
        assert!(
            places.iter().all(Option::is_some) && places.is_sorted(),
            "{places:?}: {text}"
        );
    }
}
