//! Late results of calls that Bedrock's `InvokeModel` streams, with the real binary.

use antiphon::auth::TokenHash;
use serde_json::{Value, json};

use crate::support::{
    app::post_with,
    binary::{Install, Process},
    provider::{Provider, Reply},
    wire::Message,
};

const ANN: &[(&str, &str)] = &[
    ("authorization", "Bearer bedrock-api-key-ann"),
    ("x-antiphon-session", "one"),
];
const SERVICE: &[(&str, &str)] = &[("authorization", "Bearer token of tools")];
const STREAM: &str = "/bedrock/model/eu.anthropic.claude-sonnet-4-5/invoke-with-response-stream";
const FIRST: &str = "toolu_01AaBb9dE3fG7hJ2";
const SECOND: &str = "toolu_01CcDd8eF4gH6jK3";

fn install(provider: &Provider) -> Install {
    Install::new(&format!(
        "[upstreams.bedrock]\nurl = \"{}\"\n\
         [services.tools]\ntoken = \"{}\"\nprincipals = [\"*\"]\ntools = [\"*\"]\non_behalf = true\n\
         [tools.render]\ntier = \"durable\"\nintent = \"session\"\n",
        provider.url(),
        TokenHash::hash_token(b"token of tools")
    ))
}

async fn streams(process: &Process, log: &[Value]) -> Message {
    let body = json!({"anthropic_version": "bedrock-2023-05-31", "max_tokens": 99, "messages": log});
    let answer = process.ask(post_with(STREAM, ANN, body.to_string().as_bytes())).await;
    assert_eq!(answer.status(), 200, "{}", answer.text());
    assert_eq!(
        answer.header("content-type"),
        Some("application/vnd.amazon.eventstream")
    );
    assert!(answer.complete);
    answer
}

/// The model streams two calls. The service claims one and posts the result of the other right behind the answer, and
/// the next request delivers it.
#[tokio::test]
async fn a_result_posted_right_behind_a_streamed_call_is_delivered() {
    let provider = Provider::start().await;
    let install = install(&provider);
    let process = install.start().await;
    let mut log = vec![json!({"role": "user", "content": "render both"})];
    provider.reply(Reply::Text("hello".to_owned()));
    let answer = streams(&process, &log).await;
    let owner = answer.header("x-antiphon-owner").unwrap().to_owned();
    let calls = [(FIRST, "a"), (SECOND, "b")];
    let calls = calls.map(|(id, film)| strict_provider::ToolCall::new(id, "render", json!({"film": film})));
    provider.reply(Reply::Calls(calls.to_vec()));
    streams(&process, &log).await;

    // No retry: both are known once the client has the whole answer.
    let posted = process
        .ask(post_with(
            &format!("/ledger/v1/calls/{FIRST}/result"),
            SERVICE,
            json!({"content": "https://e.com/film.mp4"}).to_string().as_bytes(),
        ))
        .await;
    assert_eq!(posted.status(), 200, "{}", posted.text());
    let claim = json!({"call_id": SECOND, "owner": owner}).to_string();
    let granted = process
        .ask(post_with("/ledger/v1/intents", SERVICE, claim.as_bytes()))
        .await;
    assert_eq!(granted.status(), 201, "{}", granted.text());

    let block = |id: &str, film: &str| json!({"type": "tool_use", "id": id, "name": "render", "input": {"film": film}});
    log.push(json!({"role": "assistant", "content": [block(FIRST, "a"), block(SECOND, "b")]}));
    log.push(json!({"role": "user", "content": "and now?"}));
    let answer = streams(&process, &log).await;
    assert_eq!(answer.header("x-antiphon-repair"), Some("restored=1, placeholder=1"));
    let sent: Value = serde_json::from_slice(&provider.last().body).unwrap();
    let result = &sent["messages"][2]["content"][0];
    assert_eq!(
        (&result["tool_use_id"], &result["content"]),
        (&json!(FIRST), &json!("https://e.com/film.mp4"))
    );
}
