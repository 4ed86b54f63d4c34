//! Self-test of the strict provider's memory: it knows what it made itself, and what its cache contains.

use antiphon::wire::Wire;
use serde_json::{Value, json};

use crate::proxy::strict_provider::post;
use crate::support::{
    judge::ServerRules,
    provider::{Provider, Reply, ToolCall},
};

/// Sends a body. Returns the status and the answer.
async fn send(provider: &Provider, path: &str, body: &Value) -> (u16, Value) {
    let (status, answer) = post(provider, path, &body.to_string()).await;
    (status, serde_json::from_str(&answer).expect("JSON"))
}

fn made_here() -> ServerRules {
    ServerRules {
        made_here: true,
        ..ServerRules::default()
    }
}

#[tokio::test]
async fn thinking_is_accepted_where_it_was_made() {
    let wires = [Wire::ANTHROPIC];
    let (own, other) = (
        Provider::ruled(&wires, made_here()).await,
        Provider::ruled(&wires, made_here()).await,
    );
    let go = json!({"role": "user", "content": "go"});
    own.reply(Reply::call("toolu_1", "f", json!({})));
    let (_, first) = send(&own, "/v1/messages", &json!({"model": "m", "messages": [go]})).await;
    assert_eq!(first["content"][0]["type"], "thinking");
    let result = json!({"type": "tool_result", "tool_use_id": "toolu_1", "content": "r"});
    let next = json!({"model": "m", "messages": [
        go, {"role": "assistant", "content": first["content"]}, {"role": "user", "content": [result]},
    ]});
    assert_eq!(send(&own, "/v1/messages", &next).await.0, 200);
    let (status, refused) = send(&other, "/v1/messages", &next).await;
    assert_eq!(
        (status, refused["error"]["message"].as_str()),
        (
            400,
            Some("messages.1.content.0: Invalid `signature` in `thinking` block")
        )
    );
    // A test may declare a signature as the provider's own.
    let signature = first["content"][0]["signature"].as_str().expect("a signature");
    other.remember(|memory| memory.add_seal(signature));
    assert_eq!(send(&other, "/v1/messages", &next).await.0, 200);
}

#[tokio::test]
async fn encrypted_reasoning_and_responses_belong_to_one_account() {
    let wires = [Wire::OPENAI_RESPONSES];
    let (own, other) = (
        Provider::ruled(&wires, made_here()).await,
        Provider::ruled(&wires, made_here()).await,
    );
    let (_, first) = send(&own, "/v1/responses", &json!({"model": "m", "input": "go"})).await;
    assert_eq!(first["output"][0]["type"], "reasoning");
    let mut input = vec![json!({"type": "message", "role": "user", "content": "go"})];
    input.extend(first["output"].as_array().expect("items").iter().cloned());
    let full = json!({"model": "m", "input": input, "store": false});
    let next = json!({"model": "m", "input": "on", "previous_response_id": first["id"]});
    assert_eq!(send(&own, "/v1/responses", &full).await.0, 200);
    assert_eq!(send(&own, "/v1/responses", &next).await.0, 200);
    let code = |(status, answer): (u16, Value)| (status, answer["error"]["code"].as_str().map(str::to_owned));
    assert_eq!(
        code(send(&other, "/v1/responses", &full).await),
        (400, Some("invalid_encrypted_content".to_owned()))
    );
    assert_eq!(
        code(send(&other, "/v1/responses", &next).await),
        (400, Some("previous_response_not_found".to_owned()))
    );
    // The response to a request that stores nothing cannot be continued.
    let (_, unstored) = send(&own, "/v1/responses", &full).await;
    let next = json!({"model": "m", "input": "on", "previous_response_id": unstored["id"]});
    assert_eq!(send(&own, "/v1/responses", &next).await.0, 400);
}

#[tokio::test]
async fn a_cold_replay_needs_the_reasoning() {
    let wire: Wire = "openai-chat-deepseek".parse().expect("a wire");
    let provider = Provider::ruled(&[wire], ServerRules::DEEPSEEK).await;
    let go = json!({"role": "user", "content": "go"});
    provider.reply(Reply::call("call_1", "f", json!({})));
    let path = "/v1/chat/completions";
    let (_, first) = send(&provider, path, &json!({"model": "m", "messages": [go]})).await;
    let mut message = first["choices"][0]["message"].clone();
    let thought = message["reasoning_content"].take();
    assert!(thought.is_string());
    let result = json!({"role": "tool", "tool_call_id": "call_1", "content": "r"});
    let body = |message: &Value| json!({"model": "m", "messages": [go, message, result]});
    let lost = body(&message);
    assert_eq!(send(&provider, path, &lost).await.0, 200, "a warm turn is tolerated");
    provider.restart_cache();
    let (status, refused) = send(&provider, path, &lost).await;
    assert_eq!(
        (status, refused["error"]["message"].as_str()),
        (
            400,
            Some("The `reasoning_content` in the thinking mode must be passed back to the API.")
        )
    );
    message["reasoning_content"] = thought;
    assert_eq!(send(&provider, path, &body(&message)).await.0, 200);
    // The accepted request has filled the cache.
    assert_eq!(send(&provider, path, &lost).await.0, 200);
}

#[tokio::test]
async fn streams_contain_the_continuity() {
    let claude = Provider::ruled(&[Wire::ANTHROPIC], ServerRules::ANTHROPIC).await;
    claude.reply(Reply::ProgramCalls(
        "container_7".to_owned(),
        vec![ToolCall::new("toolu_1", "f", json!({}))],
    ));
    let ask = r#"{"model":"m","stream":true,"messages":[{"role":"user","content":"go"}]}"#;
    let (_, stream) = post(&claude, "/v1/messages", ask).await;
    for part in ["signature_delta", "code_execution_20260120", "container_7"] {
        assert!(stream.contains(part), "{part} in {stream}");
    }
    let end = stream.find("event: message_delta").expect("an end");
    assert!(stream.find("container_7").is_some_and(|at| at > end), "{stream}");

    let kimi = Provider::ruled(&[], ServerRules::KIMI).await;
    let (_, stream) = post(&kimi, "/v1/chat/completions", ask).await;
    assert!(stream.contains("\"reasoning_content\":\"thou"), "{stream}");

    let gemini = Provider::ruled(&[], ServerRules::GEMINI).await;
    gemini.reply(Reply::call("call_1", "f", json!({})));
    let (_, stream) = post(&gemini, "/v1/chat/completions", ask).await;
    assert!(stream.contains("\"extra_content\":{\"google\""), "{stream}");

    let openai = Provider::ruled(&[], ServerRules::OPENAI).await;
    let ask = r#"{"model":"m","stream":true,"input":"go"}"#;
    let (_, stream) = post(&openai, "/v1/responses", ask).await;
    assert!(stream.contains("gAAAAABo"), "{stream}");
}
