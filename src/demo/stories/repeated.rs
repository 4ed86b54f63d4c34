//! A user starts over while a tool runs. The tool runs once, and no mail is sent of which the user may never learn.

use std::io;

use serde_json::{Value, json};
use strict_provider::{Reply, ToolCall};

use super::{messages, send_with, send_without, user};
use crate::{
    demo::{
        client::{Answer, Ask},
        setup::CLIENTS,
        stage::Stage,
    },
    wire::Format,
};

pub(super) const KEY: &str = "demo-alice";
/// The calls of both conversations, and the one of the mail.
const FIRST: &str = "toolu_01Film3rT5yU7iO9pA2s";
const SECOND: &str = "toolu_01Film8kJ6hG4fD2sA9q";
const MAIL: &str = "toolu_01Mail2wE4rT6yU8iO3p";
const RESULT: &str = "film: harbour.mp4, 214 MB";

pub(super) async fn tell(stage: &mut Stage) -> io::Result<()> {
    stage.tell.open_story(
        "6. The user starts over, and the tool runs twice",
        "stripe/ai#402",
        "Alice leaves while her film is rendered, begins a new conversation, and asks for the same film.",
    )?;
    let mut runs = 0;
    for id in [FIRST, SECOND] {
        script_call(stage, id, "film");
        let body = messages(&[user("Render the harbour.")]);
        let called = send_without(stage, Format::Anthropic, &[("x-api-key", KEY)], &body).await?;
        // The tool's own service sees two calls with two ids, and runs both.
        runs += usize::from(called.json()["content"][0]["id"] == id);
    }
    let words =
        format!("The service of the tool (imitated here) sees two calls with two ids: it renders {runs} times.");
    stage.tell.without("", &words)?;
    let failed = runs == 2;

    let owner = start_call(stage, "one", FIRST, "film").await?.1;
    let first = claim(stage, FIRST, &owner).await?;
    let close = "/ledger/v1/sessions/one/close";
    let headers = headers(stage, "one");
    let fields: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    Ask::post(stage.proxy_at, close, &fields, "{}").send().await?;
    let (mut log, owner) = start_call(stage, "two", SECOND, "film").await?;
    let second = claim(stage, SECOND, &owner).await?;
    let words = "The service asks Antiphon before it runs the tool: the second claim is refused, since the film is being \
                 rendered.";
    stage.tell.with(second.status.as_str(), words)?;
    let posted = report(stage, &first.json()).await?;
    log.push(user("Is it done?"));
    let answer = send(stage, "two", &log).await?;
    let body = stage.provider.last_body(KEY);
    let count = String::from_utf8_lossy(&body).matches(RESULT).count();
    let times = if count == 1 {
        "once".to_owned()
    } else {
        format!("{count} times")
    };
    let words = format!("The new conversation contains {RESULT:?} {times}, marked as that of the earlier call.");
    stage.tell.with(answer.status.as_str(), &words)?;

    let owner = start_call(stage, "three", MAIL, "mail").await?.1;
    let mail = claim(stage, MAIL, &owner).await?;
    let words = "A sent mail cannot be taken back. This claim is refused: only the conversation could tell Alice that it \
                 was sent, and she may leave it at any time.";
    stage.tell.with(mail.status.as_str(), words)?;
    let statuses = [&first, &second, &posted, &answer, &mail].map(|answer| answer.status.as_u16());
    stage.count_story(failed, statuses == [201, 409, 200, 200, 403] && count == 1);
    Ok(())
}

fn script_call(stage: &Stage, id: &str, tool: &str) {
    let call = ToolCall::new(id, tool, json!({"scene": "harbour"}));
    stage.provider.reply_to(KEY, Reply::Calls(vec![call]));
}

fn headers(stage: &Stage, session: &str) -> [(&'static str, String); 3] {
    [
        ("x-api-key", KEY.to_owned()),
        ("x-antiphon-client-token", stage.tokens.of_client(CLIENTS[0]).to_owned()),
        ("x-antiphon-session", session.to_owned()),
    ]
}

/// Sends a history through the proxy.
async fn send(stage: &Stage, session: &str, log: &[Value]) -> io::Result<Answer> {
    let headers = headers(stage, session);
    let fields: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    send_with(stage, Format::Anthropic, &fields, &messages(log)).await
}

/// Begins a conversation whose model calls a tool. Returns its history, and the owner of the call.
async fn start_call(stage: &Stage, session: &str, id: &str, tool: &str) -> io::Result<(Vec<Value>, String)> {
    script_call(stage, id, tool);
    let mut log = vec![user("Render the harbour.")];
    let called = send(stage, session, &log).await?;
    log.push(json!({"role": "assistant", "content": called.json()["content"]}));
    Ok((log, called.header("x-antiphon-owner").to_owned()))
}

/// Claims a call as the service of its tool.
async fn claim(stage: &Stage, id: &str, owner: &str) -> io::Result<Answer> {
    let body = json!({"call_id": id, "owner": owner});
    ask_as_service(stage, "/ledger/v1/intents", &body).await
}

/// Reports the result of a claimed run.
async fn report(stage: &Stage, granted: &Value) -> io::Result<Answer> {
    let id = granted["intent"].as_str().unwrap_or_default();
    let body = json!({"claim": granted["claim"], "content": RESULT});
    ask_as_service(stage, &format!("/ledger/v1/intents/{id}/result"), &body).await
}

async fn ask_as_service(stage: &Stage, path: &str, body: &Value) -> io::Result<Answer> {
    let bearer = format!("Bearer {}", stage.tokens.service);
    let headers = [("authorization", bearer.as_str())];
    let answer = Ask::post(stage.proxy_at, path, &headers, &body.to_string())
        .send()
        .await?;
    Ok(answer)
}
