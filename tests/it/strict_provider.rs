//! The strict provider keeps its word: refusals in the provider's shape, plausible answers, every byte recorded.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::support::provider::{Provider, Reply};

/// Sends one request over a socket of its own; the status and what came behind the head.
async fn post(provider: &Provider, path: &str, body: &str) -> (u16, String) {
    let mut socket = TcpStream::connect(provider.address()).await.expect("a connection");
    let head = format!(
        "POST {path} HTTP/1.0\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    socket.write_all(head.as_bytes()).await.expect("the head");
    socket.write_all(body.as_bytes()).await.expect("the body");
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.expect("an answer");
    let (head, rest) = answer.split_once("\r\n\r\n").expect("a head");
    (
        head.split(' ').nth(1).expect("a status").parse().expect("a number"),
        rest.to_owned(),
    )
}

#[tokio::test]
async fn messages_are_judged_answered_and_recorded() {
    let provider = Provider::start().await;
    let body = "{\"model\" : \"m\",\r\n \"messages\": [ {\"role\":\"user\",\"content\":\"go\"} ]}";
    let (status, answer) = post(&provider, "/v1/messages?beta=true", body).await;
    let answer: Value = serde_json::from_str(&answer).expect("JSON");
    assert_eq!(
        (status, &answer["type"], &answer["model"]),
        (200, &json!("message"), &json!("m"))
    );
    let seen = provider.last();
    assert_eq!(
        (seen.path.as_str(), &seen.body[..]),
        ("/v1/messages?beta=true", body.as_bytes())
    );

    let (status, answer) = post(&provider, "/v1/messages/count_tokens", body).await;
    assert_eq!(status, 200);
    assert!(answer.contains("input_tokens"), "{answer}");

    let call = r#"{"type":"tool_use","id":"toolu_1","name":"f","input":{}}"#;
    let broken = format!(
        r#"{{"messages":[{{"role":"user","content":"go"}},{{"role":"assistant","content":[{call}]}}],"stream":true}}"#
    );
    for path in ["/v1/messages", "/v1/messages/count_tokens"] {
        let (status, answer) = post(&provider, path, &broken).await;
        let answer: Value = serde_json::from_str(&answer).expect("JSON, though a stream was asked for");
        assert_eq!(
            (status, &answer["error"]["type"]),
            (400, &json!("invalid_request_error"))
        );
        assert!(
            answer["error"]["message"]
                .as_str()
                .expect("words")
                .contains("immediately after: toolu_1.")
        );
    }
}

#[tokio::test]
async fn streams_hold_every_event() {
    let provider = Provider::start().await;
    let body = r#"{"model":"m","stream":true,"messages":[{"role":"user","content":"go"}]}"#;
    provider.reply(Reply::Call {
        id: "toolu_9".into(),
        name: "f".into(),
        input: json!({"a": 1}),
    });
    let (status, answer) = post(&provider, "/v1/messages", body).await;
    assert_eq!(status, 200);
    let parts = [
        "event: message_start\n",
        "toolu_9",
        "input_json_delta",
        "\"tool_use\"",
        "event: message_stop\n",
    ];
    for part in parts {
        assert!(answer.contains(part), "{part} in {answer}");
    }
    let (status, answer) = post(&provider, "/v1/chat/completions", body).await;
    assert_eq!(status, 200);
    assert!(
        answer.contains("chat.completion.chunk") && answer.ends_with("data: [DONE]\n\n"),
        "{answer}"
    );
}

#[tokio::test]
async fn chat_is_judged_and_the_rest_is_not_found() {
    let provider = Provider::start().await;
    let broken =
        r#"{"model":"m","messages":[{"role":"user","content":"go"},{"role":"tool","tool_call_id":"x","content":"r"}]}"#;
    let (status, answer) = post(&provider, "/v1/chat/completions", broken).await;
    let answer: Value = serde_json::from_str(&answer).expect("JSON");
    assert_eq!(status, 400);
    assert!(
        answer["error"]["message"]
            .as_str()
            .expect("words")
            .contains("preceeding message with 'tool_calls'")
    );
    assert_eq!(post(&provider, "/v1/chat/completions", "{").await.0, 400);
    assert_eq!(post(&provider, "/v1/embeddings", "{}").await.0, 404);
    provider.reply(Reply::Status(429, json!({"error": {"message": "slow down"}})));
    let body = r#"{"model":"m","messages":[{"role":"user","content":"go"}]}"#;
    assert_eq!(post(&provider, "/v1/chat/completions", body).await.0, 429);
    assert_eq!(post(&provider, "/v1/chat/completions", body).await.0, 200);
    assert_eq!(provider.seen().len(), 5);
}
